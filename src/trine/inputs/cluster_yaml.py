"""The schema of cluster YAML files: racks, nodes, links, prices, slowdowns. Writing them is in ``cluster_dump``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from trine.core.cluster import Cluster, Links, Node
from trine.core.errors import InputError
from trine.inputs.cluster_shape import MAX_GPUS, check_size, parse_shape
from trine.inputs.links import read_links, read_type_links
from trine.inputs.shape_files import FORMATS, Asked, detect, read_shape
from trine.inputs.text_file import read_text
from trine.inputs.yaml_reader import Mapping, Value, Values, parse_mapping

WAYS = ("shape", "racks", "nodes", "topology")
"""The keys that say which nodes there are; a file holds exactly one of them."""


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
    for key in ("name", "links", "prices_per_gpu_hour", "slowdowns"):
        top.get(key)  # known keys, so that an unknown one is named before a missing one
    ways = [way for way in WAYS if way in top]
    if not ways:
        top.finish()
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
    return read_shape(kind, text, str(path), Asked(gpus, section.text("type", "")))


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
