"""The cluster: GPU < node < rack < network. GPU ids are dense, ascending by node; everything here is immutable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from trine.core.prices import Prices


class Tier(IntEnum):
    """How far apart the GPUs of a placement are: the smallest unit that holds them all."""

    GPU = 0
    NODE = 1
    RACK = 2
    NETWORK = 3

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: ``gpus`` GPUs of one type in one rack."""

    name: str
    gpus: int
    gpu_type: str = "gpu"
    rack: str = "rack0"


@dataclass(frozen=True, slots=True)
class Links:
    """Effective bandwidths in bytes per second (never nominal link speeds); ``None`` means not modelled."""

    intra_node_bytes_per_s: float | None = None
    nic_bytes_per_s: float | None = None
    uplink_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Cluster:
    """Nodes in order; GPU ids run over the nodes in that order. Nodes without GPUs are dropped by the loaders."""

    nodes: tuple[Node, ...]
    name: str = ""
    links: Links = field(default_factory=Links)
    type_links: dict[str, Links] = field(default_factory=dict)
    """Links that differ by GPU type (mostly the one inside a node)."""
    prices_per_gpu_h: dict[str, float] = field(default_factory=dict)
    """Prices that hold all the time."""
    scores: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Slowdown per GPU id and application class, where the description carries them."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Sentences a reader must know: what the description left open and was assumed, what was left out."""
    changing_prices: Prices | None = None
    """Prices by type and time, in place of ``prices_per_gpu_h``."""

    @classmethod
    def uniform(cls, nodes: int, gpus_per_node: int, gpu_type: str = "gpu", nodes_per_rack: int = 0) -> Cluster:
        """``nodes`` equal nodes; ``nodes_per_rack`` 0 puts all of them into one rack."""
        per_rack = nodes_per_rack or nodes
        return cls(tuple(Node(f"node{i}", gpus_per_node, gpu_type, f"rack{i // per_rack}") for i in range(nodes)))

    @cached_property
    def gpu_count(self) -> int:
        return sum(n.gpus for n in self.nodes)

    @cached_property
    def node_of(self) -> list[int]:
        """Node index by GPU id."""
        return [i for i, n in enumerate(self.nodes) for _ in range(n.gpus)]

    @cached_property
    def first_gpu(self) -> list[int]:
        """Lowest GPU id by node index."""
        starts, at = [], 0
        for n in self.nodes:
            starts.append(at)
            at += n.gpus
        return starts

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """Rack names in order of first appearance."""
        return tuple(dict.fromkeys(n.rack for n in self.nodes))

    @cached_property
    def rack_of(self) -> list[int]:
        """Rack index by node index."""
        index = {r: i for i, r in enumerate(self.racks)}
        return [index[n.rack] for n in self.nodes]

    @cached_property
    def types(self) -> tuple[str, ...]:
        """GPU types in order of first appearance."""
        return tuple(dict.fromkeys(n.gpu_type for n in self.nodes))

    @cached_property
    def gpus_by_type(self) -> dict[str, int]:
        return {t: sum(n.gpus for n in self.nodes if n.gpu_type == t) for t in self.types}

    @cached_property
    def gpus_per_node(self) -> int:
        """GPUs of the largest node."""
        return max((n.gpus for n in self.nodes), default=0)

    @cached_property
    def prices(self) -> Prices:
        """What GPUs of each type cost, and when that changes."""
        return Prices.constant(self.prices_per_gpu_h) if self.changing_prices is None else self.changing_prices

    def type_of(self, gpu: int) -> str:
        return self.nodes[self.node_of[gpu]].gpu_type

    def tier(self, gpus: Sequence[int]) -> Tier:
        """The smallest unit that holds all of ``gpus``."""
        if len(gpus) == 1:
            return Tier.GPU
        return self.tier_of_nodes({self.node_of[g] for g in gpus})

    def tier_of_nodes(self, nodes: Iterable[int]) -> Tier:
        distinct = set(nodes)
        if len(distinct) == 1:
            return Tier.NODE
        return Tier.RACK if len({self.rack_of[n] for n in distinct}) == 1 else Tier.NETWORK

    def describe(self) -> str:
        """One line for people: ``64 GPUs on 16 nodes in 1 rack (64 v100)``."""
        kinds = ", ".join(f"{n} {t}" for t, n in self.gpus_by_type.items())
        racks = f"{len(self.racks)} rack{'s' if len(self.racks) != 1 else ''}"
        nodes = f"{len(self.nodes)} node{'s' if len(self.nodes) != 1 else ''}"
        return f"{self.gpu_count} GPUs on {nodes} in {racks} ({kinds})"
