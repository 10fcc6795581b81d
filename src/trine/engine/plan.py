"""Turns an order of jobs into GPU assignments, on the index of free GPUs, before anything is stopped.

Two ways: keep what runs and fit the others in, stopping lower ranks where that makes room (sticky placements), or
place everybody anew in order (the others). Both leave the index of free GPUs as the plan wants it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress, count
from math import inf
from operator import ne

import numpy as np

from trine.core.cluster import Tier
from trine.core.errors import TrineError
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.engine.moves import Moves
from trine.engine.relocation import Relocations
from trine.engine.table import JobTable
from trine.engine.victims import VictimRound
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement
from trine.placement.free import FreeIndex, FreePool
from trine.placement.shaped import shaped
from trine.policy.base import Ranking, Selection
from trine.policy.view import Ints

Gpus = tuple[int, ...]
_NO_JOB = Job("", 0.0, 1, 1.0)


class PlacementError(TrineError):
    """A placement that breaks its contract: a bug in its file."""


@dataclass
class Plan:
    """Who loses GPUs and who gets which. A job in both moves."""

    stops: list[int] = field(default_factory=list)
    starts: list[tuple[int, Gpus]] = field(default_factory=list)
    blocked_by: int = -1
    """The job at which a strict order ended, or -1."""
    refusals: dict[int, Reason] = field(default_factory=dict)
    """What the placement itself said, for jobs it refused although there were enough GPUs."""
    co_runners: dict[int, int] | None = None
    """Who shares GPUs with whom after this round, both ways; ``None``: as before."""
    stopped_for: dict[int, int] = field(default_factory=dict)
    """Job index of the job that gets the GPUs, by job index of the one that is stopped, where that is known."""
    gains_s: dict[int, float] = field(default_factory=dict)
    """Seconds by which jobs that move for their own good are expected to end earlier, by job index."""
    provisional: bool = False
    """Planning again later may give another plan although nothing happens, since jobs grow old enough to be stopped."""
    wakes_s: float = inf
    """When the first refusal would be decided otherwise although nothing happens."""

    def waits(self, job_index: int) -> bool:
        """The job was refused GPUs that it could have: it waits by choice, and at nobody's cost."""
        refusal = self.refusals.get(job_index)
        return refusal is not None and refusal.code is Why.WAITS

    def put_back(self, job_index: int, refusal: Reason | None) -> None:
        """What was said of the job before."""
        if refusal is None:
            del self.refusals[job_index]
        else:
            self.refusals[job_index] = refusal


@dataclass(frozen=True)
class PlannerRules:
    """What the planner does with stops and moves, where published simulators differ."""

    keep_evictions: bool = False
    """Jobs stopped for a job that then does not fit stay stopped for the round, instead of going on."""
    weigh_moves: bool = True
    """Where the placement weighs moves, a running job moves only if that pays; else whenever its place changes."""


