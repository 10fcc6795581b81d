"""Executors whose nodes all see the state directory: parts read there that they are to stop, with all of their grace,
whether or not the engine answers; what the engine itself can do to end an attempt comes last."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from trine.executor.attempt import rundir
from trine.executor.attempt.remote import AnswerT, RemoteAttempt, RemoteExecutor
from trine.executor.attempt.spec import Site, make_spec
from trine.executor.base import AttemptExited, Handle, JobLease, LaunchFailed, NodeInfo

PART_LOOK_S = 0.2
"""How often parts look whether they are to stop."""
KILLED_RC, CHECKPOINTED_RC = 137, 85


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds."""

    look_s: float = 0.25
    """Between two looks at the files of running attempts."""
    ask_s: float = 2.0
    """Between two questions to the engine."""
    pending_s: float = 60.0
    """How long the engine may keep a job waiting for GPUs that trine gave it."""
    visible_s: float = 5.0
    """How long what is written on one node may take to be seen on another."""
    cancel_s: float = 10.0
    """How long after the end of its grace an attempt is left to end by itself."""


@dataclass
class SharedAttempt(RemoteAttempt):
    """Times are seconds of this process's monotonic clock."""

    requested: Literal["", "preempt", "kill"] = ""
    cancel_due_s: float = math.inf
    """From when on its end is a matter for the engine."""
    over_from_s: float | None = None
    """Since when the engine has nothing running for it, although there is no record of its end."""

    def record(self, **end: Any) -> AttemptExited | LaunchFailed:
        """Put its end on record, and what that means for the caller."""
        rundir.write_exit(str(self.run_dir), end)
        found = self.end()
        assert found is not None, self.run_dir
        return found


SharedT = TypeVar("SharedT", bound=SharedAttempt)


class SharedDirExecutor(RemoteExecutor[SharedT, AnswerT], Generic[SharedT, AnswerT]):
    """Takes up again what runs in ``state_dir``, which all nodes must see."""

    def __init__(
        self,
        state_dir: str | Path,
        nodes: Sequence[NodeInfo],
        times: Times,
        *,
        environ: Mapping[str, str] = os.environ,
        api_url: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(state_dir, nodes, look_s=times.look_s, ask_s=times.ask_s, clock=clock)
        self._times, self._environ, self._api_url = times, environ, api_url

    def pair(self, handle: Handle, co_runner: str) -> None:
        """These engines give a GPU to one job only."""

    def renew(self, handle: Handle, lease_s: float | None) -> None:
        """Not what was given up: it is lost when its lease is over, and never if that is renewed."""
        with self._lock:
            attempt = self._running_one(handle)
            if attempt is not None and not self._is_given_up(attempt):
                super().renew(handle, lease_s)

    def _is_given_up(self, attempt: SharedT) -> bool:
        """The engine does not have it any more, and what its parts had to say of that had time to be seen."""
        from_s = attempt.over_from_s
        return from_s is not None and time.monotonic() >= from_s + self._times.visible_s

    def _make_spec(self, lease: JobLease) -> dict[str, Any]:
        # Where the ranks meet is added when it is submitted; a port is found on the node of the first of them.
        site = Site(part_per_node=True, look_s=PART_LOOK_S, ends_with_parent=True)
        return make_spec(lease, self._environ, 0, self._api_url, "", site)

    def _take_up(self, attempt: SharedT) -> None:
        stop = attempt.read(rundir.STOP)
        super()._take_up(attempt)
        if stop is not None and not attempt.requested:
            attempt.requested = "kill" if stop.get("kill") else "preempt"
            attempt.cancel_due_s = time.monotonic() + float(stop.get("grace_s", 0.0)) + self._times.cancel_s
        self._look.set()

    def _preempt(self, attempt: SharedT, grace_s: float) -> None:
        attempt.requested = attempt.requested or "preempt"
        self._request_stop(attempt, {"grace_s": grace_s}, grace_s)

    def _kill(self, attempt: SharedT) -> None:
        attempt.requested = "kill"
        self._request_stop(attempt, {"grace_s": 0.0, "kill": True}, 0.0)

    def _request_stop(self, attempt: SharedT, stop: dict[str, object], grace_s: float) -> None:
        """The parts read the request in a file: it reaches them with its grace, whether or not the engine answers."""
        try:
            rundir.write_json(str(attempt.run_dir / rundir.STOP), stop)
            rundir.request_stop(str(attempt.run_dir))
            due_s = time.monotonic() + grace_s + self._times.cancel_s
        except OSError:
            due_s = time.monotonic()  # no room for a file: the engine's own way to end a job is left
        attempt.cancel_due_s = min(attempt.cancel_due_s, due_s)
        self._look.set()

    def _stopped_before_start(self, attempt: SharedT) -> None:
        """Nothing of it can begin any more."""
        at_s = self._clock()
        if attempt.requested == "kill":
            end = attempt.record(kind="failed", rc=KILLED_RC, reason="killed before it started", t=at_s)
        else:
            end = attempt.record(kind="preempted", rc=CHECKPOINTED_RC, reason="stopped before it started", t=at_s)
        self._end(attempt, end)
