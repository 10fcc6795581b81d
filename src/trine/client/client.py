"""``Client``: the verbs of a running daemon, for scripts and for the command line."""

from __future__ import annotations

import codecs
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast
from urllib.parse import quote

from trine.client.address import find_address
from trine.client.answers import (
    CollectedAnswer,
    DaemonAnswer,
    ExplanationAnswer,
    HistoryAnswer,
    JobAnswer,
    NodeAnswer,
    QuotaAnswer,
    has_ended,
)
from trine.client.errors import ConnectionBrokenError, NoDaemonError, WaitTimeoutError
from trine.client.transport import Transport
from trine.core.errors import InputError

_POLL_S = 20.0
_PAUSE_S = 0.25
_IN_VAIN = 20
_FORECAST_S = 150.0
"""A forecast may take so long; the daemon gives up before."""


class Client:
    """Finds the daemon by arguments, then ``TRINE_API``, then the state directory. For one thread at a time.

    ``timeout_s`` bounds one request. ``outage_s`` is how long ``wait`` and following a log survive a daemon that is
    being restarted. Errors are ``InputError`` and those of ``trine.client.errors``.
    """

    def __init__(
        self,
        api: str | None = None,
        token: str | None = None,
        state: str | Path | None = None,
        *,
        timeout_s: float = 30.0,
        outage_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._given, self._timeout_s = (api, token, state), timeout_s
        self._outage_s, self._clock, self._sleep = outage_s, clock, sleep
        self._transport = self._connect()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; the client can be used again all the same."""
        self._transport.close()

    def submit(self, spec: Mapping[str, Any] | Sequence[Mapping[str, Any]], request_id: str = "") -> list[str]:
        """Submit one job or several, all or none, and return their ids, in order.

        When the connection breaks it is tried again with the same ``request_id`` (one is made up if none is given), so
        nothing is submitted twice.
        """
        try:
            content = json.dumps(spec, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(
                "submit", f"a value that JSON has no form for ({error})", "texts and finite numbers"
            ) from None
        if not all("!" <= letter <= "~" for letter in request_id):
            raise InputError("request id", repr(request_id), "visible ASCII characters")
        answer = self._transport.post("/v1/jobs", content, request_id or os.urandom(16).hex())
        return [str(job_id) for job_id in answer["ids"]]

    def jobs(self, states: Iterable[str] = (), limit: int = 1000, *, user: str = "", name: str = "") -> list[JobAnswer]:
        """Jobs in one of ``states`` (all that have not ended, if none is given), those that hold GPUs first.

        ``user`` and ``name`` choose among them; ``*`` and ``?`` in a name stand for any text and any character.
        """
        query = {"limit": limit, **_chosen(states, user, name)}
        return cast(list[JobAnswer], self._transport.get("/v1/jobs", query))

    def count(self, states: Iterable[str] = (), *, user: str = "", name: str = "") -> int:
        """How many jobs ``jobs`` would give without a limit."""
        return int(self._transport.get("/v1/jobs/count", _chosen(states, user, name))["count"])

    def job(self, job_id: str) -> JobAnswer:
        return cast(JobAnswer, self._transport.get(_job(job_id)))

    def explain(self, job_id: str) -> ExplanationAnswer:
        """Why the job waits or runs where it does, what would change it, and its story."""
        return cast(ExplanationAnswer, self._transport.get(_job(job_id, "explain")))

    def cancel(self, job_id: str) -> JobAnswer:
        return cast(JobAnswer, self._transport.post(_job(job_id, "cancel")))

    def hold(self, job_id: str) -> JobAnswer:
        return cast(JobAnswer, self._transport.post(_job(job_id, "hold")))

    def release(self, job_id: str) -> JobAnswer:
        return cast(JobAnswer, self._transport.post(_job(job_id, "release")))

    def set_priority(self, job_id: str, priority: float) -> JobAnswer:
        """Give a job that has not ended another priority; users within what its queue allows."""
        return cast(JobAnswer, self._transport.post(_job(job_id, "priority"), json.dumps({"priority": priority})))

    def quotas(self) -> list[QuotaAnswer]:
        """How many GPUs queues and users may hold at most."""
        return cast(list[QuotaAnswer], self._transport.get("/v1/quotas"))

    def set_quotas(self, quotas: Mapping[str, int | str | None]) -> list[QuotaAnswer]:
        """Change how many GPUs ``user:NAME`` or ``queue:NAME`` may hold at most, all of them or none.

        ``None``: no limit, ``default``: as configured. Jobs that run go on."""
        return cast(list[QuotaAnswer], self._transport.post("/v1/quotas", json.dumps({"quotas": dict(quotas)})))

    def history(
        self, since_s: float | None = None, until_s: float | None = None, *, user: str = "", state: str = ""
    ) -> Iterator[HistoryAnswer]:
        """Jobs that ended from ``since_s`` on and before ``until_s`` (Unix seconds), in order of submission."""
        given = {"since_s": since_s, "until_s": until_s, "user": user or None, "state": state or None}
        query = {key: value if isinstance(value, str) else f"{value:.3f}" for key, value in given.items() if value}
        last: dict[str, str] = {}
        while page := cast(list[HistoryAnswer], self._transport.get("/v1/history", query | last)):
            yield from page
            last = {"after": page[-1]["id"]}

    def nodes(self) -> list[NodeAnswer]:
        return cast(list[NodeAnswer], self._transport.get("/v1/nodes"))

    def drain(self, node: str, reason: str = "", gpus: Sequence[int] = ()) -> NodeAnswer:
        """Start nothing more on this node, or only on those of its GPUs that have these indices."""
        body = {"reason": reason} | ({"gpus": list(gpus)} if gpus else {})
        return cast(NodeAnswer, self._transport.post(_node(node, "drain"), json.dumps(body)))

    def undrain(self, node: str, gpus: Sequence[int] = ()) -> NodeAnswer:
        """End a drain: of these GPUs, or of the node and of every GPU of it."""
        body = json.dumps({"gpus": list(gpus)}) if gpus else ""
        return cast(NodeAnswer, self._transport.post(_node(node, "undrain"), body))

    def collect(self, dry_run: bool = False) -> CollectedAnswer:
        """Remove what the daemon keeps no longer now, not within the hour; ``dry_run``: only say what that would be."""
        path = "/v1/gc?dry_run=true" if dry_run else "/v1/gc"
        return cast(CollectedAnswer, self._transport.post(path))

    def daemon(self) -> DaemonAnswer:
        return cast(DaemonAnswer, self._transport.get("/v1/daemon"))

    def predictions(self) -> dict[str, Any]:
        """When jobs will start and end: median and 80 % interval, and why not sooner. The first may take a while."""
        return cast(dict[str, Any], self._transport.get("/v1/predictions", timeout_s=_FORECAST_S))

    def whatif(self, changes: Sequence[str]) -> dict[str, Any]:
        """What changes such as ``policy las`` or ``add 2x8`` would do to every job; nothing is changed."""
        body = json.dumps({"changes": list(changes)})
        return cast(dict[str, Any], self._transport.post("/v1/whatif", body, timeout_s=_FORECAST_S))

    def dashboard_url(self) -> str:
        """Where a browser reaches the daemon; empty if the daemon does not say."""
        return self.daemon().get("url", "")

    def login_code(self) -> str:
        """A code that logs a browser in as the caller: good once, for five minutes."""
        return str(self._transport.post("/v1/session/code")["code"])

    def end_sessions(self) -> int:
        """End all browser sessions of the caller; returns how many there were."""
        return int(self._transport.post("/v1/session/end")["ended"])

    def wait(self, job_id: str, timeout_s: float | None = None) -> JobAnswer:
        """The job as it ended. Raises ``WaitTimeoutError`` if it has not after ``timeout_s``."""
        deadline_s = None if timeout_s is None else self._clock() + timeout_s
        reached = False
        while True:
            left_s = _POLL_S if deadline_s is None else max(0.0, min(_POLL_S, deadline_s - self._clock()))
            job = self._patiently(partial(self._poll, job_id, left_s), reached)
            reached = True
            if has_ended(job):
                return job
            if deadline_s is not None and self._clock() >= deadline_s:
                raise WaitTimeoutError(job, timeout_s or 0.0)

    def _poll(self, job_id: str, timeout_s: float) -> JobAnswer:
        query = {"timeout_s": f"{timeout_s:.3f}"}
        return cast(JobAnswer, self._transport.get(_job(job_id, "wait"), query, timeout_s + _POLL_S))

    def logs(self, job_id: str, follow: bool = False, *, rank: int = 0, tail: int | None = None) -> Iterator[str]:
        """Lines of the log of one rank without their ends, up to now or, with ``follow``, until the job ended.

        ``tail`` begins with so many of the lines that are there already.
        """
        return log_lines(self.log_bytes(job_id, follow=follow, rank=rank, tail=tail))

    def log_bytes(
        self, job_id: str, offset: int = 0, follow: bool = False, *, rank: int = 0, tail: int | None = None
    ) -> Iterator[bytes]:
        """The log of one rank from byte ``offset`` on, or its last ``tail`` lines, in pieces as they arrive."""
        if tail is not None:
            where = {"tail": tail, "rank": rank}
            offset = int(self._transport.get(_job(job_id, "log/offset"), where)["offset"])
        if not follow:
            yield from self._transport.stream(_job(job_id, "log"), _log_query(offset, rank), _POLL_S)
            return
        ended, in_vain = has_ended(self.job(job_id)), 0
        while True:
            begin = offset
            try:
                for piece in self._tail(job_id, offset, rank, follow=not ended):
                    offset += len(piece)
                    yield piece
                if ended:
                    return
            except (NoDaemonError, ConnectionBrokenError):
                in_vain = in_vain + 1 if offset == begin else 0
                if in_vain > _IN_VAIN:
                    raise
            if not ended and offset == begin:
                self._sleep(_PAUSE_S)
            # Asked after reading: once it has ended, one more reading brings the rest.
            ended = has_ended(self._patiently(partial(self.job, job_id), reached=True))

    def _tail(self, job_id: str, offset: int, rank: int, follow: bool) -> Iterator[bytes]:
        """One connection's worth of log; a quiet one ends here after a while, so that a dead one is noticed."""
        query = _log_query(offset, rank) | ({"follow": "true"} if follow else {})
        try:
            yield from self._transport.stream(_job(job_id, "log"), query, _POLL_S)
        except TimeoutError:
            return

    def _patiently(self, ask: Callable[[], JobAnswer], reached: bool) -> JobAnswer:
        """Ask until there is an answer; a daemon that was ``reached`` before may be away for a while."""
        gone_since_s = self._clock()
        while True:
            try:
                return ask()
            except (NoDaemonError, ConnectionBrokenError) as error:
                reached = reached or isinstance(error, ConnectionBrokenError)
                if not reached or self._clock() - gone_since_s >= self._outage_s:
                    raise
            self._sleep(_PAUSE_S)
            self._reconnect()

    def _connect(self) -> Transport:
        return Transport(find_address(*self._given), self._timeout_s, self._sleep)

    def _reconnect(self) -> None:
        """A daemon that was restarted may have another address."""
        self._transport.close()
        try:
            self._transport = self._connect()
        except NoDaemonError:
            return


def _chosen(states: Iterable[str], user: str, name: str) -> dict[str, str | int | list[str]]:
    """Which jobs; what is not said is left out."""
    wanted: dict[str, str | int | list[str]] = {"state": sorted(states), "user": user, "name": name}
    return {key: value for key, value in wanted.items() if value}


def _log_query(offset: int, rank: int) -> dict[str, str | int]:
    return {"offset": offset, "rank": rank} if rank else {"offset": offset}


def _job(job_id: str, verb: str = "") -> str:
    return f"/v1/jobs/{quote(str(job_id), safe='')}" + (f"/{verb}" if verb else "")


def _node(name: str, verb: str) -> str:
    return f"/v1/nodes/{quote(name, safe='')}/{verb}"


def log_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Bytes of a log as they arrive, as whole lines without their ends; what is no UTF-8 is replaced."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + decoder.decode(piece)).split("\n")
        yield from (line.removesuffix("\r") for line in whole)
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest
