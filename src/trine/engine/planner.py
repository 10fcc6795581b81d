"""What every way of planning a round shares: the plan, and placing, keeping and undoing on the index of free GPUs.

A plan is made before anything is stopped, and leaves the index of free GPUs as the plan wants it. The modes are in
``ranking_planner`` (jobs in an order) and ``selection_planner`` (exactly the jobs that a policy selected).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from trine.core.cluster import Tier
from trine.core.costs import StopCosts
from trine.core.errors import TrineError
from trine.core.job import Job
from trine.core.reason import Reason, Trade, Why
from trine.engine.job_table import JobTable
from trine.perf.model import PerfModel, Speed
from trine.placement.base import Ask, Placement
from trine.placement.free_index import FreeIndex, FreePool
from trine.placement.topology import shaped
from trine.policy.base import Selection

Gpus = tuple[int, ...]
_NO_JOB = Job("", 0.0, 1, 1.0)


class PlacementError(TrineError):
    """A placement that breaks its contract: a bug in its file."""


class Plan:
    """Which jobs lose their GPUs and which get which. A job in both moves."""

    __slots__ = (
        "blocked_by",
        "co_runners",
        "gains_s",
        "provisional",
        "refusals",
        "starts",
        "stopped_for",
        "stops",
        "trades",
        "wakes_s",
    )

    def __init__(
        self,
    ) -> None:  # no dataclass: one is made per round, and fields with factories cost three times as much
        self.stops: list[int] = []
        self.starts: list[tuple[int, Gpus]] = []
        self.blocked_by = -1
        """The job at which a strict order ended, or -1."""
        self.refusals: dict[int, Reason] = {}
        """What the placement itself said, for jobs it refused although there were enough GPUs."""
        self.co_runners: dict[int, int] | None = None
        """Jobs that share their GPUs after this round, both ways; ``None``: as before."""
        self.stopped_for: dict[int, int] = {}
        """Job index of the job that gets the GPUs, by job index of the one that is stopped, where that is known."""
        self.gains_s: dict[int, float] = {}
        """Seconds by which jobs that move for their own good are expected to end earlier, by job index."""
        self.trades: dict[int, Trade] = {}
        """What stops and moves were weighed by, by job index of the one that is stopped."""
        self.provisional = False
        """Planning again later may give another plan although nothing happens, since jobs grow old enough to be
        stopped."""
        self.wakes_s = inf
        """When the first refusal would be decided otherwise although nothing happens."""

    def waits(self, job_index: int) -> bool:
        """The job was refused GPUs that it could have: it waits by choice, and no other job stops for it."""
        refusal = self.refusals.get(job_index)
        return refusal is not None and refusal.code is Why.WAITS

    def put_back(self, job_index: int, refusal: Reason | None) -> None:
        """What was said of the job before."""
        if refusal is None:
            del self.refusals[job_index]
        else:
            self.refusals[job_index] = refusal

    def lead(self, before: dict[int, Gpus], after: dict[int, Gpus]) -> Plan:
        """The stops and starts that lead from ``before`` to ``after``; a job that keeps its GPUs simply goes on."""
        self.stops = [job_index for job_index, gpus in before.items() if after.get(job_index) != gpus]
        self.starts = [(job_index, gpus) for job_index, gpus in after.items() if before.get(job_index) != gpus]
        return self


@dataclass(frozen=True)
class PlannerRules:
    """What the planner does with stops and moves, where published simulators differ."""

    keep_evictions: bool = False
    """Jobs stopped for a job that then does not fit stay stopped for the round, instead of going on."""
    weigh_moves: bool = True
    """Where the placement weighs moves, a running job moves only if that pays; else whenever its place changes."""


@dataclass(frozen=True)
class Moves:
    """Is it worth moving a running job? Only if it gains more time over its remaining work than the move costs."""

    speed_at: Callable[[int, Gpus, float], Speed]
    """Speed of a job on other GPUs, with the traffic of this moment; exact where it is at least so many steps/s."""
    costs: StopCosts

    def quote(self, job_index: int, gpus: Gpus, least: float = 0.0) -> float:
        """Steps/s that the job would make on ``gpus``; exact where that is at least ``least``."""
        return self.speed_at(job_index, gpus, least).steps_per_s

    def steps_left(self, table: JobTable, job_index: int, now: float) -> float:
        """Extrapolated from the last report at the present rate."""
        worked_s = max(0.0, now - float(table.work_from_s[job_index]))
        return float(table.steps[job_index]) - float(table.done[job_index]) - worked_s * float(table.rate[job_index])

    def cost_s(self, table: JobTable, job_index: int) -> float:
        """Seconds that a move costs the job.

        Half an interval of checkpoints on average. What is lost at this very moment would make a move pay now, not pay
        a round later and pay again after the next checkpoint: staying must stay right while nothing else changes.
        """
        job = table.jobs[job_index]
        return self.costs.migration(job) + self.costs.interval(job) / 2

    def pays(self, table: JobTable, job_index: int, now: float, old: Gpus, new: Gpus) -> bool:
        """Predicted end after the move is earlier than the end without it."""
        before, after = self.quote(job_index, old), self.quote(job_index, new)
        if after <= before:
            return False
        left = self.steps_left(table, job_index, now)
        return left / before - left / after > self.cost_s(table, job_index)


class LastOrder(NamedTuple):
    """A round that placed all jobs anew: the order and the wanted types, and the position at which it ended."""

    order: list[int]
    wanted: list[int] | None
    ended_at: int


@dataclass
class Planner:
    """Plans one round at a time; ``assigned`` and ``free`` belong to the engine, and ``free`` is updated here."""

    table: JobTable
    free: FreeIndex
    assigned: dict[int, Gpus]
    placement: Placement
    strict: bool
    preemptive: bool
    rules: PlannerRules = field(default_factory=PlannerRules)
    moves: Moves | None = None
    """Weighs a move against staying, for placements that do."""
    co_runners: dict[int, int] = field(default_factory=dict)
    """Jobs that share their GPUs now, both ways; belongs to the engine."""
    perf: PerfModel | None = None
    """Knows which jobs can run on the same GPUs."""
    space_sharing: bool = True
    """Two jobs may run on the same GPUs at all."""
    quotes: Moves | None = None
    """Speeds on other GPUs with the traffic of this moment, and what a stop costs."""

    def __post_init__(self) -> None:
        self.capacity = self.free.total
        """GPUs of the empty cluster."""
        self._ask = Ask(_NO_JOB, columns=self.table, quote=None if self.quotes is None else self.quotes.quote)
        """One for all questions: most placements read little of it, and they are asked often."""
        self.checked = not type(self.placement.chooses).__module__.startswith("trine.")
        """What comes with trine is tested to name GPUs that exist."""
        self.now = 0.0
        self.realised: Selection | None = None
        """What runs is exactly this: only what the next selection changes has to be looked at."""
        self.last_order: LastOrder | None = None
        """What the last round that placed all jobs anew did; ``None``: assignments are no longer what it made them."""

    def forget(self) -> None:
        """Assignments are no longer what the last round made them: nothing of it is taken over."""
        self.realised = None
        self.last_order = None

    def types_for(self, job_index: int, wanted: int) -> Sequence[int]:
        return (wanted,) if wanted >= 0 else self.table.types[job_index]

    def try_place(self, job: Job, type_indices: Sequence[int], plan: Plan, job_index: int) -> Gpus | None:
        """GPUs from the first type that has room, ascending, marked as taken; ``None`` if there are none."""
        for type_index in type_indices:
            pool = self.free.pools[type_index]
            if pool.total < job.gpus:
                continue
            ask = self._ask
            ask.job, ask.job_index, ask.now, ask.type_index = job, job_index, self.now, type_index
            found = self.placement.place(ask, pool) if job.shape is None else shaped(self.placement, ask, pool)
            if isinstance(found, Reason):
                self._note_refusal(plan, job_index, found)
                continue
            self._take(job, pool, found)
            return tuple(sorted(found))
        return None

    def place_within(self, job_index: int, type_index: int, widest: Tier, plan: Plan) -> Gpus | None:
        """GPUs of one type no further apart than ``widest``, marked as taken; ``None`` if there are none.

        A placement that takes no notice of the bound counts as having refused.
        """
        self._ask.widest = widest
        try:
            gpus = self.try_place(self.table.jobs[job_index], (type_index,), plan, job_index)
        finally:
            self._ask.widest = Tier.NETWORK
        if gpus is None or widest is Tier.NETWORK or self.free.pools[type_index].cluster.tier(gpus) <= widest:
            return gpus
        self.free.give(gpus)
        return None

    def place_running(self, job_index: int, type_index: int) -> Gpus | None:
        """Better GPUs for a running job whose own are marked as free, taken; what the placement says is not kept."""
        self._ask.relocating = True
        try:
            return self.try_place(self.table.jobs[job_index], (type_index,), Plan(), job_index)
        finally:
            self._ask.relocating = False

    def _note_refusal(self, plan: Plan, job_index: int, refusal: Reason) -> None:
        """Of refusals on several types, the one on a type that the job could have now is kept."""
        if not plan.waits(job_index):
            plan.refusals[job_index] = refusal
        if self.now < refusal.wakes_s < plan.wakes_s:
            plan.wakes_s = refusal.wakes_s

    def _take(self, job: Job, pool: FreePool, found: list[int]) -> None:
        """Mark the GPUs as used; what a placement may get wrong is said in words."""
        try:
            if len(found) != job.gpus:
                raise AssertionError(f"{len(found)} GPUs instead of {job.gpus}")
            if self.checked and min(found) < 0:
                raise AssertionError("a negative number")  # Python would count it from the end
            pool.take(found)
        except (AssertionError, IndexError, TypeError, KeyError) as error:
            raise PlacementError(
                f"placement {self.placement.chooses.name} gave job {job.id} the GPUs {found!r}: {error}"
            ) from error

    def better_stay(self, job_index: int, old: Gpus, new: Gpus) -> bool:
        """The old GPUs are still free and moving does not pay; the index is changed to the old ones then."""
        assert self.moves is not None
        if self.moves.pays(self.table, job_index, self.now, old, new):
            return False
        self.free.give(new)
        if not self.free.all_free(old):
            self.free.take(new)
            return False
        self.free.take(old)
        return True
