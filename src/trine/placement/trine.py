"""The trine placement: the fastest place by chip and network together, among equals the one that does least damage."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

from trine.core.cluster import Tier
from trine.core.job import Job
from trine.core.reason import Reason
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement, no_room, too_few
from trine.placement.free_index import FreePool, bits, positions

_NEAR = 0.02
"""Places that are slower by no more than this count as equal."""
_GOOD_ENOUGH = 0.97
"""Speed over the best there could be from which on wider places are not looked at."""
_DEPTHS = (1.0, 1.25, 1.6, 2.2, 3.2)
"""Chips slower than the (depth x gang)-th best free one are hidden, one depth after another: each depth trades the
slowest chip against the number of nodes."""

Ranked = tuple[int, ...]
"""Free GPUs of a node, fastest for a class first."""


@dataclass
class TrinePlacement(Placement):
    """Candidates on one node, in one rack and anywhere, with slow chips hidden at several depths.

    The performance model quotes each under the present traffic. Within 2 % of the fastest, a gang takes the place on
    the fewest nodes that leaves the fewest GPUs over, and chips that the most sensitive class could use least.
    """

    name: ClassVar[str] = "trine"
    title: ClassVar[str] = "fastest by chip and network together, least damage among equals"
    reads_chips: ClassVar[bool] = True
    sticky = True

    _ranked: dict[tuple[str, int, int], Ranked] = field(default_factory=dict, init=False, repr=False)

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:  # noqa: ARG002
        self._perf = perf
        self._ranked = {}
        self._type_index = {gpu_type: index for index, gpu_type in enumerate(perf.cluster.types)}
        classes = perf.variability.classes
        self._sensitive = perf.variability.slowdown(min(classes, key=perf.variability.rank_of)) if classes else None

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        count = ask.job.gpus
        if pool.total < count:
            return too_few(ask.job, pool)
        on_node = self._on_one_node(ask.job, pool) if count <= pool.largest_node else None
        if count == 1 and on_node is not None:
            return on_node
        if ask.widest <= Tier.NODE:
            return on_node or no_room(ask, pool)
        target = _GOOD_ENOUGH * self._best_speed(ask)
        if on_node is not None and self._speed(ask, on_node) >= target:
            return on_node
        found: list[tuple[float, list[int]]] = [] if on_node is None else [(self._speed(ask, on_node), on_node)]
        found += [(self._speed(ask, gpus), gpus) for gpus in self._in_racks(ask.job, pool)]
        if ask.widest > Tier.RACK and (not found or max(found)[0] < target):
            found += [(self._speed(ask, gpus), gpus) for gpus in self._within(ask.job, pool, -1)]
        return self._least_damage(found, pool) if found else no_room(ask, pool)

    # -- speeds ----------------------------------------------------------------------------------------------------

    def _speed(self, ask: Ask, gpus: Sequence[int]) -> float:
        where = tuple(sorted(gpus))
        if ask.quote is None:
            return self._perf.speed(ask.job, where).steps_per_s
        return ask.quote(ask.job_index, where)

    def _best_speed(self, ask: Ask) -> float:
        """On median chips in the best place of an empty cluster."""
        return 1.0 / self._perf.step_s_by_type(ask.job)[ask.type_index]

    # -- candidates ------------------------------------------------------------------------------------------------

    def _free(self, pool: FreePool, node: int, app_class: str) -> Ranked:
        mask = pool.free_on[node]
        key = (app_class, node, mask)
        known = self._ranked.get(key)
        if known is None:
            slowdown, first = self._perf.variability.slowdown(app_class), pool.first_gpu[node]
            gpus = [first + i for i in positions(mask)]
            known = self._ranked[key] = tuple(sorted(gpus, key=lambda g: (slowdown[g], g)))
        return known

    def _on_one_node(self, job: Job, pool: FreePool) -> list[int] | None:
        """The node whose chips are fastest; within the margin the one that the gang fills best."""
        count, slowdown = job.gpus, self._perf.variability.slowdown(job.app_class)
        nodes = [(node, self._free(pool, node, job.app_class)) for node in bits(pool.nodes_having(count))]
        if not nodes:
            return None
        limit = min(slowdown[free[count - 1]] for _, free in nodes) * (1.0 + _NEAR)
        best = min(
            (len(free), -self._damage(chosen := self._pick(free, count, slowdown)), node, chosen)
            for node, free in nodes
            if slowdown[free[count - 1]] <= limit
        )
        return list(best[3])

    def _pick(self, free: Ranked, count: int, slowdown: Sequence[float]) -> tuple[int, ...]:
        """Of the chips that are as good for the job, those that the most sensitive class could use least."""
        limit = slowdown[free[count - 1]] * (1.0 + _NEAR)
        equal = [g for g in free if slowdown[g] <= limit]
        if len(equal) == count or self._sensitive is None:
            return free[:count]
        sensitive = self._sensitive
        return tuple(sorted(equal, key=lambda g: (-sensitive[g], g))[:count])

    def _damage(self, gpus: Iterable[int]) -> float:
        """Slowest chip for the most sensitive class: a slow chip is no loss to it."""
        return 0.0 if self._sensitive is None else max(self._sensitive[g] for g in gpus)

    def _in_racks(self, job: Job, pool: FreePool) -> Iterator[list[int]]:
        for rack in pool.rack_nodes:
            if len(pool.rack_nodes) == 1 or pool.free_in(rack) >= job.gpus:
                yield from self._within(job, pool, rack)

    def _within(self, job: Job, pool: FreePool, nodes: int) -> Iterator[list[int]]:
        """On the fewest nodes of a set (a bit mask), for each depth of hidden chips."""
        count, slowdown = job.gpus, self._perf.variability.slowdown(job.app_class)
        free = {n: self._free(pool, n, job.app_class) for n in bits(nodes & pool.nodes_having(1))}
        chips = sorted(slowdown[g] for gpus in free.values() for g in gpus)
        if len(chips) < count:
            return
        limits = dict.fromkeys(chips[min(ceil(depth * count), len(chips)) - 1] for depth in _DEPTHS) | {chips[-1]: None}
        for limit in limits:
            fast = {n: [g for g in gpus if slowdown[g] <= limit] for n, gpus in free.items()}
            yield _fewest_nodes(count, fast)

    def _least_damage(self, found: list[tuple[float, list[int]]], pool: FreePool) -> list[int]:
        fastest = max(speed for speed, _ in found)
        near = [gpus for speed, gpus in found if speed >= (1.0 - _NEAR) * fastest]

        def key(gpus: list[int]) -> tuple[int, int, float, list[int]]:
            nodes = {pool.node_of[g] for g in gpus}
            left = sum(pool.free_on[n].bit_count() for n in nodes) - len(gpus)
            return len(nodes), left, -self._damage(gpus), gpus

        return min(near, key=key)


def _fewest_nodes(count: int, free: dict[int, list[int]]) -> list[int]:
    """Fullest nodes first, the last one as tight as possible."""
    chosen: list[int] = []
    nodes = sorted(free.items(), key=lambda item: (-len(item[1]), item[0]))
    while len(chosen) < count:
        missing = count - len(chosen)
        whole = [item for item in nodes if len(item[1]) <= missing]
        if len(nodes[0][1]) <= missing:
            node, gpus = nodes[0]
        else:
            enough = [item for item in nodes if len(item[1]) >= missing]
            node, gpus = min(enough, key=lambda item: (len(item[1]), item[0])) if enough else whole[0]
        chosen += gpus[:missing]
        nodes = [item for item in nodes if item[0] != node]
    return chosen
