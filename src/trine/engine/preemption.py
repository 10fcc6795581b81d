"""Which jobs make way for a waiting one that does not fit: running jobs are stopped on paper until its gang fits.

Two rules: the lowest ranks first (``LowestRanks``), or the jobs that the policy names, in its order (``NamedVictims``),
of which those that turn out not to be needed go on. Nothing is stopped for a job that is not placed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappush
from itertools import accumulate
from math import inf

import numpy as np

from trine.core.cluster import Tier
from trine.engine.planner import Gpus, Plan, Planner
from trine.policy.base import Ranking
from trine.policy.view import Flags, Floats, Ints

_TIERS = (Tier.NODE, Tier.RACK, Tier.NETWORK)
Room = dict[Tier, int]
"""The most GPUs that one node, one rack and the whole type can offer."""


class RoomMaker(ABC):
    """Makes room in one round. Positions are those of the order, ``job_indices``."""

    stopped_may_stop = False
    """A job that was stopped in this round may stop others when the walk reaches it."""
    young = False
    """Some running jobs may not be stopped yet, but will be once they have run longer."""

    def __init__(self, planner: Planner, job_indices: Ints, plan: Plan) -> None:
        self.planner, self.job_indices, self.plan = planner, job_indices, plan
        self.stopped: dict[int, Gpus] = {}
        """GPUs of the jobs that are stopped, by job index, in the order in which they were stopped."""
        self.positions: list[int] = []
        """Heap of the positions of the stopped jobs; the walk takes them from it."""

    @abstractmethod
    def make(self, job_index: int, position: int, types: Sequence[int]) -> Gpus | None:
        """GPUs for the gang at ``position``, taken, of a type in ``types``; ``None``, and nothing changed, if none."""

    def most_obtainable(self, position: int) -> float:  # noqa: ARG002
        """No job at ``position`` or behind it gets more GPUs than this; infinity: not known."""
        return inf

    def placed(self) -> None:  # noqa: B027 - only those that remember what is free care
        """A job took GPUs."""

    def _book(self, position: int) -> None:
        """The job at ``position`` is stopped; its GPUs have been given back."""
        job_index = int(self.job_indices[position])
        self.stopped[job_index] = self.planner.assigned[job_index]
        heappush(self.positions, position)


class LowestRanks(RoomMaker):
    """Stops running jobs behind the one that waits, from the end of the order; stopped jobs may stop others."""

    stopped_may_stop = True

    def __init__(self, planner: Planner, job_indices: Ints, plan: Plan) -> None:
        super().__init__(planner, job_indices, plan)
        self._stacks: list[list[int]] = []
        """Positions of the running jobs by GPU type, lowest rank on top; made once a job does not simply fit."""
        self._cumulated: list[list[int]] = []
        """GPUs of the jobs below each place of the stack."""

    def _stack_running(self) -> None:
        table, job_indices, types = self.planner.table, self.job_indices, len(self.planner.free.pools)
        running = table.assigned[job_indices].nonzero()[0]
        for type_index in range(types):
            mine = running[table.type_index[job_indices[running]] == type_index] if types > 1 else running
            self._stacks.append(mine.tolist())
            self._cumulated.append([0, *accumulate(table.gpus[job_indices[mine]].tolist())])

    def most_obtainable(self, position: int) -> float:
        if not self._stacks:
            self._stack_running()
        if len(self._stacks) == 1:
            return self._obtainable(0, position)
        return max([self._obtainable(type_index, position) for type_index in range(len(self._stacks))])

    def _obtainable(self, type_index: int, position: int) -> int:
        """Free GPUs plus those of running jobs that rank behind ``position``."""
        stack, cumulated = self._stacks[type_index], self._cumulated[type_index]
        behind = cumulated[len(stack)] - cumulated[bisect_right(stack, position)] if stack else 0
        return self.planner.free.pools[type_index].total + behind

    def make(self, job_index: int, position: int, types: Sequence[int]) -> Gpus | None:
        """Stop jobs from the end of the order until the gang fits; undo all of it if it never does."""
        planner, keep = self.planner, self.planner.rules.keep_evictions
        job = planner.table.jobs[job_index]
        if not self._stacks:
            self._stack_running()
        for type_index in types:
            if self._obtainable(type_index, position) < job.gpus and not keep:
                continue
            stack, pool = self._stacks[type_index], planner.free.pools[type_index]
            stopped: list[int] = []
            gpus = None
            while gpus is None and stack and stack[-1] > position:
                stopped.append(stack.pop())
                pool.give(planner.assigned[int(self.job_indices[stopped[-1]])])
                gpus = planner.try_place(job, (type_index,), self.plan, job_index)
            if gpus is None and not keep:
                for at in reversed(stopped):
                    pool.take(planner.assigned[int(self.job_indices[at])])
                    stack.append(at)
                continue
            for at in stopped:
                self._book(at)
            if gpus is not None:
                return gpus
        return None


class Victims:
    """The running jobs that may be stopped in this round, in the policy's order."""

    def __init__(self, planner: Planner, job_indices: Ints, ranking: Ranking) -> None:
        table = planner.table
        running = table.assigned[job_indices].nonzero()[0]
        self.young = False
        """Some running jobs may not be stopped yet."""
        if ranking.quantum_s is not None:
            old_enough = planner.now - table.run_from_s[job_indices[running]] >= ranking.quantum_s[running]
            self.young = not old_enough.all()
            running = running[old_enough]
        key: Floats | Ints = -running if ranking.victim_order is None else ranking.victim_order[running]
        self.positions = running[np.argsort(key, kind="stable")]
        self.job_indices = job_indices[self.positions]
        self.levels = None if ranking.level is None else ranking.level[self.positions]
        self.types = table.type_index[self.job_indices]
        self.gpus = table.gpus[self.job_indices]
        self.left = np.ones(len(self.positions), dtype=np.bool_)
        """Not stopped yet in this round."""
        self._level_of, self._gap = ranking.level, ranking.gap

    def for_job(self, position: int, type_index: int) -> Flags:
        """Those on GPUs of a type that may be stopped for the job at ``position`` of the order."""
        mine: Flags = self.left & (self.types == type_index)
        if self.levels is None or self._level_of is None:
            mine &= self.positions > position
        else:
            mine &= self.levels >= self._level_of[position] + self._gap
        return mine

    def class_of(self, position: int) -> float:
        """Jobs with equal values have the same victims."""
        return float(position if self._level_of is None else self._level_of[position])


