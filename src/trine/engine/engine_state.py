"""What the engine knows: the parts it is made of, its jobs, the GPUs they have, and what the last round decided.

``EngineState`` also holds the changes that several transitions share: a job takes its GPUs, releases them, loses its
assignment, changes its speed. The transitions themselves, one per event, are in ``engine``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.core.cluster import Cluster
from trine.core.costs import StopCosts
from trine.core.errors import TrineError
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.engine.events import Decision, Start
from trine.engine.gpu_ownership import GpuOwnership, GpuOwnershipError
from trine.engine.job_table import ActiveJobs, JobTable, State
from trine.engine.planner import Gpus, Plan, PlannerRules
from trine.engine.quotas import Quotas
from trine.perf.model import PerfModel, Speed
from trine.perf.neighbours import Affected, Neighbourhood
from trine.placement.base import Placement
from trine.placement.free_index import FreeIndex
from trine.policy.base import Policy
from trine.policy.view import Flags, Ints, RemainingTime, View, remaining_by_work

_STORY_LENGTH = 20_000


class EngineError(TrineError):
    """A bug in trine, a policy or a placement: carries the story of the job concerned."""


@dataclass
class LastRound:
    """What the last round decided beyond its stops and starts: for reasons, and for when to decide again."""

    order: Ints | Mapping[int, int] = field(default_factory=dict)
    """Job indices in the order in which they were served."""
    selected: bool = False
    """The round realised a selection instead of serving an order."""
    blocked_by: int = -1
    """The job at which a strict order ended, or -1."""
    held_back: Why = Why.NOT_DECIDED
    """Why jobs wait that the policy left out of its order."""
    stop_reason: str = ""
    """What the policy says of a job for which another is stopped."""
    refusals: dict[int, Reason] = field(default_factory=dict)
    """What the placement said of jobs that it refused, by job index."""
    over_quota: set[int] = field(default_factory=set)
    jobs: int = 0
    """Jobs from this index on arrived after the round."""
    at_s: float = -math.inf
    refusals_end_s: float = math.inf
    """When the first refusal would be decided otherwise although nothing happens."""


@dataclass
class EngineState:
    """The parts the engine was made of, and what it keeps track of."""

    cluster: Cluster
    policy: Policy
    placement: Placement
    perf: PerfModel
    strict: bool | None = None
    """Head-of-line blocking; ``None`` leaves it to the policy."""
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
        self._open_job_books()
        self._open_gpu_books()
        self.last_round = LastRound()
        self.settled = False
        """The last round changed nothing, so that deciding again without an event would change nothing either."""
        self._ranks: tuple[Ints | Mapping[int, int], dict[int, int]] | None = None
        self._story: deque[tuple[float, int, str, Gpus]] = deque(maxlen=_STORY_LENGTH)

    def _open_job_books(self) -> None:
        self.table = JobTable()
        self.active_jobs = ActiveJobs(self.table)
        """Jobs that run or wait, and may be decided about."""
        self.aside: set[int] = set()
        """Jobs that are left out of all decisions; those that hold GPUs keep them until they end by themselves."""
        self.reported: set[int] = set()
        """Jobs that reported their progress, some of which may be lost when they stop."""
        self.resumed: dict[int, float] = {}
        """Observed rates (0: none) of running jobs put back: ``resume.rate_resumed`` rates them once all are back."""
        self._finished = 0

    def _open_gpu_books(self) -> None:
        self.free = FreeIndex(self.cluster)
        self.assigned: dict[int, Gpus] = {}
        """GPUs by job index, as planned."""
        self.co_runners: dict[int, int] = {}
        """Jobs that share their GPUs, both ways, as planned; a job that is not in it is alone."""
        self.ownership = GpuOwnership(self.cluster.gpu_count)
        """The GPUs that jobs really hold, as the world last confirmed."""
        self.neighbours = Neighbourhood(self.perf, self.table.jobs)
        """Which running jobs slow each other."""
        self.traffic = self.neighbours.traffic
        """Which running gangs share links; ``None`` where the performance model knows no links."""
        self.rerated: dict[int, None] = {}
        """Running jobs whose speed changed because a job came to their GPUs or links, or left; the world empties it."""
        self.cordoned: set[int] = set()
        """GPUs out of service."""
        self.excluded = self.placement.excluded()
        for gpu in self.excluded:
            self.free.cordon(gpu)
        self.capacity = [pool.total for pool in self.free.pools]
        """GPUs in service by type."""

    # -- GPUs change hands ---------------------------------------------------------------------------------------

    def start(self, now: float, job_index: int) -> Start:
        """No other job holds its GPUs any more: the job takes them."""
        table, gpus, co_runner = self.table, self.assigned[job_index], self.co_runners.get(job_index, -1)
        try:
            self.ownership.take(job_index, gpus, co_runner)
        except GpuOwnershipError as error:
            raise self.error(job_index, str(error)) from error
        table.state[job_index] = State.STARTING
        epoch = table.epoch[job_index] = table.epoch[job_index] + 1
        self.tell(now, job_index, "started on GPUs", gpus)
        if self.neighbours.matters or co_runner >= 0:
            self.neighbours.join(job_index, gpus, self.ownership.co_runner_of(job_index))
        return Start(job_index, epoch, gpus, Why.PLACED if epoch == 1 else Why.RESUMED, co_runner)

    def release(self, now: float, job_index: int) -> list[Decision]:
        """The job released its GPUs: start those that waited only for them."""
        waiters = self.ownership.release(job_index)
        if self.neighbours.matters:
            self.neighbours.leave(job_index)
        return [self.start(now, waiter) for waiter in waiters]

    def unassign(self, job_index: int) -> bool:
        """The job has its GPUs no longer; they are free unless its co-runner goes on there. False if it had none."""
        gpus = self.assigned.pop(job_index, None)
        if gpus is None:
            return False
        co_runner = self.co_runners.pop(job_index, -1)
        if co_runner < 0:
            self.free.give(gpus)
            return True
        del self.co_runners[co_runner]
        if self.ownership.waits(co_runner):  # then it waits for this job too, should that still be there
            self.ownership.cancel(co_runner)
            self.ownership.claim(co_runner, self.assigned[co_runner])
        return True

    def adopt_pairs(self, plan: Plan) -> list[int]:
        """The pairs of the plan are the pairs now; returns starts that wait on, but now with another co-runner."""
        if plan.co_runners is None or plan.co_runners == self.co_runners:
            return []
        before, new = dict(self.co_runners), {job_index for job_index, _ in plan.starts}
        self.co_runners.clear()
        self.co_runners.update(plan.co_runners)
        waiting = [i for i in self.assigned if i not in new and self.ownership.waits(i)]
        return [i for i in waiting if before.get(i, -1) != self.co_runners.get(i, -1)]

    def claim_again(self, now: float, job_indices: list[int]) -> list[Decision]:
        """Starts that wait and got another co-runner wait for other jobs now, or for none."""
        for job_index in job_indices:
            self.ownership.cancel(job_index)
        ready = [i for i in job_indices if self.ownership.claim(i, self.assigned[i], self.co_runners.get(i, -1))]
        return [self.start(now, job_index) for job_index in ready]

    def count_capacity(self) -> None:
        """GPUs left or came back."""
        held = [0] * len(self.free.pools)
        for gpus in set(self.assigned.values()):
            held[self.free.type_of(gpus)] += len(gpus)
        self.capacity = [pool.total + n for pool, n in zip(self.free.pools, held, strict=True)]
        self.settled = False

    # -- jobs come and leave -------------------------------------------------------------------------------------

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
        """One more job is over, and no longer decided about."""
        self._finished += 1
        self.active_jobs.end(job_index)

    def book_service(self, now: float, job_index: int) -> None:
        """Count the time since the last booking as attained; a job that is ordered to stop is idle from then on."""
        table = self.table
        table.attained_s[job_index] += now - table.run_from_s[job_index]
        table.run_from_s[job_index] = now
        table.idle_from_s[job_index] = now

    # -- speeds --------------------------------------------------------------------------------------------------

    def co_runner_of(self, job_index: int) -> Job | None:
        """The job whose processes hold the same GPUs now."""
        other = self.ownership.co_runner_of(job_index)
        return None if other < 0 else self.table.jobs[other]

    def speed(self, job_index: int) -> Speed:
        """How fast the job should be on the GPUs it holds, next to the jobs on its GPUs and links."""
        gpus = self.ownership.holding[job_index]
        return self.perf.speed(self.table.jobs[job_index], gpus, self.neighbours.of(job_index))

    def quote(self, job_index: int, gpus: Gpus, least: float = 0.0) -> Speed:
        """How fast the job would be alone on ``gpus``, next to the jobs that send over the same links now.

        Exact where it is at least ``least`` steps/s; see ``Traffic.quote``.
        """
        return self.neighbours.quote(job_index, gpus, least)

    def run_at(self, job_index: int, rate: float) -> None:
        """The job runs at ``rate`` steps/s where another was expected: so much does it differ everywhere."""
        table = self.table
        guess = float(table.rate[job_index])
        if guess > 0:
            table.ideal_s[job_index] *= guess / rate
            table.step_s[job_index] = tuple(s * guess / rate for s in table.step_s[job_index])
            table.revision += 1
        table.rate[job_index] = rate

    def neighbours_changed(self, now: float, affected: Affected) -> None:
        """Other jobs came to the GPUs or links of a running job, or left."""
        job, gpus = self.table.jobs[affected.job_index], self.ownership.holding[affected.job_index]
        before, after = (self.perf.speed(job, gpus, each) for each in (affected.before, affected.after))
        self._rerate(now, affected.job_index, before, after)

    def _rerate(self, now: float, job_index: int, before: Speed, after: Speed) -> None:
        """From now on a running job is faster or slower by what the model says.

        What was observed of its own speed stays; the work done so far, extrapolated, is the same before and after.
        """
        table, factor = self.table, after.steps_per_s / before.steps_per_s
        worked_s = max(0.0, now - float(table.work_from_s[job_index]))
        table.rate[job_index] *= factor
        table.work_from_s[job_index] += worked_s - worked_s / factor
        self.rerated[job_index] = None

    # -- queries -------------------------------------------------------------------------------------------------

    def view(self, now: float) -> View:
        """What a policy sees now."""
        table, active_jobs = self.table, self.active_jobs
        aside = len(self.aside & self.assigned.keys()) if self.aside else 0
        return View(
            now,
            active_jobs.job_indices,
            table,
            self.free.by_type,
            self.capacity,
            table.prioritised,
            len(self.assigned) - aside == active_jobs.count,
            self.remaining_time,
            self.costs,
        )

    def protected(self, now: float) -> dict[int, Gpus]:
        """Jobs that may not be stopped or moved now, with their GPUs; pairs are the policy's to dissolve."""
        least_s, table = self.table.min_run_s, self.table
        return {
            job_index: gpus
            for job_index, gpus in self.assigned.items()
            if (job_index in self.aside or now - table.run_from_s[job_index] < least_s.get(job_index, 0.0))
            and job_index not in self.co_runners
            and not self.ownership.waits(job_index)
        }

    def within_quotas(self, job_indices: list[int]) -> Flags:
        """Which of the jobs do not exceed a quota if served in this order; those that run do not."""
        leaving = [job_index for job_index in self.ownership.holding if job_index not in self.assigned]
        kept = self.quotas.kept(self.table.jobs, job_indices, self.table.assigned, leaving)
        self.last_round.over_quota = {job_indices[at] for at in np.flatnonzero(~kept).tolist()}
        return kept

    @property
    def waiting_count(self) -> int:
        return len(self.table) - self._finished - len(self.assigned)

    @property
    def considered(self) -> list[int]:
        """Job indices in the order of the last round."""
        order = self.last_round.order
        return list(order) if isinstance(order, Mapping) else order.tolist()

    def rank_of(self, job_index: int) -> int | None:
        """Position of the job in the order of the last round, from 0; ``None`` if it was left out."""
        order = self.last_round.order
        if self._ranks is None or self._ranks[0] is not order:
            self._ranks = (order, {job_index: i for i, job_index in enumerate(self.considered)})
        return self._ranks[1].get(job_index)

    # -- stories of jobs -----------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins its stories anew: they are long, and of no use to it."""
        return self.__dict__ | {"_story": deque(maxlen=_STORY_LENGTH)}

    def tell(self, now: float, job_index: int, what: str, gpus: Gpus = ()) -> None:
        self._story.append((now, job_index, what, gpus))

    def story(self, job_index: int) -> list[str]:
        """What happened to the job, oldest first (the last transitions of the whole cluster are kept)."""
        mine = [(now, what, gpus) for now, concerned, what, gpus in self._story if concerned == job_index]
        return [f"{now:g} s: {what} {gpus or ''}".rstrip() for now, what, gpus in mine]

    def expect(self, job_index: int, *states: State) -> None:
        """Raise unless the job is in one of these states."""
        found = self.table.state[job_index]
        if found not in states:
            expected = " or ".join(state.name.lower() for state in states)
            raise self.error(job_index, f"is {found.name.lower()} where {expected} was expected")

    def error(self, job_index: int, what: str) -> EngineError:
        story = "; ".join(self.story(job_index)) or "no story kept"
        return EngineError(f"job {self.table.jobs[job_index].id}: {what}. Its story: {story}")