@dataclass
class Planner:
    """Plans one round at a time; ``assigned`` and ``free`` belong to the engine and are updated here."""

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
    """Who shares GPUs with whom now, both ways; belongs to the engine."""
    perf: PerfModel | None = None
    """Knows which jobs can run on the same GPUs."""
    space_sharing: bool = True
    """Two jobs may run on the same GPUs at all."""
    relocations: Relocations | None = None
    """Moves running jobs to better GPUs, under policies that want it."""

    def __post_init__(self) -> None:
        self._capacity = self.free.total
        self._ask = Ask(_NO_JOB, columns=self.table)
        """One for all questions: most placements read little of it, and they are asked often."""
        self.checked = not type(self.placement.chooses).__module__.startswith("trine.")
        """What comes with trine is tested to name GPUs that exist."""
        self.now = 0.0
        self.realised: Selection | None = None
        """What runs is exactly this: only what the next selection changes has to be looked at."""
        self._last: tuple[list[int], list[int] | None] | None = None
        self._blocked_at = 0
        """Position at which the last round that placed everybody anew ended."""

    def plan(self, now: float, job_indices: Ints, ranking: Ranking) -> Plan:
        """``slots``: job numbers in order of rank, with which the columns of ``ranking`` are aligned."""
        self.now = now
        if self.co_runners and (self.preemptive or not self.placement.sticky):
            return self._without_pairs(job_indices, ranking)
        return self._plan(job_indices, ranking)

    def _plan(self, job_indices: Ints, ranking: Ranking) -> Plan:
        self.realised = None
        if not self.placement.sticky:
            return self._replace_all(job_indices, ranking.type_indices)
        if self.preemptive and ranking.names_victims:
            plan = VictimRound(self, job_indices, ranking, Plan()).run()
        else:
            plan = _StickyRound(self, job_indices, ranking.type_indices, self.preemptive).run()
        if ranking.relocation is not None and self.relocations is not None:
            self.relocations.run(self, job_indices, ranking, plan)
        return plan

    def _without_pairs(self, job_indices: Ints, ranking: Ranking) -> Plan:
        """An order that knows no pairs dissolves them: whoever ranks first keeps the GPUs, the other stands in line."""
        self.forget()
        rank = {job_index: i for i, job_index in enumerate(job_indices.tolist())}
        last = len(rank)
        second = [
            s
            for s, co_runner in self.co_runners.items()
            if (rank.get(s, last), s) > (rank.get(co_runner, last), co_runner)
        ]
        dropped = {job_index: self.assigned.pop(job_index) for job_index in second}
        self.table.assigned[second] = False
        plan = self._plan(job_indices, ranking)
        self.assigned.update(dropped)
        self.table.assigned[second] = True
        unchanged = {job_index for job_index, gpus in plan.starts if dropped.get(job_index) == gpus}
        plan.starts = [(job_index, gpus) for job_index, gpus in plan.starts if job_index not in unchanged]
        plan.stops += [job_index for job_index in dropped if job_index not in unchanged]
        plan.co_runners = {}
        return plan

    def fill(self, now: float, job_indices: Ints, pools: Ints | None) -> Plan:
        """Only what can be had without stopping or moving anybody."""
        self.now = now
        self.forget()
        return _StickyRound(self, job_indices, pools, preemptive=False).run()

    def forget(self) -> None:
        """Assignments are no longer what the last round made them: nothing of it is taken over."""
        self.realised = None
        self._last = None
        self._blocked_at = 0

    def links_changed(self) -> None:
        """Gangs came to links or left them: what is said of places for running jobs no longer holds."""
        if self.relocations is not None:
            self.relocations.forget()

    def pools_for(self, job_index: int, wanted: int) -> Sequence[int]:
        return (wanted,) if wanted >= 0 else self.table.types[job_index]

    def try_place(self, job: Job, pools: Sequence[int], plan: Plan, job_index: int) -> Gpus | None:
        """GPUs from the first type that has room, ascending, marked as taken; ``None`` if there are none."""
        for index in pools:
            pool = self.free.pools[index]
            if pool.total < job.gpus:
                continue
            ask = self._ask
            ask.job, ask.job_index, ask.now, ask.type_index = job, job_index, self.now, index
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
        """Of several types, the one that the job could have now is the one to tell about."""
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

    def _replace_all(self, job_indices: Ints, pools: Ints | None) -> Plan:
        """Drop all assignments on paper, place everybody in order, and keep those whose GPUs came out the same.

        Placing is a function of the order: where the order begins as it did last time, so do the assignments.
        """
        plan = Plan()
        order: list[int] = job_indices.tolist()
        wanted: list[int] | None = None if pools is None else pools.tolist()
        if self.placement.by_class:
            order, wanted = self._by_class(order, wanted)
        same = self._same_as_last(order, wanted)
        kept = set(order[:same])
        before = {job_index: gpus for job_index, gpus in self.assigned.items() if job_index not in kept}
        for gpus in before.values():
            self.free.give(gpus)
        after = self._place_in_order(order, wanted, same, before, plan)
        plan.stops = [job_index for job_index, gpus in before.items() if after.get(job_index) != gpus]
        plan.starts = [(job_index, gpus) for job_index, gpus in after.items() if before.get(job_index) != gpus]
        return plan

    def _same_as_last(self, order: list[int], wanted: list[int] | None) -> int:
        """How many positions from the start are as in the round before, up to the job at which that round ended."""
        last, self._last = self._last, (order, wanted)
        if last is None or not self.placement.repeatable or (wanted is None) != (last[1] is None):
            return 0
        same = min(_common(order, last[0]), self._blocked_at)
        return same if wanted is None or last[1] is None else min(same, _common(wanted, last[1]))

    def _by_class(self, order: list[int], wanted: list[int] | None) -> tuple[list[int], list[int] | None]:
        """The longest head of the order that fits the cluster, most sensitive classes first; then the rest."""
        rank, head = self.table.class_rank, self._head_that_fits(order)
        if wanted is None:
            return sorted(order[:head], key=rank.__getitem__) + order[head:], None
        positions = sorted(range(head), key=lambda i: rank[order[i]])
        return [order[i] for i in positions] + order[head:], [wanted[i] for i in positions] + wanted[head:]

    def _head_that_fits(self, order: list[int]) -> int:
        """How many jobs from the start fit an empty cluster together."""
        jobs, left = self.table.jobs, self._capacity
        for position, job_index in enumerate(order):
            left -= jobs[job_index].gpus
            if left < 0:
                return position
        return len(order)

    def _place_in_order(
        self,
        order: list[int],
        wanted: list[int] | None,
        same: int,
        before: dict[int, Gpus],
        plan: Plan,
    ) -> dict[int, Gpus]:
        """GPUs for the jobs from position ``same`` on."""
        after: dict[int, Gpus] = {}
        jobs = self.table.jobs
        self._blocked_at = len(order)
        # A strict order ends at the first job that does not fit; otherwise smaller ones behind it may still fit.
        smallest = [] if self.strict else _smallest_behind([jobs[job_index].gpus for job_index in order[same:]])
        left = 0 if self.strict else self.free.total
        for position in range(same, len(order)):
            job_index = order[position]
            if not self.strict and left < smallest[position - same]:
                self._blocked_at = position
                break
            gpus = self.try_place(
                jobs[job_index], self.pools_for(job_index, wanted[position] if wanted else -1), plan, job_index
            )
            if gpus is not None:
                old = before.get(job_index)
                if self.moves and old is not None and old != gpus and self.better_stay(job_index, old, gpus):
                    gpus = old
                after[job_index] = gpus
                left -= len(gpus)
            elif self.strict and not plan.waits(job_index):
                plan.blocked_by = job_index
                self._blocked_at = position
                break
        return after

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


