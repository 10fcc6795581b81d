"""The local executor: runs leases as processes of this machine, on its own GPUs or on virtual nodes.

Every job has a supervisor of its own that outlives this process; a new executor on the same state directory finds
them again. Which job goes where is decided elsewhere."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trine.core.cluster import Cluster
from trine.core.params import param
from trine.executor.attempt import rundir
from trine.executor.attempt.executor import AttemptExecutor
from trine.executor.attempt.processes import is_same
from trine.executor.attempt.spec import make_spec
from trine.executor.base import (
    AttemptExited,
    AttemptStarted,
    Capabilities,
    Handle,
    JobLease,
    LaunchFailed,
    NodeInfo,
)
from trine.executor.faults import describe
from trine.executor.local.attempt import Attempt
from trine.executor.local.inventory import discover, nodes_of
from trine.executor.local.launch import cgroup_name, port_for, send_signal, spawn_supervisor
from trine.executor.watch import Watch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalEngine:
    """Jobs as processes of this machine, on its own GPUs or on virtual nodes."""

    name: ClassVar[str] = "local"
    cgroups: bool = param(True, "one control group per job, where this user may make one")
    progress_s: float = param(1.0, "seconds between two looks at what running jobs report", minimum=0.01)
    reserve_bytes: int | None = param(
        None, "bytes that must be free on the disk of the state directory for a job to start", minimum=0
    )

    def find_nodes(self, described: Cluster | None) -> list[NodeInfo]:
        return discover() if described is None else nodes_of(described)

    def capabilities(self, nodes: Sequence[NodeInfo]) -> Capabilities:  # noqa: ARG002 - alike everywhere
        # Root becomes the user whose job it is, with that user's rights only; any other account runs all as itself.
        return Capabilities(exact_gpus=True, shares_gpus=True, separates_users=os.geteuid() == 0)

    def open(self, state_dir: Path, nodes: Sequence[NodeInfo]) -> LocalExecutor:
        return LocalExecutor(
            state_dir,
            nodes,
            cgroups=self.cgroups,
            progress_s=self.progress_s,
            reserve_bytes=self.reserve_bytes,
        )


ENGINE = LocalEngine


class LocalExecutor(AttemptExecutor[Attempt]):
    """Runs jobs on ``nodes``, all of which are this machine; takes up again what runs in ``state_dir``.

    ``environ`` is where jobs inherit a few harmless variables from, ``cordoned`` the nodes (with reasons) that take no
    jobs, ``reserve_bytes`` what must be free on the disk of ``state_dir`` for a job to start (by default 64 MiB or 1 %
    of the disk, whichever is smaller)."""

    def __init__(
        self,
        state_dir: str | Path,
        nodes: Sequence[NodeInfo],
        *,
        api_url: str = "",
        cordoned: Mapping[str, str] | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        cgroups: bool = True,
        progress_s: float = 1.0,
        reserve_bytes: int | None = None,
    ) -> None:
        super().__init__(state_dir, nodes, clock=clock, cordoned=cordoned, reserve_bytes=reserve_bytes)
        self._api_url, self._environ, self._cgroups = api_url, environ, cgroups
        self._watch = Watch(self._look_at_all, self._any_running, progress_s)
        self._adopt_all()

    def close(self) -> None:
        self._watch.close()
        super().close()
        with self._lock:
            for attempt in self._attempts.values():
                attempt.pidfd = attempt.ready = -1

    def _new_attempt(self, handle: Handle) -> Attempt:
        return Attempt(handle, self._state.run_dir(handle))

    def _make_spec(self, lease: JobLease) -> dict[str, Any]:
        run_dir = self._state.run_dir(lease.handle)
        port = port_for(run_dir, {attempt.spec.get("port", 0) for attempt in self._running()})
        cgroup = cgroup_name(run_dir) if self._cgroups else ""
        return make_spec(lease, self._environ, port, self._api_url, cgroup)

    def _preempt(self, attempt: Attempt, grace_s: float) -> None:
        self._request_stop(attempt, {"grace_s": grace_s})
        rundir.request_stop(str(attempt.run_dir))
        self._signal(attempt, signal.SIGTERM)

    def _kill(self, attempt: Attempt) -> None:
        self._request_stop(attempt, {"kill": True})
        self._signal(attempt, signal.SIGUSR1)

    def _request_stop(self, attempt: Attempt, stop: dict[str, object]) -> None:
        """On a full disk the signal that goes with it must do; the grace is that of the lease then."""
        with suppress(OSError):
            rundir.write_json(str(attempt.run_dir / rundir.STOP), stop)

    def _signal(self, attempt: Attempt, number: int) -> None:
        attempt.requested_signal = number
        if attempt.pidfd >= 0:
            send_signal(attempt.pidfd, number)

    def _may_run(self, handle: Handle) -> bool:
        """End what may be left of an attempt whose directory is gone; True while something of it is still there."""
        attempt = Attempt(handle, self._state.run_dir(handle), known=True, gone=True, traceless=True)
        if attempt.sweep():
            return False
        self._attempts[handle] = attempt
        return True

    def _look_again(self) -> None:
        self._watch.wake()

    # What follows happens in the thread of the watch, or on the way in.

    def _take_up(self, attempt: Attempt) -> None:
        """Start it if that was never done."""
        owner, end = attempt.read(rundir.PID), attempt.read(rundir.EXIT)
        super()._take_up(attempt)
        if owner is None and end is None:
            self._start(attempt)
        else:
            self._report_start(attempt)
            self._attach(attempt)
        self._report_news(attempt)

    def _follow(self, attempt: Attempt) -> None:
        if attempt.gone:
            self._conclude(attempt)
        elif attempt.pidfd < 0:
            self._attach(attempt)
        elif self._fences.over(attempt.handle) and not attempt.fenced:
            self._fence(attempt)
        self._report_news(attempt)

    def _start(self, attempt: Attempt) -> None:
        try:
            attempt.pid, ready = spawn_supervisor(attempt.run_dir)
        except (OSError, MemoryError) as error:
            self._end(attempt, attempt.record_unlaunched(self._clock(), f"cannot be started: {describe(error)}"))
            return
        attempt.child = True
        try:
            self._watch.add(ready, lambda: self._look_at_start(attempt))
            attempt.ready = ready
        except OSError:
            os.close(ready)  # the start is on record, too, and the ticks look there
        self._attach(attempt)

    def _attach(self, attempt: Attempt) -> None:
        """Watch its supervisor; one that some other executor started is known by its record."""
        owner = None if attempt.child else attempt.read(rundir.PID)
        if owner is not None:
            attempt.pid = int(owner["pid"])
        pidfd = _open_supervisor(attempt.pid, owner) if attempt.child or is_same(owner) else -1
        if pidfd < 0:
            attempt.gone = True
            self._conclude(attempt)
            return
        try:
            self._watch.add(pidfd, lambda: self._supervisor_ended(attempt))
        except OSError:
            os.close(pidfd)
            raise
        attempt.pidfd = pidfd
        if attempt.requested_signal:
            send_signal(pidfd, attempt.requested_signal)

    def _fence(self, attempt: Attempt) -> None:
        """The lease and the grace are over, and the supervisor has not ended the ranks: something keeps it from it.

        Killed, it takes its ranks along; the loss is reported when nothing of the attempt is left."""
        attempt.fenced = True
        _log.warning("%s is not ended by its supervisor", attempt.handle)
        send_signal(attempt.pidfd, signal.SIGKILL)

    def _look_at_start(self, attempt: Attempt) -> None:
        with self._lock:
            word = os.read(attempt.ready, 64) if attempt.ready >= 0 else b""
            self._close_ready(attempt)
            self._report_start(attempt)
            if word and not attempt.started:  # a full disk has lost the line on record
                attempt.started = True
                self._queue.put(AttemptStarted(attempt.handle, self._clock()))

    def _close_ready(self, attempt: Attempt) -> None:
        """Once only: the number of a closed descriptor soon belongs to another attempt."""
        if attempt.ready >= 0:
            self._watch.remove(attempt.ready)
            attempt.ready = -1

    def _supervisor_ended(self, attempt: Attempt) -> None:
        with self._lock:
            self._watch.remove(attempt.pidfd)
            attempt.pidfd = -1
            with suppress(ChildProcessError):
                attempt.status = os.waitpid(attempt.pid, 0)[1]
            attempt.gone = True
            self._look_at(attempt)

    def _conclude(self, attempt: Attempt) -> None:
        """No supervisor of ours runs: tell the end, or make one."""
        owner = attempt.read(rundir.PID)
        if owner is not None and owner.get("pid") != attempt.pid and is_same(owner):
            attempt.gone = attempt.child = False  # another executor was faster
            self._attach(attempt)
            return
        end = attempt.end()
        if end is None and owner is None and not attempt.traceless:
            end = attempt.record_unlaunched(self._clock(), attempt.why_no_supervisor())
        if end is None and attempt.sweep():
            end = attempt.record_loss(self._clock(), attempt.why_lost())
        if end is not None:
            self._end(attempt, end)

    def _end(self, attempt: Attempt, end: AttemptExited | LaunchFailed) -> None:
        self._close_ready(attempt)
        super()._end(attempt, end)

    def _report_news(self, attempt: Attempt) -> None:
        if attempt.ended or attempt.gone:
            return
        if attempt.ready < 0:  # no pipe will say so
            self._report_start(attempt)
        if attempt.started:
            self._report_progress(attempt)

    def _any_running(self) -> bool:
        with self._lock:
            return any(not attempt.ended for attempt in self._attempts.values())


def _open_supervisor(pid: int, owner: dict[str, object] | None) -> int:
    """A descriptor for the process, -1 if it is gone. The number of one that is no child may be another's by now."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    if owner is None or is_same(owner):
        return pidfd
    os.close(pidfd)
    return -1
