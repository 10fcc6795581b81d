"""Free GPUs of one pool by PM score, for one application class: every question costs a few bit operations.

Nodes are bits of integers, as in ``free``. The index looks at the nodes that changed only when it is asked something:
changes that cancel out, or concern a class that is not asked for, cost next to nothing.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby, zip_longest

from trine.perf.bins import Bins
from trine.placement.free_index import FreePool, positions

_COUNT_BITS = 32
"""GPUs by bin are counted in one integer, so many bits for each bin: a node's change is added to all bins at once.
Those of a node take as few bits as its size allows, which keeps them machine words."""
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_STEPS_KEPT = 1 << 16

Masks = list[int]
_Step = tuple[int, tuple[tuple[Masks, int], ...]]
"""GPUs gained by bin, and the entries of ``ScoredPool._nth`` that the node leaves or enters."""


class ScoredPool:
    """``bins.bin_of`` is read for the GPUs of the pool only; bins ascend in score."""

    def __init__(self, pool: FreePool, bins: Bins) -> None:
        self.pool, self.bins = pool, bins
        self._bin_count = len(bins.scores)
        self._nth: list[Masks] = [[0] * self._bin_count for _ in range(pool.largest_node + 1)]
        """[m][bin]: nodes whose best free GPU but m is in the bin; the last row, past the largest node, stays empty."""
        self._seen = [0] * len(pool.free_on)
        self._held = [0] * len(pool.free_on)
        """By node: mask of its free GPUs and their counts by bin, when it was last looked at."""
        self._free = 0
        """Free GPUs by bin."""
        self._steps: dict[int, _Step] = {}
        """Counts of a node before and after, side by side -> what that changes; few of them ever occur."""
        self._rack_of = pool.cluster.rack_of
        self.rack_nodes = [0] * len(pool.cluster.racks)
        self._touched: set[int] = set()
        for node, spec in enumerate(pool.cluster.nodes):
            if spec.gpu_type == pool.gpu_type:
                self.rack_nodes[self._rack_of[node]] |= 1 << node
                self._touched.add(node)
        self.racks = [r for r, nodes in enumerate(self.rack_nodes) if nodes]
        self._rack_free = [0] * len(self.rack_nodes)
        """Free GPUs by bin and rack, kept where there are several racks."""
        self._lay_out()
        pool.watchers.append(self._touched)

    def _lay_out(self) -> None:
        """What never changes: where the GPUs of each bin are."""
        self._node_bits = self.pool.largest_node.bit_length()
        self._side = self._node_bits * self._bin_count
        units = [1 << self._node_bits * b for b in range(self._bin_count)]
        self._unit = [units[b] for b in self.bins.bin_of]
        """By GPU: one in its bin, as nodes count."""
        self._in_bin = [[0] * len(self._seen) for _ in units]
        """[bin][node]: mask of the node's GPUs, free or not."""
        for gpu, node in enumerate(self.pool.node_of):
            self._in_bin[self.bins.bin_of[gpu]][node] |= self.pool.bit_of[gpu]
        self._up_to = [self._in_bin[0]]
        """[bin][node]: the same for the bin and better ones."""
        for masks in self._in_bin[1:]:
            self._up_to.append([a | b for a, b in zip(self._up_to[-1], masks, strict=True)])

    def refresh(self) -> None:
        """Catch up with the pool."""
        free_on, first_gpu = self.pool.free_on, self.pool.first_gpu
        seen, held, unit, steps, side = self._seen, self._held, self._unit, self._steps, self._side
        several_racks, change = len(self.racks) > 1, 0
        for node in self._touched:
            before, after = seen[node], free_on[node]
            if before == after:
                continue
            seen[node] = after
            first = first_gpu[node]
            old = new = held[node]
            for i in positions(before ^ after):
                if after >> i & 1:
                    new += unit[first + i]
                else:
                    new -= unit[first + i]
            held[node] = new
            gained, flips = steps.get(old << side | new) or self._step(old, new)
            change += gained
            if several_racks:
                self._rack_free[self._rack_of[node]] += gained
            bit = 1 << node
            for row, b in flips:
                row[b] ^= bit
        self._free += change
        self._touched.clear()

    def _step(self, old: int, new: int) -> _Step:
        """Ranks of a node's free GPUs: only those that moved to another bin change a mask."""
        if len(self._steps) >= _STEPS_KEPT:
            self._steps.clear()
        before, after = self._by_bin(old, self._node_bits), self._by_bin(new, self._node_bits)
        gained = sum([(after[b] - before[b]) << _COUNT_BITS * b for b in range(self._bin_count)])
        ranks = zip(self._nth, zip_longest(_ranked(before), _ranked(after)), strict=False)
        flips = [(row, b) for row, (x, y) in ranks if x != y for b in (x, y) if b is not None]
        found = self._steps[old << self._side | new] = (gained, tuple(flips))
        return found

    def _by_bin(self, counts: int, width: int) -> list[int]:
        return [counts >> width * b & (1 << width) - 1 for b in range(self._bin_count)]

    # -- questions -----------------------------------------------------------------------------------------------

    @property
    def free_in_bin(self) -> list[int]:
        """Free GPUs by bin."""
        return self._by_bin(self._free, _COUNT_BITS)

    def free_up_to(self, b: int) -> int:
        """Free GPUs in bin ``b`` and better ones."""
        return _total(self._free, b)

    def worst_bin_for(self, count: int) -> int:
        """The lowest bin such that ``count`` free GPUs are in it or better ones; the last bin if too few are free."""
        for b in range(self._bin_count):
            if _total(self._free, b) >= count:
                return b
        return self._bin_count - 1

    def node_bin_for(self, count: int) -> int:
        """The lowest bin such that a node has ``count`` free GPUs in it or better ones; -1 if no node has as many."""
        if count <= self.pool.largest_node:
            for b, nodes in enumerate(self._nth[count - 1]):
                if nodes:
                    return b
        return -1

    def rack_bin_for(self, count: int) -> int:
        """The same for racks."""
        if len(self.racks) == 1:
            return self.worst_bin_for(count) if self.free_up_to(self._bin_count - 1) >= count else -1
        roomy = [free for free in self._rack_free if free % _COUNT_MASK >= count]
        for b in range(self._bin_count):
            if any(_total(free, b) >= count for free in roomy):
                return b
        return -1

    def by_score(self, count: int) -> list[int]:
        """The best ``count`` GPUs; among equals those on nodes whose number of such GPUs is closest to ``count``."""
        chosen: list[int] = []
        free = self._free
        for b in range(self._bin_count):
            if free & _COUNT_MASK:
                self._add_from_bin(b, count, chosen)
                if len(chosen) == count:
                    break
            free >>= _COUNT_BITS
        return chosen

    def _add_from_bin(self, b: int, count: int, chosen: list[int]) -> None:
        """Nodes by how far their number of free GPUs in the bin is from ``count``, then by id."""
        # Nodes with better GPUs left have none in the first bin that holds any.
        first, masks = not chosen, self._in_bin[b]
        for sizes in _by_distance(count, self.pool.largest_node):
            nodes = 0
            for k in sizes:
                nodes |= self._with_exactly(k, b, first)
            while nodes:
                low = nodes & -nodes
                nodes ^= low
                chosen += self._gpus(low.bit_length() - 1, masks)
                if len(chosen) >= count:
                    del chosen[count:]
                    return

    def _with_exactly(self, k: int, b: int, first: bool) -> int:
        """Nodes with exactly ``k`` free GPUs in bin ``b``: their ranks in it are a run of that length."""
        nth = self._nth
        if first:  # ranks in the first bin start with the best
            return nth[k - 1][b] ^ nth[k][b]
        nodes = 0
        for start in range(self.pool.largest_node - k + 1):
            run = nth[start][b] & nth[start + k - 1][b] & ~nth[start + k][b]
            nodes |= run & ~nth[start - 1][b] if start else run
        return nodes

    def on_one_node(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs of one node, the worst of them in bin ``b``; the node with most GPUs up to ``b``, then by id.

        Looks only at nodes whose ``count``-th best free GPU is in ``b``: ask for lower bins first.
        """
        largest = self.pool.largest_node
        nodes = self._nth[count - 1][b] if count <= largest else 0
        if not nodes:
            return None
        for m in range(count, largest):
            more = nodes & self._nth[m][b]
            if not more:
                break
            nodes = more
        return self._gpus((nodes & -nodes).bit_length() - 1, self._up_to[b])[:count]

    def in_one_rack(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs up to bin ``b`` in one rack: the rack that needs the fewest nodes, then the tightest one."""
        if len(self.racks) == 1:
            return self.anywhere(count, b)
        roomy = [rack for rack, free in enumerate(self._rack_free) if free % _COUNT_MASK >= count]
        racks = [(free, rack) for rack in roomy if (free := _total(self._rack_free[rack], b)) >= count]
        if not racks:
            return None
        holding = self._nodes_holding(b)
        rack = self._needing_fewest_nodes(count, [rack for _, rack in sorted(racks)], holding)
        return self._fewest_nodes(count, b, self.rack_nodes[rack], holding)

    def _needing_fewest_nodes(self, count: int, racks: list[int], holding: Masks) -> int:
        """The first of ``racks`` that needs the fewest nodes."""
        at_best = -(-count // len(holding))
        best, fewest = -1, count + 1
        for rack in racks:
            within = self.rack_nodes[rack]
            needed = _nodes_needed(count, [(nodes & within).bit_count() for nodes in holding])
            if needed < fewest:
                best, fewest = rack, needed
                if fewest == at_best:
                    break
        return best

    def anywhere(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs up to bin ``b`` on as few nodes as can be."""
        if self.free_up_to(b) < count:
            return None
        return self._fewest_nodes(count, b, -1, self._nodes_holding(b))

    def _nodes_holding(self, b: int) -> Masks:
        """[m - 1]: nodes with at least m free GPUs up to bin ``b``, as far as there are any."""
        holding: Masks = []
        for row in self._nth:
            nodes = row[0]
            for mask in row[1 : b + 1]:
                nodes |= mask
            if not nodes:
                break
            holding.append(nodes)
        return holding

    def _fewest_nodes(self, count: int, b: int, within: int, holding: Masks) -> list[int]:
        """Fullest nodes first, the last one as tight as possible; lowest ids among equals."""
        chosen: list[int] = []
        exactly = [(nodes ^ more) & within for nodes, more in zip(holding, [*holding[1:], 0], strict=True)]
        missing = count
        for m in range(len(holding), 0, -1):
            while exactly[m - 1] and m <= missing:
                chosen += self._from_lowest(exactly, m, m, b)
                missing -= m
            if missing and exactly[m - 1]:
                tightest = next(k for k in range(missing, m + 1) if exactly[k - 1])
                return chosen + self._from_lowest(exactly, tightest, missing, b)
        return chosen

    def _from_lowest(self, exactly: Masks, m: int, count: int, b: int) -> list[int]:
        """``count`` GPUs of the lowest node in ``exactly[m - 1]``, which is taken out of it."""
        low = exactly[m - 1] & -exactly[m - 1]
        exactly[m - 1] ^= low
        return self._gpus(low.bit_length() - 1, self._up_to[b])[:count]

    def _gpus(self, node: int, masks: Masks) -> list[int]:
        """Free GPU ids of a node that are in its mask, ascending."""
        first = self.pool.first_gpu[node]
        return [first + i for i in positions(self.pool.free_on[node] & masks[node])]


def _ranked(by_bin: list[int]) -> list[int]:
    """Bins of a node's free GPUs, best first."""
    return [b for b, free in enumerate(by_bin) for _ in range(free)]


def _total(counts: int, b: int) -> int:
    """Sum of the counts up to bin ``b``: a number and its digits' sum agree modulo the base less one."""
    return (counts & (1 << _COUNT_BITS * (b + 1)) - 1) % _COUNT_MASK


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