class NamedVictims(RoomMaker):
    """Stops the jobs that the policy names, in its order, as few as possible and in the best tier that can be had."""

    def __init__(self, planner: Planner, job_indices: Ints, ranking: Ranking, plan: Plan) -> None:
        super().__init__(planner, job_indices, plan)
        self.victims = Victims(planner, job_indices, ranking)
        self.young = self.victims.young
        self._rooms: dict[tuple[int, float], Room] = {}
        """What ``_room`` counted since a job was last placed."""

    def placed(self) -> None:
        self._rooms.clear()

    def make(self, job_index: int, position: int, types: Sequence[int]) -> Gpus | None:
        """GPUs of free and stopped jobs in the best tier that can be had, on the first type that has one."""
        needed = self.planner.table.jobs[job_index].gpus
        for type_index in types:
            room = self._room(type_index, position)
            if room[Tier.NETWORK] < needed:  # then no tier has room, which ends the search for most jobs
                continue
            for tier in self._tiers(job_index, type_index):
                if room[tier] >= needed:
                    gpus = self._stop_some(job_index, position, type_index, tier)
                    if gpus is not None:
                        return gpus
        return None

    def _tiers(self, job_index: int, type_index: int) -> Sequence[Tier]:
        """Tiers to make room in, the best one first; jobs that no tier slows take what there is."""
        job, perf = self.planner.table.jobs[job_index], self.planner.perf
        if perf is None or perf.sensitivity(job) <= 1.0:
            return (Tier.NETWORK,)
        best = perf.best_tier(job.gpus, type_index)
        return [tier for tier in _TIERS if tier >= best]

    def _room(self, type_index: int, position: int) -> Room:
        """What the tiers could offer at most if all victims of the job were stopped: spares most jobs the search."""
        key = type_index, self.victims.class_of(position)
        known = self._rooms.get(key)
        if known is None:
            known = self._rooms[key] = self._count_room(type_index, position)
        return known

    def _count_room(self, type_index: int, position: int) -> Room:
        pool = self.planner.free.pools[type_index]
        cluster, assigned = pool.cluster, self.planner.assigned
        free = np.array([mask.bit_count() for mask in pool.free_on])
        mine = self.victims.job_indices[self.victims.for_job(position, type_index)].tolist()
        nodes = [cluster.node_of[gpu] for job_index in mine for gpu in assigned[job_index]]
        free += np.bincount(nodes, minlength=len(free)) if nodes else 0
        by_rack = np.bincount(cluster.rack_of, weights=free)
        return {Tier.NODE: int(free.max()), Tier.RACK: int(by_rack.max()), Tier.NETWORK: int(free.sum())}

    def _stop_some(self, job_index: int, position: int, type_index: int, tier: Tier) -> Gpus | None:
        """Stop victims in order until the gang fits within ``tier``; undo all of it if it never does."""
        chosen = np.flatnonzero(self.victims.for_job(position, type_index))
        if not len(chosen):
            return None
        search = _Search(self, job_index, type_index, tier, self.victims.job_indices[chosen].tolist())
        missing = self.planner.table.gpus[job_index] - self.planner.free.pools[type_index].total
        fewest = int(np.searchsorted(np.cumsum(self.victims.gpus[chosen]), missing)) + 1
        gpus = search.place(fewest)
        if gpus is None:
            return None
        gpus = search.give_back(gpus)
        for at, victim in zip(chosen.tolist(), search.victims, strict=True):
            if victim in search.stopped:
                self._stop(at, victim, job_index)
        return gpus

    def _stop(self, at: int, job_index: int, for_job: int) -> None:
        self.victims.left[at] = False
        self.plan.stopped_for[job_index] = for_job
        self._book(int(self.victims.positions[at]))


