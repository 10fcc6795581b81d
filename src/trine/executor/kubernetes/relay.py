"""What the agents in pods and the SDK exchange with the daemon, in place of a shared file system. Here an attempt keeps
its directory, below the daemon's state directory; the agent of each pod has a copy of what its part needs, and brings
what its part wrote.

No HTTP here: the daemon's API calls ``exchange`` and ``agree`` with a token and the body of a request."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trine.executor.attempt import rundir
from trine.executor.attempt.part import parts_of
from trine.executor.attempt.rank import log_of
from trine.executor.attempt.state_dir import StateDir
from trine.executor.base import Handle

EXCHANGES_PER_S = 200
"""How many exchanges all agents together may make in a second; with more of them each comes less often."""
_LONGEST_REPORT_BYTES = 16 << 10


class TokenKey:
    """Makes and checks the tokens of attempts. One is valid for its attempt alone, and for as long as that runs; only
    the key is kept."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, handle: Handle) -> str:
        name = base64.urlsafe_b64encode(f"{handle.job_id}/{handle.epoch}".encode()).decode().rstrip("=")
        return f"{name}.{self._digest(handle)}"

    def handle(self, token: str) -> Handle | None:
        """The attempt that a token is of; ``None`` if it is no token of ours."""
        name, _, digest = token.partition(".")
        try:
            job_id, _, epoch = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode().rpartition("/")
            handle = Handle(job_id, int(epoch))
        except (binascii.Error, ValueError):
            return None
        return handle if hmac.compare_digest(digest.encode(), self._digest(handle).encode()) else None

    def _digest(self, handle: Handle) -> str:
        return hmac.new(self._key, f"{handle.job_id}/{handle.epoch}".encode(), hashlib.sha256).hexdigest()


