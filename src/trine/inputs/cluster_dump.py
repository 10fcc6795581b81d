"""Writes a cluster as YAML that loads back to an equal cluster, as short as equal racks and nodes allow."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import yaml

from trine.core.cluster import Cluster, Links, Node
from trine.inputs.links import links_tree

_HEADER = (
    "# Nodes count GPU ids in this order. Bandwidths are effective, not nominal: GB/s = 10^9 bytes per second,\n"
    "# Gb/s = 10^9 bits per second. Slowdowns are listed by GPU id; 1.0 is the median GPU, larger is slower.\n"
)


def dump_cluster(cluster: Cluster) -> str:
    """YAML text for ``load_cluster``. Notes are not written: they concern the file the cluster came from."""
    tree: dict[str, Any] = {"name": cluster.name} if cluster.name else {}
    contiguous = len([rack for rack, _ in groupby(cluster.nodes, key=_rack)]) == len(cluster.racks)
    if contiguous:
        tree["racks"] = _racks(cluster)
    else:
        tree["nodes"] = [entry | {"rack": rack} for rack, entry in _runs(list(enumerate(cluster.nodes)))]
    links = links_tree(cluster.links) | _by_type(cluster.type_links)
    tree |= {"links": links} if links else {}
    tree |= {"prices_per_gpu_hour": dict(cluster.prices_per_gpu_h)} if cluster.prices_per_gpu_h else {}
    tree |= {"slowdowns": {c: list(s) for c, s in cluster.scores.items()}} if cluster.scores else {}
    return _HEADER + _yaml(tree)


def _yaml(tree: dict[str, Any]) -> str:
    readable = _dumped(tree, allow_unicode=True)
    # Without libyaml, unprintable line breaks in names (U+0085) survive only as escapes.
    return readable if readable.replace("\n", "").isprintable() else _dumped(tree, allow_unicode=False)


def _dumped(tree: dict[str, Any], allow_unicode: bool) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(
        yaml.dump(tree, Dumper=dumper, sort_keys=False, default_flow_style=None, width=120, allow_unicode=allow_unicode)
    )


def _rack(node: Node) -> str:
    return node.rack


def _racks(cluster: Cluster) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for index, (name, nodes) in enumerate(groupby(enumerate(cluster.nodes), key=lambda pair: pair[1].rack)):
        entry = _rack_entry([run for _, run in _runs(list(nodes))])
        if name != f"rack{index}":
            entries.append({"name": name} | entry)
        elif entries and _repeatable(entry) and entry == {k: v for k, v in entries[-1].items() if k != "count"}:
            entries[-1] = {"count": entries[-1].get("count", 1) + 1} | entry
        else:
            entries.append(entry)
    return entries


def _repeatable(entry: dict[str, Any]) -> bool:
    return isinstance(entry["nodes"], int)


def _rack_entry(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Equal numbered nodes as counts, anything else as a list."""
    if len(runs) == 1 and "name" not in runs[0]:
        run = runs[0]
        return {"nodes": run.get("count", 1)} | {k: v for k, v in run.items() if k != "count"}
    return {"nodes": runs}


def _runs(nodes: list[tuple[int, Node]]) -> list[tuple[str, dict[str, Any]]]:
    """(rack, entry) per stretch of equal nodes with default names; a node with a name of its own stands alone."""
    entries: list[tuple[str, dict[str, Any]]] = []
    for index, node in nodes:
        entry: dict[str, Any] = {} if node.name == f"node{index}" else {"name": node.name}
        entry["gpus"] = node.gpus
        entry |= {"type": node.gpu_type} if node.gpu_type != "gpu" else {}
        last_rack, last = entries[-1] if entries else ("", {})
        if "name" not in entry and last_rack == node.rack and entry == {k: v for k, v in last.items() if k != "count"}:
            entries[-1] = (node.rack, {"count": last.get("count", 1) + 1} | entry)
        else:
            entries.append((node.rack, entry))
    return entries


def _by_type(type_links: dict[str, Links]) -> dict[str, Any]:
    return {"by_type": {t: links_tree(links) for t, links in type_links.items()}} if type_links else {}
