"""An incremental index of free GPUs: a decision costs microseconds, not a scan of the cluster.

Nodes are bits of one integer per number of free GPUs, GPUs of a node bits of a small one, so that "the lowest node
with exactly three free GPUs" is two machine-level operations at any cluster size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

from trine.core.cluster import Cluster


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@lru_cache(maxsize=65536)
def positions(mask: int) -> tuple[int, ...]:
    """Positions of the set bits of a node's mask, ascending; nodes are small, so that few masks ever occur."""
    return tuple(bits(mask))


class FreePool:
    """Free GPUs of one type. ``take`` and ``give`` undo each other exactly."""

    def __init__(self, cluster: Cluster, gpu_type: str) -> None:
        self.cluster = cluster
        self.gpu_type = gpu_type
        self.first_gpu = cluster.first_gpu
        self.node_of = cluster.node_of
        self.bit_of = [1 << i for node in cluster.nodes for i in range(node.gpus)]
        """By GPU: its bit in the masks of its node."""
        self.largest_node = max((n.gpus for n in cluster.nodes if n.gpu_type == gpu_type), default=0)
        self.total = 0
        self.watchers: list[set[int]] = []
        """One set per finer index: the nodes that changed since it last looked; the index empties it."""
        self.free_on: list[int] = [0] * len(cluster.nodes)
        """Bit mask of free GPUs by node; bit i is GPU ``first_gpu[node] + i``."""
        self.nodes_with: list[int] = [0] * (self.largest_node + 1)
        """Bit mask of nodes by number of free GPUs."""
        self._free_by_rack: dict[int, int] = dict.fromkeys(self.rack_nodes, 0) if len(self.rack_nodes) > 1 else {}
        """Free GPUs by rack, a bit mask of its nodes; kept where there are several racks."""
        self._rack_of = [self._rack_with(i) for i in range(len(cluster.nodes))] if self._free_by_rack else []
        for i, node in enumerate(cluster.nodes):
            if node.gpu_type == gpu_type:
                self.nodes_with[0] |= 1 << i
                self._set(i, 0, (1 << node.gpus) - 1)
        self.capacity = self.total
        self.cordoned: dict[int, int] = {}
        """Masks by node of GPUs out of service: neither taking nor giving them changes anything."""

    def _set(self, node: int, before: int, after: int) -> None:
        old, new = before.bit_count(), after.bit_count()
        self.free_on[node] = after
        bit, nodes_with = 1 << node, self.nodes_with
        nodes_with[old] ^= bit
        nodes_with[new] ^= bit
        self.total += new - old
        if self._free_by_rack:
            self._free_by_rack[self._rack_of[node]] += new - old

    def _rack_with(self, node: int) -> int:
        """The rack, as a bit mask of its nodes, that holds a node; 0 if that has no GPUs of this type."""
        return next((rack for rack in self.rack_nodes if rack >> node & 1), 0)

    def _by_node(self, gpus: Sequence[int]) -> dict[int, int]:
        """Nodes of ``gpus``, each with the mask of its GPUs among them."""
        node_of, bit_of = self.node_of, self.bit_of
        masks: dict[int, int] = {}
        for g in gpus:
            node = node_of[g]
            masks[node] = masks.get(node, 0) | bit_of[g]
        return masks

    def _touch(self, gpus: Sequence[int]) -> Iterable[tuple[int, int]]:
        """The same, once the finer indices know that these nodes change."""
        if len(gpus) == 1:  # most jobs, which need no dictionary
            gpu = gpus[0]
            node = self.node_of[gpu]
            for touched in self.watchers:
                touched.add(node)
            return ((node, self.bit_of[gpu]),)
        masks = self._by_node(gpus)
        for touched in self.watchers:
            touched.update(masks)
        return masks.items()

    def unwatch(self, touched: set[int]) -> None:
        """This set, and not another that is equal just now, no longer hears of changes."""
        self.watchers = [watcher for watcher in self.watchers if watcher is not touched]

    def take(self, gpus: Sequence[int]) -> None:
        """Mark ``gpus`` as used; taking one twice is a bug."""
        free_on, cordoned = self.free_on, self.cordoned
        for node, mask in self._touch(gpus):
            free = free_on[node]
            if cordoned:
                mask &= ~cordoned.get(node, 0)
            if free & mask != mask:
                raise AssertionError(f"GPU taken twice on node {node}: free {free:b}, wanted {mask:b}")
            self._set(node, free, free ^ mask)

    def give(self, gpus: Sequence[int]) -> None:
        """Mark ``gpus`` as free again; giving one twice is a bug."""
        free_on, cordoned = self.free_on, self.cordoned
        for node, mask in self._touch(gpus):
            free = free_on[node]
            if cordoned:
                mask &= ~cordoned.get(node, 0)
            if free & mask:
                raise AssertionError(f"GPU freed twice on node {node}: free {free:b}, given {mask:b}")
            self._set(node, free, free | mask)

    def take_one(self) -> int:
        """The GPU that best fit gives to a job of one, marked as used: the lowest of the first node with the fewest
        free ones. There must be one. Forecasts take and give thousands in every draw."""
        free, nodes_with = 1, self.nodes_with
        while not nodes_with[free]:
            free += 1
        bit = nodes_with[free] & -nodes_with[free]
        node = bit.bit_length() - 1
        mask = self.free_on[node]
        gpu = self.first_gpu[node] + (mask & -mask).bit_length() - 1
        if self.watchers or self._free_by_rack:
            self.take((gpu,))
            return gpu
        self.free_on[node] = mask & (mask - 1)
        nodes_with[free] ^= bit
        nodes_with[free - 1] ^= bit
        self.total -= 1
        return gpu

    def give_one(self, gpu: int) -> None:
        """``give`` of one GPU."""
        if self.watchers or self._free_by_rack or self.cordoned:
            self.give((gpu,))
            return
        node, nodes_with = self.node_of[gpu], self.nodes_with
        before, bit = self.free_on[node], 1 << node
        free, after = before.bit_count(), before | self.bit_of[gpu]
        if after == before:
            raise AssertionError(f"GPU {gpu} freed twice")
        self.free_on[node] = after
        nodes_with[free] ^= bit
        nodes_with[free + 1] ^= bit
        self.total += 1

    def all_free(self, gpus: Sequence[int]) -> bool:
        return all(self.free_on[node] & mask == mask for node, mask in self._by_node(gpus).items())

    def cordon(self, gpu: int) -> None:
        """Take a GPU out of service; a job that has it may keep it and give it back later."""
        for node, mask in self._touch((gpu,)):
            if self.cordoned.get(node, 0) & mask:
                return
            self._set(node, self.free_on[node], self.free_on[node] & ~mask)
            self.cordoned[node] = self.cordoned.get(node, 0) | mask

    def restore(self, gpu: int, in_use: bool) -> None:
        """Put a GPU back into service; free at once unless a job still has it."""
        for node, mask in self._touch((gpu,)):
            if not self.cordoned.get(node, 0) & mask:
                return
            self.cordoned[node] &= ~mask
            if not in_use:
                self._set(node, self.free_on[node], self.free_on[node] | mask)

    def lowest(self, node: int, count: int) -> list[int]:
        """The ``count`` lowest free GPU ids of ``node``."""
        first, free = self.first_gpu[node], self.free_on[node]
        if count == 1:  # most jobs
            return [first + (free & -free).bit_length() - 1]
        return [first + i for i in positions(free)[:count]]

    def nodes_by_most_free(self, within: int = -1) -> Iterator[int]:
        """Nodes with free GPUs, most first, then by id; of the nodes in a bit mask only, if one is given."""
        for count in range(self.largest_node, 0, -1):
            yield from bits(self.nodes_with[count] & within)

    def gpus(self, nodes: int = -1) -> list[int]:
        """All free GPU ids, ascending; of the nodes in a bit mask only, if one is given."""
        free_on, first_gpu = self.free_on, self.first_gpu
        if nodes == -1:
            return [first_gpu[n] + i for n, mask in enumerate(free_on) if mask for i in positions(mask)]
        return [first_gpu[n] + i for n in bits(nodes) for i in positions(free_on[n])]

    @cached_property
    def rack_nodes(self) -> list[int]:
        """Bit mask of nodes by rack, of the racks that have GPUs of this type."""
        masks: dict[int, int] = {}
        for node, spec in enumerate(self.cluster.nodes):
            if spec.gpu_type == self.gpu_type:
                rack = self.cluster.rack_of[node]
                masks[rack] = masks.get(rack, 0) | 1 << node
        return [masks[rack] for rack in sorted(masks)]

    def nodes_having(self, count: int) -> int:
        """Bit mask of the nodes with at least ``count`` free GPUs."""
        return sum(self.nodes_with[count:])  # a node is in exactly one of them

    def free_in(self, nodes: int) -> int:
        """Number of free GPUs on the nodes in a bit mask; quick for whole racks."""
        known = self._free_by_rack.get(nodes)
        if known is not None:
            return known
        return sum([count * (nodes & having).bit_count() for count, having in enumerate(self.nodes_with)])


