"""``load_cluster``: a shape such as 16x4, a YAML file or a public node list, distinguished by content; and the YAML
form of a cluster, read and written. docs/clusters.md lists its keys. Shapes and node lists are in ``cluster_shape``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from trine.core.cluster import Cluster, Links, Node
from trine.core.errors import InputError
from trine.inputs.cluster_shape import (
    EXAMPLES,
    FORMATS,
    MAX_GPUS,
    ShapeOptions,
    check_size,
    detect,
    header,
    is_shape,
    parse_shape,
    read_shape,
    resembles_shape,
)
from trine.inputs.links import links_tree, read_links, read_type_links
from trine.inputs.text_file import read_text
from trine.inputs.yaml_reader import Mapping, Value, Values, parse_mapping

_YAML_SUFFIXES = (".yaml", ".yml", ".json")
_FILE_SUFFIXES = (*_YAML_SUFFIXES, ".csv", ".gz", ".txt", ".trace", ".tsv")
_TRACE_COLUMNS = (
    {"job_id", "job", "job_type", "model_name", "user", "num_gpus", "num_gpu", "gpu_milli", "gpu_time", "scale_factor"}
    | {"submit_time", "submit_s", "submission_time", "arrival_s", "arrival_time", "timestamp", "creation_time"}
    | {"duration", "duration_s", "iterations", "iteration", "num_iters", "steps", "total_steps"}
)
_GAVEL_COLUMNS = 7
"""Traces of the Gavel family have no header and at least this many columns between tabs."""
WAYS = ("shape", "racks", "nodes", "topology")
"""The keys that say which nodes there are; a file holds exactly one of them."""
_HEADER = (
    "# Nodes count GPU ids in this order. Bandwidths are effective, not nominal: GB/s = 10^9 bytes per second,\n"
    "# Gb/s = 10^9 bits per second. Slowdowns are listed by GPU id; 1.0 is the median GPU, larger is slower.\n"
)


def load_cluster(spec: str) -> Cluster:
    """The cluster of ``16x4``, ``v100=8x1,k80=4x2``, ``4x8x8``, a YAML file or a public shape file (gzip'ed or not)."""
    spec = spec.strip()
    where = f"cluster {spec!r}"
    if not spec:
        raise InputError("cluster", "found nothing", f"{EXAMPLES}, or a file")
    if is_shape(spec):
        return parse_shape(spec, where)
    if os.path.lexists(spec):
        return _from_file(spec)
    if resembles_shape(spec) and not _names_file(spec):
        return parse_shape(spec, where)
    if _names_file(spec):
        raise InputError(spec, "no such file", "a cluster file that exists")
    raise InputError(where, "neither a cluster shape nor a file that exists", f"{EXAMPLES}, or a file")


def _names_file(spec: str) -> bool:
    return "/" in spec or os.sep in spec or spec.lower().endswith(_FILE_SUFFIXES)


def _from_file(path: str) -> Cluster:
    if Path(path).is_dir():
        raise InputError(path, "found a directory", "a cluster file (a world directory is given with --world)")
    text = read_text(path, "a cluster file")
    kind = detect(text)
    if kind is not None:
        return read_shape(kind, text, path, ShapeOptions())
    _refuse_trace(text, path)
    if _is_table(text, path):
        known = "; ".join(f"{f.name} ({','.join(f.columns)})" for f in FORMATS)
        raise InputError(f"{path}:1", f"columns {_shown(header(text))}", f"a YAML file or one of: {known}")
    return parse_cluster(text, path)


def _refuse_trace(text: str, path: str) -> None:
    columns = {column.lower() for column in header(text)}
    tabs = text[:10_000].partition("\n")[0].count("\t")
    if len(columns & _TRACE_COLUMNS) >= 2 or tabs >= _GAVEL_COLUMNS - 1:
        raise InputError(path, "looks like a job trace (give it with --trace)", f"a cluster: {EXAMPLES}, or a file")


def _is_table(text: str, path: str) -> bool:
    name = path.lower().removesuffix(".gz")
    return not name.endswith(_YAML_SUFFIXES) and (name.endswith((".csv", ".tsv")) and bool(text.strip()))


def _shown(columns: list[str]) -> str:
    text = ",".join(columns)
    return repr(text if len(text) <= 80 else text[:77] + "...")


# -- the YAML form ---------------------------------------------------------------------------------------------------


def parse_cluster(text: str, where: str) -> Cluster:
    """The cluster that YAML ``text`` describes. ``where`` is its file; paths inside are relative to that file."""
    top = parse_mapping(text, where, "a cluster file")
    bare = _with_nodes(top, Path(where).parent)
    links, type_links = _links(top.mapping("links", None), bare)
    cluster = replace(
        bare,
        name=top.text("name", ""),
        links=links,
        type_links=type_links,
        prices_per_gpu_h=_prices(top.mapping("prices_per_gpu_hour", None), bare),
        scores=_slowdowns(top.mapping("slowdowns", None), bare),
    )
    top.finish()
    return cluster


def _with_nodes(top: Mapping, base: Path) -> Cluster:
    top.only("name", "links", "prices_per_gpu_hour", "slowdowns", *WAYS)
    ways = [way for way in WAYS if way in top]
    if not ways:
        raise top.error("says nothing of nodes", f"one of the keys {', '.join(WAYS)}")
    if len(ways) > 1:
        raise top.error(f"found beside {ways[0]!r}", f"only one of the keys {', '.join(WAYS)}", ways[1])
    if ways == ["shape"]:
        value = top.value("shape")
        return parse_shape(value.text(), f"{value.where}: shape")
    if ways == ["topology"]:
        return _topology(top.mapping("topology"), base)
    return _listed(top, ways[0])


def _listed(top: Mapping, way: str) -> Cluster:
    nodes, entries = _NodeList(), top.list(way)
    if not entries:
        raise top.error("found an empty list", "at least one entry", way)
    add = _add_rack if way == "racks" else _add_loose
    for entry in entries:
        add(nodes, entry)
    return Cluster(tuple(nodes.nodes))


def _topology(section: Mapping, base: Path) -> Cluster:
    gpus = section.integer("gpus_per_node", None, minimum=1, maximum=MAX_GPUS)
    path = base / section.text("file")
    text = read_text(path, "a cluster topology file")
    kind = detect(text)
    if kind is None:
        known = "; ".join(f"{f.name} ({','.join(f.columns)})" for f in FORMATS)
        raise InputError(f"{path}:1", "columns of no known topology file", known)
    return read_shape(kind, text, str(path), ShapeOptions(gpus, section.text("type", "")))


@dataclass(frozen=True, slots=True)
class _Group:
    """Equal nodes as written in one entry; without a name they are numbered through."""

    value: Value
    name: str | None
    count: int
    gpus: int
    gpu_type: str


class _NodeList:
    """Nodes in order with the checks that concern all of them: size, names given twice."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._gpus = 0
        self._seen: dict[str, str] = {}
        self._racks: set[str] = set()

    def new_rack(self, value: Value, name: str | None) -> str:
        rack = f"rack{len(self._racks)}" if name is None else name
        if rack in self._racks:
            raise value.error(f"rack {rack!r} found twice", "each rack once")
        self._racks.add(rack)
        return rack

    def add(self, group: _Group, rack: str) -> None:
        self._gpus += group.count * group.gpus
        check_size(self._gpus, group.value.where, group.value.path)
        for i in range(group.count):
            name = _numbered(group.name, i, group.count) or f"node{len(self.nodes)}"
            if name in self._seen:
                raise group.value.error(f"node {name!r} found twice, first at {self._seen[name]}", "each node once")
            self._seen[name] = group.value.where
            self.nodes.append(Node(name, group.gpus, group.gpu_type, rack))


def _numbered(name: str | None, i: int, count: int) -> str | None:
    """``name`` itself for one, ``name0``, ``name1`` ... for several."""
    return name if name is None or count == 1 else f"{name}{i}"


def _add_rack(racks: _NodeList, value: Value) -> None:
    """An entry of ``racks``: ``count`` equal racks, whose nodes are a number or a list."""
    entry = value.mapping()
    name, count = entry.text("name", None), entry.integer("count", 1, minimum=1, maximum=MAX_GPUS)
    gpus, gpu_type = entry.integer("gpus", None, minimum=1, maximum=MAX_GPUS), entry.text("type", "gpu")
    groups = _groups(entry.value("nodes"), gpus, gpu_type)
    check_size(count * sum(group.count * group.gpus for group in groups), value.where, value.path)
    for i in range(count):
        rack = racks.new_rack(value, _numbered(name, i, count))
        for group in groups:
            racks.add(group, rack)


def _groups(nodes: Value, gpus: int | None, gpu_type: str) -> list[_Group]:
    if nodes.is_scalar:
        count = nodes.integer(minimum=1, maximum=MAX_GPUS)
        if gpus is None:
            raise nodes.error(f"found {count} nodes without their GPUs", "the key gpus beside nodes")
        return [_Group(nodes, None, count, gpus, gpu_type)]
    entries: Values = nodes.list()
    if not entries:
        raise nodes.error("found an empty list", "at least one node")
    return [_group(entry, gpus, gpu_type) for entry in entries]


def _group(value: Value, gpus: int | None, gpu_type: str) -> _Group:
    """A node (or ``count`` of them) in a list; a bare name takes GPUs and type of its rack."""
    if value.is_scalar:
        if gpus is None:
            raise value.error(f"node {value.text()!r} without its GPUs", "the key gpus, here or in the rack")
        return _Group(value, value.text(), 1, gpus, gpu_type)
    entry = value.mapping()
    own = entry.integer("gpus", gpus, minimum=1, maximum=MAX_GPUS)
    if own is None:
        raise entry.error("found no GPUs", "the key gpus, here or in the rack")
    count = entry.integer("count", 1, minimum=1, maximum=MAX_GPUS)
    return _Group(value, entry.text("name", None), count, own, entry.text("type", gpu_type))


def _add_loose(nodes: _NodeList, value: Value) -> None:
    """An entry of top-level ``nodes``: each says its rack itself, so racks may interleave."""
    rack = value.mapping().text("rack", "rack0")
    nodes.add(_group(value, None, "gpu"), rack)


def _links(section: Mapping | None, cluster: Cluster) -> tuple[Links, dict[str, Links]]:
    if section is None:
        return Links(), {}
    by_type = section.mapping("by_type", None)
    if by_type is None:
        return read_links(section), {}
    return read_links(section), {
        _known_type(key, value, cluster): read_type_links(value.mapping()) for key, value in by_type.values()
    }


def _prices(section: Mapping | None, cluster: Cluster) -> dict[str, float]:
    if section is None:
        return {}
    return {_known_type(key, value, cluster): value.number(minimum=0) for key, value in section.values()}


def _known_type(key: str, value: Value, cluster: Cluster) -> str:
    if key not in cluster.types:
        raise value.unknown("GPU type", key, cluster.types)
    return key


def _slowdowns(section: Mapping | None, cluster: Cluster) -> dict[str, tuple[float, ...]]:
    if section is None:
        return {}
    return {app_class: _scores(value, cluster) for app_class, value in section.values()}


def _scores(value: Value, cluster: Cluster) -> tuple[float, ...]:
    scores = tuple(entry.number(above=0) for entry in value.list())
    if len(scores) != cluster.gpu_count:
        raise value.error(f"found {len(scores)} values", f"{cluster.gpu_count}, one for each GPU in order of its id")
    return scores


def dump_cluster(cluster: Cluster) -> str:
    """YAML text for ``load_cluster``. Notes are not written: they concern the file the cluster came from."""
    tree: dict[str, Any] = {"name": cluster.name} if cluster.name else {}
    contiguous = len([rack for rack, _ in groupby(cluster.nodes, key=attrgetter("rack"))]) == len(cluster.racks)
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
