"""Places that a gang could take among the free GPUs of one type: on one node, in one rack, anywhere.

The indices here remember what they found and look again only at nodes and racks whose free GPUs changed, so that a
question costs what changed since the last one. Which place is the fastest, the placement asks the performance model.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

from trine.placement.free_index import FreePool, bits, positions

NEAR = 0.02
"""Places and chips that are slower by no more than this count as equal."""
_DEPTHS = (1.0, 1.25, 1.6, 2.2, 3.2)
"""Chips slower than the (depth x gang)-th best free one are hidden, one depth after another: each depth trades the
slowest chip against the number of nodes."""

Ranked = tuple[int, ...]
"""Free GPUs of a node, fastest first."""


class Shape(NamedTuple):
    """What the speed of a gang inside one rack depends on, links to itself."""

    chip: float
    """Slowdown of the slowest one."""
    nodes: int
    per_node: int
    """GPUs on the node that has most of the gang."""


class Place(NamedTuple):
    """GPUs for a gang. Places compare by the damage they do to others."""

    nodes: int
    left_over: int
    """GPUs that stay free on the nodes of the gang."""
    damage: float
    """Minus the slowdown of its slowest chip for the most sensitive class: to that one a slow chip is no loss."""
    gpus: tuple[int, ...]
    shape: Shape


class Chips:
    """Slowdowns of the GPUs of one pool for one application class, and for the class that suffers most from chips."""

    def __init__(self, pool: FreePool, slowdown: Sequence[float], sensitive: Sequence[float] | None) -> None:
        self.pool, self.slowdown, self._sensitive = pool, slowdown, sensitive
        self._ranked: dict[tuple[int, int], Ranked] = {}

    def ranked(self, node: int) -> Ranked:
        """The free GPUs of a node."""
        mask = self.pool.free_on[node]
        known = self._ranked.get((node, mask))
        if known is None:
            slowdown, first = self.slowdown, self.pool.first_gpu[node]
            gpus = [first + i for i in positions(mask)]
            known = self._ranked[node, mask] = tuple(sorted(gpus, key=lambda g: (slowdown[g], g)))
        return known

    def pick(self, free: Ranked, count: int) -> Ranked:
        """Of the chips that are as good for the job, those that the most sensitive class could use least."""
        slowdown = self.slowdown
        limit = slowdown[free[count - 1]] * (1.0 + NEAR)
        equal = [g for g in free if slowdown[g] <= limit]
        if len(equal) == count or self._sensitive is None:
            return free[:count]
        sensitive = self._sensitive
        return tuple(sorted(equal, key=lambda g: (-sensitive[g], g))[:count])

    def damage(self, gpus: Iterable[int]) -> float:
        """See ``Place.damage``."""
        return 0.0 if self._sensitive is None else -max(self._sensitive[g] for g in gpus)

    def place(self, gpus: tuple[int, ...], nodes: int, per_node: int, left_over: int) -> Place:
        shape = Shape(max([self.slowdown[g] for g in gpus]), nodes, per_node)
        return Place(nodes, left_over, self.damage(gpus), gpus, shape)

    def depths(self, free: dict[int, Ranked], count: int) -> Iterator[dict[int, Ranked]]:
        """The free GPUs by node with slow chips hidden, for each depth; nothing if they are too few."""
        slowdown = self.slowdown
        chips = sorted([slowdown[g] for gpus in free.values() for g in gpus])
        if len(chips) < count:
            return
        limits = dict.fromkeys(chips[min(ceil(depth * count), len(chips)) - 1] for depth in _DEPTHS) | {chips[-1]: None}
        for limit in limits:
            if limit == chips[-1]:
                yield free
            else:
                yield {n: tuple([g for g in gpus if slowdown[g] <= limit]) for n, gpus in free.items()}

    def places(self, nodes: int, count: int) -> list[Place]:
        """On the fewest nodes of a set (a bit mask), for each depth of hidden chips; each set of GPUs once."""
        pool = self.pool
        free = {n: self.ranked(n) for n in bits(nodes & pool.nodes_having(1))}
        found: dict[tuple[int, ...], Place] = {}
        for shown in self.depths(free, count):
            parts = _fewest_nodes(count, shown)
            gpus = tuple([g for _, part in parts for g in part])
            if gpus not in found:
                left_over = sum([len(free[n]) for n, _ in parts]) - count
                found[gpus] = self.place(gpus, len(parts), max([len(part) for _, part in parts]), left_over)
        return list(found.values())


def _fewest_nodes(count: int, free: dict[int, Ranked]) -> list[tuple[int, Ranked]]:
    """Fullest nodes first, the last one as tight as possible: nodes with what the gang takes of them."""
    chosen: list[tuple[int, Ranked]] = []
    items, sizes = list(free.items()), list(map(len, free.values()))
    # Nodes are in ascending order, which sorting keeps among equals.
    nodes = [items[at] for at in sorted(range(len(items)), key=sizes.__getitem__, reverse=True)]
    for at, (node, gpus) in enumerate(nodes):
        if len(gpus) > count:
            enough = [item for item in nodes[at:] if len(item[1]) >= count]
            node, gpus = min(enough, key=lambda item: (len(item[1]), item[0]))
        chosen.append((node, gpus[:count]))
        count -= len(chosen[-1][1])
        if not count:
            break
    return chosen


class NodePlaces:
    """The best place for gangs of one size inside one node: the fastest chips, among equals the fullest node."""

    def __init__(self, chips: Chips, count: int) -> None:
        self.chips, self._count = chips, count
        self._by_damage: list[tuple[int, float, int, Ranked, float]] = []
        """Free GPUs of the node, damage, node, the GPUs, slowdown of the ``count``-th best free chip; ascending."""
        self._by_chip: list[tuple[float, int]] = []
        self._entries: dict[int, tuple[int, float, int, Ranked, float]] = {}
        self._touched = set(bits(chips.pool.nodes_having(0)))
        chips.pool.watchers.append(self._touched)

    def close(self) -> None:
        self.chips.pool.unwatch(self._touched)

    def best(self) -> Ranked | None:
        """``None``: no node has as many free GPUs."""
        self._refresh()
        if not self._by_chip:
            return None
        limit = self._by_chip[0][0] * (1.0 + NEAR)
        return next(entry[3] for entry in self._by_damage if entry[4] <= limit)

    def _refresh(self) -> None:
        """Look at the nodes that changed."""
        entries, free_on = self._entries, self.chips.pool.free_on
        for node in self._touched:
            old = entries.pop(node, None)
            if old is not None:
                del self._by_damage[bisect_left(self._by_damage, old)]
                del self._by_chip[bisect_left(self._by_chip, (old[4], node))]
            if free_on[node].bit_count() >= self._count:
                new = entries[node] = self._entry(node)
                insort(self._by_damage, new)
                insort(self._by_chip, (new[4], node))
        self._touched.clear()

    def _entry(self, node: int) -> tuple[int, float, int, Ranked, float]:
        free = self.chips.ranked(node)
        gpus = self.chips.pick(free, self._count)
        return len(free), self.chips.damage(gpus), node, gpus, self.chips.slowdown[free[self._count - 1]]


class RackPlaces:
    """Places for gangs of one size inside one rack, of every rack that has room."""

    def __init__(self, chips: Chips, count: int) -> None:
        self.chips, self._count = chips, count
        self._racks = chips.pool.rack_nodes
        self._rack_of = {node: at for at, nodes in enumerate(self._racks) for node in bits(nodes)}
        self._known: list[list[Place]] = [[] for _ in self._racks]
        self._touched = set(self._rack_of)
        chips.pool.watchers.append(self._touched)

    def close(self) -> None:
        self.chips.pool.unwatch(self._touched)

    def all(self) -> list[Place]:
        pool, count = self.chips.pool, self._count
        for rack in {self._rack_of[node] for node in self._touched}:
            nodes = self._racks[rack]
            self._known[rack] = self.chips.places(nodes, count) if pool.free_in(nodes) >= count else []
        self._touched.clear()
        return [place for places in self._known for place in places]
