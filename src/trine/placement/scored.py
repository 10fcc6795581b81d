"""Free GPUs of one pool by PM score, for one application class: every question costs a few bit operations.

Nodes are bits of integers, as in ``free``. The index looks at the nodes that changed only when it is asked something:
changes that cancel out, or concern a class nobody asks for, cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import groupby

import numpy as np

from trine.perf.bins import Bins
from trine.placement.free import FreePool, bits, positions


class ScoredPool:
    """``bins.bin_of`` is read for the GPUs of the pool only; bins ascend in score."""

    def __init__(self, pool: FreePool, bins: Bins) -> None:
        self.pool, self.bins = pool, bins
        self._bin_count = len(bins.scores)
        self.free_in_bin = [0] * self._bin_count
        self._nth = [[0] * self._bin_count for _ in range(pool.largest_node + 1)]
        """[m][bin]: nodes whose best free GPU but m is in the bin; the last row, past the largest node, stays empty."""
        self._known: list[dict[int, tuple[int, ...]]] = [{} for _ in pool.free_on]
        """By node: mask of free GPUs -> their bins, best first."""
        self._seen = [0] * len(pool.free_on)
        self._ranked: list[tuple[int, ...]] = [()] * len(pool.free_on)
        """By node: bins of the free GPUs it had when it was last looked at."""
        self._rack_of = pool.cluster.rack_of
        self.rack_nodes = [0] * len(pool.cluster.racks)
        self._touched: set[int] = set()
        for node, spec in enumerate(pool.cluster.nodes):
            if spec.gpu_type == pool.gpu_type:
                self.rack_nodes[self._rack_of[node]] |= 1 << node
                self._touched.add(node)
        self.racks = [r for r, nodes in enumerate(self.rack_nodes) if nodes]
        self._in_rack = (
            np.zeros((len(self.rack_nodes), self._bin_count), dtype=np.int64) if len(self.racks) > 1 else None
        )
        """[rack][bin]: free GPUs, where there are several racks."""
        pool.watchers.append(self._touched)

    def refresh(self) -> None:
        """Catch up with the pool."""
        free_on, seen = self.pool.free_on, self._seen
        for node in self._touched:
            before, after = seen[node], free_on[node]
            if before != after:
                seen[node] = after
                self._rerank(node, after)
                self._recount(node, before, after)
        self._touched.clear()

    def _rerank(self, node: int, mask: int) -> None:
        """Ranks of the node's free GPUs: only those that moved to another bin change a mask."""
        old, new = self._ranked[node], self._known[node].get(mask)
        if new is None:
            first, bin_of = self.pool.first_gpu[node], self.bins.bin_of
            new = self._known[node][mask] = tuple(sorted([bin_of[first + i] for i in positions(mask)]))
        self._ranked[node] = new
        bit, nth = 1 << node, self._nth
        for row, a, b in zip(nth, old, new, strict=False):
            if a != b:
                row[a] ^= bit
                row[b] ^= bit
        longer, common = (old, len(new)) if len(old) > len(new) else (new, len(old))
        for m in range(common, len(longer)):
            nth[m][longer[m]] ^= bit

    def _recount(self, node: int, before: int, after: int) -> None:
        free, first, bin_of = self.free_in_bin, self.pool.first_gpu[node], self.bins.bin_of
        rack = self._in_rack[self._rack_of[node]] if self._in_rack is not None else None
        for i in positions(before ^ after):
            b, change = bin_of[first + i], 1 if after >> i & 1 else -1
            free[b] += change
            if rack is not None:
                rack[b] += change

    # -- questions -----------------------------------------------------------------------------------------------

    def worst_bin_for(self, count: int) -> int:
        """The lowest bin such that ``count`` free GPUs are in it or better ones; the last bin if too few are free."""
        left = count
        for b, free in enumerate(self.free_in_bin):
            left -= free
            if left <= 0:
                return b
        return self._bin_count - 1

    def free_up_to(self, b: int) -> int:
        """Free GPUs in bin ``b`` and better ones."""
        return sum(self.free_in_bin[: b + 1])

    def by_score(self, count: int) -> list[int]:
        """The best ``count`` GPUs; among equals those on nodes whose number of such GPUs is closest to ``count``."""
        chosen: list[int] = []
        for b in range(self._bin_count):
            if self.free_in_bin[b]:
                self._add_from_bin(b, count, chosen)
                if len(chosen) == count:
                    break
        return chosen

    def _add_from_bin(self, b: int, count: int, chosen: list[int]) -> None:
        """Nodes by how far their number of free GPUs in the bin is from ``count``, then by id."""
        # Nodes with better GPUs left have none in the first bin that holds any.
        first = not chosen
        for sizes in _by_distance(count, self.pool.largest_node):
            nodes = 0
            for k in sizes:
                nodes |= self._with_exactly(k, b, first)
            for node in bits(nodes):
                chosen += self._gpus(node, b, b)
                if len(chosen) >= count:
                    del chosen[count:]
                    return

    def _with_exactly(self, k: int, b: int, first: bool) -> int:
        """Nodes with exactly ``k`` free GPUs in bin ``b``: their ranks in it are a run of that length."""
        nth, nodes = self._nth, 0
        for start in range(1 if first else self.pool.largest_node - k + 1):
            run = nth[start][b] & nth[start + k - 1][b] & ~nth[start + k][b]
            nodes |= run & ~nth[start - 1][b] if start else run
        return nodes

    def on_one_node(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs of one node, the worst of them in bin ``b``; the node with most GPUs up to ``b``, then by id.

        Looks only at nodes whose ``count``-th best free GPU is in ``b``: ask for lower bins first.
        """
        nodes = self._nth[count - 1][b] if count <= self.pool.largest_node else 0
        if not nodes:
            return None
        for m in range(self.pool.largest_node - 1, count - 1, -1):
            if nodes & self._nth[m][b]:
                nodes &= self._nth[m][b]
                break
        node = (nodes & -nodes).bit_length() - 1
        return self._gpus(node, 0, b)[:count]

    def in_one_rack(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs up to bin ``b`` in one rack: the rack that needs the fewest nodes, then the tightest one."""
        if self._in_rack is None:
            return self.anywhere(count, b)
        racks = np.flatnonzero(self._in_rack[:, : b + 1].sum(axis=1) >= count).tolist()
        if not racks:
            return None
        holding = self._nodes_holding(b)
        return self._fewest_nodes(count, b, self.rack_nodes[min(racks, key=self._rack_key(count, holding))], holding)

    def _rack_key(self, count: int, holding: list[int]) -> Callable[[int], tuple[int, int, int]]:
        def key(rack: int) -> tuple[int, int, int]:
            sizes = [(nodes & self.rack_nodes[rack]).bit_count() for nodes in holding]
            return _nodes_needed(count, sizes), sum(sizes), rack

        return key

    def anywhere(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs up to bin ``b`` on as few nodes as can be."""
        if self.free_up_to(b) < count:
            return None
        return self._fewest_nodes(count, b, -1, self._nodes_holding(b))

    def _nodes_holding(self, b: int) -> list[int]:
        """[m - 1]: nodes with at least m free GPUs up to bin ``b``."""
        holding = []
        for row in self._nth[:-1]:
            nodes = 0
            for mask in row[: b + 1]:
                nodes |= mask
            holding.append(nodes)
        return holding

    def _fewest_nodes(self, count: int, b: int, within: int, holding: list[int]) -> list[int]:
        """Fullest nodes first, the last one as tight as possible; lowest ids among equals."""
        chosen: list[int] = []
        exactly = [holding[m] & within & ~(holding[m + 1] if m + 1 < len(holding) else 0) for m in range(len(holding))]
        missing = count
        for m in range(len(holding), 0, -1):
            while exactly[m - 1] and m <= missing:
                chosen += self._from_lowest(exactly, m, m, b)
                missing -= m
            if missing and exactly[m - 1]:
                tightest = next(k for k in range(missing, m + 1) if exactly[k - 1])
                return chosen + self._from_lowest(exactly, tightest, missing, b)
        return chosen

    def _from_lowest(self, exactly: list[int], m: int, count: int, b: int) -> list[int]:
        """``count`` GPUs of the lowest node in ``exactly[m - 1]``, which is taken out of it."""
        low = exactly[m - 1] & -exactly[m - 1]
        exactly[m - 1] ^= low
        return self._gpus(low.bit_length() - 1, 0, b)[:count]

    def _gpus(self, node: int, from_bin: int, to_bin: int) -> list[int]:
        """Free GPU ids of a node in the bins ``from_bin`` to ``to_bin``, ascending."""
        first, bin_of = self.pool.first_gpu[node], self.bins.bin_of
        return [g for i in positions(self.pool.free_on[node]) if from_bin <= bin_of[g := first + i] <= to_bin]


@lru_cache(maxsize=256)
def _by_distance(count: int, largest: int) -> tuple[tuple[int, ...], ...]:
    """The numbers 1 to ``largest``, grouped by their distance to ``count``, nearest first."""
    near = sorted(range(1, largest + 1), key=lambda k: abs(k - count))
    return tuple(tuple(group) for _, group in groupby(near, key=lambda k: abs(k - count)))


def _nodes_needed(count: int, at_least: list[int]) -> int:
    """Fewest nodes that hold ``count`` GPUs, given how many nodes have at least 1, 2, 3 ... of them."""
    needed, left = 0, count
    for m in range(len(at_least), 0, -1):
        nodes = at_least[m - 1] - (at_least[m] if m < len(at_least) else 0)
        used = min(nodes, -(-left // m))
        needed += used
        left -= used * m
        if left <= 0:
            break
    return needed
