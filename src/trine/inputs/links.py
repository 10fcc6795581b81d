"""The links of a cluster as people describe them: bandwidths with units, YAML, presets by name, ASTRA-sim files.

``read_links`` reads the key ``links`` of a cluster file, ``load_network`` what ``network=`` names.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import fields, replace
from typing import Any, NamedTuple

from trine.core.cluster import Cluster, Links
from trine.core.errors import InputError, nearest
from trine.inputs.yaml_reader import Mapping, Value, read_mapping

_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_WRITTEN = re.compile(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([kKMGT]i?|)(B|b|bit)(?:/s|ps)")
_EXPECTED = "a bandwidth such as '10 GB/s' (bytes), '25 Gb/s' (bits) or a plain number of bytes per second"
MIN_BARE = 1e6
"""Smallest plain number taken as bytes per second: below it the unit was surely forgotten (``nic: 25``)."""

GB = 1e9
PRESETS: dict[str, Links] = {
    "cloud-tcp": Links(10 * GB, 0.5 * GB, oversubscription=1.0, unreduced=0.3),
    "ethernet-50g": Links(10 * GB, 1.8 * GB, oversubscription=1.0),
    "ethernet-100g": Links(120 * GB, 10 * GB, oversubscription=1.0),
    "dgx-ib": Links(230 * GB, 40 * GB, oversubscription=1.0),
}
"""Effective bandwidths, with sources in docs/network.md. Racks have full bisection: oversubscription is the user's."""

_BANDWIDTHS = {
    "intra_node": "intra_node_bytes_per_s",
    "nic": "nic_bytes_per_s",
    "uplink": "uplink_bytes_per_s",
    "spine": "spine_bytes_per_s",
}
_LATENCIES = {"node": "node_latency_s", "rack": "rack_latency_s", "network": "network_latency_s"}
_BACKGROUND = {"nic": "nic_background", "uplink": "uplink_background", "spine": "spine_background"}
_MOST_BACKGROUND = 0.99
_ASTRA_GB = 2.0**30
"""What a GB is in ASTRA-sim's files."""
TOPOLOGIES = ("Ring", "FullyConnected", "Switch")


def read_links(section: Mapping) -> Links:
    """The links that ``section`` describes; what it says beside ``preset`` takes the place of the preset's."""
    preset = section.choice("preset", PRESETS, "", "network preset")
    links = PRESETS[preset] if preset else Links()
    values: dict[str, Any] = {
        name: value for key, name in _BANDWIDTHS.items() if (value := bandwidth(section, key)) is not None
    }
    if "uplink" in section and "oversubscription" in section:
        raise section.error("found beside 'uplink'", "one of uplink and oversubscription", "oversubscription")
    for key, low, high in (("oversubscription", 1.0, 1e6), ("congestion", 1e-6, 1e6), ("unreduced", 0.0, 1.0)):
        if key in section:
            values[key] = section.number(key, minimum=low, maximum=high)
    values |= _numbers(section.mapping("latency_s", None), _LATENCIES, 10.0)
    values |= _numbers(section.mapping("background", None), _BACKGROUND, _MOST_BACKGROUND)
    return replace(links, **values)


def _numbers(section: Mapping | None, names: dict[str, str], maximum: float) -> dict[str, float]:
    """Numbers from 0 to ``maximum`` by field of ``Links``."""
    if section is None:
        return {}
    read = {name: section.number(key, None, minimum=0.0, maximum=maximum) for key, name in names.items()}
    return {name: value for name, value in read.items() if value is not None}


def read_type_links(section: Mapping) -> Links:
    """Bandwidths of one GPU type; everything else belongs to the cluster."""
    return Links(bandwidth(section, "intra_node"), bandwidth(section, "nic"), bandwidth(section, "uplink"))


def links_tree(links: Links) -> dict[str, Any]:
    """What ``read_links`` reads back as equal links; defaults are left out."""
    tree: dict[str, Any] = {
        key: written(value) for key, name in _BANDWIDTHS.items() if (value := getattr(links, name)) is not None
    }
    changed = {f.name: getattr(links, f.name) for f in fields(links) if getattr(links, f.name) != f.default}
    tree |= {key: changed[key] for key in ("oversubscription", "congestion", "unreduced") if key in changed}
    for key, names in (("latency_s", _LATENCIES), ("background", _BACKGROUND)):
        found = {short: changed[name] for short, name in names.items() if name in changed}
        tree |= {key: found} if found else {}
    return tree


def load_network(spec: str, cluster: Cluster) -> Links:
    """Links of the preset ``spec`` or of the YAML file ``spec``: a mapping ``links``, or a network of ASTRA-sim."""
    if spec in PRESETS:
        return PRESETS[spec]
    if not os.path.lexists(spec):
        names = ", ".join(sorted(PRESETS))
        raise InputError(
            "network",
            f"unknown network {spec!r}{nearest(spec, PRESETS)}",
            f"one of {names}, or a YAML file of links or of ASTRA-sim",
        )
    top = read_mapping(spec, "a YAML file with links, or an ASTRA-sim network file")
    if is_astra_sim(top):
        return read_astra_sim(top, cluster)
    links = read_links(top.mapping("links"))
    top.finish()
    return links


def bandwidth(section: Mapping, key: str) -> float | None:
    """Effective bytes per second at ``key``; nothing if the key is absent. ``B`` is bytes, ``b`` is bits."""
    value = section.get(key)
    if value is None:
        return None
    bytes_per_s = _parsed(value)
    if not 0 < bytes_per_s < 1e18:
        raise value.wrong(f"a bandwidth greater than 0 and below 1e18 bytes per second; {_EXPECTED}")
    return bytes_per_s


def _parsed(value: Value) -> float:
    plain = value.plain()
    if isinstance(plain, int | float) and not isinstance(plain, bool):
        if 0 < plain < MIN_BARE:
            raise value.error(f"found {plain} without a unit", _EXPECTED)
        return float(plain)
    match = _WRITTEN.fullmatch(value.text().strip())
    if match is None:
        raise value.wrong(_EXPECTED)
    number, scale, unit = match.groups()
    try:
        amount = float(number)
    except ValueError:
        raise value.wrong(_EXPECTED) from None
    return amount * (_SCALES | _BINARY)[scale] / (1.0 if unit == "B" else 8.0)


def written(bytes_per_s: float) -> str:
    """The shortest text that reads back as exactly ``bytes_per_s``: ``12.5 GB/s`` or ``1234.5 B/s``."""
    scaled = bytes_per_s / 1e9
    short = f"{scaled:g} GB/s"
    return short if scaled >= 0.001 and float(f"{scaled:g}") * 1e9 == bytes_per_s else f"{bytes_per_s!r} B/s"


# -- network files of ASTRA-sim's analytical backend -----------------------------------------------------------------
# Dimensions run from the inside out. Those that fit into a node are its inner link, those that fit into a rack its
# NICs, the rest the uplinks. Latencies are nanoseconds.


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
    each = bandwidth.number(above=0, maximum=1e9) * _ASTRA_GB
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
