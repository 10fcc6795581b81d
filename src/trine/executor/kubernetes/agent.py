"""The first process of a pod: asks the daemon what to run, runs the part of its node in a directory of its own, and
takes news both ways. Standard library only, so that images need trine's files and no package besides.

The part itself ends its ranks when the lease is over, whether or not the daemon is reached. How it ended is left as the
termination message of the container, which Kubernetes keeps; so the daemon may be away at that time."""

# ruff: noqa: PTH118, PTH123 - light, as all that runs beside a job

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import ssl
import sys
import tempfile
import time
from urllib.parse import urlsplit

from trine.executor.attempt import rundir
from trine.executor.attempt.clocks import SharedClock, difference_s
from trine.executor.attempt.part import CHECKPOINTED_EXIT, KILLED_RC, parts_of, prepare_process
from trine.executor.attempt.rank import log_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ANSWER_S = 5.0
"""How long the daemon may take to answer."""
FRESH_S = 2.0
"""An answer that took longer renews no lease: the daemon counts from its side."""
_CHECK_IN_S = 300.0
"""How long the daemon may be away when a pod starts."""
_FLUSH_S = 15.0
"""How long is tried to bring the rest of the logs."""
_CHUNK_BYTES = 48 << 10
_FIRST_S, _LEAST_S = 0.2, 0.05
_LOOKS_PER_LEASE = 8
_REFUSED = (400, 401, 404, 422)


