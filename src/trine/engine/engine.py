"""The scheduler itself: one method per event, answering with decisions; ``decide`` is a round.

It never asks for the time and never touches the world: the simulator and the executors drive the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trine.core.reason import Reason, Trade, Why
from trine.engine import explain
from trine.engine.engine_state import EngineError, EngineState
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
from trine.engine.planner import Gpus, Moves, Plan, Planner
from trine.engine.ranking_planner import RankingPlanner
from trine.engine.relocation import Relocations
from trine.engine.selection_planner import SelectionRound, runs_as_selected
from trine.engine.speed_calibration import SpeedCalibration
from trine.engine.value_planner import ValueRound
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement
from trine.policy.base import FinishedJob, Policy, Ranking, Selection, check_ranking
from trine.policy.view import View


class Engine(EngineState):
    """Events in (``handle``), decisions out."""

    def __post_init__(self) -> None:
        if self.strict is False:
            self.policy.without_blocking()
        self.policy.prepare(self.perf)
        super().__post_init__()
        self._make_planners()
        self._look_at_plugins()
        self._calibration = SpeedCalibration(self) if self.policy.calibrates else None
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
            Terminated: self._terminated,
            Interrupted: self._interrupted,
            GpusCordoned: self._gpus_cordoned,
            GpusUncordoned: self._gpus_uncordoned,
        }

    def _make_planners(self) -> None:
        """The planner, and its mode for policies that rank; a selection is realised by a ``SelectionRound``."""
        placement, moves = self.placement, Moves(self.quote, self.costs)
        self._planner = Planner(
            self.table,
            self.free,
            self.assigned,
            placement,
            self.policy.is_strict if self.strict is None else self.strict,
            self.policy.is_preemptive,
            self.rules,
            moves if placement.weighs_moves and self.rules.weigh_moves else None,
            self.co_runners,
            self.perf,
            quotes=moves,
        )
        self._relocations = Relocations(moves) if placement.relocates else None
        self._ranking_planner = RankingPlanner(self._planner, self._relocations)

    def _look_at_plugins(self) -> None:
        """What never changes of policy and placement; rounds are many."""
        policy, placement = self.policy, self.placement
        # An order that only events change, placed by a rule without chance: planning again gives the same plan.
        anew = placement.repeatable and not policy.changes_with_starts
        repeatable = not self.rules.keep_evictions if placement.sticky else anew
        self._repeats = repeatable and not policy.changes_with_time and not placement.changes_with_starts
        # A selection once realised by a sticky placement stays as it is.
        self._selection_stays = placement.sticky and not placement.changes_with_starts
        # Most placements care for neither times nor starts.
        self._timed = type(placement.chooses).wakes_s is not Placement.wakes_s
        self._tells_starts = getattr(placement.started, "__func__", None) is not Placement.started
        self._learns = type(policy).finished is not Policy.finished
        # What comes with trine is tested to keep its contract.
        self._from_file = not type(policy).__module__.startswith("trine.")

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
            table.ideal_s[job_index] *= event.total / table.steps[job_index]
            table.steps[job_index] = event.total
            table.open_ended[job_index] = False
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

    def use_model(self, perf: PerfModel) -> None:
        """Decide by another performance model of the same cluster from now on."""
        self.perf = self._planner.perf = perf
        self.policy.use_model(perf)
        self.placement.use_model(perf)
        self.neighbours.use_model(perf)
        table = self.table
        for job_index in self.active_jobs.job_indices().tolist():
            job = table.jobs[job_index]
            table.types[job_index], table.step_s[job_index] = perf.types_for(job), perf.step_s_by_type(job)
            best = table.step_s[job_index][table.types[job_index][0]]
            table.ideal_s[job_index] = table.steps[job_index] * best
        table.revision += 1
        self._planner.forget()
        if self._relocations is not None:
            self._relocations.forget()

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
        self.tell(now, job_index, "told to stop")
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

    def decide(self, now: float, fill: bool = False) -> list[Decision]:
        """One round: the stops, and those starts that need not wait for a stop.

        ``fill`` gives out only GPUs that no job has: no job is stopped or moved.
        """
        if not len(self.active_jobs):
            self.settled = True
            return []
        # 1. View: what the policy may know, at this moment.
        if self.neighbours.unsettled:
            self.settle_speeds(now)
        if self._calibration is not None and not fill:
            self._calibration.learn()
        view = self._view_of_round(now)
        # 2. Rank: an order of jobs, or exactly the jobs that run.
        chosen = self.policy.rank(view)
        if self._from_file:
            check_ranking(self.policy.name, chosen, len(view), len(self.free.pools))
        # 3. Quotas, and 4. plan on the index of free GPUs: nothing has been stopped yet.
        # Rounds are many and jobs that may not be stopped few: the common case goes straight to the plan.
        protected = self.protected(now) if self.table.min_run_s or self.aside else None
        plan = self._plan_around(now, chosen, fill, protected) if protected else self._plan(now, chosen, fill)
        self._note(now, plan, view)
        self._settle(plan, fill, protected)
        if not plan.stops and not plan.starts and plan.co_runners is None:
            return []
        # 5. Hand over: GPUs pass from job to job once their owners have left, and 6. decisions.
        stops, elsewhere = self._stop_decisions(now, plan), self.adopt_pairs(plan)
        return stops + self._start_decisions(now, plan) + self.claim_again(now, elsewhere)

    def _view_of_round(self, now: float) -> View:
        view = self.view(now)
        view.news = self.active_jobs.news()
        if self.quotas:
            view.within_quotas = self.within_quotas
        return view

    def _note(self, now: float, plan: Plan, view: View) -> None:
        """What explanations and timers need of this round."""
        last = self.last_round
        if view.over_quota:
            last.over_quota |= view.over_quota
        last.blocked_by, last.refusals, last.jobs = plan.blocked_by, plan.refusals, len(self.table)
        last.at_s, last.refusals_end_s = now, plan.wakes_s

    def _settle(self, plan: Plan, fill: bool, protected: Mapping[int, Gpus] | None) -> None:
        """Whether deciding again would change nothing.

        After filling, a whole round may still stop or move jobs; protection ends by itself as time passes.
        """
        passing = plan.provisional
        if protected:
            passing = passing or any(job_index not in self.aside for job_index in protected)
        # Whether a selection changes with time depends on the shares of the moment: asked anew every round.
        selected = self.last_round.selected
        repeats = self._selection_stays and not self.policy.changes_with_time if selected else self._repeats
        self.settled = not fill and not passing and (repeats or (not plan.stops and not plan.starts))
        if passing or plan.wakes_s < math.inf:
            self._planner.forget()

    def _plan(
        self, now: float, chosen: Ranking | Selection, fill: bool, protected: Mapping[int, Gpus] | None = None
    ) -> Plan:
        if isinstance(chosen, Selection):
            return self._realise(now, chosen, fill)
        return self._serve(now, chosen, fill, protected)

    def _plan_around(self, now: float, chosen: Ranking | Selection, fill: bool, protected: dict[int, Gpus]) -> Plan:
        """The plan for all jobs but those that are protected, whose GPUs count as taken."""
        self._planner.forget()  # what it remembers of the last round may be about other GPUs
        for job_index in protected:
            del self.assigned[job_index]
        try:
            if isinstance(chosen, Selection):
                chosen = chosen.without(protected)
            return self._plan(now, chosen, fill, protected)
        finally:
            self.assigned.update(protected)

    def _serve(self, now: float, ranking: Ranking, fill: bool, protected: Mapping[int, Gpus] | None = None) -> Plan:
        """GPUs in order of rank."""
        job_indices = self.active_jobs.job_indices()[ranking.order]
        if protected:
            others = ~np.isin(job_indices, list(protected))
            job_indices, ranking = job_indices[others], ranking.among(others)
        if self.quotas:
            kept = self.within_quotas(job_indices.tolist())
            job_indices, ranking = job_indices[kept], ranking.among(kept)
        last = self.last_round
        last.selected, last.held_back, last.order = False, ranking.held_back, job_indices
        last.stop_reason = ranking.stop_reason
        if fill:
            return self._ranking_planner.fill(now, job_indices, ranking.type_indices)
        return self._ranking_planner.plan(now, job_indices, ranking)

    def _realise(self, now: float, selection: Selection, fill: bool) -> Plan:
        """GPUs for exactly the jobs selected."""
        if self.quotas:
            spare = () if selection.values is None else selection.values.order
            job_indices = list(dict.fromkeys([*selection.wanted, *spare]))
            allowed = {job_indices[at] for at in np.flatnonzero(self.within_quotas(job_indices)).tolist()}
            selection = selection.among(allowed)
        last = self.last_round
        last.selected, last.held_back, last.order = True, Why.NOT_DECIDED, selection.wanted
        self._planner.space_sharing = self.space_sharing
        if not fill and selection.values is None and runs_as_selected(self._planner, selection):
            return Plan()
        if selection.values is not None and self.placement.sticky:
            valued = ValueRound(self._planner, now, selection, selection.values, self._relocations)
            return valued.fill() if fill else valued.run()
        realised = SelectionRound(self._planner, now, selection)
        return realised.fill() if fill else realised.run()

    # -- from the plan to decisions ------------------------------------------------------------------------------

    def _stop_decisions(self, now: float, plan: Plan) -> list[Decision]:
        decisions: list[Decision] = []
        going_on = dict(plan.starts) if plan.stops else {}
        for job_index in plan.stops:
            del self.assigned[job_index]
            self.table.assigned[job_index] = False
            if self.ownership.waits(job_index):
                self._forget_start(job_index)
                continue
            moves = job_index in going_on
            self.book_service(now, job_index)
            self.table.state[job_index] = State.STOPPING
            self.tell(now, job_index, "told to move" if moves else "told to stop")
            why = Why.MOVED if moves else Why.PREEMPTED
            for_job, gain_s = plan.stopped_for.get(job_index, -1), plan.gains_s.get(job_index, 0.0)
            trade = plan.trades.get(job_index) or self._trade_by_policy(job_index, going_on.get(job_index))
            decisions.append(Stop(job_index, self.table.epoch[job_index], moves, why, for_job, gain_s, trade))
        return decisions

    def _trade_by_policy(self, job_index: int, gpus: Gpus | None) -> Trade | None:
        """What the policy weighed a stop by, or a move to another type."""
        if not self.last_round.selected:
            return None
        new = -1 if gpus is None else self.free.type_of(gpus)
        return self.policy.trade(job_index, int(self.table.type_index[job_index]), new)

    def _forget_start(self, job_index: int) -> None:
        self.ownership.cancel(job_index)
        self.table.state[job_index] = State.STOPPING if job_index in self.ownership.holding else State.WAITING

    def _start_decisions(self, now: float, plan: Plan) -> list[Decision]:
        table = self.table
        decisions: list[Decision] = []
        for job_index, gpus in plan.starts:
            if self._tells_starts:
                ask = Ask(table.jobs[job_index], job_index, now, type_index=self.free.type_of(gpus), columns=table)
                self.placement.started(ask, gpus)
            self.assigned[job_index] = gpus
            table.assigned[job_index] = True
            if job_index not in self.ownership.holding:
                table.run_from_s[job_index] = now
            table.type_index[job_index] = self.free.type_of(gpus)
            if self.ownership.claim(job_index, gpus, self.co_runners.get(job_index, -1)):
                decisions.append(self.start(now, job_index))
            elif table.state[job_index] is State.WAITING:
                table.state[job_index] = State.STARTING
        return decisions

    # -- when to decide again ------------------------------------------------------------------------------------

    def settle_speeds(self, now: float) -> None:
        """Rate jobs anew whose neighbours came or left: the world says when all of one moment is carried out."""
        if not self.neighbours.unsettled:
            return
        if self._relocations is not None:
            self._relocations.forget()
        for affected in self.neighbours.settle():
            if self.table.state[affected.job_index] is State.RUNNING:
                self.neighbours_changed(now, affected)
                self.settled = False

    @property
    def can_wait(self) -> bool:
        """Deciding again before the next event would change nothing."""
        if not self.settled:
            return False
        changes, sticky = self.policy.changes_with_time, self.placement.sticky
        if self.last_round.selected and changes:  # another selection may be due although no job waits
            return False
        if not sticky and not self.placement.repeatable:
            return not self.assigned
        if not changes:
            return True
        return self.waiting_count == 0 and (sticky or not self.assigned)

    @property
    def wakes_s(self) -> float:
        """When deciding again changes something although nothing happens; infinity: never.

        With no job to decide about the policy is not asked: what it wakes for would stay due."""
        if not len(self.active_jobs):
            return math.inf
        wakes_s = self.policy.wakes_s
        if self._timed or self.last_round.refusals_end_s < math.inf:
            return min(wakes_s, self.placement_wakes_s)
        return wakes_s

    @property
    def placement_wakes_s(self) -> float:
        """The same for the placement alone: a job that it refused gets GPUs then, whether or not a round is due."""
        if not len(self.active_jobs):
            return math.inf
        own_s = self.placement.wakes_s if self._timed else math.inf
        # What was due when it was last asked was taken into account then, and would only stay due.
        return min(self.last_round.refusals_end_s, own_s if own_s > self.last_round.at_s else math.inf)

    # -- what others ask -----------------------------------------------------------------------------------------

    @property
    def realised(self) -> Selection | None:
        """The selection that runs as it is; ``None`` if there is none or something came in between."""
        return self._planner.realised

    def reason(self, decision: Decision) -> Reason:
        """The sentence behind a decision."""
        return explain.of_decision(self, decision)

    def explain(self, job_index: int) -> Reason:
        """Why the job is in the state it is in, in words."""
        return explain.of_job(self, job_index)
