"""A round: from the jobs of a moment to decisions, in numbered steps, and when the next one is due.

What happened before it came to a round is in ``engine``; who may have which GPUs is planned by the planners.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trine.core.reason import Trade, Why
from trine.engine.engine_state import EngineState
from trine.engine.events import Decision, Stop
from trine.engine.job_table import State
from trine.engine.planner import Gpus, Moves, Plan, Planner
from trine.engine.ranking_planner import RankingPlanner
from trine.engine.relocation import Relocations
from trine.engine.selection_planner import SelectionRound, changed_jobs, runs_as_selected
from trine.engine.speed_calibration import SpeedCalibration
from trine.engine.value_planner import ValueRound
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement
from trine.policy.base import Policy, Ranking, Selection, check_ranking
from trine.policy.view import View


class Rounds(EngineState):
    """Decides about the jobs and GPUs of the state."""

    def __post_init__(self) -> None:
        if self.strict is False:
            self.policy.without_blocking()
        self.policy.prepare(self.perf)
        super().__post_init__()
        self._make_planners()
        self._look_at_plugins()
        self._calibration = SpeedCalibration(self) if self.policy.calibrates else None

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
        self._trades = type(policy).trade is not Policy.trade
        # What comes with trine is tested to keep its contract.
        self._from_file = not type(policy).__module__.startswith("trine.")

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

    def decide(self, now: float, fill: bool = False) -> list[Decision]:
        """One round: the stops, and those starts that need not wait for a stop.

        ``fill`` gives out only GPUs that no job has: no job is stopped or moved.
        """
        if not self.active_jobs.count:
            self.settled = True
            return []
        # 1. View: what the policy may know, at this moment.
        if self.neighbours.unsettled:
            self.settle_speeds(now)
        if self._calibration is not None and not fill:
            self._calibration.learn()
        view = self.view(now)
        view.news = self.active_jobs.news()
        if self.quotas.limiting:
            view.within_quotas = self.within_quotas
        # 2. Rank: an order of jobs, or exactly the jobs that run.
        chosen = self.policy.rank(view)
        if self._from_file:
            check_ranking(self.policy.name, chosen, len(view), len(self.free.pools))
        # 3. Quotas, and 4. plan on the index of free GPUs: nothing has been stopped yet.
        # Rounds are many and jobs that may not be stopped few: the common case goes straight to the plan.
        protected = self.protected(now) if self.table.min_run_s or self.aside else None
        if protected:
            plan = self._plan_around(now, chosen, fill, protected)
        elif isinstance(chosen, Selection):
            plan = self._realise(now, chosen, fill)
        else:
            plan = self._serve(now, chosen, fill)
        self._note(now, plan, view, fill, protected)
        if not plan.stops and not plan.starts and plan.co_runners is None:
            return []
        # 5. Hand over: GPUs pass from job to job once their owners have left, and 6. decisions.
        stops, elsewhere = self._stop_decisions(now, plan), self.adopt_pairs(plan)
        return stops + self._start_decisions(now, plan) + self.claim_again(now, elsewhere)

    def _note(self, now: float, plan: Plan, view: View, fill: bool, protected: Mapping[int, Gpus] | None) -> None:
        """What explanations and timers need of this round, and whether deciding again would change nothing.

        After filling, a whole round may still stop or move jobs; protection ends by itself as time passes.
        """
        last = self.last_round
        if view.over_quota:
            last.over_quota |= view.over_quota
        last.blocked_by, last.refusals, last.jobs = plan.blocked_by, plan.refusals, len(self.table.jobs)
        last.at_s, last.refusals_end_s = now, plan.wakes_s
        passing = plan.provisional
        if protected:
            passing = passing or any(job_index not in self.aside for job_index in protected)
        # Whether a selection changes with time depends on the shares of the moment: asked anew every round.
        repeats = self._selection_stays and not self.policy.changes_with_time if last.selected else self._repeats
        self.settled = not fill and not passing and (repeats or (not plan.stops and not plan.starts))
        if passing or plan.wakes_s < math.inf:
            self._planner.forget()

    def _plan_around(self, now: float, chosen: Ranking | Selection, fill: bool, protected: dict[int, Gpus]) -> Plan:
        """The plan for all jobs but those that are protected, whose GPUs count as taken."""
        self._planner.forget()  # what it remembers of the last round may be about other GPUs
        for job_index in protected:
            del self.assigned[job_index]
        try:
            if isinstance(chosen, Selection):
                return self._realise(now, chosen.without(protected), fill)
            return self._serve(now, chosen, fill, protected)
        finally:
            self.assigned.update(protected)

    def _serve(self, now: float, ranking: Ranking, fill: bool, protected: Mapping[int, Gpus] | None = None) -> Plan:
        """GPUs in order of rank."""
        job_indices = self.active_jobs.job_indices()[ranking.order]
        if protected:
            others = ~np.isin(job_indices, list(protected))
            job_indices, ranking = job_indices[others], ranking.among(others)
        if self.quotas.limiting:
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
        if self.quotas.limiting:
            spare = () if selection.values is None else selection.values.order
            job_indices = list(dict.fromkeys([*selection.wanted, *spare]))
            allowed = {job_indices[at] for at in np.flatnonzero(self.within_quotas(job_indices)).tolist()}
            selection = selection.among(allowed)
        last = self.last_round
        last.selected, last.held_back, last.order = True, Why.NOT_DECIDED, selection.wanted
        self._planner.space_sharing = self.space_sharing
        changed = changed_jobs(self._planner, selection)
        if not fill and selection.values is None and runs_as_selected(self._planner, selection, changed):
            return Plan()
        if selection.values is not None and self.placement.sticky:
            valued = ValueRound(self._planner, now, selection, selection.values, self._relocations)
            return valued.fill() if fill else valued.run()
        realised = SelectionRound(self._planner, now, selection, changed)
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
            self.tell(now, job_index, "moving" if moves else "stopping")
            why = Why.MOVED if moves else Why.PREEMPTED
            for_job, gain_s = plan.stopped_for.get(job_index, -1), plan.gains_s.get(job_index, 0.0)
            trade = plan.trades.get(job_index)
            if trade is None and self._trades:
                trade = self._trade_by_policy(job_index, going_on.get(job_index), for_job)
            decisions.append(Stop(job_index, self.table.epoch[job_index], moves, why, for_job, gain_s, trade))
        return decisions

    def _trade_by_policy(self, job_index: int, gpus: Gpus | None, for_job: int) -> Trade | None:
        """What the policy weighed a stop by, or a move to another type; and what the job offers that gets the GPUs."""
        if not self.last_round.selected:
            return None
        old, new = int(self.table.type_index[job_index]), -1 if gpus is None else self.free.type_of(gpus)
        trade = self.policy.trade(job_index, old, new)
        said = "" if trade is None or for_job < 0 else self.policy.explain_start(for_job, old)
        if trade is None or not said:
            return trade
        return trade._replace(sentence=f"{trade.sentence} Job {self.table.jobs[for_job].id}: {said}")

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
        if not self.active_jobs.count:
            return math.inf
        wakes_s = self.policy.wakes_s
        if self._timed or self.last_round.refusals_end_s < math.inf:
            return min(wakes_s, self.placement_wakes_s)
        return wakes_s

    @property
    def placement_wakes_s(self) -> float:
        """The same for the placement alone: a job that it refused gets GPUs then, whether or not a round is due."""
        if not self.active_jobs.count:
            return math.inf
        own_s = self.placement.wakes_s if self._timed else math.inf
        # What was due when it was last asked was taken into account then, and would only stay due.
        return min(self.last_round.refusals_end_s, own_s if own_s > self.last_round.at_s else math.inf)

    @property
    def realised(self) -> Selection | None:
        """The selection that runs as it is; ``None`` if there is none or something came in between."""
        return self._planner.realised
