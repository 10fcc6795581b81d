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
    partners: dict[int, int] | None = None
    """Who shares GPUs with whom after this round, both ways; ``None``: as before."""
    stopped_for: dict[int, int] = field(default_factory=dict)
    """Job index of the job that gets the GPUs, by job index of the one that is stopped, where that is known."""
    gains_s: dict[int, float] = field(default_factory=dict)
    """Seconds by which jobs that move for their own good are expected to end earlier, by job index."""
    provisional: bool = False
    """Planning again later may give another plan although nothing happens, since jobs grow old enough to be stopped."""
    wakes_s: float = inf
    """When the first refusal would be decided otherwise although nothing happens."""

    def waits(self, slot: int) -> bool:
        """The job was refused GPUs that it could have: it waits by choice, and at nobody's cost."""
        refusal = self.refusals.get(slot)
        return refusal is not None and refusal.code is Why.WAITS

    def put_back(self, slot: int, refusal: Reason | None) -> None:
        """What was said of the job before."""
        if refusal is None:
            del self.refusals[slot]
        else:
            self.refusals[slot] = refusal


@dataclass
class Planner:
    """Plans one round at a time; ``assigned`` and ``free`` belong to the engine and are updated here."""

    table: JobTable
    free: FreeIndex
    assigned: dict[int, Gpus]
    placement: Placement
    strict: bool
    preemptive: bool
    keep_evictions: bool = False
    moves: Moves | None = None
    """Weighs a move against staying, for placements that do."""
    partners: dict[int, int] = field(default_factory=dict)
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

    def plan(self, now: float, slots: Ints, ranking: Ranking) -> Plan:
        """``slots``: job numbers in order of rank, with which the columns of ``ranking`` are aligned."""
        self.now = now
        if self.partners and (self.preemptive or not self.placement.sticky):
            return self._without_pairs(slots, ranking)
        return self._plan(slots, ranking)

    def _plan(self, slots: Ints, ranking: Ranking) -> Plan:
        self.realised = None
        if not self.placement.sticky:
            return self._replace_all(slots, ranking.pools)
        if self.preemptive and ranking.names_victims:
            plan = VictimRound(self, slots, ranking, Plan()).run()
        else:
            plan = _StickyRound(self, slots, ranking.pools, self.preemptive).run()
        if ranking.relocation is not None and self.relocations is not None:
            self.relocations.run(self, slots, ranking, plan)
        return plan

    def _without_pairs(self, slots: Ints, ranking: Ranking) -> Plan:
        """An order that knows no pairs dissolves them: whoever ranks first keeps the GPUs, the other stands in line."""
        self.forget()
        rank = {slot: i for i, slot in enumerate(slots.tolist())}
        last = len(rank)
        second = [s for s, mate in self.partners.items() if (rank.get(s, last), s) > (rank.get(mate, last), mate)]
        dropped = {slot: self.assigned.pop(slot) for slot in second}
        self.table.running[second] = False
        plan = self._plan(slots, ranking)
        self.assigned.update(dropped)
        self.table.running[second] = True
        unchanged = {slot for slot, gpus in plan.starts if dropped.get(slot) == gpus}
        plan.starts = [(slot, gpus) for slot, gpus in plan.starts if slot not in unchanged]
        plan.stops += [slot for slot in dropped if slot not in unchanged]
        plan.partners = {}
        return plan

    def fill(self, now: float, slots: Ints, pools: Ints | None) -> Plan:
        """Only what can be had without stopping or moving anybody."""
        self.now = now
        self.forget()
        return _StickyRound(self, slots, pools, preemptive=False).run()

    def forget(self) -> None:
        """Assignments are no longer what the last round made them: nothing of it is taken over."""
        self.realised = None
        self._last = None
        self._blocked_at = 0

    def links_changed(self) -> None:
        """Gangs came to links or left them: what is said of places for running jobs no longer holds."""
        if self.relocations is not None:
            self.relocations.forget()

    def pools_for(self, slot: int, wanted: int) -> Sequence[int]:
        return (wanted,) if wanted >= 0 else self.table.types[slot]

    def try_place(self, job: Job, pools: Sequence[int], plan: Plan, slot: int) -> Gpus | None:
        """GPUs from the first type that has room, ascending, marked as taken; ``None`` if there are none."""
        for index in pools:
            pool = self.free.pools[index]
            if pool.total < job.gpus:
                continue
            ask = self._ask
            ask.job, ask.job_index, ask.now, ask.type_index = job, slot, self.now, index
            found = self.placement.place(ask, pool) if job.shape is None else shaped(self.placement, ask, pool)
            if isinstance(found, Reason):
                self._note_refusal(plan, slot, found)
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

    def _note_refusal(self, plan: Plan, slot: int, refusal: Reason) -> None:
        """Of several types, the one that the job could have now is the one to tell about."""
        if not plan.waits(slot):
            plan.refusals[slot] = refusal
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

    def _replace_all(self, slots: Ints, pools: Ints | None) -> Plan:
        """Drop all assignments on paper, place everybody in order, and keep those whose GPUs came out the same.

        Placing is a function of the order: where the order begins as it did last time, so do the assignments.
        """
        plan = Plan()
        order: list[int] = slots.tolist()
        wanted: list[int] | None = None if pools is None else pools.tolist()
        if self.placement.by_class:
            order, wanted = self._by_class(order, wanted)
        same = self._same_as_last(order, wanted)
        kept = set(order[:same])
        before = {slot: gpus for slot, gpus in self.assigned.items() if slot not in kept}
        for gpus in before.values():
            self.free.give(gpus)
        after = self._place_in_order(order, wanted, same, before, plan)
        plan.stops = [slot for slot, gpus in before.items() if after.get(slot) != gpus]
        plan.starts = [(slot, gpus) for slot, gpus in after.items() if before.get(slot) != gpus]
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
        for position, slot in enumerate(order):
            left -= jobs[slot].gpus
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
        smallest = [] if self.strict else _smallest_behind([jobs[slot].gpus for slot in order[same:]])
        left = 0 if self.strict else self.free.total
        for position in range(same, len(order)):
            slot = order[position]
            if not self.strict and left < smallest[position - same]:
                self._blocked_at = position
                break
            gpus = self.try_place(jobs[slot], self.pools_for(slot, wanted[position] if wanted else -1), plan, slot)
            if gpus is not None:
                old = before.get(slot)
                if self.moves and old is not None and old != gpus and self.better_stay(slot, old, gpus):
                    gpus = old
                after[slot] = gpus
                left -= len(gpus)
            elif self.strict and not plan.waits(slot):
                plan.blocked_by = slot
                self._blocked_at = position
                break
        return after

    def better_stay(self, slot: int, old: Gpus, new: Gpus) -> bool:
        """The old GPUs are still free and moving does not pay; the index is changed to the old ones then."""
        assert self.moves is not None
        if self.moves.pays(self.table, slot, self.now, old, new):
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

    def __init__(self, planner: Planner, slots: Ints, pools: Ints | None, preemptive: bool) -> None:
        self.planner, self.slots, self.preemptive = planner, slots, preemptive
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
        running = np.flatnonzero(table.running[self.slots])
        for pool in range(types):
            mine = running[table.pool[self.slots[running]] == pool] if types > 1 else running
            self.victims[pool] = mine.tolist()
            self.victim_gpus[pool] = [0, *accumulate(table.gpus[self.slots[mine]].tolist())]

    def run(self) -> Plan:
        waiting = np.flatnonzero(~self.planner.table.running[self.slots])
        gpus = self.planner.table.gpus[self.slots[waiting]]
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
                slot = int(self.slots[position])
                if not self.plan.refusals or not self.plan.waits(slot):
                    self.plan.blocked_by = slot
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
        planner, slot = self.planner, int(self.slots[position])
        job = planner.table.jobs[slot]
        pools = planner.pools_for(slot, self.wanted[position] if self.wanted else -1)
        gpus = planner.try_place(job, pools, self.plan, slot)
        if gpus is None:
            gpus = self._make_room_unless_it_waits(job, slot, position, pools)
            if gpus is None:
                return False
        self.plan.starts.append((slot, gpus))
        return True

    def _make_room_unless_it_waits(self, job: Job, slot: int, position: int, pools: Sequence[int]) -> Gpus | None:
        refusals = self.plan.refusals
        if refusals and self.plan.waits(slot):
            return None
        refusal = refusals.get(slot) if refusals else None
        gpus = self._make_room(job, slot, position, pools)
        if gpus is None and refusals and self.plan.waits(slot):  # its only offer would have been GPUs of others
            self.plan.put_back(slot, refusal)
        return gpus

    def _make_room(self, job: Job, slot: int, position: int, pools: Sequence[int]) -> Gpus | None:
        """Stop jobs from the end of the order until the gang fits; undo all of it if it never does."""
        for pool in pools:
            if self._obtainable(pool, position) < job.gpus and not self.planner.keep_evictions:
                continue
            stopped: list[int] = []
            stack = self.victims[pool]
            while stack and stack[-1] > position:
                stopped.append(self._evict(pool))
                gpus = self.planner.try_place(job, (pool,), self.plan, slot)
                if gpus is not None:
                    return gpus
            if not self.planner.keep_evictions:
                self._undo(pool, stopped)
        return None

    def _evict(self, pool: int) -> int:
        position = self.victims[pool].pop()
        slot = int(self.slots[position])
        self.before[slot] = self.planner.assigned[slot]
        self.planner.free.pools[pool].give(self.before[slot])
        # The types' stacks interleave: keep the list of evicted positions descending.
        self.evicted.insert(bisect_right(self.evicted, -position, key=lambda p: -p), position)
        return position

    def _undo(self, pool: int, stopped: list[int]) -> None:
        for position in reversed(stopped):
            slot = int(self.slots[position])
            self.planner.free.pools[pool].take(self.before.pop(slot))
            self.evicted.remove(position)
            self.victims[pool].append(position)

    def _finish(self) -> Plan:
        """A job that was stopped on paper and got the very same GPUs back simply goes on."""
        starts = dict(self.plan.starts)
        unchanged = {slot for slot, gpus in self.before.items() if starts.get(slot) == gpus}
        self.plan.starts = [(slot, gpus) for slot, gpus in self.plan.starts if slot not in unchanged]
        self.plan.stops = [slot for slot in self.before if slot not in unchanged]
        return self.plan
