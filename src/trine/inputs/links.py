"""The links of a cluster as YAML: bandwidths, latencies, oversubscription, background traffic; and presets by name."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from trine.core.cluster import Links
from trine.inputs.bandwidth import bandwidth, written
from trine.inputs.yaml_reader import Mapping

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