class Daemon:
    """The daemon's API as one attempt sees it, over one connection that is opened again when it breaks."""

    def __init__(self, url: str, token: str, authorities: str) -> None:
        self._url, self._token = urlsplit(url), token
        self._context = ssl.create_default_context(cadata=authorities or None) if self._url.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    def exchange(self, news: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; ``None`` if there was none now. ``{"over": True}``: there is nothing to run (any more)."""
        try:
            return self._post("/v1/attempt/exchange", news)
        except (OSError, http.client.HTTPException, ValueError):
            self._close()
            return None

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        if self._connection is None:
            self._connection = self._connect()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request("POST", f"{self._url.path.rstrip('/')}{path}", json.dumps(body).encode(), headers)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status in _REFUSED:
            return {"over": True}
        if answer.status != http.client.OK:
            return None
        found = json.loads(data)
        return found if isinstance(found, dict) else None

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=_ANSWER_S, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=_ANSWER_S)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Agent:
    """One part of an attempt in its pod."""

    def __init__(self, daemon: Daemon, part: int, address: str) -> None:
        self._daemon, self._part = daemon, part
        self.instance = os.urandom(12).hex()
        self._who = {"part": part, "instance": self.instance, "address": address}
        self._run_dir = ""
        self._ranks: list[int] = []
        self._sent: dict[int, int] = {}
        """Bytes of each log that the daemon has."""
        self._lease: dict[str, Any] = {}
        self._every_s = _FIRST_S
        self._clock = SharedClock()
        self._daemon_ahead_s, self._shortest_s = 0.0, float("inf")
        """How far the daemon's clock is ahead of that of this machine, by the exchange that took the shortest time."""
        self.ended: dict[str, Any] = {}
        """How the part ended, if it did before it began."""

    # -- from nothing to a running part -------------------------------------------------------------------------------

    def check_in(self) -> dict[str, Any] | None:
        """What to run, as soon as the first part is there, too; ``None``: nothing, and ``ended`` says why."""
        until_s = time.monotonic() + _CHECK_IN_S
        while time.monotonic() < until_s:
            answer = self._ask(self._who)
            if answer is not None and answer.get("over"):
                self.ended = _unlaunched("its daemon knows nothing of it (any more)")
                return None
            if answer is not None and "spec" in answer:
                return answer
            number = signal.sigtimedwait(_SIGNALS, _FIRST_S)
            if number is not None and number.si_signo != signal.SIGCHLD:
                self.ended = {"codes": {}, "asked": "preempt"}
                return None
        self.ended = _unlaunched(f"its daemon was not reached for {_CHECK_IN_S:.0f} s")
        return None

    def start(self, answer: dict[str, Any]) -> int:
        """Make the directory of the attempt and start the part there; its process id."""
        spec = answer["spec"]
        spec["env"] = {**os.environ, **spec["env"], "TRINE_API": os.environ.get("TRINE_API", "")}
        nodes = parts_of(spec)[self._part]
        self._ranks = [rank for rank, placed in enumerate(spec["ranks"]) if placed["node"] in nodes]
        root = tempfile.mkdtemp(prefix="trine-")
        self._run_dir = os.path.join(root, str(spec["job"]), str(spec["epoch"]))
        os.makedirs(os.path.join(self._run_dir, rundir.PROGRESS))  # noqa: PTH103
        rundir.write_json(self._file(rundir.SPEC), spec)
        self._apply(answer, fresh=True)
        held = spec.get("held", {}).get(nodes[0], [])
        variables = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(held))))} if held else os.environ
        command = [sys.executable, "-m", "trine.executor.attempt.part", self._run_dir, nodes[0]]
        # Signals wait until the part is ready for them: a request to stop may come from its first moment on.
        return os.posix_spawn(sys.executable, command, variables, setsigmask=_SIGNALS)

    # -- while it runs -------------------------------------------------------------------------------------------------

    def follow(self, pid: int) -> dict[str, Any]:
        """Until the part has ended; how it did."""
        while not os.waitpid(pid, os.WNOHANG)[0]:
            number = signal.sigtimedwait(_SIGNALS, self._every_s)
            asked = number is not None and number.si_signo != signal.SIGCHLD
            if asked or number is None:
                self._exchange(pid)
            if asked:
                os.kill(pid, signal.SIGTERM)  # whatever the daemon says, or does not say
        end = rundir.read_json(self._file(rundir.part_file(self._part, "end")))
        up = rundir.read_json(self._file(rundir.part_file(self._part, "up")))
        self._flush()
        if end is not None and (failure := end.get("failure")):
            end["failure"] = [*failure[:2], failure[2] + self._daemon_ahead_s]
        return (end or {"codes": {}, "lost": True}) | ({"up": up["t"]} if up else {})

    def _ask(self, news: dict[str, Any]) -> dict[str, Any] | None:
        """Exchange news, and compare clocks."""
        before_s = self._clock.now_s()
        answer, after_s = self._daemon.exchange(news), self._clock.now_s()
        theirs_s = (answer or {}).get("now_s")
        if isinstance(theirs_s, int | float) and after_s - before_s < self._shortest_s:
            self._shortest_s = after_s - before_s
            self._daemon_ahead_s = difference_s(before_s, theirs_s, after_s)
        return answer

    def _exchange(self, pid: int) -> None:
        """Take news both ways, if the daemon can be reached."""
        sent_s = time.monotonic()
        answer = self._ask(self._news())
        if answer is None:
            return
        if answer.get("over"):  # it was given up, and its GPUs are given on
            answer = {"stop": {"kill": True}}
        if self._apply(answer, fresh=time.monotonic() - sent_s < FRESH_S):
            os.kill(pid, signal.SIGTERM)

    def _news(self) -> dict[str, Any]:
        news: dict[str, Any] = dict(self._who)
        for name, file in (("up", rundir.part_file(self._part, "up")), ("halt", rundir.HALT)):
            if (found := rundir.read_json(self._file(file))) is not None:
                news[name] = found
        if (halt := news.get("halt")) and halt["rank"] in self._ranks:
            news["halt"] = {**halt, "t": halt["t"] + self._daemon_ahead_s}
        if self._part == 0 and (port := rundir.read_json(self._file(rundir.PORT))):
            news["port"] = port["port"]
        if 0 in self._ranks and (progress := rundir.read_job_json(rundir.progress_file(self._run_dir))):
            news["progress"] = progress
        logs = {str(rank): chunk for rank in self._ranks if (chunk := self._log_chunk(rank))}
        return news | ({"logs": logs} if logs else {})

    def _log_chunk(self, rank: int) -> list[Any] | None:
        offset = self._sent.get(rank, 0)
        try:
            with open(log_of(self._run_dir, rank), "rb") as log:
                log.seek(offset)
                data = log.read(_CHUNK_BYTES)
        except OSError:
            return None
        return [offset, base64.b64encode(data).decode()] if data else None

    def _apply(self, answer: dict[str, Any], fresh: bool) -> bool:
        """Put what the daemon says where the part reads it; whether it should look at once."""
        self._note_logs(answer)
        before = [rundir.read_json(self._file(name)) for name in (rundir.STOP, rundir.HALT)]
        lease, stop, halt = answer.get("lease") or {}, answer.get("stop"), answer.get("halt")
        if lease and fresh and lease != self._lease:
            self._lease = lease
            rundir.write_json(self._file(rundir.LEASE), lease, 0o644)
        if stop is not None and stop != before[0]:
            rundir.write_json(self._file(rundir.STOP), stop)
            rundir.request_stop(self._run_dir)
        if halt is not None and before[1] is None:
            rundir.claim(self._run_dir, halt, rundir.HALT)
        if (port := answer.get("port")) is not None:
            rundir.claim(self._run_dir, port, rundir.PORT)
        self._time_exchanges(answer)
        return (stop is not None and stop != before[0]) or (halt is not None and before[1] is None)

    def _time_exchanges(self, answer: dict[str, Any]) -> None:
        often_s = [float(answer.get("every_s", self._every_s))]
        if isinstance(lease_s := self._lease.get("lease_s"), int | float):
            often_s.append(lease_s / _LOOKS_PER_LEASE)
        if rundir.read_json(self._file(rundir.part_file(self._part, "up"))) is None:
            often_s.append(_FIRST_S)
        self._every_s = max(min(often_s), _LEAST_S)

    def _flush(self) -> None:
        """Bring what the ranks wrote last."""
        until_s = time.monotonic() + _FLUSH_S
        while time.monotonic() < until_s:
            answer = self._ask(self._news())
            if answer is None:
                time.sleep(_FIRST_S)
                continue
            self._note_logs(answer)
            if answer.get("over") or not any(self._log_chunk(rank) for rank in self._ranks):
                return

    def _note_logs(self, answer: dict[str, Any]) -> None:
        self._sent.update({int(rank): int(count) for rank, count in answer.get("logs", {}).items()})

    def _file(self, name: str) -> str:
        return os.path.join(self._run_dir, name)


def _unlaunched(reason: str) -> dict[str, Any]:
    return {"codes": {}, "unlaunched": {"reason": reason, "host": True}}


def exit_code(end: dict[str, Any]) -> int:
    """What ``kubectl get pods`` shows: that of the first rank that did not end well."""
    if end.get("unlaunched"):
        return 126
    codes = [int(code) for _, code in sorted(end["codes"].items(), key=lambda item: int(item[0]))]
    if not codes:
        return CHECKPOINTED_EXIT if end.get("asked") else KILLED_RC
    return next((code for code in codes if code), 0)


def main() -> int:
    prepare_process()
    variables = os.environ
    daemon = Daemon(variables["TRINE_API"], variables["TRINE_ATTEMPT_TOKEN"], variables.get("TRINE_API_CA", ""))
    agent = Agent(daemon, int(variables["TRINE_PART"]), variables.get("TRINE_ADDRESS", ""))
    message = variables["TRINE_END"]
    answer = agent.check_in()
    end = agent.ended if answer is None else agent.follow(agent.start(answer))
    end["instance"] = agent.instance
    with open(message, "w", encoding="utf-8") as file:
        file.write(json.dumps(end))
    return exit_code(end)


if __name__ == "__main__":
    sys.exit(main())
