"""The cluster: GPU < node < rack < network. GPU ids are dense, ascending by node; everything here is immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from trine.core.prices import Prices

UNNAMED_TYPE = "gpu"
"""The type of GPUs of which none is said."""


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
    gpu_type: str = UNNAMED_TYPE
    rack: str = "rack0"
    indices: tuple[int, ...] = ()
    """What the machine calls its GPUs, ascending, where that is not 0, 1, 2 ... (some are left to others)."""

    @property
    def gpu_indices(self) -> tuple[int, ...]:
        """The machine's number of each GPU, in the order of their ids."""
        return self.indices or tuple(range(self.gpus))


@dataclass(frozen=True, slots=True)
class Links:
    """Effective bandwidths in bytes per second (never nominal link speeds); ``None`` means not modelled."""

    intra_node_bytes_per_s: float | None = None
    nic_bytes_per_s: float | None = None
    uplink_bytes_per_s: float | None = None
    spine_bytes_per_s: float | None = None
    """Of the switch that all racks share."""
    oversubscription: float | None = None
    """Without an uplink: an uplink carries the NICs of its rack divided by this; 1 is full bisection."""
    node_latency_s: float = 5e-6
    """Per step of a collective inside a node; the next two: between nodes of a rack, between racks."""
    rack_latency_s: float = 20e-6
    network_latency_s: float = 40e-6
    congestion: float = 1.0
    """Scales NICs and uplinks: 0.25 leaves a quarter of them to all jobs together."""
    nic_background: float = 0.0
    """Share of each NIC (uplink, spine) that traffic of others than jobs takes."""
    uplink_background: float = 0.0
    spine_background: float = 0.0
    unreduced: float = 0.0
    """0: gradients are reduced inside a node before they leave it; 1: every GPU sends its own stream over the NIC."""


class Largest(NamedTuple):
    """GPUs of the largest node and of the largest rack of a type, free or not."""

    node: int
    rack: int

    def tier_of(self, gpus: int) -> Tier:
        """The lowest tier that holds so many GPUs when all are free."""
        if gpus == 1:
            return Tier.GPU
        return Tier.NODE if gpus <= self.node else Tier.RACK if gpus <= self.rack else Tier.NETWORK


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
    def uniform(cls, nodes: int, gpus_per_node: int, gpu_type: str = UNNAMED_TYPE, nodes_per_rack: int = 0) -> Cluster:
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

    def largest(self, gpu_type: str, out_of_service: Mapping[int, int] | None = None) -> Largest:
        """What a node and a rack of a type have at most; ``out_of_service``: GPUs that do not count, by node."""
        missing, on_node, in_rack = out_of_service or {}, [0], dict.fromkeys(self.rack_of, 0)
        for index, node in enumerate(self.nodes):
            if node.gpu_type == gpu_type:
                on_node.append(node.gpus - missing.get(index, 0))
                in_rack[self.rack_of[index]] += on_node[-1]
        return Largest(max(on_node), max(in_rack.values(), default=0))

    def index_of(self, gpu: int) -> int:
        """The number of a GPU on its node, as users and the driver know it."""
        node = self.node_of[gpu]
        return self.nodes[node].gpu_indices[gpu - self.first_gpu[node]]

    def holds(self, gpu_type: str, gpus: int, nodes: int | None, widest: Tier) -> bool:
        """Whether GPUs of a type, were all of them free, have room for a gang no further apart than ``widest``.

        ``nodes``: spread evenly over so many; ``None``: over any number.
        """
        by_rack: dict[str, list[int]] = {}
        for node in self.nodes:
            if node.gpu_type == gpu_type:
                by_rack.setdefault(node.rack, []).append(node.gpus)
        if nodes is None:
            rooms = {Tier.RACK: map(sum, by_rack.values()), Tier.NETWORK: [self.gpus_by_type[gpu_type]]}
            return max(rooms.get(widest, map(max, by_rack.values())), default=0) >= gpus
        each, rest = divmod(gpus, nodes)
        able = [sum(size >= each for size in sizes) for sizes in by_rack.values()]
        enough = max(able, default=0) if nodes > 1 and widest <= Tier.RACK else sum(able)
        return not rest and enough >= nodes and (nodes == 1 or widest > Tier.NODE)

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
        return f"{self.gpu_count} GPU{'s' if self.gpu_count != 1 else ''} on {nodes} in {racks} ({kinds})"
