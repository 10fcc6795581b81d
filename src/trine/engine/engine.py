"""The scheduler itself: one method per transition, driven by events, answering with decisions.

It never asks for the time and never touches the world: the simulator and the executors drive the same code.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.core.cluster import Cluster
from trine.core.compat import Compat
from trine.core.costs import StopCosts
from trine.core.errors import TrineError
from trine.core.reason import Reason, Why
from trine.engine import reasons, sharing, upsets
from trine.engine.active_jobs import ActiveJobs
from trine.engine.events import Decision, Event, Finished, Start, Started, Stop, Stopped, Submitted, Tick
from trine.engine.gpu_ownership import GpuOwnership, GpuOwnershipError
from trine.engine.moves import Moves
from trine.engine.plan import Gpus, Plan, Planner, PlannerRules
from trine.engine.quotas import Quotas
from trine.engine.relocation import Relocations
from trine.engine.selection_planner import ExactRound, runs_as_selected
from trine.engine.table import JobTable, State
from trine.perf.model import PerfModel, Speed
from trine.perf.traffic import Traffic
from trine.placement.base import Ask, Placement
from trine.placement.free import FreeIndex
from trine.policy.base import Policy, Ranking, Selection, check_ranking
from trine.policy.view import Flags, Ints, RemainingTime, View, remaining_by_work

_STORY_LENGTH = 20_000


class EngineError(TrineError):
    """A bug in trine, a policy or a placement: carries the story of the job concerned."""


@dataclass
class Engine:
    """Events in (``handle``), decisions out."""

    cluster: Cluster
    policy: Policy
    placement: Placement
    perf: PerfModel
    strict: bool | None = None
    """Head-of-line blocking; ``None`` leaves it to the policy."""
    compat: Compat = field(default_factory=Compat)
    costs: StopCosts = field(default_factory=StopCosts)
    """What stopping a job costs, where a placement weighs moves."""
    quotas: Quotas = field(default_factory=Quotas)
    """GPUs that groups and users may hold at most."""
    space_sharing: bool = True
    """The world can run two jobs on the same GPUs; without it the second of a pair waits."""
    rules: PlannerRules = field(default_factory=PlannerRules)
    remaining_time: RemainingTime = remaining_by_work
    """How the remaining time of jobs is computed."""

    def __post_init__(self) -> None:
        self.policy.prepare(self.perf)
        self.table = JobTable()
        self.free = FreeIndex(self.cluster)
        self.assigned: dict[int, Gpus] = {}
        """GPUs by job number, as planned."""
        self.co_runners: dict[int, int] = {}
        """Who shares its GPUs with whom, both ways, as planned; a job that is not in it is alone."""
        self.traffic = Traffic.of(self.perf)
        """Which running gangs share links; ``None`` where the performance model knows no links."""
        self.rerated: dict[int, None] = {}
        """Running jobs whose speed changed because a job came to their GPUs or links, or left; the world empties it."""
        self.ownership = GpuOwnership(self.cluster.gpu_count)
        """Who holds which GPUs, as the world last confirmed."""
        self.settled = False
        """The last round changed nothing, so that deciding again without an event would change nothing either."""
        self.exact = False
        """The last round realised a selection instead of serving an order."""
        self.blocked_by, self.held_back = -1, Why.NOT_DECIDED
        self.stop_reason = ""
        """What the policy says of a job for which another is stopped."""
        self.refusals: dict[int, Reason] = {}
        self._decided_s, self._refusals_end_s = -math.inf, math.inf
        """When the last round was, and when the first refusal of it would be decided otherwise."""
        self.over_quota: set[int] = set()
        self.cordoned: set[int] = set()
        """GPUs out of service."""
        self.resumed: dict[int, float] = {}
        """Observed rates (0: none) of jobs put back that may share links: ``resume.rate_resumed`` rates them."""
        self.reported: set[int] = set()
        """Jobs that told their progress, some of which may be lost when they stop."""
        self.aside: set[int] = set()
        """Jobs that are left out of all decisions; those that hold GPUs keep them until they end by themselves."""
        self._order: Ints | Mapping[int, int] = {}
        """Job numbers in the order of the last round."""
        self._ranks: tuple[Ints | Mapping[int, int], dict[int, int]] | None = None
        self.ranked = 0
        """Jobs from this number on arrived after the last round."""
        self.active_jobs = ActiveJobs(self.table)
        self._finished = 0
        self._story: deque[tuple[float, int, str, tuple[int, ...]]] = deque(maxlen=_STORY_LENGTH)
        # An order that only events change, placed by a rule without chance: planning again gives the same plan.
        repeatable = not self.rules.keep_evictions if self.placement.sticky else self.placement.repeatable
        self._repeats = repeatable and not self.policy.changes_with_time and not self.placement.changes_with_starts
        # Most placements care for neither times nor starts, and rounds are many.
        self._timed = type(self.placement.chooses).wakes_s is not Placement.wakes_s
        self._tells_starts = getattr(self.placement.started, "__func__", None) is not Placement.started
        # What comes with trine is tested to keep its word, and simulated rounds are many.
        self._from_file = not type(self.policy).__module__.startswith("trine.")
        self.excluded = self.placement.excluded()
        for gpu in self.excluded:
            self.free.cordon(gpu)
        self._capacity = [p.total for p in self.free.pools]
        self._planner = self._make_planner()
        self._handlers = self._all_handlers()

    def _make_planner(self) -> Planner:
        moves = Moves(self.quote, self.costs)
        return Planner(
            self.table,
            self.free,
            self.assigned,
            self.placement,
            self.policy.is_strict if self.strict is None else self.strict,
            self.policy.is_preemptive,
            self.rules,
            moves if self.placement.weighs_moves and self.rules.weigh_moves else None,
            self.co_runners,
            self.perf,
            relocations=Relocations(moves) if self.placement.relocates else None,
        )

    def _all_handlers(self) -> dict[type, Callable[[Any], list[Decision]]]:
        return {
            Submitted: self._submitted,
            Tick: self._tick,
            Started: self._started,
            Stopped: self._stopped,
            Finished: self._finished_job,
            **upsets.handlers(self),
        }

    def handle(self, event: Event) -> list[Decision]:
        """Take note of one event; the decisions are to be carried out in order."""
        return self._handlers[type(event)](event)

    # -- transitions ---------------------------------------------------------------------------------------------

    def _submitted(self, event: Submitted) -> list[Decision]:
        job = event.job
        types = self.perf.types_for(job)
        if not types:
            raise EngineError(f"job {job.id} can never run: {reasons.never_fits(job, self.perf)}")
        class_rank = self.perf.variability.rank_of(job.app_class)
        job_index = self.table.add(job, self.perf.ideal_s(job), types, self.perf.step_s_by_type(job), class_rank)
        self.active_jobs.arrive(job_index)
        self.settled = False
        self.tell(event.now, job_index, "submitted")
        return []

    def _tick(self, event: Tick) -> list[Decision]:
        return self.decide(event.now)

    def decide(self, now: float, fill: bool = False) -> list[Decision]:
        """Rank, plan, and emit the stops and those starts that need not wait for a stop.

        ``fill`` gives out only GPUs that nobody has: no job is stopped or moved.
        """
        if not len(self.active_jobs):
            self.settled = True
            return []
        if self.traffic is not None:
            self.settle_traffic(now)
        view = self.view(now)
        view.news = self.active_jobs.news()
        if self.quotas:
            view.within_quotas = self._within_quotas
        chosen = self.policy.rank(view)
        if self._from_file:
            check_ranking(self.policy.name, chosen, len(view), len(self.free.pools))
        # Rounds are many and jobs with such wishes few: the common case goes straight to the plan.
        protected = self._protected(now) if self.table.min_run_s or self.aside else None
        plan = self._plan_around(now, chosen, fill, protected) if protected else self._plan(now, chosen, fill)
        if view.over_quota:
            self.over_quota |= view.over_quota
        self.blocked_by, self.refusals, self.ranked = plan.blocked_by, plan.refusals, len(self.table)
        self._decided_s, self._refusals_end_s = now, plan.wakes_s
        # After filling, a whole round may still stop or move jobs; protection ends by itself as time passes.
        passing = plan.provisional
        if protected:
            passing = passing or any(job_index not in self.aside for job_index in protected)
        # A selection once realised by a sticky placement stays as it is.
        repeats = self._repeats
        if self.exact:
            repeats = self.placement.sticky and not self.policy.changes_with_time
            repeats = repeats and not self.placement.changes_with_starts
        self.settled = not fill and not passing and (repeats or (not plan.stops and not plan.starts))
        if passing or plan.wakes_s < math.inf:
            self._planner.forget()
        if not plan.stops and not plan.starts and plan.co_runners is None:
            return []
        stops, elsewhere = self._stop_decisions(now, plan), sharing.adopt(self, plan)
        return stops + self._start_decisions(now, plan) + sharing.claim_again(self, now, elsewhere)

    def _protected(self, now: float) -> dict[int, Gpus]:
        """Jobs that may not be stopped or moved now, with their GPUs; pairs are the policy's to dissolve."""
        least_s, table = self.table.min_run_s, self.table
        return {
            job_index: gpus
            for job_index, gpus in self.assigned.items()
            if (job_index in self.aside or now - table.run_from_s[job_index] < least_s.get(job_index, 0.0))
            and job_index not in self.co_runners
            and not self.ownership.waits(job_index)
        }

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
            if isinstance(chosen, Selection) and not protected.keys().isdisjoint(chosen.wanted):
                chosen = chosen.among(chosen.wanted.keys() - protected.keys())
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
            kept = self._within_quotas(job_indices.tolist())
            job_indices, ranking = job_indices[kept], ranking.among(kept)
        self.exact, self.held_back, self._order = False, ranking.held_back, job_indices
        self.stop_reason = ranking.stop_reason
        return (
            self._planner.fill(now, job_indices, ranking.type_indices)
            if fill
            else self._planner.plan(now, job_indices, ranking)
        )

    def _realise(self, now: float, selection: Selection, fill: bool) -> Plan:
        """GPUs for exactly the jobs selected."""
        if self.quotas:
            job_indices = list(selection.wanted)
            allowed = {job_indices[at] for at in np.flatnonzero(self._within_quotas(job_indices)).tolist()}
            selection = selection.among(allowed)
        self.exact, self.held_back, self._order = True, Why.NOT_DECIDED, selection.wanted
        self._planner.space_sharing = self.space_sharing
        if not fill and runs_as_selected(self._planner, selection):
            return Plan()
        realised = ExactRound(self._planner, now, selection)
        return realised.fill() if fill else realised.run()

    def _within_quotas(self, job_indices: list[int]) -> Flags:
        """Which of the jobs do not exceed a quota if served in this order; those that run do not."""
        jobs, running = self.table.jobs, self.table.assigned
        waits = [at for at, job_index in enumerate(job_indices) if not running[job_index]]
        leaving = [job_index for job_index in self.ownership.holding if job_index not in self.assigned]
        holding = [jobs[job_index] for job_index in [*(s for s in job_indices if running[s]), *leaving]]
        over = self.quotas.exceeded(holding, [jobs[job_indices[at]] for at in waits])
        kept = np.ones(len(job_indices), dtype=np.bool_)
        kept[np.array(waits, np.int64)[over]] = False
        self.over_quota = {job_indices[at] for at in np.flatnonzero(~kept).tolist()}
        return kept

    def _started(self, event: Started) -> list[Decision]:
        job_index, table = event.job_index, self.table
        if table.state[job_index] is State.STOPPING:
            return []  # told to stop before the start was confirmed: the stop is still to come
        self._expect(job_index, State.STARTING)
        if self.ownership.waits(job_index):
            raise self._error(job_index, "is said to run, but its GPUs were not handed over yet")
        table.state[job_index] = State.RUNNING
        table.rate[job_index] = event.rate
        table.work_from_s[job_index] = event.work_from_s
        table.run_from_s[job_index] = event.now
        return []

    def _stopped(self, event: Stopped) -> list[Decision]:
        job_index, table = event.job_index, self.table
        self._expect(job_index, State.STOPPING)
        if event.done < table.done[job_index] and job_index not in self.reported:
            raise self._error(job_index, f"work shrank from {table.done[job_index]} to {event.done} steps")
        table.done[job_index] = min(event.done, table.steps[job_index])
        self.book_service(event.now, job_index)
        table.rate[job_index] = 0.0
        table.state[job_index] = State.STARTING if job_index in self.assigned else State.WAITING
        return self.release(event.now, job_index)

    def _finished_job(self, event: Finished) -> list[Decision]:
        job_index, table = event.job_index, self.table
        self._expect(job_index, State.RUNNING, State.STOPPING)  # it may end by itself while it is being stopped
        table.state[job_index] = State.FINISHED
        table.done[job_index] = table.steps[job_index]
        self.book_service(event.now, job_index)
        table.assigned[job_index] = False
        table.finished[job_index] = True
        if self.ownership.waits(job_index):
            self.ownership.cancel(job_index)
        sharing.drop(self, job_index)
        self.count_finished(job_index)
        self.settled = False
        self.policy.finished(float(table.attained_s[job_index] * table.gpus[job_index]))
        self.tell(event.now, job_index, "finished")
        return self.release(event.now, job_index)

    # -- decisions -----------------------------------------------------------------------------------------------

    def _stop_decisions(self, now: float, plan: Plan) -> list[Decision]:
        decisions: list[Decision] = []
        going_on = {job_index for job_index, _ in plan.starts} if plan.stops else set()
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
            decisions.append(Stop(job_index, self.table.epoch[job_index], moves, why, for_job, gain_s))
        return decisions

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

    def start(self, now: float, job_index: int) -> Start:
        """Nobody is in the way any more: the job takes its GPUs."""
        table, gpus, co_runner = self.table, self.assigned[job_index], self.co_runners.get(job_index, -1)
        try:
            self.ownership.take(job_index, gpus, co_runner)
        except GpuOwnershipError as error:
            raise self._error(job_index, str(error)) from error
        table.state[job_index] = State.STARTING
        epoch = table.epoch[job_index] = table.epoch[job_index] + 1
        self.tell(now, job_index, "started on GPUs", gpus)
        if self.traffic is not None:
            self.traffic.join(job_index, table.jobs[job_index], gpus)
        if co_runner >= 0:
            sharing.co_runner_changed(self, now, self.ownership.co_runner_of(job_index), None, table.jobs[job_index])
        return Start(job_index, epoch, gpus, Why.PLACED if epoch == 1 else Why.RESUMED, co_runner)

    def release(self, now: float, job_index: int) -> list[Decision]:
        """The job let go of its GPUs: start those that waited only for them."""
        other = self.ownership.co_runner_of(job_index) if self.ownership.guests else -1
        waiters = self.ownership.release(job_index)
        if self.traffic is not None:
            self.traffic.leave(job_index)
        if other >= 0:
            sharing.co_runner_changed(self, now, other, self.table.jobs[job_index], None)
        return [self.start(now, waiter) for waiter in waiters]

    # -- queries -------------------------------------------------------------------------------------------------

    def view(self, now: float) -> View:
        """What a policy sees now."""
        table, active_jobs = self.table, self.active_jobs
        free = [p.total for p in self.free.pools]
        aside = len(self.aside & self.assigned.keys()) if self.aside else 0
        all_run = len(self.assigned) - aside == len(active_jobs)
        return View(
            now,
            active_jobs.job_indices,
            table,
            free,
            self._capacity,
            self.compat,
            table.prioritised,
            all_run,
            self.remaining_time,
        )

    def speed(self, job_index: int) -> Speed:
        """How fast the job should be on the GPUs it holds, next to the jobs on its GPUs and links."""
        co_runner = sharing.co_runner_of(self, job_index) if self.ownership.guests else None
        bandwidth = None if self.traffic is None else self.traffic.bandwidth(job_index)
        return self.perf.speed(self.table.jobs[job_index], self.ownership.holding[job_index], co_runner, bandwidth)

    def quote(self, job_index: int, gpus: Gpus) -> Speed:
        """How fast the job would be alone on ``gpus``, next to the jobs that send over the same links now."""
        job = self.table.jobs[job_index]
        return self.perf.speed(job, gpus) if self.traffic is None else self.traffic.quote(job, gpus, job_index)

    def settle_traffic(self, now: float) -> None:
        """Rate jobs anew whose links others came to or left: the world says when all of one moment is carried out."""
        if self.traffic is None or not self.traffic.unsettled:
            return
        self._planner.links_changed()
        for changed in self.traffic.settle():
            if self.table.state[changed.job_index] is State.RUNNING:
                sharing.bandwidth_changed(self, now, changed)
                self.settled = False

    @property
    def realised(self) -> Selection | None:
        """The selection that runs as it is; ``None`` if there is none or something came in between."""
        return self._planner.realised

    @property
    def waiting_count(self) -> int:
        return len(self.table) - self._finished - len(self.assigned)

    @property
    def has_jobs(self) -> bool:
        """Jobs run or wait."""
        return len(self.table) > self._finished

    @property
    def can_wait(self) -> bool:
        """Deciding again before the next event would change nothing."""
        if not self.settled:
            return False
        changes, sticky = self.policy.changes_with_time, self.placement.sticky
        if self.exact and changes:  # another selection may be due although nobody waits
            return False
        if not sticky and not self.placement.repeatable:
            return not self.assigned
        if not changes:
            return True
        return self.waiting_count == 0 and (sticky or not self.assigned)

    @property
    def considered(self) -> list[int]:
        """Job numbers in the order of the last round."""
        return list(self._order) if isinstance(self._order, Mapping) else self._order.tolist()

    def rank_of(self, job_index: int) -> int | None:
        """Position of the job in the order of the last round, from 0; ``None`` if it was left out."""
        if self._ranks is None or self._ranks[0] is not self._order:
            self._ranks = (self._order, {job_index: i for i, job_index in enumerate(self.considered)})
        return self._ranks[1].get(job_index)

    def reason(self, decision: Decision) -> Reason:
        """The sentence behind a decision."""
        return reasons.of_decision(self, decision)

    def explain(self, job_index: int) -> Reason:
        """Why the job is in the state it is in, in words."""
        return reasons.explain(self, job_index)

    def story(self, job_index: int) -> list[str]:
        """What happened to the job, oldest first (the last transitions of the whole cluster are kept)."""
        return [f"{now:g} s: {what} {gpus or ''}".rstrip() for now, who, what, gpus in self._story if who == job_index]

    @property
    def wakes_s(self) -> float:
        """When deciding again changes something although nothing happens; infinity: never.

        With no job to decide about the policy is not asked: what it wakes for would stay due."""
        if not len(self.active_jobs):
            return math.inf
        wakes_s = self.policy.wakes_s
        return min(wakes_s, self.placement_wakes_s) if self._timed or self._refusals_end_s < math.inf else wakes_s

    @property
    def placement_wakes_s(self) -> float:
        """The same for the placement alone: a job that it refused gets GPUs then, whether or not a round is due."""
        if not len(self.active_jobs):
            return math.inf
        own_s = self.placement.wakes_s if self._timed else math.inf
        # What was due when it was last asked was taken into account then, and would only stay due.
        return min(self._refusals_end_s, own_s if own_s > self._decided_s else math.inf)

    # -- what transitions elsewhere may touch --------------------------------------------------------------------

    def set_aside(self, job_index: int) -> None:
        """Leave the job out of all decisions. What it holds it keeps until it ends by itself."""
        self.stop_offering(job_index)
        self.aside.add(job_index)

    def stop_offering(self, job_index: int) -> None:
        """Leave the job out of the order until ``offer_again``."""
        self.active_jobs.take_out(job_index)
        self.settled = False

    def offer_again(self, job_index: int) -> None:
        self.active_jobs.put_back(job_index)
        self.settled = False

    def count_finished(self, job_index: int) -> None:
        """One more job is over, and stands in line no longer."""
        self._finished += 1
        self.active_jobs.end(job_index)

    def assignment_changed(self) -> None:
        """An assignment was undone outside a round: what the planner remembers of the last round no longer holds."""
        self._planner.forget()

    def capacity_changed(self) -> None:
        """GPUs left or came back."""
        held = [0] * len(self.free.pools)
        for gpus in set(self.assigned.values()):
            held[self.free.type_of(gpus)] += len(gpus)
        self._capacity = [pool.total + n for pool, n in zip(self.free.pools, held, strict=True)]
        self.settled = False
        self._planner.forget()

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def book_service(self, now: float, job_index: int) -> None:
        """Count the time since the last booking as attained; a job told to stop is idle from then on."""
        table = self.table
        table.attained_s[job_index] += now - table.run_from_s[job_index]
        table.run_from_s[job_index] = now
        table.idle_from_s[job_index] = now

    def tell(self, now: float, job_index: int, what: str, gpus: Gpus = ()) -> None:
        self._story.append((now, job_index, what, gpus))

    def _expect(self, job_index: int, *states: State) -> None:
        found = self.table.state[job_index]
        if found not in states:
            expected = " or ".join(state.name.lower() for state in states)
            raise self._error(job_index, f"is {found.name.lower()} where {expected} was expected")

    def _error(self, job_index: int, what: str) -> EngineError:
        story = "; ".join(self.story(job_index)) or "no story kept"
        return EngineError(f"job {self.table.jobs[job_index].id}: {what}. Its story: {story}")
