"""The scheduler itself: one method per event, answering with decisions. How a round decides is in ``rounds``.

It never asks for the time and never touches the world: the simulator and the executors drive the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trine.core.reason import Reason, Why
from trine.engine import explain
from trine.engine.engine_state import EngineError
from trine.engine.events import (
    CancelRequested,
    Decision,
    Eligible,
    Event,
    Fill,
    Finished,
    GpusCordoned,
    GpusUncordoned,
    Held,
    Interrupted,
    Measured,
    PriorityChanged,
    Progressed,
    Released,
    Started,
    Stop,
    Stopped,
    Submitted,
    Terminated,
    Tick,
)
from trine.engine.job_table import State
from trine.engine.rounds import Rounds
from trine.policy.base import FinishedJob


class Engine(Rounds):
    """Events in (``handle``), decisions out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._handlers: dict[type, Callable[[Any], list[Decision]]] = {
            Submitted: self._submitted,
            Tick: self._tick,
            Fill: self._fill,
            Started: self._started,
            Stopped: self._stopped,
            Finished: self._finished_job,
            Progressed: self._progressed,
            Measured: self._measured,
            CancelRequested: self._cancel_requested,
            Held: self._held,
            Released: self._released,
            Eligible: self._eligible,
            PriorityChanged: self._priority_changed,
            Terminated: self._terminated,
            Interrupted: self._interrupted,
            GpusCordoned: self._gpus_cordoned,
            GpusUncordoned: self._gpus_uncordoned,
        }

    def handle(self, event: Event) -> list[Decision]:
        """Take note of one event; the decisions are to be carried out in order."""
        return self._handlers[type(event)](event)

    # -- a job's life as planned ---------------------------------------------------------------------------------

    def _submitted(self, event: Submitted) -> list[Decision]:
        job = event.job
        types = self.perf.types_for(job)
        if not types:
            raise EngineError(f"job {job.id} can never run: {explain.never_fits(job, self.perf)}")
        class_rank = self.perf.variability.rank_of(job.app_class)
        job_index = self.table.add(job, self.perf.ideal_s(job), types, self.perf.step_s_by_type(job), class_rank)
        self.active_jobs.arrive(job_index)
        self.settled = False
        self.tell(event.now, job_index, "submitted")
        return []

    def _started(self, event: Started) -> list[Decision]:
        job_index, table = event.job_index, self.table
        if table.state[job_index] is State.STOPPING:
            return []  # a stop was ordered before the start was confirmed: it is still to come
        self.expect(job_index, State.STARTING)
        if self.ownership.waits(job_index):
            raise self.error(job_index, "is said to run, but its GPUs were not handed over yet")
        table.state[job_index] = State.RUNNING
        table.rate[job_index] = event.rate
        table.work_from_s[job_index] = event.work_from_s
        table.run_from_s[job_index] = event.now
        if self._calibration is not None:
            self._calibration.measured(job_index, event.rate)
        return []

    def _progressed(self, event: Progressed) -> list[Decision]:
        """What a job reports replaces what was guessed of it: length, speed, and so the time it needs anywhere."""
        job_index, table = event.job_index, self.table
        if event.total is not None and event.total > 0:
            table.set_length(job_index, event.total)
            table.open_ended[job_index] = False
        elif table.open_ended[job_index] and event.done > table.steps[job_index]:
            table.set_length(job_index, event.done)  # longer than was guessed, by an unknown amount
        table.done[job_index] = min(event.done, table.steps[job_index])
        self.reported.add(job_index)
        table.work_from_s[job_index] = event.now
        if event.rate > 0 and table.state[job_index] is State.RUNNING:
            self.run_at(job_index, event.rate)
        self.settled = False
        return []

    def _measured(self, event: Measured) -> list[Decision]:
        """The speed where it runs is known; what is expected of it elsewhere stays as it was."""
        job_index, table = event.job_index, self.table
        self.expect(job_index, State.RUNNING)
        table.done[job_index], table.rate[job_index] = event.done, event.rate
        table.work_from_s[job_index] = event.work_from_s
        if self._calibration is not None:
            self._calibration.measured(job_index, event.rate)
        self.settled = False
        return []

    def _stopped(self, event: Stopped) -> list[Decision]:
        job_index, table = event.job_index, self.table
        self.expect(job_index, State.STOPPING)
        if event.done < table.done[job_index] and job_index not in self.reported:
            raise self.error(job_index, f"work shrank from {table.done[job_index]} to {event.done} steps")
        return self._stands_still(event.now, job_index, event.done)

    def _stands_still(self, now: float, job_index: int, done: float) -> list[Decision]:
        """The job runs no longer, and waits, or starts again elsewhere."""
        table = self.table
        table.done[job_index] = min(done, table.steps[job_index])
        self.book_service(now, job_index)
        table.rate[job_index] = 0.0
        table.state[job_index] = State.STARTING if job_index in self.assigned else State.WAITING
        return self.release(now, job_index)

    def _finished_job(self, event: Finished) -> list[Decision]:
        job_index, table = event.job_index, self.table
        self.expect(job_index, State.RUNNING, State.STOPPING)  # it may end by itself while it is being stopped
        table.state[job_index] = State.FINISHED
        table.done[job_index] = table.steps[job_index]
        self.book_service(event.now, job_index)
        table.assigned[job_index] = False
        table.finished[job_index] = True
        if self.ownership.waits(job_index):
            self.ownership.cancel(job_index)
        self.unassign(job_index)
        self.count_finished(job_index)
        self.settled = False
        if self._learns:
            gpu_time_s, work_s = table.attained_s[job_index] * table.gpus[job_index], table.ideal_s[job_index]
            self.policy.finished(FinishedJob(table.jobs[job_index], float(gpu_time_s), float(work_s)))
        self.tell(event.now, job_index, "finished")
        return self.release(event.now, job_index)

    # -- what no plan foresees: users' requests, faults, GPUs that leave and return --------------------------------

    def _cancel_requested(self, event: CancelRequested) -> list[Decision]:
        self.stop_offering(event.job_index)
        decisions = self._take_back(event.now, event.job_index, Why.CANCELLED)
        if event.job_index not in self.ownership.holding:
            self._over(event.now, event.job_index)
        return decisions

    def _held(self, event: Held) -> list[Decision]:
        self.stop_offering(event.job_index)
        self.tell(event.now, event.job_index, "held")
        return self._take_back(event.now, event.job_index, Why.HELD)

    def _released(self, event: Released) -> list[Decision]:
        if self.table.types[event.job_index]:
            self.offer_again(event.job_index)
        self.tell(event.now, event.job_index, "released")
        return []

    def _eligible(self, event: Eligible) -> list[Decision]:
        """The time before is no waiting for GPUs: it must not count as such with policies and placements."""
        self.table.idle_from_s[event.job_index] = event.now
        return self._released(Released(event.now, event.job_index))

    def _priority_changed(self, event: PriorityChanged) -> list[Decision]:
        """The next round ranks by it: nothing that was decided is undone before that."""
        self.table.set_priority(event.job_index, event.priority)
        self._planner.forget()
        self.settled = False
        return []

    def _terminated(self, event: Terminated) -> list[Decision]:
        """Its processes are gone, for whatever reason: nothing of it stays behind."""
        job_index = event.job_index
        if self.table.state[job_index] is State.FINISHED:
            return []
        self.stop_offering(job_index)
        self._drop_assignment(job_index)
        if job_index not in self.ownership.holding:
            self._over(event.now, job_index)
            return []
        self.book_service(event.now, job_index)
        decisions = self.release(event.now, job_index)
        self._over(event.now, job_index)
        return decisions

    def _interrupted(self, event: Interrupted) -> list[Decision]:
        job_index = event.job_index
        if self.table.state[job_index] is not State.STOPPING:
            self._drop_assignment(job_index)
        self.settled = False
        self.tell(event.now, job_index, "lost")
        return self._stands_still(event.now, job_index, event.done)

    def _gpus_cordoned(self, event: GpusCordoned) -> list[Decision]:
        for gpu in event.gpus:
            self.free.cordon(gpu)
            self.cordoned.add(gpu)
        # A start that still waits for such a GPU would be a new one there: the next round decides it again.
        for job_index in [i for i in self.assigned if self.ownership.waits(i)]:
            if self.cordoned.intersection(self.assigned[job_index]):
                self._take_back(event.now, job_index, Why.PREEMPTED)
        self._capacity_changed()
        return []

    def _gpus_uncordoned(self, event: GpusUncordoned) -> list[Decision]:
        used = {gpu for gpus in self.assigned.values() for gpu in gpus}
        for gpu in event.gpus:
            if gpu not in self.excluded:
                self.free.restore(gpu, in_use=gpu in used)
            self.cordoned.discard(gpu)
        self._capacity_changed()
        return []

    def _take_back(self, now: float, job_index: int, why: Why) -> list[Decision]:
        """Undo an assignment; a job that holds its GPUs is ordered to stop, unless it was before."""
        if job_index not in self.assigned:
            return []
        waited = self.ownership.waits(job_index)
        self._drop_assignment(job_index)
        if waited:
            self.table.state[job_index] = State.STOPPING if job_index in self.ownership.holding else State.WAITING
            return []
        self.book_service(now, job_index)
        self.table.state[job_index] = State.STOPPING
        self.tell(now, job_index, "stopping")
        return [Stop(job_index, self.table.epoch[job_index], False, why)]

    def _drop_assignment(self, job_index: int) -> None:
        """Outside a round: what the planner remembers of the last round no longer holds."""
        if self.ownership.waits(job_index):
            self.ownership.cancel(job_index)
        if self.unassign(job_index):
            self.table.assigned[job_index] = False
            self.settled = False
            self._planner.forget()

    def _over(self, now: float, job_index: int) -> None:
        """The job is over without having finished."""
        self.table.state[job_index] = State.FINISHED
        self.table.finished[job_index] = True
        self.table.assigned[job_index] = False
        self.count_finished(job_index)
        self.tell(now, job_index, "left")

    def _capacity_changed(self) -> None:
        self.count_capacity()
        self._planner.forget()

    # -- rounds --------------------------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> list[Decision]:
        return self.decide(event.now)

    def _fill(self, event: Fill) -> list[Decision]:
        return self.decide(event.now, fill=True)

    # -- what others ask -----------------------------------------------------------------------------------------

    def reason(self, decision: Decision) -> Reason:
        """The sentence behind a decision."""
        return explain.of_decision(self, decision)

    def explain(self, job_index: int) -> Reason:
        """Why the job is in the state it is in, in words."""
        return explain.of_job(self, job_index)
