"""The Slurm executor: one batch job per lease. Slurm is asked by a thread of its own and told by a few more, so that
no caller ever waits for it; what has started and how it ended is read from the files of the attempt.

Which commands are run for that is in ``carriers``; which job goes where is decided elsewhere."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from trine.executor.attempt import rundir
from trine.executor.attempt.fence import KILL_S, Fences
from trine.executor.attempt.leader import conclude, write_end
from trine.executor.attempt.spec import LaunchRefused, Site, check_form, check_user, make_spec
from trine.executor.attempt.state_dir import StateDir
from trine.executor.attempt.storage import DirectoryStorage
from trine.executor.base import (
    AttemptExited,
    EngineDown,
    EngineUp,
    Event,
    Handle,
    InventoryChanged,
    JobLease,
    LaunchFailed,
    NodeInfo,
    Placement,
    Unreachable,
)
from trine.executor.faults import describe
from trine.executor.host import Host
from trine.executor.node_states import NodeStates, check_holders
from trine.executor.slurm.attempt import SlurmAttempt
from trine.executor.slurm.carriers import Answer, Carrier
from trine.executor.slurm.commands import SlurmRefused, SlurmUnreachable
from trine.executor.slurm.nodes import Occupancy
from trine.executor.watch import EventQueue

_log = logging.getLogger(__name__)
_ORDER_THREADS = 4
PART_LOOK_S = 0.2
"""How often parts look whether they are to stop."""
_KILLED_RC, _CHECKPOINTED_RC = 137, 85


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds."""

    look_s: float = 0.25
    """Between two looks at the files of running attempts."""
    ask_s: float = 2.0
    """Between two questions to Slurm."""
    pending_s: float = 60.0
    """How long Slurm may keep a job waiting for GPUs that trine gave it."""
    visible_s: float = 5.0
    """How long what is written on one node may take to be seen on another."""
    cancel_s: float = 10.0
    """How long after the end of its grace an attempt is left to end by itself."""


