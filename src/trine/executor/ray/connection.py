"""A connection to a Ray cluster: the process of ``driver`` and the requests under way there. It is started when
something is asked, and again after it has ended. Calls may block: nothing here is called from an event loop."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from trine.executor.attempt.remote import EngineRefused, EngineUnreachable

_DRIVER = Path(__file__).with_name("driver.py")
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
_LAST_BYTES = 4096
_NO_TOKEN = "InvalidAuthToken"


class RayUnreachable(EngineUnreachable):
    """Ray cannot be asked now; in a few words, why."""


class RayRefused(EngineRefused):
    """Ray answered, and said no; its own words."""


class RayMissing(RayRefused):
    """There is no Ray in the Python that was to talk to it."""


class RayDiffers(RayRefused):
    """The Ray, or the Python, of the cluster is of another version."""


_ERRORS: dict[str, type[Exception]] = {"missing": RayMissing, "version": RayDiffers, "away": RayUnreachable}


class _Child:
    """One process of the driver, until it ends."""

    def __init__(self, command: list[str], environ: Mapping[str, str], where: dict[str, Any]) -> None:
        with ExitStack() as opened:
            self.said: IO[bytes] = opened.enter_context(tempfile.TemporaryFile())
            self.process = subprocess.Popen(
                command,
                env=dict(environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.said,
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal is for us
            )
            opened.pop_all()  # closed when the process has ended
        self.waiting: dict[int, Future[Any]] = {}
        self.lock = threading.Lock()
        self.why = ""
        """What is to be said of its end, where that is known."""
        self.failure: Exception | None = None
        self.greeted = threading.Event()
        """There is a connection, or there will be none."""
        self._ended = False
        self.write(where)
        threading.Thread(target=self._read, name="trine-ray-answers", daemon=True).start()

    @property
    def runs(self) -> bool:
        return not self._ended

    def write(self, line: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended: so will what waits for it
            self.process.stdin.write(json.dumps(line).encode() + b"\n")
            self.process.stdin.flush()

    def request(self, number: int, line: dict[str, Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        with self.lock:
            if self._ended:
                answer.set_exception(self._end())
                return answer
            self.waiting[number] = answer
            self.write({"id": number, **line})
        return answer

    def end(self, why: str) -> None:
        """End it; the requests that wait for an answer fail with ``why``."""
        self.why = self.why or why
        self.process.kill()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):
                self._answered(json.loads(line))
        self.process.wait()
        with self.lock:
            self._ended = True
            left, self.waiting = self.waiting, {}
            failure = self._end()
            self.said.close()
        self.greeted.set()
        for answer in left.values():
            answer.set_exception(failure)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _answered(self, line: dict[str, Any]) -> None:
        failure = _ERRORS.get(line.get("error", ""), RayRefused)(line.get("said", "")) if "error" in line else None
        if line["id"] == 0:  # whether there is a connection at all
            self.failure = failure
            if failure is None:
                self.greeted.set()
            return
        with self.lock:
            answer = self.waiting.pop(line["id"], None)
        if answer is None:
            return
        if failure is None:
            answer.set_result(line["result"])
        else:
            answer.set_exception(failure)

    def _end(self) -> Exception:
        """With what the waiting requests fail, when it has ended."""
        said = self._last_words()
        if _NO_TOKEN in said and not isinstance(self.failure, RayRefused):
            # Ray tries again and again, reports that it got no answer, and writes the reason to its log only.
            self.failure = RayRefused("the token of the cluster is missing or wrong")
        if self.failure is None:
            lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(" ")]
            why = f": {lines[-1][:200]}" if lines else ""
            self.failure = RayUnreachable(self.why or f"Ray ended the process that talks to it{why}")
        return self.failure

    def _last_words(self) -> str:
        if self.said.closed:
            return ""
        size = os.fstat(self.said.fileno()).st_size
        return os.pread(self.said.fileno(), _LAST_BYTES, max(size - _LAST_BYTES, 0)).decode(errors="replace")


@dataclass
class RayConnection:
    """To the cluster at ``address`` (``HOST:PORT`` of its head, ``ray://HOST:PORT``, empty: that of this machine)."""

    address: str = ""
    token_path: str = ""
    """The file that holds the token of the cluster; empty: as the environment says."""
    python: str = ""
    timeout_s: float = 30.0
    """For an answer; ``connect_s`` for the connection before it."""
    connect_s: float = 120.0
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _child: _Child | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def call(self, do: str, **arguments: Any) -> Any:
        """The answer. ``RayUnreachable`` without one in time, ``RayRefused`` if it was no."""
        child, answer = self._request(do, arguments)
        # A connection takes longer than an answer: Ray is loaded, and its client server starts a process of its own.
        limit_s = self.timeout_s if child.greeted.wait(self.connect_s) else 0.0
        try:
            return answer.result(limit_s)
        except TimeoutError:
            # The head is away, or what is under way there blocks all else: another process may do better.
            why = f"did not answer within {limit_s or self.connect_s:g} s"
            child.end(why)
            raise RayUnreachable(f"Ray {why}") from None

    def post(self, do: str, **arguments: Any) -> Future[Any]:
        """The answer when it comes, however long that takes."""
        return self._request(do, arguments)[1]

    def close(self) -> None:
        """End the process; what is detached in Ray stays."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.end("the connection was closed")
            child.process.wait()

    @property
    def pid(self) -> int:
        """The process that talks to Ray now, 0 if there is none."""
        child = self._child
        return child.process.pid if child is not None and child.runs else 0

    def _request(self, do: str, arguments: dict[str, Any]) -> tuple[_Child, Future[Any]]:
        with self._lock:
            if self._child is None or not self._child.runs:
                self._child = self._start()
            child = self._child
        return child, child.request(next(self._numbers), {"do": do, **arguments})

    def _start(self) -> _Child:
        command = [self.python or sys.executable, "-P", str(_DRIVER)]
        try:
            return _Child(command, self._variables(), {"address": self.address})
        except OSError as error:
            raise RayMissing(f"{command[0]} cannot be run: {error.strerror}") from None

    def _variables(self) -> dict[str, str]:
        """Little, since Ray hands it on; what is meant for Ray is passed on as a whole."""
        kept = {name: value for name, value in self.environ.items() if name in _KEPT or name.startswith("RAY_")}
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.token_path} if self.token_path else {}
        return {**kept, "RAY_USAGE_STATS_ENABLED": "0", **token}
