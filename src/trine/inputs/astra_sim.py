"""Reads network files of ASTRA-sim's analytical backend: dimensions with a topology, NPUs, bandwidth and latency each.

Dimensions run from the inside out. Those that fit into a node are its inner link, those that fit into a rack its NICs,
the rest the uplinks. ASTRA-sim's GB is 2^30 bytes, and its latencies are nanoseconds.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from trine.core.cluster import Cluster, Links
from trine.inputs.yaml_reader import Mapping, Value

_GB = 2.0**30
TOPOLOGIES = ("Ring", "FullyConnected", "Switch")


class Dimension(NamedTuple):
    """One dimension; bandwidth is what one NPU gets in a collective: all its links of a fully connected one."""

    topology: str
    npus: int
    bytes_per_s: float
    latency_s: float


def is_astra_sim(top: Mapping) -> bool:
    return "npus_count" in top


def read_astra_sim(top: Mapping, cluster: Cluster) -> Links:
    """The links of ``cluster`` if its GPUs are connected as the file says."""
    dimensions = _dimensions(top)
    top.finish()
    gpus = cluster.gpus_per_node
    per_rack = max(Counter(cluster.rack_of).values())
    inside, between, across = _by_tier(dimensions, gpus, gpus * per_rack)
    links = Links()
    node = _joined(inside or between[:1])
    # Every GPU of a node has its own link in an outer dimension; only a ring that winds through nodes leaves by one.
    flat_ring = not inside and between and between[0].topology == "Ring"
    nic = _joined(between)
    uplink = _joined(across)
    outer = uplink or nic
    return Links(
        intra_node_bytes_per_s=node.bytes_per_s if node else None,
        nic_bytes_per_s=None if nic is None else nic.bytes_per_s * (1 if flat_ring else gpus),
        uplink_bytes_per_s=None if uplink is None else uplink.bytes_per_s * gpus * per_rack,
        node_latency_s=node.latency_s if node else links.node_latency_s,
        rack_latency_s=nic.latency_s if nic else links.rack_latency_s,
        network_latency_s=outer.latency_s if outer else links.network_latency_s,
    )


def _dimensions(top: Mapping) -> list[Dimension]:
    columns = {key: _listed(top.value(key)) for key in ("topology", "npus_count", "bandwidth", "latency")}
    count = len(columns["topology"])
    for key, values in columns.items():
        if len(values) != count or not values:
            raise top.error(f"found {len(values)} values", f"{max(count, 1)}, one for each dimension of topology", key)
    return [_dimension(*row) for row in zip(*columns.values(), strict=True)]


def _listed(value: Value) -> list[Value]:
    return [value] if value.is_scalar else value.list()


def _dimension(topology: Value, npus: Value, bandwidth: Value, latency: Value) -> Dimension:
    shape = topology.choice(TOPOLOGIES, "topology")
    count = npus.integer(minimum=1, maximum=1_000_000)
    each = bandwidth.number(above=0, maximum=1e9) * _GB
    own = each * (count - 1) if shape == "FullyConnected" and count > 1 else each
    return Dimension(shape, count, own, latency.number(minimum=0, maximum=1e9) / 1e9)


def _by_tier(
    dimensions: list[Dimension], node: int, rack: int
) -> tuple[list[Dimension], list[Dimension], list[Dimension]]:
    """Dimensions inside a node, between the nodes of a rack, between racks; one that straddles counts as the outer."""
    tiers: tuple[list[Dimension], list[Dimension], list[Dimension]] = ([], [], [])
    held = 1
    for dimension in dimensions:
        start, held = held, held * dimension.npus
        tiers[0 if held <= node else 1 if held <= rack or start < rack else 2].append(dimension)
    return tiers


def _joined(dimensions: list[Dimension]) -> Dimension | None:
    """One dimension whose ring all-reduce takes as long as the hierarchical one over all of them.

    After a reduce-scatter in the inner dimensions, the payload of an outer one is divided by their NPUs.
    """
    if len(dimensions) < 2:
        return dimensions[0] if dimensions else None
    npus, seconds_per_byte, latency_s = 1, 0.0, 0.0
    for dimension in dimensions:
        seconds_per_byte += (dimension.npus - 1) / dimension.npus / npus / dimension.bytes_per_s
        latency_s += (dimension.npus - 1) * dimension.latency_s
        npus *= dimension.npus
    if npus == 1:
        return dimensions[0]
    return Dimension("Ring", npus, (npus - 1) / npus / seconds_per_byte, latency_s / (npus - 1))
