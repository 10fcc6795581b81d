"""The local executor: runs leases as processes of this machine, on its own GPUs or on virtual nodes.

Every job has a supervisor of its own that outlives this process; a new executor on the same state directory finds
them again. Which job goes where is decided elsewhere."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from trine.executor import rundir
from trine.executor.attempt import Attempt
from trine.executor.base import Capabilities, Event, Exited, Handle, LaunchFailed, Lease, NodeInfo
from trine.executor.launch import (
    Refused,
    StateDir,
    cgroup_name,
    check_form,
    check_user,
    free_port,
    make_spec,
    send_signal,
    spawn_supervisor,
)
from trine.executor.nodes import Nodes
from trine.executor.processes import is_same
from trine.executor.rank import newest_epoch
from trine.executor.sharing import check_holders, may_pair
from trine.executor.watch import EventQueue, Watch


class LocalExecutor:
    """Runs jobs on ``nodes``, all of which are this machine; takes up again what runs in ``state_dir``.

    Only one executor may use a state directory at a time. ``environ`` is where jobs inherit a few harmless variables
    from, ``cordoned`` the nodes (with reasons) that take no jobs."""

    capabilities = Capabilities(
        exact_gpu=True, suspend=False, per_node_gpu_sets=True, native_grace=True, shared_gpus=True
    )

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
    ) -> None:
        self._state, self._api_url, self._environ, self._cgroups = StateDir(Path(state_dir)), api_url, environ, cgroups
        self._clock = clock
        self._lock = threading.RLock()
        self._attempts: dict[Handle, Attempt] = {}
        self._queue = EventQueue()
        self._nodes = Nodes(nodes, cordoned or {}, self._queue.put, clock)
        self._watch = Watch(self._tick, self._any_running, progress_s)
        self._adopt_all()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def inventory(self) -> list[NodeInfo]:
        with self._lock:
            return self._nodes.inventory()

    def launch(self, lease: Lease) -> Handle:
        with self._lock:
            if attempt := self._attempts.get(lease.handle):
                self._tell_again(attempt)
                return lease.handle
            try:
                self._launch(lease)
            except Refused as refusal:
                self._launch_failed(lease.handle, str(refusal))
            except OSError as error:
                what = f" ({error.filename})" if error.filename else ""
                self._launch_failed(lease.handle, f"cannot be started: {error.strerror}{what}")
        return lease.handle

    def _tell_again(self, attempt: Attempt) -> None:
        """Whoever launches what runs already, or has ended, missed something."""
        if attempt.started and (started := attempt.start()):
            self._queue.put(started)
        if attempt.ending is not None:
            self._queue.put(attempt.ending)

    def _launch(self, lease: Lease) -> None:
        check_form(lease)
        job_dir = self._state.job_dir(lease.job_id)
        if self._state.run_dir(lease.handle).is_dir():
            self._adopt(lease.handle)
            return
        newest = newest_epoch(str(job_dir))
        if newest > lease.epoch:
            raise Refused(f"epoch {lease.epoch} is out of date: epoch {newest} of {lease.job_id} was launched before")
        check_user(lease.run_as)
        self._nodes.check(lease.placement)
        check_holders(lease, self._running())
        port = free_port(lease.handle, {attempt.spec.get("port", 0) for attempt in self._running()})
        cgroup = cgroup_name(self._state.run_dir(lease.handle)) if self._cgroups else ""
        self._state.prepare(lease, make_spec(lease, self._environ, port, self._api_url, cgroup))
        self._adopt(lease.handle)

    def _launch_failed(self, handle: Handle, reason: str) -> None:
        self._queue.put(LaunchFailed(handle, self._clock(), reason))

    def renew(self, handle: Handle, deadline_s: float | None) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                # On a full disk the lease stays as it is; the next renewal may do better.
                with suppress(OSError):
                    attempt.change_lease(deadline_s=deadline_s)

    def pair(self, handle: Handle, partner: str) -> None:
        with self._lock:
            attempt = self._running_one(handle)
            if attempt is not None and may_pair(attempt, partner, self._running()):
                # On a full disk nobody is let in; the launch of the partner fails there as well.
                with suppress(OSError):
                    attempt.change_lease(shares_with=partner)
                    attempt.shares_with = partner

    def preempt(self, handle: Handle, grace_s: float) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                with suppress(OSError):  # on a full disk the grace is that of the lease
                    rundir.write_json(str(attempt.run_dir / rundir.STOP), {"grace_s": grace_s})
                rundir.request_stop(str(attempt.run_dir))
                self._signal(attempt, signal.SIGTERM)

    def kill(self, handle: Handle) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                self._signal(attempt, signal.SIGUSR1)

    def _signal(self, attempt: Attempt, number: int) -> None:
        attempt.wish = number
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

    def forget(self, handle: Handle) -> None:
        with self._lock:
            attempt = self._attempts.get(handle)
            if attempt is not None and not attempt.ended:
                return
            self._attempts.pop(handle, None)
            with suppress(OSError):
                self._state.forget(handle)

    def cordon(self, node: str, reason: str) -> None:
        with self._lock:
            self._nodes.cordon(node, reason)
            self._nodes.tell_drained(self._busy_nodes())

    def uncordon(self, node: str) -> None:
        with self._lock:
            self._nodes.uncordon(node)

    def lose_node(self, node: str, reason: str = "lost on request") -> None:
        """Treat a node as gone: what runs there ends as lost. For drills; nothing says goodbye."""
        with self._lock:
            self._nodes.lose(node, reason)
            for attempt in self._running():
                if node in attempt.nodes:
                    self._signal(attempt, signal.SIGKILL)

    def restore_node(self, node: str) -> None:
        with self._lock:
            self._nodes.restore(node)

    def close(self) -> None:
        self._watch.close()
        self._queue.close()
        with self._lock:
            for attempt in self._attempts.values():
                attempt.pidfd = attempt.ready = -1

    # What follows happens in the thread of the watch, or on the way in.

    def _adopt_all(self) -> None:
        for handle in self._state.active_handles():
            if self._state.run_dir(handle).is_dir():
                self._adopt(handle)
            else:  # the launch was cut short before there was anything to run
                self._state.marker(handle).unlink(missing_ok=True)

    def _adopt(self, handle: Handle) -> None:
        """Follow the attempt in a run directory, whatever state it is in; start it if nobody ever did."""
        attempt = Attempt(handle, self._state.run_dir(handle))
        attempt.spec = attempt.read(rundir.SPEC) or {}
        attempt.shares_with = str((attempt.read(rundir.LEASE) or {}).get("shares_with", ""))
        self._attempts[handle] = attempt
        owner = attempt.read(rundir.PID)
        if owner is None and attempt.read(rundir.EXIT) is None:
            self._start(attempt)
        else:
            self._follow(attempt, owner)

    def _start(self, attempt: Attempt) -> None:
        try:
            attempt.pid, attempt.ready = spawn_supervisor(attempt.run_dir)
        except OSError as error:
            self._end(attempt, attempt.record_failure(self._clock(), f"cannot be started: {error.strerror}"))
            return
        attempt.pidfd = os.pidfd_open(attempt.pid)
        self._watch.add(attempt.ready, lambda: self._look_at_start(attempt))
        self._watch.add(attempt.pidfd, lambda: self._supervisor_ended(attempt))

    def _follow(self, attempt: Attempt, owner: dict[str, object] | None) -> None:
        """Watch a supervisor that some other executor started."""
        self._tell_start(attempt)
        if owner is not None and is_same(owner):
            with suppress(ProcessLookupError):
                attempt.pid = int(str(owner["pid"]))
                attempt.pidfd = os.pidfd_open(attempt.pid)
        if attempt.pidfd >= 0 and is_same(owner):
            self._watch.add(attempt.pidfd, lambda: self._supervisor_ended(attempt))
        else:
            self._conclude(attempt)

    def _look_at_start(self, attempt: Attempt) -> None:
        with self._lock:
            self._close_ready(attempt)
            self._tell_start(attempt)

    def _close_ready(self, attempt: Attempt) -> None:
        """Once only: the number of a closed descriptor soon belongs to another attempt."""
        if attempt.ready >= 0:
            self._watch.remove(attempt.ready)
            attempt.ready = -1

    def _tell_start(self, attempt: Attempt) -> None:
        if not attempt.started and (started := attempt.start()):
            attempt.started = True
            self._queue.put(started)

    def _supervisor_ended(self, attempt: Attempt) -> None:
        with self._lock:
            self._watch.remove(attempt.pidfd)
            attempt.pidfd = -1
            with suppress(ChildProcessError):
                os.waitpid(attempt.pid, 0)
            owner = attempt.read(rundir.PID)
            if owner is not None and owner.get("pid") != attempt.pid and is_same(owner):
                self._follow(attempt, owner)  # another executor was faster
                if attempt.wish:
                    self._signal(attempt, attempt.wish)
            else:
                self._conclude(attempt)

    def _conclude(self, attempt: Attempt) -> None:
        """No supervisor runs: tell the end, or make one."""
        end = attempt.end()
        if end is None and attempt.read(rundir.PID) is None:
            end = attempt.record_failure(self._clock(), f"its supervisor did not start: {attempt.log_tail()}")
        if end is not None:
            self._end(attempt, end)
        else:
            attempt.lost = True
            self._sweep(attempt)

    def _sweep(self, attempt: Attempt) -> None:
        if attempt.sweep():
            self._end(attempt, attempt.record_loss(self._clock()))

    def _end(self, attempt: Attempt, end: Exited | LaunchFailed) -> None:
        """The last word on an attempt. Its GPUs are free from here on."""
        self._close_ready(attempt)
        if isinstance(end, Exited):
            self._tell_start(attempt)
            self._tell_progress(attempt)
        attempt.ending = end
        self._queue.put(end)
        self._nodes.tell_drained(self._busy_nodes())

    def _tell_progress(self, attempt: Attempt) -> None:
        if progress := attempt.progress():
            self._queue.put(progress)

    def _tick(self) -> None:
        with self._lock:
            for attempt in self._running():
                if attempt.lost:
                    self._sweep(attempt)
                elif attempt.started:
                    self._tell_progress(attempt)

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
