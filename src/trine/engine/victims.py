"""One round of a sticky placement under a policy that says which jobs may be stopped for which, and in which order.

A waiting job that does not fit gets the GPUs of running ones on paper, in the policy's order, until its gang fits;
those that it turns out not to need are given back. Nothing is stopped for a job that is not placed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from trine.core.cluster import Tier
from trine.policy.base import Ranking
from trine.policy.view import Flags, Floats, Ints

if TYPE_CHECKING:
    from trine.engine.plan import Gpus, Plan, Planner

_TIERS = (Tier.NODE, Tier.RACK, Tier.NETWORK)
Room = dict[Tier, int]
"""The most GPUs that one node, one rack and the whole type can offer."""


class Victims:
    """The running jobs that may be stopped in this round, in the policy's order."""

    def __init__(self, planner: Planner, job_indices: Ints, ranking: Ranking) -> None:
        table = planner.table
        running = np.flatnonzero(table.assigned[job_indices])
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

    def key(self, position: int) -> float:
        """The same victims for all jobs with the same key."""
        return float(position if self._level_of is None else self._level_of[position])


class VictimRound:
    """A walk down the order over the jobs that wait."""

    def __init__(self, planner: Planner, job_indices: Ints, ranking: Ranking, plan: Plan) -> None:
        self.planner, self.job_indices, self.plan = planner, job_indices, plan
        self.wanted = None if ranking.type_indices is None else ranking.type_indices.tolist()
        self.stops_for_better = ranking.stops_for_better
        self.victims = Victims(planner, job_indices, ranking)
        self.evicted: list[int] = []
        """Heap of positions of the jobs stopped so far: they stand in line again, but nothing is stopped for them."""
        self.stopped: dict[int, Gpus] = {}
        """GPUs that they had, by job index."""
        self._rooms: dict[tuple[int, float], Room] = {}

    def run(self) -> Plan:
        """The plan, with the stops in the order in which they were found to be needed."""
        unserved = False
        for position, may_stop in self._line():
            if self._serve(position, may_stop):
                continue
            unserved = True
            if self.planner.strict and not self.plan.waits(int(self.job_indices[position])):
                self.plan.blocked_by = int(self.job_indices[position])
                break
        self.plan.stops = list(self.stopped)
        self.plan.provisional = unserved and self.victims.young
        return self.plan

    def _line(self) -> Iterator[tuple[int, bool]]:
        """Positions in order, of jobs that wait and of those stopped for others; the latter may stop none."""
        waiting = np.flatnonzero(~self.planner.table.assigned[self.job_indices]).tolist()
        for position in waiting:
            while self.evicted and self.evicted[0] < position:
                yield heappop(self.evicted), False
            yield position, True
        while self.evicted:
            yield heappop(self.evicted), False

    def _serve(self, position: int, may_stop: bool) -> bool:
        planner, job_index = self.planner, int(self.job_indices[position])
        types = planner.pools_for(job_index, self.wanted[position] if self.wanted else -1)
        gpus = planner.try_place(planner.table.jobs[job_index], types, self.plan, job_index)
        if gpus is None and may_stop and (self.stops_for_better or not self.plan.waits(job_index)):
            refusal = self.plan.refusals.get(job_index)
            gpus = self._make_room(job_index, position, types)
            if gpus is None and self.plan.waits(job_index):  # what it was offered on paper are the GPUs of others
                self.plan.put_back(job_index, refusal)
        if gpus is None:
            return False
        self._rooms.clear()
        self.plan.refusals.pop(job_index, None)
        self.plan.starts.append((job_index, gpus))
        return True

    # -- room for one job ----------------------------------------------------------------------------------------

    def _make_room(self, job_index: int, position: int, types: Sequence[int]) -> Gpus | None:
        """GPUs of free and stopped jobs in the best tier that can be had, on the first type that has one."""
        needed = self.planner.table.jobs[job_index].gpus
        for type_index in types:
            room = self._room(type_index, position)
            if room[Tier.NETWORK] < needed:  # then no tier has room, and most jobs are spared the rest
                continue
            for tier in self._tiers(job_index, type_index):
                if room[tier] >= needed:
                    gpus = self._stop_some(job_index, position, type_index, tier)
                    if gpus is not None:
                        return gpus
        return None

    def _tiers(self, job_index: int, type_index: int) -> Sequence[Tier]:
        """Tiers to make room in, the best one first; jobs that do not feel the network take what there is."""
        job, perf = self.planner.table.jobs[job_index], self.planner.perf
        if perf is None or perf.sensitivity(job) <= 1.0:
            return (Tier.NETWORK,)
        best = perf.best_tier(job.gpus, type_index)
        return [tier for tier in _TIERS if tier >= best]

    def _room(self, type_index: int, position: int) -> Room:
        """What the tiers could offer at most if all victims of the job were stopped: spares most jobs the search."""
        key = type_index, self.victims.key(position)
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
        self.stopped[job_index] = self.planner.assigned[job_index]
        self.plan.stopped_for[job_index] = for_job
        heappush(self.evicted, int(self.victims.positions[at]))


class _Search:
    """Which of ``victims`` have to go so that one gang fits; works on the index of free GPUs."""

    def __init__(self, round_: VictimRound, job_index: int, type_index: int, tier: Tier, victims: list[int]) -> None:
        self.planner, self.plan = round_.planner, round_.plan
        self.job_index, self.type_index, self.tier, self.victims = job_index, type_index, tier, victims
        self.pool = round_.planner.free.pools[type_index]
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
