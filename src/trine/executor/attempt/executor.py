"""What all executors have in common: attempts on record below the daemon's state directory, taken up again after a
restart, launched once, looked at until they end, and the events about them.

How attempts are started, stopped and seen is what an engine fills in: the abstract methods. Only the daemon's own
record lies in the state directory; whatever else is read of an attempt is read by methods of ``AttemptFiles``, which an
engine without a shared file system replaces."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from trine.executor.attempt import rundir
from trine.executor.attempt.fence import Fences
from trine.executor.attempt.files import AttemptFiles
from trine.executor.attempt.spec import LaunchRefused, check_form, check_user
from trine.executor.attempt.state_dir import StateDir
from trine.executor.attempt.storage import DirectoryStorage
from trine.executor.base import (
    AttemptExited,
    AttemptRelay,
    Event,
    Handle,
    JobLease,
    LaunchFailed,
    NodeInfo,
    Placement,
    Unreachable,
)
from trine.executor.faults import describe
from trine.executor.host import Host
from trine.executor.node_states import NodeStates, check_holders, may_pair
from trine.executor.watch import EventQueue

_log = logging.getLogger(__name__)

AttemptT = TypeVar("AttemptT", bound=AttemptFiles)


class AttemptExecutor(ABC, Generic[AttemptT]):
    """``executor.base.Executor`` but for the engine itself. Only one may use a state directory at a time.

    An engine calls ``_adopt_all`` at the end of its ``__init__`` and ``_look_at`` for each of ``_running`` whenever
    something may have happened. Methods that begin with an underscore are called with the lock held; those that are
    abstract, or said to be replaced, must not block."""

    def __init__(
        self,
        state_dir: str | Path,
        nodes: Sequence[NodeInfo],
        *,
        clock: Callable[[], float] = time.time,
        cordoned: Mapping[str, str] | None = None,
        reserve_bytes: int | None = None,
        storage: DirectoryStorage | None = None,
    ) -> None:
        self._clock = clock
        self._state = StateDir(Path(state_dir))
        self.storage = storage or DirectoryStorage(Path(state_dir))
        self._host = Host(Path(state_dir), reserve_bytes)
        self._lock = threading.RLock()
        self._attempts: dict[Handle, AttemptT] = {}
        self._fences = Fences()
        self._queue = EventQueue()
        self._nodes = NodeStates(nodes, cordoned or {}, self._queue.put, clock)

    # -- what an engine fills in --------------------------------------------------------------------------------------

    @abstractmethod
    def _new_attempt(self, handle: Handle) -> AttemptT:
        """An attempt of which only the name is known yet."""

    @abstractmethod
    def _make_spec(self, lease: JobLease) -> dict[str, Any]:
        """What is to run, as ``spec.make_spec`` has it, for a lease that was checked; or ``LaunchRefused``."""

    @abstractmethod
    def _follow(self, attempt: AttemptT) -> None:
        """One step on with an attempt that is on record and has not ended: report its news, carry out what is due, call
        ``_end`` when it is over. What is raised is logged, and tried again at the next look."""

    @abstractmethod
    def _preempt(self, attempt: AttemptT, grace_s: float) -> None:
        """Ask every rank of an attempt that runs to leave within the grace."""

    @abstractmethod
    def _kill(self, attempt: AttemptT) -> None:
        """End an attempt that runs, without grace."""

    def _check_external(self, lease: JobLease) -> None:
        """To be replaced by engines that place work of others. Its command is no command: it must never be run."""
        if lease.external:
            raise LaunchRefused("it was given to another engine, and this one has nothing of it to run")

    def _check_lease(self, lease: JobLease) -> None:
        """``LaunchRefused`` for what this engine cannot run. To be replaced where ranks run under other accounts, or
        see other directories, than those of the daemon's machine."""
        check_user(lease.run_as)
        self._state.check_paths(lease)

    def _take_up(self, attempt: AttemptT) -> None:
        """Read what is on record of an attempt; it is known from here on which GPUs it holds. An engine adds what it
        has on record itself: what can fail comes first, what cannot be done twice comes last.

        When it was renewed last is not known: now, at the latest."""
        attempt.spec = attempt.read(rundir.SPEC) or {}
        lease = attempt.read(rundir.LEASE) or {}
        attempt.shares_with = str(lease.get("shares_with", ""))
        self._fences.renewed(attempt.handle, lease.get("lease_s"), attempt.grace_s)
        attempt.known = True

    def _launched(self, attempt: AttemptT) -> None:
        """An attempt was made just now, and the engine cannot have heard of it. To be replaced by engines that would
        ask first before they start what they find on record."""

    def _look_again(self) -> None:
        """Something could not be seen: look again at the next opportunity, although nothing happens."""

    def _may_run(self, handle: Handle) -> bool:  # noqa: ARG002 - for engines that can find out more
        """Processes may run of an attempt of which nothing is on record. To be replaced by engines where that can be;
        they tell its loss when nothing of it is left."""
        return False

    def _trouble(self) -> str:
        """Why the engine starts nothing now, in a sentence; empty: it can."""
        return ""

    @property
    def relay(self) -> AttemptRelay | None:
        """To be replaced by engines whose nodes share no file system with the daemon."""
        return None

    # -- what callers ask ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._queue.close()

    def inventory(self) -> list[NodeInfo] | Unreachable:
        with self._lock:
            return self._nodes.inventory()

    def trouble(self) -> str:
        with self._lock:
            return self._trouble() or self._host.trouble() or self._unknown()

    def _unknown(self) -> str:
        """Which attempt could not be read yet, in a sentence: it is not known which GPUs it holds."""
        for attempt in self._running():
            if not attempt.known:
                return f"attempt {attempt.handle.epoch} of job {attempt.handle.job_id} cannot be read: {attempt.unseen}"
        return ""

    def events(self) -> Iterator[Event]:
        return iter(self._queue.take_all())

    def wait_events(self, timeout_s: float | None = None) -> list[Event]:
        return self._queue.take_all(timeout_s)

    def fileno(self) -> int:
        return self._queue.fileno()

    def list_handles(self) -> list[Handle]:
        """Complete whether or not the engine answers: every attempt is on record here before the engine hears of it."""
        with self._lock:
            return list(self._attempts)

    def placement(self, handle: Handle) -> Placement:
        with self._lock:
            attempt = self._running_one(handle)
            placed = attempt.spec.get("placement", ()) if attempt is not None else ()
            return tuple((node, tuple(gpus)) for node, gpus in placed)

    # -- what callers want --------------------------------------------------------------------------------------------

    def launch(self, lease: JobLease) -> Handle:
        with self._lock:
            if attempt := self._attempts.get(lease.handle):
                self._report_again(attempt)
                return lease.handle
            try:
                self._launch(lease)
            except LaunchRefused as refusal:
                self._launch_failed(lease.handle, str(refusal), refusal.passing)
            except Exception as error:  # whatever it is, the daemon has other jobs to care for
                if not isinstance(error, OSError | MemoryError):
                    _log.exception("%s cannot be launched", lease.handle)
                # Nothing that the user named has been touched yet: whatever went wrong, the job is not to blame.
                self._launch_failed(lease.handle, f"cannot be started: {describe(error)}", passing=True)
        return lease.handle

    def tell_external(self, reasons: Mapping[str, str]) -> None:
        """To be replaced by engines that place work of others."""

    def _report_again(self, attempt: AttemptT) -> None:
        """A launch of what runs already, or has ended, means that its events were missed."""
        if attempt.started and (started := attempt.start()):
            self._queue.put(started)
        if attempt.ending is not None:
            self._queue.put(attempt.ending)

    def _launch(self, lease: JobLease) -> None:
        check_form(lease)
        self._check_external(lease)
        lease = self.storage.with_directories(lease)
        # Before the checks of a new launch (nodes in service, free GPUs): what was launched before is found again,
        # whatever they would say now.
        if self._state.exists(lease.handle):
            self._adopt(lease.handle)
            return
        self._check_epoch(lease)
        self._check_lease(lease)
        if unknown := self._unknown():
            raise LaunchRefused(unknown, passing=True)
        self._nodes.check(lease.placement)
        check_holders(lease, self._running())
        self._state.prepare(lease, self._make_spec(lease))
        self._launched(self._adopt(lease.handle))

    def _check_epoch(self, lease: JobLease) -> None:
        newest = self.storage.newest_epoch(lease.job_id)
        if newest > lease.epoch:
            raise LaunchRefused(
                f"epoch {lease.epoch} is out of date: epoch {newest} of {lease.job_id} was launched before"
            )

    def _launch_failed(self, handle: Handle, reason: str, passing: bool = False) -> None:
        self._queue.put(LaunchFailed(handle, self._clock(), reason, passing))

    def renew(self, handle: Handle, lease_s: float | None) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                # What cannot be renewed runs on; the next renewal may do better.
                with suppress(OSError):
                    attempt.renew_lease(lease_s, self._clock())
                # After the file was written, and also if that failed half-way: a fence may be late, never early.
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
                self._preempt(attempt, grace_s)

    def kill(self, handle: Handle) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                self._kill(attempt)

    def recall(self, handle: Handle) -> bool:
        with self._lock:
            if handle not in self._attempts:
                if rundir.read_json(str(self._state.run_dir(handle) / rundir.EXIT)) is None:
                    return self._may_run(handle)
                self._adopt(handle)
            return True

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

    # -- attempts -----------------------------------------------------------------------------------------------------

    def _adopt_all(self) -> None:
        """Take up all that was launched and not forgotten: the last step of opening an executor."""
        with self._lock:
            for handle in self._state.active_handles():
                try:
                    if self._state.exists(handle):
                        self._adopt(handle)
                    else:  # the launch was cut short before there was anything to run
                        self._state.marker(handle).unlink(missing_ok=True)
                except LaunchRefused as refusal:
                    self._launch_failed(handle, str(refusal))
        self._state.removal.start()

    def _adopt(self, handle: Handle) -> AttemptT:
        """Follow the attempt that is on record, whatever state it is in."""
        self._attempts[handle] = attempt = self._new_attempt(handle)
        self._look_at(attempt)
        return attempt

    def _look_at(self, attempt: AttemptT) -> None:
        """One step on with an attempt. What fails, for want of descriptors say, is tried again at the next look."""
        try:
            if not attempt.known:
                self._take_up(attempt)
            else:
                self._follow(attempt)
        except Exception as error:  # one attempt that cannot be looked at must not hide all others
            if attempt.unseen != describe(error):
                attempt.unseen = describe(error)
                _log.warning("%s cannot be looked at now", attempt.handle, exc_info=error)
            self._look_again()
        else:
            attempt.unseen = ""

    def _look_at_all(self) -> None:
        with self._lock:
            for attempt in self._running():
                self._look_at(attempt)

    def _report_start(self, attempt: AttemptT) -> None:
        if not attempt.started and (started := attempt.start()):
            attempt.started = True
            self._queue.put(started)

    def _report_progress(self, attempt: AttemptT) -> None:
        if progress := attempt.progress():
            self._queue.put(progress)

    def _end(self, attempt: AttemptT, end: AttemptExited | LaunchFailed) -> None:
        """The last word on an attempt. Its GPUs are free from here on."""
        if isinstance(end, AttemptExited):
            self._report_start(attempt)
            self._report_progress(attempt)
        attempt.ending = end
        self._queue.put(end)
        self._nodes.report_drained(self._busy_nodes())

    def _running(self) -> list[AttemptT]:
        return [attempt for attempt in self._attempts.values() if not attempt.ended]

    def _running_one(self, handle: Handle) -> AttemptT | None:
        attempt = self._attempts.get(handle)
        return None if attempt is None or attempt.ended else attempt

    def _busy_nodes(self) -> set[str]:
        return {node for attempt in self._running() for node in attempt.nodes}