class SlurmExecutor:
    """Runs jobs through a ``Carrier``; takes up again what runs in ``state_dir``, which all nodes must see.

    Only one executor may use a state directory at a time."""

    def __init__(
        self,
        state_dir: str | Path,
        nodes: Sequence[NodeInfo],
        carrier: Carrier,
        times: Times,
        *,
        environ: Mapping[str, str] = os.environ,
        api_url: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._carrier, self._times, self._clock = carrier, times, clock
        self._environ, self._api_url = environ, api_url
        self._state, self.storage = StateDir(Path(state_dir)), DirectoryStorage(Path(state_dir))
        self._host = Host(Path(state_dir), None)
        self._lock = threading.RLock()
        self._attempts: dict[Handle, SlurmAttempt] = {}
        self._queue = EventQueue()
        self._nodes = NodeStates(nodes, {}, self._queue.put, clock)
        self._occupancy, self._fences = Occupancy(), Fences()
        self._silent: set[str] = set()
        """Nodes that did not answer Slurm when it was last asked."""
        self._away = ""
        """Why Slurm cannot be asked; empty: it can."""
        self._asked_s = -math.inf
        """When the question was put that was answered last."""
        self._closing, self._look, self._ask = threading.Event(), threading.Event(), threading.Event()
        self._orders = ThreadPoolExecutor(_ORDER_THREADS, "trine-slurm-order")
        with self._lock:
            self._adopt_all()
        self._state.removal.start()
        self._threads = [
            threading.Thread(target=self._repeat, args=(call, wake, every_s), name=name, daemon=True)
            for name, call, wake, every_s in (
                ("trine-slurm-look", self._look_at_all, self._look, times.look_s),
                ("trine-slurm-ask", self._ask_slurm, self._ask, times.ask_s),
            )
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> SlurmExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- what callers ask --------------------------------------------------------------------------------------------

    def inventory(self) -> list[NodeInfo] | Unreachable:
        with self._lock:
            return Unreachable(self._away) if self._away else self._nodes.inventory()

    def trouble(self) -> str:
        with self._lock:
            return f"Slurm cannot be asked: {self._away}" if self._away else self._host.trouble()

    def list_handles(self) -> list[Handle]:
        """Complete whether or not Slurm answers: every attempt is on record here before Slurm hears of it."""
        with self._lock:
            return list(self._attempts)

    def placement(self, handle: Handle) -> Placement:
        with self._lock:
            attempt = self._running_one(handle)
            placed = attempt.spec.get("placement", ()) if attempt is not None else ()
            return tuple((node, tuple(gpus)) for node, gpus in placed)

    def events(self) -> Iterator[Event]:
        return iter(self._queue.take_all())

    def wait_events(self, timeout_s: float | None = None) -> list[Event]:
        return self._queue.take_all(timeout_s)

    def fileno(self) -> int:
        return self._queue.fileno()

    # -- what callers want -------------------------------------------------------------------------------------------

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
                self._launch_failed(lease.handle, f"cannot be started: {describe(error)}", passing=True)
            except Exception as error:  # of ours; whatever it is, the daemon has other jobs to care for
                _log.exception("%s cannot be launched", lease.handle)
                self._launch_failed(lease.handle, f"cannot be started: {describe(error)}", passing=True)
        return lease.handle

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
        self._nodes.check(lease.placement)
        check_holders(lease, self._running())
        # Where the ranks meet is added when it is submitted; a port is found on the node of the first of them.
        site = Site(part_per_node=True, look_s=PART_LOOK_S, ends_with_parent=True)
        self._state.prepare(lease, make_spec(lease, self._environ, 0, self._api_url, "", site))
        attempt = self._adopt(lease.handle)
        attempt.ask_first_s = -math.inf  # no other call can have submitted it
        self._submit(attempt)

    def _launch_failed(self, handle: Handle, reason: str, passing: bool = False) -> None:
        self._queue.put(LaunchFailed(handle, self._clock(), reason, passing))

    def _report_again(self, attempt: SlurmAttempt) -> None:
        """A launch of what runs already, or has ended, means that its events were missed."""
        if attempt.started and (started := attempt.start()):
            self._queue.put(started)
        if attempt.ending is not None:
            self._queue.put(attempt.ending)

    def renew(self, handle: Handle, lease_s: float | None) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                # On a full disk the lease stays as it is; the next renewal may do better.
                with suppress(OSError):
                    attempt.renew_lease(lease_s, self._clock())
                    self._fences.renewed(handle, lease_s, attempt.grace_s)

    def pair(self, handle: Handle, co_runner: str) -> None:
        """Slurm gives a GPU to one job only."""

    def preempt(self, handle: Handle, grace_s: float) -> None:
        self._request(handle, "preempt", {"grace_s": grace_s}, grace_s)

    def kill(self, handle: Handle) -> None:
        self._request(handle, "kill", {"grace_s": 0.0, "kill": True}, 0.0)

    def _request(self, handle: Handle, what: str, stop: dict[str, object], grace_s: float) -> None:
        """The parts read the request in a file: it reaches them whether or not Slurm answers, and with its grace."""
        with self._lock:
            attempt = self._running_one(handle)
            if attempt is None:
                return
            attempt.requested = "kill" if what == "kill" or attempt.requested == "kill" else "preempt"
            try:
                rundir.write_json(str(attempt.run_dir / rundir.STOP), stop)
                rundir.request_stop(str(attempt.run_dir))
                due_s = time.monotonic() + grace_s + self._times.cancel_s
            except OSError:
                due_s = time.monotonic()  # no room for a file: Slurm's own way to end a job is left
            attempt.cancel_due_s = min(attempt.cancel_due_s, due_s)
        self._look.set()

    def recall(self, handle: Handle) -> bool:
        with self._lock:
            if handle not in self._attempts:
                if rundir.read_json(str(self._state.run_dir(handle) / rundir.EXIT)) is None:
                    return False
                self._adopt(handle)
                self._look.set()
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
        self._order(lambda: self._carrier.drain(node, reason))

    def uncordon(self, node: str) -> None:
        with self._lock:
            self._nodes.uncordon(node)
        self._order(lambda: self._carrier.resume(node))

    def close(self) -> None:
        """Returns when no command of ours runs any more."""
        self._closing.set()
        self._look.set()
        self._ask.set()
        for thread in self._threads:
            thread.join()
        self._orders.shutdown(wait=True, cancel_futures=True)
        self._queue.close()

    # -- orders to Slurm: threads of their own, never with the lock held ----------------------------------------------

    def _order(self, call: Callable[[], None]) -> None:
        """Carry it out soon; what Slurm refuses is logged, what it does not hear is found out by the next question."""

        def guarded() -> None:
            try:
                call()
            except SlurmUnreachable as error:
                self._went_away(str(error))
            except SlurmRefused as refusal:
                _log.warning("Slurm refused: %s", refusal)
            except Exception:  # of ours: it must not end with the thread, unseen
                _log.exception("while telling Slurm")

        with suppress(RuntimeError):  # closed meanwhile
            self._orders.submit(guarded)

    def _submit(self, attempt: SlurmAttempt) -> None:
        if not attempt.submitting and not self._away:
            attempt.submitting = True
            self._order(lambda: self._submit_now(attempt))

    def _submit_now(self, attempt: SlurmAttempt) -> None:
        refused = ""
        try:
            self._carrier.submit(attempt)
        except (SlurmRefused, LaunchRefused, OSError) as error:
            refused = str(error)
        except SlurmUnreachable:
            with self._lock:
                attempt.submitting, attempt.ask_first_s = False, time.monotonic()
            raise
        with self._lock:
            attempt.submitting, attempt.submitted_s = False, time.monotonic()
            if refused:
                self._unlaunched(attempt, f"Slurm refused it: {refused}")

    # -- what Slurm says ---------------------------------------------------------------------------------------------

    def _ask_slurm(self) -> None:
        began_s = time.monotonic()
        with self._lock:
            running = self._running()
        try:
            answer = self._carrier.ask(running)
        except SlurmUnreachable as error:
            self._went_away(str(error))
        except SlurmRefused as refusal:  # no answer to the question: as good as silence
            self._went_away(str(refusal))
        else:
            with self._lock:
                self._answered(answer, began_s)

    def _went_away(self, reason: str) -> None:
        with self._lock:
            if not self._away:
                self._queue.put(EngineDown(self._clock(), reason))
            self._away = reason

    def _answered(self, answer: Answer, began_s: float) -> None:
        if self._away:
            self._queue.put(EngineUp(self._clock()))
        self._away, self._asked_s = "", began_s
        for handle, attempt in self._attempts.items():
            if attempt.submitted_s is None or attempt.submitted_s < began_s:
                attempt.note_jobs(answer.jobs.get(handle, ()), began_s)
        self._cancel_unknown(answer)
        if answer.nodes is not None:
            self._note_nodes(answer)
        self._look.set()

    def _cancel_unknown(self, answer: Answer) -> None:
        """Jobs of ours that are followed no longer: repeated submissions of attempts that ended."""
        for handle, jobs in answer.jobs.items():
            attempt = self._attempts.get(handle)
            if (attempt is None or attempt.ended) and any(job.state == "PENDING" for job in jobs):
                stale = SlurmAttempt(handle, self._state.run_dir(handle), jobs=tuple(jobs))
                self._order(partial(self._carrier.cancel, stale, pending_only=True))

    def _note_nodes(self, answer: Answer) -> None:
        nodes = answer.nodes or []
        self._silent = {node.name for node in nodes if not node.up}
        held = {handle for handle, jobs in answer.jobs.items() if any(job.active for job in jobs)}
        held |= {attempt.handle for attempt in self._running()}
        infos = self._occupancy.infos(nodes, held)
        if self._nodes.update(infos):
            self._queue.put(InventoryChanged(self._clock(), tuple(self._nodes.inventory())))

    # -- what the files say ------------------------------------------------------------------------------------------

    def _adopt_all(self) -> None:
        for handle in self._state.active_handles():
            try:
                if self._state.exists(handle):
                    self._adopt(handle)
                else:  # the launch was cut short before there was anything to run
                    self._state.marker(handle).unlink(missing_ok=True)
            except LaunchRefused as refusal:
                self._launch_failed(handle, str(refusal))

    def _adopt(self, handle: Handle) -> SlurmAttempt:
        """Follow the attempt in a run directory, whatever state it is in. When it was renewed last is not known: now,
        at the latest."""
        attempt = SlurmAttempt(handle, self._state.run_dir(handle), ask_first_s=time.monotonic())
        self._attempts[handle] = attempt
        attempt.spec = attempt.read(rundir.SPEC) or {}
        lease = attempt.read(rundir.LEASE) or {}
        self._fences.renewed(handle, lease.get("lease_s"), attempt.grace_s)
        stop = attempt.read(rundir.STOP)
        if stop is not None and not attempt.requested:
            attempt.requested = "kill" if stop.get("kill") else "preempt"
            attempt.cancel_due_s = time.monotonic() + float(stop.get("grace_s", 0.0)) + self._times.cancel_s
        self._occupancy.note(handle, attempt.gpus)
        return attempt

    def _look_at_all(self) -> None:
        with self._lock:
            for attempt in self._running():
                self._look_at(attempt)

    def _look_at(self, attempt: SlurmAttempt) -> None:
        """One step on with an attempt. What fails, for want of descriptors say, is tried again at the next look."""
        try:
            self._report_news(attempt)
            if (end := attempt.end()) is not None:
                self._end(attempt, end)
            elif not self._away and not attempt.submitting:
                self._follow(attempt)
        except OSError as error:
            if attempt.unseen != describe(error):
                attempt.unseen = describe(error)
                _log.warning("%s cannot be looked at now", attempt.handle, exc_info=error)
        else:
            attempt.unseen = ""

    def _follow(self, attempt: SlurmAttempt) -> None:
        """What is to be done about an attempt whose end is not on record."""
        now_s = time.monotonic()
        if attempt.submitted_s is None:
            if self._asked_s > attempt.ask_first_s:  # Slurm was asked since, and does not have it
                self._follow_unsubmitted(attempt)
        elif attempt.active:
            self._follow_active(attempt, now_s)
        elif self._asked_s > attempt.submitted_s:
            self._follow_over(attempt, now_s)

    def _follow_unsubmitted(self, attempt: SlurmAttempt) -> None:
        if attempt.claimed:  # it ran, so Slurm had it, and has forgotten it since
            attempt.submitted_s = attempt.ask_first_s
        elif attempt.requested:
            self._stopped_before_start(attempt)
        else:
            self._submit(attempt)

    def _follow_active(self, attempt: SlurmAttempt, now_s: float) -> None:
        if attempt.pending and attempt.requested:
            self._cancel(attempt, now_s, pending_only=True)
        elif now_s >= attempt.cancel_due_s:
            self._cancel(attempt, now_s)
        elif attempt.pending and attempt.pending_from_s is not None:
            waited_s = now_s - attempt.pending_from_s
            if waited_s > self._times.pending_s:
                why = ", ".join(dict.fromkeys(job.reason for job in attempt.jobs if job.active))
                attempt.withdrawn = f"Slurm kept it waiting for {waited_s:.0f} s ({why})"
                self._cancel(attempt, now_s, pending_only=True)

    def _cancel(self, attempt: SlurmAttempt, now_s: float, pending_only: bool = False) -> None:
        """Not again before Slurm was asked what came of it."""
        if attempt.ask_first_s <= self._asked_s:
            attempt.ask_first_s = now_s
            self._order(lambda: self._carrier.cancel(attempt, pending_only=pending_only))
            self._ask.set()

    def _follow_over(self, attempt: SlurmAttempt, now_s: float) -> None:
        """Slurm has no running job for it. Its record may be under way from another node; if none comes, it is lost,
        which is told when its end is proven or its lease and grace are over."""
        if attempt.over_from_s is None:
            attempt.over_from_s = now_s
        if not attempt.claimed:
            if attempt.requested:
                self._stopped_before_start(attempt)
            elif attempt.withdrawn:
                self._unlaunched(attempt, attempt.withdrawn)
            else:
                self._explain_unlaunched(attempt)
        elif now_s >= attempt.over_from_s + self._times.visible_s:
            self._conclude(attempt, now_s)

    def _conclude(self, attempt: SlurmAttempt, now_s: float) -> None:
        """Its leader is gone without a record: the parts may have left theirs."""
        end = conclude(str(attempt.run_dir), attempt.spec, attempt.why_over())
        if end is None and (self._fences.over(attempt.handle) or self._is_proven(attempt, now_s)):
            end = {"kind": "lost", "rc": _KILLED_RC, "reason": attempt.why_over()}
        if end is not None:
            write_end(str(attempt.run_dir), end)
            self._look.set()

    def _is_proven(self, attempt: SlurmAttempt, now_s: float) -> bool:
        """Slurm saw its end; parts that it lost sight of have left their ranks a grace, and are gone by now, too."""
        assert attempt.over_from_s is not None
        left_s = attempt.over_from_s + self._times.visible_s + attempt.grace_s + KILL_S
        return now_s >= left_s and attempt.ended_in_slurm(self._silent)

    def _stopped_before_start(self, attempt: SlurmAttempt) -> None:
        if not attempt.withdraw():
            return
        at_s = self._clock()
        if attempt.requested == "kill":
            end = attempt.record(kind="failed", rc=_KILLED_RC, reason="killed before it started", t=at_s)
        else:
            end = attempt.record(kind="preempted", rc=_CHECKPOINTED_RC, reason="stopped before it started", t=at_s)
        self._end(attempt, end)

    def _unlaunched(self, attempt: SlurmAttempt, reason: str) -> None:
        """Whatever Slurm has against it, the job is not to blame: it may be started again, elsewhere or later."""
        if attempt.withdraw():
            self._end(attempt, attempt.record_unlaunched(self._clock(), reason))

    def _explain_unlaunched(self, attempt: SlurmAttempt) -> None:
        """Slurm ended it before it began: ask why, then tell."""
        attempt.submitting = True  # nothing else is done about it meanwhile

        def ask_and_tell() -> None:
            said = self._carrier.explain_end(attempt)
            reason = f"{attempt.why_over()} before it started"
            with self._lock:
                attempt.submitting = False
                self._unlaunched(attempt, f"{reason}: {said}" if said else reason)

        self._order(ask_and_tell)

    def _end(self, attempt: SlurmAttempt, end: AttemptExited | LaunchFailed) -> None:
        """The last word on an attempt. Its GPUs are free from here on."""
        if isinstance(end, AttemptExited):
            self._report_news(attempt)
        attempt.ending = end
        self._queue.put(end)
        self._nodes.report_drained(self._busy_nodes())

    def _report_news(self, attempt: SlurmAttempt) -> None:
        if not attempt.started and (started := attempt.start()):
            attempt.started = True
            self._queue.put(started)
        if attempt.started and (progress := attempt.progress()):
            self._queue.put(progress)

    def _running(self) -> list[SlurmAttempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.ended]

    def _running_one(self, handle: Handle) -> SlurmAttempt | None:
        attempt = self._attempts.get(handle)
        return None if attempt is None or attempt.ended else attempt

    def _busy_nodes(self) -> set[str]:
        return {node for attempt in self._running() for node in attempt.nodes}

    def _repeat(self, call: Callable[[], None], wake: threading.Event, every_s: float) -> None:
        while not self._closing.is_set():
            try:
                call()
            except Exception:  # of ours: the executor must not go blind
                _log.exception("while looking after Slurm jobs")
            wake.wait(every_s)
            wake.clear()
