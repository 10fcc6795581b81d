"""The links of a cluster as people describe them: bandwidths with units, YAML, presets by name, ASTRA-sim files.

``read_links`` reads the key ``links`` of a cluster file, ``load_network`` what ``network=`` names.
"""

from __future__ import annotations

import os
import re
from dataclasses import fields, replace
from typing import Any

from trine.core.cluster import Cluster, Links
from trine.core.errors import InputError, nearest
from trine.inputs.astra_sim import is_astra_sim, read_astra_sim
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