def _common(one: list[int], other: list[int]) -> int:
    """Length of the common beginning."""
    return next(compress(count(), map(ne, one, other)), min(len(one), len(other)))


def _smallest_behind(gpus: list[int]) -> list[int]:
    """For each position the smallest gang from there on."""
    return [*accumulate(reversed(gpus), min)][::-1]


class _StickyRound:
    """One round of a sticky placement: a walk down the order over the jobs that wait."""

    def __init__(self, planner: Planner, job_indices: Ints, pools: Ints | None, preemptive: bool) -> None:
        self.planner, self.job_indices, self.preemptive = planner, job_indices, preemptive
        self.wanted = pools.tolist() if pools is not None else None
        self.plan = Plan()
        self.evicted: list[int] = []
        """Positions of jobs stopped so far, descending: they stand in line again when the walk reaches them."""
        self.before: dict[int, Gpus] = {}
        self._stack_victims()

    def _stack_victims(self) -> None:
        """Running jobs by GPU type, lowest rank on top, with their cumulated GPUs."""
        table, types = self.planner.table, len(self.planner.free.pools)
        self.victims: list[list[int]] = [[] for _ in range(types)]
        self.victim_gpus: list[list[int]] = [[0] for _ in range(types)]
        if not self.preemptive:
            return
        running = np.flatnonzero(table.assigned[self.job_indices])
        for pool in range(types):
            mine = running[table.type_index[self.job_indices[running]] == pool] if types > 1 else running
            self.victims[pool] = mine.tolist()
            self.victim_gpus[pool] = [0, *accumulate(table.gpus[self.job_indices[mine]].tolist())]

    def run(self) -> Plan:
        waiting = np.flatnonzero(~self.planner.table.assigned[self.job_indices])
        gpus = self.planner.table.gpus[self.job_indices[waiting]]
        at = 0
        while True:
            at = self._next_that_may_fit(gpus, waiting, at)
            position = self._next_position(waiting, at)
            if position < 0:
                break
            if at < len(waiting) and position == waiting[at]:
                at += 1
            else:
                self.evicted.pop()
            if not self._serve(position) and self.planner.strict:
                job_index = int(self.job_indices[position])
                if not self.plan.refusals or not self.plan.waits(job_index):
                    self.plan.blocked_by = job_index
                    break
        return self._finish()

    def _next_that_may_fit(self, gpus: Ints, waiting: Ints, at: int) -> int:
        """Skip waiting jobs that are larger than all they could get; exact, since that only shrinks down the order."""
        if self.planner.strict or at >= len(waiting):
            return at
        position = int(waiting[at])
        most = max([self._obtainable(pool, position) for pool in range(len(self.victims))])
        if gpus[at] <= most:
            return at
        fitting = gpus[at:] <= most
        step = int(fitting.argmax())
        return at + step if fitting[step] else len(waiting)

    def _next_position(self, waiting: Ints, at: int) -> int:
        first = int(waiting[at]) if at < len(waiting) else -1
        if self.evicted and (first < 0 or self.evicted[-1] < first):
            return self.evicted[-1]
        return first

    def _obtainable(self, pool: int, position: int) -> int:
        """Free GPUs plus those of running jobs that rank behind ``position``."""
        stack, cumulated = self.victims[pool], self.victim_gpus[pool]
        behind = cumulated[len(stack)] - cumulated[bisect_right(stack, position)] if stack else 0
        return self.planner.free.pools[pool].total + behind

    def _serve(self, position: int) -> bool:
        """Place the job at ``position``, stopping lower ranks if that is what it takes."""
        planner, job_index = self.planner, int(self.job_indices[position])
        job = planner.table.jobs[job_index]
        pools = planner.pools_for(job_index, self.wanted[position] if self.wanted else -1)
        gpus = planner.try_place(job, pools, self.plan, job_index)
        if gpus is None:
            gpus = self._make_room_unless_it_waits(job, job_index, position, pools)
            if gpus is None:
                return False
        self.plan.starts.append((job_index, gpus))
        return True

    def _make_room_unless_it_waits(self, job: Job, job_index: int, position: int, pools: Sequence[int]) -> Gpus | None:
        refusals = self.plan.refusals
        if refusals and self.plan.waits(job_index):
            return None
        refusal = refusals.get(job_index) if refusals else None
        gpus = self._make_room(job, job_index, position, pools)
        if gpus is None and refusals and self.plan.waits(job_index):  # its only offer would have been GPUs of others
            self.plan.put_back(job_index, refusal)
        return gpus

    def _make_room(self, job: Job, job_index: int, position: int, pools: Sequence[int]) -> Gpus | None:
        """Stop jobs from the end of the order until the gang fits; undo all of it if it never does."""
        for pool in pools:
            if self._obtainable(pool, position) < job.gpus and not self.planner.rules.keep_evictions:
                continue
            stopped: list[int] = []
            stack = self.victims[pool]
            while stack and stack[-1] > position:
                stopped.append(self._evict(pool))
                gpus = self.planner.try_place(job, (pool,), self.plan, job_index)
                if gpus is not None:
                    return gpus
            if not self.planner.rules.keep_evictions:
                self._undo(pool, stopped)
        return None

    def _evict(self, pool: int) -> int:
        position = self.victims[pool].pop()
        job_index = int(self.job_indices[position])
        self.before[job_index] = self.planner.assigned[job_index]
        self.planner.free.pools[pool].give(self.before[job_index])
        # The types' stacks interleave: keep the list of evicted positions descending.
        self.evicted.insert(bisect_right(self.evicted, -position, key=lambda p: -p), position)
        return position

    def _undo(self, pool: int, stopped: list[int]) -> None:
        for position in reversed(stopped):
            job_index = int(self.job_indices[position])
            self.planner.free.pools[pool].take(self.before.pop(job_index))
            self.evicted.remove(position)
            self.victims[pool].append(position)

    def _finish(self) -> Plan:
        """A job that was stopped on paper and got the very same GPUs back simply goes on."""
        starts = dict(self.plan.starts)
        unchanged = {job_index for job_index, gpus in self.before.items() if starts.get(job_index) == gpus}
        self.plan.starts = [(job_index, gpus) for job_index, gpus in self.plan.starts if job_index not in unchanged]
        self.plan.stops = [job_index for job_index in self.before if job_index not in unchanged]
        return self.plan