class _Search:
    """Which of ``victims`` have to go so that one gang fits; works on the index of free GPUs."""

    def __init__(self, room: NamedVictims, job_index: int, type_index: int, tier: Tier, victims: list[int]) -> None:
        self.planner, self.plan = room.planner, room.plan
        self.job_index, self.type_index, self.tier, self.victims = job_index, type_index, tier, victims
        self.pool = room.planner.free.pools[type_index]
        self.stopped: dict[int, Gpus] = {}

    def place(self, fewest: int) -> Gpus | None:
        """GPUs for the gang after the shortest head of the victims that makes it fit, ``fewest`` of them at least.

        More free GPUs never make a gang fit worse, so that the length is found by bisection.
        """
        self._stop_first(fewest)
        gpus = self._try()
        too_few, enough = fewest, len(self.victims)
        if gpus is None and too_few < enough:
            self._stop_first(enough)
            gpus = self._try()
        else:
            enough = too_few
        while gpus is not None and enough - too_few > 1:
            self.pool.give(gpus)
            middle = (too_few + enough) // 2
            self._stop_first(middle)
            found = self._try()
            if found is None:
                too_few = middle
                self._stop_first(enough)
                gpus = self._try()
            else:
                enough, gpus = middle, found
        if gpus is None:
            self._stop_first(0)
        return gpus

    def give_back(self, gpus: Gpus) -> Gpus:
        """Let victims go on whose GPUs are not needed, those that the policy would rather spare first."""
        for job_index in list(self.stopped)[::-1]:
            held = self.stopped[job_index]
            if set(held).isdisjoint(gpus):
                self._resume(job_index)
                continue
            self.pool.give(gpus)
            self._resume(job_index)
            without = self._try()
            if without is None:
                self._stop(job_index)
                self.pool.take(gpus)
            else:
                gpus = without
        for job_index in [v for v, held in self.stopped.items() if set(held).isdisjoint(gpus)]:
            self._resume(job_index)
        return gpus

    def _stop_first(self, count: int) -> None:
        """Exactly the first ``count`` victims are stopped."""
        for job_index in self.victims[len(self.stopped) : count]:
            self._stop(job_index)
        for job_index in self.victims[count : len(self.stopped)]:
            self._resume(job_index)

    def _stop(self, job_index: int) -> None:
        self.stopped[job_index] = held = self.planner.assigned[job_index]
        self.pool.give(held)

    def _resume(self, job_index: int) -> None:
        self.pool.take(self.stopped.pop(job_index))

    def _try(self) -> Gpus | None:
        """GPUs for the gang within the tier, taken."""
        return self.planner.place_within(self.job_index, self.type_index, self.tier, self.plan)
