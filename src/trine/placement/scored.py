"""Free GPUs of one pool by PM score, for one application class: every question costs a few bit operations.

Nodes are bits of integers, as in ``free``. The index looks at the nodes that changed only when it is asked something:
changes that cancel out, or concern a class nobody asks for, cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from trine.perf.bins import Bins
from trine.placement.free import FreePool, bits


class ScoredPool:
    """``bins.bin_of`` is read for the GPUs of the pool only; bins ascend in score."""

    def __init__(self, pool: FreePool, bins: Bins) -> None:
        self.pool, self.bins = pool, bins
        self.bin_count = len(bins.scores)
        self.free_in_bin = [0] * self.bin_count
        sizes = pool.largest_node + 1
        self._exactly = [[0] * sizes for _ in range(self.bin_count)]
        """[bin][k]: nodes with exactly k free GPUs in the bin."""
        self._nth = [[0] * self.bin_count for _ in range(sizes + 1)]
        """[m][bin]: nodes whose m-th best free GPU is in the bin."""
        self._masks: list[tuple[tuple[int, int], ...]] = [()] * len(pool.free_on)
        """By node: its bins, ascending, each with the mask of its GPUs in it."""
        rack_of = pool.cluster.rack_of
        self.rack_nodes = [0] * len(pool.cluster.racks)
        for node, spec in enumerate(pool.cluster.nodes):
            if spec.gpu_type == pool.gpu_type:
                self.rack_nodes[rack_of[node]] |= 1 << node
                self._masks[node] = self._node_masks(node, spec.gpus)
        self.racks = [r for r, nodes in enumerate(self.rack_nodes) if nodes]
        self._seen = [0] * len(pool.free_on)
        self._watch = pool.watch()
        pool.touched[self._watch] = sum(self.rack_nodes)

    def _node_masks(self, node: int, gpus: int) -> tuple[tuple[int, int], ...]:
        first, masks = self.pool.first_gpu[node], dict[int, int]()
        for i in range(gpus):
            b = self.bins.bin_of[first + i]
            masks[b] = masks.get(b, 0) | 1 << i
        return tuple(sorted(masks.items()))

    def refresh(self) -> None:
        """Catch up with the pool."""
        touched = self.pool.touched[self._watch]
        if not touched:
            return
        self.pool.touched[self._watch] = 0
        for node in bits(touched):
            before, after = self._seen[node], self.pool.free_on[node]
            if before != after:
                self._seen[node] = after
                self._change(node, before, after)

    def _change(self, node: int, before: int, after: int) -> None:
        """The free GPUs of ``node`` were ``before`` and are ``after``."""
        bit = 1 << node
        seen_old = seen_new = 0
        for b, mask in self._masks[node]:
            old, new = (before & mask).bit_count(), (after & mask).bit_count()
            if old != new:
                exactly = self._exactly[b]
                exactly[old] ^= bit
                exactly[new] ^= bit
                self.free_in_bin[b] += new - old
            if old != new or seen_old != seen_new:
                self._move(b, bit, seen_old, seen_old + old, seen_new, seen_new + new)
            seen_old += old
            seen_new += new

    def _move(self, b: int, bit: int, old_from: int, old_to: int, new_from: int, new_to: int) -> None:
        """Ranks ``old_from``+1..``old_to`` of a node were in bin ``b``, ``new_from``+1..``new_to`` are now."""
        nth = self._nth
        for m in range(old_from + 1, old_to + 1):
            if not new_from < m <= new_to:
                nth[m][b] ^= bit
        for m in range(new_from + 1, new_to + 1):
            if not old_from < m <= old_to:
                nth[m][b] ^= bit

    # -- questions -----------------------------------------------------------------------------------------------

    def worst_bin_for(self, count: int) -> int:
        """The lowest bin such that ``count`` free GPUs are in it or better ones; the last bin if too few are free."""
        left = count
        for b, free in enumerate(self.free_in_bin):
            left -= free
            if left <= 0:
                return b
        return self.bin_count - 1

    def by_score(self, count: int) -> list[int]:
        """The best ``count`` GPUs; among equals those on nodes whose number of such GPUs is closest to ``count``."""
        chosen: list[int] = []
        for gpu in self._ordered(count):
            chosen.append(gpu)
            if len(chosen) == count:
                break
        return chosen

    def _ordered(self, count: int) -> Iterator[int]:
        largest = self.pool.largest_node
        near = sorted(range(1, largest + 1), key=lambda k: abs(k - count))
        for b, free in enumerate(self.free_in_bin):
            if not free:
                continue
            exactly = self._exactly[b]
            i = 0
            while i < largest:
                nodes, distance = 0, abs(near[i] - count)
                while i < largest and abs(near[i] - count) == distance:
                    nodes |= exactly[near[i]]
                    i += 1
                for node in bits(nodes):
                    yield from self._gpus(node, b, b)

    def on_one_node(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs of one node, the worst of them in bin ``b``; the node with most GPUs up to ``b``, then by id.

        Looks only at nodes whose ``count``-th best free GPU is in ``b``: ask for lower bins first.
        """
        if count > self.pool.largest_node or not self._nth[count][b]:
            return None
        nodes = self._nth[count][b]
        for m in range(self.pool.largest_node, count, -1):
            if nodes & self._nth[m][b]:
                nodes &= self._nth[m][b]
                break
        node = (nodes & -nodes).bit_length() - 1
        return list(self._gpus(node, 0, b))[:count]

    def in_one_rack(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs up to bin ``b`` in one rack: the rack that needs the fewest nodes, then the tightest one."""
        holding = self._nodes_holding(b)
        best: tuple[int, int, int] | None = None
        for rack in self.racks:
            ranked = [nodes & self.rack_nodes[rack] for nodes in holding]
            sizes = [nodes.bit_count() for nodes in ranked]
            if sum(sizes) >= count:
                key = (_nodes_needed(count, sizes), sum(sizes), rack)
                best = key if best is None or key < best else best
        return None if best is None else self._fewest_nodes(count, b, self.rack_nodes[best[2]], holding)

    def anywhere(self, count: int, b: int) -> list[int] | None:
        """``count`` GPUs up to bin ``b`` on as few nodes as can be."""
        if sum(self.free_in_bin[: b + 1]) < count:
            return None
        return self._fewest_nodes(count, b, -1, self._nodes_holding(b))

    def _nodes_holding(self, b: int) -> list[int]:
        """[m - 1]: nodes with at least m free GPUs up to bin ``b``."""
        holding = []
        for m in range(1, self.pool.largest_node + 1):
            nodes = 0
            for mask in self._nth[m][: b + 1]:
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
        return list(self._gpus(low.bit_length() - 1, 0, b))[:count]

    def _gpus(self, node: int, from_bin: int, to_bin: int) -> Iterator[int]:
        """Free GPU ids of a node in the bins ``from_bin`` to ``to_bin``, ascending."""
        mask = 0
        for b, gpus in self._masks[node]:
            if from_bin <= b <= to_bin:
                mask |= gpus
        first = self.pool.first_gpu[node]
        for i in bits(mask & self.pool.free_on[node]):
            yield first + i


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