class FreeIndex:
    """The free GPUs of a cluster, one pool per GPU type."""

    def __init__(self, cluster: Cluster) -> None:
        self.pools = [FreePool(cluster, t) for t in cluster.types]
        position = {t: i for i, t in enumerate(cluster.types)}
        self.type_of_gpu = [position[n.gpu_type] for n in cluster.nodes for _ in range(n.gpus)]

    def type_of(self, gpus: Sequence[int]) -> int:
        """Pool index of a gang, which keeps to one type."""
        return self.type_of_gpu[gpus[0]]

    def take(self, gpus: Sequence[int]) -> None:
        self.pools[self.type_of(gpus)].take(gpus)

    def give(self, gpus: Sequence[int]) -> None:
        self.pools[self.type_of(gpus)].give(gpus)

    def cordon(self, gpu: int) -> None:
        self.pools[self.type_of((gpu,))].cordon(gpu)

    def restore(self, gpu: int, in_use: bool) -> None:
        self.pools[self.type_of((gpu,))].restore(gpu, in_use)

    def all_free(self, gpus: Sequence[int]) -> bool:
        return self.pools[self.type_of(gpus)].all_free(gpus)

    @property
    def total(self) -> int:
        return sum(self.by_type())

    def by_type(self) -> list[int]:
        """Free GPUs by type."""
        return [pool.total for pool in self.pools]