class Relay:
    """Safe to call from any thread. ``given`` is called before an agent is given a lease that it has not seen, or that
    its part has not begun to count: from that moment on the part may run for as long as the lease says."""

    def __init__(self, state: StateDir, key: TokenKey, given: Callable[[Handle], None], every_s: float = 1.0) -> None:
        self._state, self._key, self._given, self._every_s = state, key, given, every_s
        self._lock = threading.Lock()
        self._agents: dict[tuple[Handle, int], _Agent] = {}
        self._agreements: dict[Handle, _Agreement] = {}

    def exchange(self, token: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """From an agent: what its part wrote; to it: lease, requests to stop, what other parts wrote. ``None``: the
        token is of no attempt that is on record."""
        handle = self._running(token)
        part = request.get("part")
        if handle is None or not isinstance(part, int):
            return None
        run_dir = str(self._state.run_dir(handle))
        spec = rundir.read_json(os.path.join(run_dir, rundir.SPEC))  # noqa: PTH118
        if spec is None or not 0 <= part < len(parts_of(spec)):
            return None
        with self._lock:
            if rundir.read_json(_file(run_dir, rundir.EXIT)) is not None or not self._is_owner(run_dir, part, request):
                return {"over": True}
            agent = self._agents.setdefault((handle, part), _Agent())
            agent.heard_s = time.monotonic()
            self._note(run_dir, spec, part, request)
            answer = self._answer(run_dir, spec, part, request)
            renewal, agent.renewal = agent.renewal, answer["lease"].get("renewal")
        if "up" not in request or renewal != agent.renewal:
            self._given(handle)  # without the lock: it may take others
        return answer

    def agree(self, token: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """From a rank: up to which step it goes without asking again, and whether it was asked to stop. To it: after
        which step all ranks leave, once that is decided."""
        handle = self._running(token)
        rank, done, ahead = (request.get(name) for name in ("rank", "done", "ahead"))
        if handle is None or not all(isinstance(value, int) for value in (rank, done, ahead)):
            return None
        with self._lock:
            agreement = self._agreements.get(handle) or _Agreement(
                _file(str(self._state.run_dir(handle)), "agree.json")
            )
            self._agreements[handle] = agreement
            return {"stop_at": agreement.leave(int(rank), int(done), int(ahead), request.get("asked") is True)}  # type: ignore[arg-type]

    def heard_s(self, handle: Handle, part: int) -> float:
        """When an agent was last heard of, on the monotonic clock."""
        with self._lock:
            agent = self._agents.get((handle, part))
            return agent.heard_s if agent else float("-inf")

    def forget(self, handle: Handle) -> None:
        with self._lock:
            self._agreements.pop(handle, None)
            self._agents = {key: agent for key, agent in self._agents.items() if key[0] != handle}

    def _running(self, token: str) -> Handle | None:
        handle = self._key.handle(token)
        return handle if handle is not None and self._state.marker(handle).exists() else None

    def _is_owner(self, run_dir: str, part: int, request: Mapping[str, Any]) -> bool:
        """A part is run by the agent that came first; a container that is started a second time finds it taken."""
        instance, name = str(request.get("instance", "")), rundir.part_file(part)
        if rundir.claim(run_dir, {"instance": instance, "address": str(request.get("address", ""))}, name):
            return True
        return (rundir.read_json(_file(run_dir, name)) or {}).get("instance") == instance

    # -- what an agent brings ----------------------------------------------------------------------------------------

    def _note(self, run_dir: str, spec: dict[str, Any], part: int, request: Mapping[str, Any]) -> None:
        ranks = _ranks_of(spec, part)
        if (
            isinstance(up := request.get("up"), dict)
            and not Path(_file(run_dir, rundir.part_file(part, "up"))).exists()
        ):
            rundir.write_json(_file(run_dir, rundir.part_file(part, "up")), {"t": float(up.get("t", 0.0))})
        if isinstance(port := request.get("port"), int) and part == 0:
            rundir.claim(run_dir, {"port": port}, rundir.PORT)
        if isinstance(halt := request.get("halt"), dict):
            self._note_failure(run_dir, spec, halt)
        if 0 in ranks and isinstance(progress := request.get("progress"), dict):
            _write_report(rundir.progress_file(run_dir), progress)
        for name, chunk in (request.get("logs") or {}).items():
            if name.isdecimal() and int(name) in ranks:
                _write_log(run_dir, int(name), int(spec["epoch"]), chunk)

    def _note_failure(self, run_dir: str, spec: dict[str, Any], halt: dict[str, Any]) -> None:
        """A failure after an order to stop is none where there are several ranks: its peers have left."""
        ordered = rundir.read_json(_file(run_dir, rundir.STOP)) is not None and len(spec["ranks"]) > 1
        rank, code, at_s = halt.get("rank"), halt.get("rc"), halt.get("t")
        if not ordered and isinstance(rank, int) and isinstance(code, int):
            when = {"t": at_s} if isinstance(at_s, int | float) else {}
            rundir.claim(run_dir, {"rank": rank, "rc": code, **when}, rundir.HALT)

    # -- answers to agents -------------------------------------------------------------------------------------------

    def _answer(self, run_dir: str, spec: dict[str, Any], part: int, request: Mapping[str, Any]) -> dict[str, Any]:
        often_s = max(self._every_s, len(self._agents) / EXCHANGES_PER_S)
        lease = rundir.read_json(_file(run_dir, rundir.LEASE)) or {}
        answer: dict[str, Any] = {
            "now_s": time.time(),
            "lease": lease,
            "every_s": often_s,
            "logs": _log_counts(run_dir, _ranks_of(spec, part)),
        }
        for name, file in (("stop", rundir.STOP), ("halt", rundir.HALT), ("port", rundir.PORT)):
            if (found := rundir.read_json(_file(run_dir, file))) is not None:
                answer[name] = found
        first = rundir.read_json(_file(run_dir, rundir.part_file(0))) or {}
        if "up" not in request and first.get("address"):
            answer["spec"] = {**spec, "addresses": {spec["placement"][0][0]: first["address"]}}
        return answer


class _Agent:
    """What is known of the agent of one part, as long as this process lives."""

    def __init__(self) -> None:
        self.heard_s = float("-inf")
        self.renewal: object = None
        """The lease that it was given last."""


class _Agreement:
    """After which step all ranks of an attempt leave. One rank after the other is heard, so none is past the step that
    is decided: each has said how far it goes before it went there."""

    def __init__(self, path: str) -> None:
        self._path = path
        kept = rundir.read_json(path) or {}
        self._horizons: dict[str, int] = kept.get("horizons", {})
        self._stop_at: int | None = kept.get("stop_at")

    def leave(self, rank: int, done: int, ahead: int, asked: bool) -> int | None:
        if self._stop_at is None:
            if asked:
                self._stop_at = max([done, *self._horizons.values()])
            else:
                self._horizons[str(rank)] = done + max(ahead, 1)
            # On disk before the answer: a daemon that is started again must not decide for an earlier step.
            rundir.write_json(self._path, {"horizons": self._horizons, "stop_at": self._stop_at})
        return self._stop_at


def _ranks_of(spec: dict[str, Any], part: int) -> list[int]:
    return [i for i, rank in enumerate(spec["ranks"]) if rank["node"] in parts_of(spec)[part]]


def _file(run_dir: str, name: str) -> str:
    return os.path.join(run_dir, name)  # noqa: PTH118


def _write_report(path: str, report: dict[str, Any]) -> None:
    # A report that is brought again is no news: the file stays as it is.
    if len(json.dumps(report)) <= _LONGEST_REPORT_BYTES and report != rundir.read_job_json(path):
        rundir.write_json(path, report, 0o644)


def _log_base(run_dir: str, rank: int) -> int | None:
    """Where this attempt's part of a rank's log begins."""
    found = rundir.read_json(_file(run_dir, f"log-{rank}.json"))
    return None if found is None else int(found["base"])


def _log_counts(run_dir: str, ranks: Sequence[int]) -> dict[str, int]:
    """How many bytes of each rank's log of this attempt are here."""
    bases = {rank: base for rank in ranks if (base := _log_base(run_dir, rank)) is not None}
    return {str(rank): max(_size(log_of(run_dir, rank)) - base, 0) for rank, base in bases.items()}


def _write_log(run_dir: str, rank: int, epoch: int, chunk: Any) -> None:
    """``chunk``: the place of the first byte in the log of this attempt, and the bytes in base64. They are put where
    they belong, so that what comes twice does no harm; what would leave a gap is not taken."""
    try:
        offset, data = int(chunk[0]), base64.b64decode(chunk[1])
    except (TypeError, ValueError, IndexError, KeyError):
        return
    path, base = log_of(run_dir, rank), _log_base(run_dir, rank)
    if base is None:
        before = _size(path)
        mark = time.strftime(f"\n--- attempt {epoch}, %Y-%m-%dT%H:%M:%SZ ---\n", time.gmtime()) if before else ""
        _write_at(path, before, mark.encode())
        rundir.claim(run_dir, {"base": before + len(mark)}, f"log-{rank}.json")
        base = _log_base(run_dir, rank)
    if base is not None and 0 <= offset <= _size(path) - base:
        _write_at(path, base + offset, data)


def _write_at(path: str, place: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while data:
            written = os.pwrite(descriptor, data, place)
            data, place = data[written:], place + written
    finally:
        os.close(descriptor)


def _size(path: str) -> int:
    try:
        return Path(path).lstat().st_size
    except FileNotFoundError:
        return 0
