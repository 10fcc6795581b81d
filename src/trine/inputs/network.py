"""``load_network``: the links of a cluster by the name of a preset, from a file of links, or from an ASTRA-sim file."""

from __future__ import annotations

import os

from trine.core.cluster import Cluster, Links
from trine.core.errors import InputError, nearest
from trine.inputs.astra_sim import is_astra_sim, read_astra_sim
from trine.inputs.links import PRESETS, read_links
from trine.inputs.yaml_reader import read_mapping

WHERE = "network"


def load_network(spec: str, cluster: Cluster) -> Links:
    """Links of the preset ``spec`` or of the YAML file ``spec``: a mapping ``links``, or a network of ASTRA-sim."""
    if spec in PRESETS:
        return PRESETS[spec]
    if not os.path.lexists(spec):
        names = ", ".join(sorted(PRESETS))
        raise InputError(
            WHERE,
            f"unknown network {spec!r}{nearest(spec, PRESETS)}",
            f"one of {names}, or a YAML file of links or of ASTRA-sim",
        )
    top = read_mapping(spec, "a YAML file with links, or an ASTRA-sim network file")
    if is_astra_sim(top):
        return read_astra_sim(top, cluster)
    links = read_links(top.mapping("links"))
    top.finish()
    return links


def links_for(cluster: Cluster, spec: str = "") -> Links | None:
    """What ``Network`` takes as links; ``None`` stands for those of the cluster, which must describe some then."""
    if spec:
        return load_network(spec, cluster)
    if cluster.links == Links() and not cluster.type_links:
        expected = f"the key links in the cluster file, or a network: {', '.join(sorted(PRESETS))}"
        raise InputError("cluster", "no links are described", expected)
    return None
