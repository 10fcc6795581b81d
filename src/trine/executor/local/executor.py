"""The local executor: runs leases as processes of this machine, on its own GPUs or on virtual nodes.

Every job has a supervisor of its own that outlives this process; a new executor on the same state directory finds
them again. Which job goes where is decided elsewhere."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from trine.core.cluster import Cluster
from trine.core.params import param
from trine.executor.attempt import rundir
from trine.executor.attempt.fence import Fences
from trine.executor.attempt.processes import is_same
from trine.executor.attempt.spec import LaunchRefused, check_form, check_user, make_spec
from trine.executor.attempt.state_dir import StateDir
from trine.executor.attempt.storage import DirectoryStorage
from trine.executor.base import (
    AttemptExited,
    AttemptStarted,
    Capabilities,
    Event,
    Handle,
    JobLease,
    LaunchFailed,
    NodeInfo,
    Placement,
)
from trine.executor.faults import describe
from trine.executor.host import Host
from trine.executor.local.attempt import Attempt
from trine.executor.local.inventory import discover, nodes_of
from trine.executor.local.launch import cgroup_name, port_for, send_signal, spawn_supervisor
from trine.executor.node_states import NodeStates, check_holders, may_pair
from trine.executor.watch import EventQueue, Watch

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


class LocalExecutor:
    """Runs jobs on ``nodes``, all of which are this machine; takes up again what runs in ``state_dir``.

    Only one executor may use a state directory at a time. ``environ`` is where jobs inherit a few harmless variables
    from, ``cordoned`` the nodes (with reasons) that take no jobs, ``reserve_bytes`` what must be free on the disk of
    ``state_dir`` for a job to start (by default 64 MiB or 1 % of the disk, whichever is smaller)."""

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
        self._state, self._api_url, self._environ, self._cgroups = StateDir(Path(state_dir)), api_url, environ, cgroups
        self._clock = clock
        self.storage = DirectoryStorage(Path(state_dir))
        self._host = Host(Path(state_dir), reserve_bytes)
        self._lock = threading.RLock()
        self._attempts: dict[Handle, Attempt] = {}
        self._fences = Fences()
        self._queue = EventQueue()
        self._nodes = NodeStates(nodes, cordoned or {}, self._queue.put, clock)
        self._watch = Watch(self._tick, self._any_running, progress_s)
        with self._lock:  # the watch runs already, and would see an attempt that is only half taken up
            self._adopt_all()
        self._state.removal.start()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def inventory(self) -> list[NodeInfo]:
        with self._lock:
            return self._nodes.inventory()

    def trouble(self) -> str:
        with self._lock:
            return self._host.trouble() or self._unknown()

    def _unknown(self) -> str:
        """Which attempt could not be read yet, in a sentence: it is not known which GPUs it holds."""
        for attempt in self._running():
            if not attempt.known:
                return f"attempt {attempt.handle.epoch} of job {attempt.handle.job_id} cannot be read: {attempt.unseen}"
        return ""

    def launch(self, lease: JobLease) -> Handle:
        with self._lock:
            if attempt := self._attempts.get(lease.handle):
                self._report_again(attempt)
                return lease.handle
            try:
                self._launch(lease)
            except LaunchRefused as refusal:
                self._launch_failed(lease.handle, str(refusal), refusal.passing)
            except (OSError, MemoryError) as error:
                # Nothing that the user named has been touched yet: whatever went wrong, the job is not to blame.
                self._launch_failed(lease.handle, f"cannot be started: {_why(error)}", passing=True)
            except Exception as error:  # of ours; whatever it is, the daemon has other jobs to care for
                _log.exception("%s cannot be launched", lease.handle)
                self._launch_failed(lease.handle, f"cannot be started: {describe(error)}", passing=True)
        return lease.handle

    def _report_again(self, attempt: Attempt) -> None:
        """A launch of what runs already, or has ended, means that its events were missed."""
        if attempt.started and (started := attempt.start()):
            self._queue.put(started)
        if attempt.ending is not None:
            self._queue.put(attempt.ending)

    def _launch(self, lease: JobLease) -> None:
        check_form(lease)
        lease = self.storage.with_directories(lease)
        if self._state.exists(lease.handle):
            self._adopt(lease.handle)
            return
        newest = self.storage.newest_epoch(lease.job_id)
        if newest > lease.epoch:
            raise LaunchRefused(
                f"epoch {lease.epoch} is out of date: epoch {newest} of {lease.job_id} was launched before"
            )
        check_user(lease.run_as)
        self._state.check_paths(lease)
        if unknown := self._unknown():
            raise LaunchRefused(unknown, passing=True)
        self._nodes.check(lease.placement)
        check_holders(lease, self._running())
        run_dir = self._state.run_dir(lease.handle)
        port = port_for(run_dir, {attempt.spec.get("port", 0) for attempt in self._running()})
        cgroup = cgroup_name(run_dir) if self._cgroups else ""
        self._state.prepare(lease, make_spec(lease, self._environ, port, self._api_url, cgroup))
        self._adopt(lease.handle)

    def _launch_failed(self, handle: Handle, reason: str, passing: bool = False) -> None:
        self._queue.put(LaunchFailed(handle, self._clock(), reason, passing))

    def renew(self, handle: Handle, lease_s: float | None) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                # What cannot be renewed runs on; the next renewal may do better.
                with suppress(OSError):
                    attempt.renew_lease(lease_s, self._clock())
                self._fences.renewed(handle, lease_s, attempt.grace_s)

    def pair(self, handle: Handle, co_runner: str) -> None:
        with self._lock:
            attempt = self._running_one(handle)
            if attempt is not None and may_pair(attempt, co_runner, self._running()):
                # On a full disk no co-runner is let in; its launch fails there as well.
                with suppress(OSError):
                    attempt.change_lease(shares_with=co_runner)
                    attempt.shares_with = co_runner

    def preempt(self, handle: Handle, grace_s: float) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                self._wish(attempt, {"grace_s": grace_s})
                rundir.request_stop(str(attempt.run_dir))
                self._signal(attempt, signal.SIGTERM)

    def kill(self, handle: Handle) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                self._wish(attempt, {"kill": True})
                self._signal(attempt, signal.SIGUSR1)

    def _wish(self, attempt: Attempt, wish: dict[str, object]) -> None:
        """On a full disk the signal that goes with it must do; the grace is that of the lease then."""
        with suppress(OSError):
            rundir.write_json(str(attempt.run_dir / rundir.STOP), wish)

    def _signal(self, attempt: Attempt, number: int) -> None:
        attempt.requested_signal = number
        if attempt.pidfd >= 0:
            send_signal(attempt.pidfd, number)

    def events(self) -> Iterator[Event]:
        return iter(self._queue.take_all())

    def wait_events(self, timeout_s: float | None = None) -> list[Event]:
        return self._queue.take_all(timeout_s)

    def fileno(self) -> int:
        return self._queue.fileno()

    def list_handles(self) -> list[Handle]:
        with self._lock:
            return list(self._attempts)

    def placement(self, handle: Handle) -> Placement:
        with self._lock:
            attempt = self._running_one(handle)
            placed = attempt.spec.get("placement", ()) if attempt is not None else ()
            return tuple((node, tuple(gpus)) for node, gpus in placed)

    def recall(self, handle: Handle) -> bool:
        with self._lock:
            if handle not in self._attempts:
                if rundir.read_json(str(self._state.run_dir(handle) / rundir.EXIT)) is None:
                    return not self._end_traceless(handle)
                self._adopt(handle)
            return True

    def _end_traceless(self, handle: Handle) -> bool:
        """End what may be left of an attempt whose directory is gone; False while something of it is still there."""
        attempt = Attempt(handle, self._state.run_dir(handle), known=True, gone=True, traceless=True)
        if attempt.sweep():
            return True
        self._attempts[handle] = attempt
        return False

    def forget(self, handle: Handle) -> None:
        with self._lock:
            attempt = self._attempts.get(handle)
            if attempt is not None and not attempt.ended:
                return
            self._attempts.pop(handle, None)
            self._fences.forget(handle)
            with suppress(OSError):
                self._state.forget(handle)

    def cordon(self, node: str, reason: str) -> None:
        with self._lock:
            self._nodes.cordon(node, reason)
            self._nodes.report_drained(self._busy_nodes())

    def uncordon(self, node: str) -> None:
        with self._lock:
            self._nodes.uncordon(node)

    def close(self) -> None:
        self._watch.close()
        self._queue.close()
        with self._lock:
            for attempt in self._attempts.values():
                attempt.pidfd = attempt.ready = -1

    # What follows happens in the thread of the watch, or on the way in.

    def _adopt_all(self) -> None:
        for handle in self._state.active_handles():
            try:
                if self._state.exists(handle):
                    self._adopt(handle)
                else:  # the launch was cut short before there was anything to run
                    self._state.marker(handle).unlink(missing_ok=True)
            except LaunchRefused as refusal:
                self._launch_failed(handle, str(refusal))

    def _adopt(self, handle: Handle) -> None:
        """Follow the attempt in a run directory, whatever state it is in; start it if that was never done."""
        self._attempts[handle] = attempt = Attempt(handle, self._state.run_dir(handle))
        self._look_at(attempt)

    def _look_at(self, attempt: Attempt) -> None:
        """One step on with an attempt. What fails, for want of descriptors say, is tried again at the next tick."""
        try:
            if not attempt.known:
                self._take_up(attempt)
            elif attempt.gone:
                self._conclude(attempt)
            elif attempt.pidfd < 0:
                self._attach(attempt)
            elif self._fences.over(attempt.handle) and not attempt.fenced:
                self._fence(attempt)
            self._report_news(attempt)
        except Exception as error:  # one attempt that cannot be looked at must not hide all others
            if attempt.unseen != describe(error):
                attempt.unseen = describe(error)
                _log.warning("%s cannot be looked at now", attempt.handle, exc_info=error)
            self._watch.wake()
        else:
            attempt.unseen = ""

    def _take_up(self, attempt: Attempt) -> None:
        owner, end = attempt.read(rundir.PID), attempt.read(rundir.EXIT)
        attempt.spec = attempt.read(rundir.SPEC) or {}
        lease = attempt.read(rundir.LEASE) or {}
        attempt.shares_with = str(lease.get("shares_with", ""))
        self._fences.renewed(attempt.handle, lease.get("lease_s"), attempt.grace_s)
        attempt.known = True
        if owner is None and end is None:
            self._start(attempt)
        else:
            self._report_start(attempt)
            self._attach(attempt)

    def _start(self, attempt: Attempt) -> None:
        try:
            attempt.pid, ready = spawn_supervisor(attempt.run_dir)
        except (OSError, MemoryError) as error:
            self._end(attempt, attempt.record_unlaunched(self._clock(), f"cannot be started: {_why(error)}"))
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

        Killed, it takes its ranks along; the loss is told when nothing of the attempt is left."""
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

    def _report_start(self, attempt: Attempt) -> None:
        if not attempt.started and (started := attempt.start()):
            attempt.started = True
            self._queue.put(started)

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
        """The last word on an attempt. Its GPUs are free from here on."""
        self._close_ready(attempt)
        if isinstance(end, AttemptExited):
            self._report_start(attempt)
            self._report_progress(attempt)
        attempt.ending = end
        self._queue.put(end)
        self._nodes.report_drained(self._busy_nodes())

    def _report_news(self, attempt: Attempt) -> None:
        if attempt.ended or attempt.gone:
            return
        if attempt.ready < 0:  # no pipe will say so
            self._report_start(attempt)
        if attempt.started:
            self._report_progress(attempt)

    def _report_progress(self, attempt: Attempt) -> None:
        if progress := attempt.progress():
            self._queue.put(progress)

    def _tick(self) -> None:
        with self._lock:
            for attempt in self._running():
                self._look_at(attempt)

    def _any_running(self) -> bool:
        with self._lock:
            return any(not attempt.ended for attempt in self._attempts.values())

    def _running(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.ended]

    def _running_one(self, handle: Handle) -> Attempt | None:
        attempt = self._attempts.get(handle)
        return None if attempt is None or attempt.ended else attempt

    def _busy_nodes(self) -> set[str]:
        return {node for attempt in self._running() for node in attempt.nodes}


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


def _why(error: BaseException) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror)
    return "out of memory"
