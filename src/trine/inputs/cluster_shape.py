"""Cluster shapes in one word, ``16x4``, ``4x8x8``, ``v100=8x1,p100=16x1``, or from public files: Lingjun topology,
Tiresias spec, Philly machines, Alibaba openb nodes. A format is one entry of ``FORMATS``: its columns, a sample and a
function from rows to nodes. The size limit of all loaders is here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.inputs.csv_table import CsvTable, Ragged, Row

MAX_GPUS = 1_000_000
EXAMPLES = "'16x4' (nodes x GPUs per node), '4x8x8' (racks x nodes x GPUs) or 'v100=8x1,p100=16x1'"

_SHAPE = re.compile(r"[^\s=,/\\]+=\S*|[-+0-9.]*[xX×][-+0-9xX×.]*(,\S*)?|[-+]?[0-9.]+")
_COMPLETE = re.compile(r"([^\s=,/\\]+=)?[0-9]+([xX×][0-9]+){1,2}(,[^\s=,/\\]+=[0-9]+([xX×][0-9]+){1,2})*")
_NAMES = {2: ("nodes", "GPUs per node"), 3: ("racks", "nodes per rack", "GPUs per node")}
LINGJUN_GPUS_PER_NODE = 8
"""The topology file lists hosts and switches but no GPUs; the hosts of that dataset have eight."""


@dataclass(frozen=True, slots=True)
class Group:
    """One part of a shape: equal nodes of one type. ``racks`` 0 means that racks are not stated."""

    gpu_type: str
    racks: int
    nodes: int
    gpus: int

    @property
    def gpu_count(self) -> int:
        return max(self.racks, 1) * self.nodes * self.gpus


def is_shape(spec: str) -> bool:
    """Whether ``spec`` is a whole shape, whatever files exist."""
    return _COMPLETE.fullmatch(spec.strip()) is not None


def resembles_shape(spec: str) -> bool:
    """Whether ``spec`` was probably meant as a shape rather than a file."""
    return _SHAPE.fullmatch(spec.strip()) is not None


def parse_shape(spec: str, where: str) -> Cluster:
    """The cluster of a shape. Without racks all nodes stand in one rack."""
    groups = [_group(part, where) for part in spec.strip().split(",")]
    _check_types(groups, where)
    if len({group.racks > 0 for group in groups}) > 1:
        raise InputError(
            where, "some parts state racks and some do not", "racks x nodes x GPUs in all parts or in none"
        )
    check_size(sum(group.gpu_count for group in groups), where)
    return Cluster(_nodes(groups))


def check_size(gpu_count: int, where: str, field: str = "") -> None:
    """Refuse clusters beyond ``MAX_GPUS``, before they are built."""
    if gpu_count > MAX_GPUS:
        raise InputError(where, f"{gpu_count:,} GPUs", f"at most {MAX_GPUS:,} GPUs in all", field)


def _group(part: str, where: str) -> Group:
    gpu_type, equals, numbers = part.rpartition("=")
    if equals and not gpu_type.strip():
        raise InputError(where, f"no GPU type before '=' in {part!r}", EXAMPLES)
    words = re.split("[xX×]", numbers.strip())
    names = _NAMES.get(len(words))
    if names is None:
        raise InputError(where, f"found {part!r}" if part else "found nothing after a comma", EXAMPLES)
    counts = [_count(word.strip(), name, where) for word, name in zip(words, names, strict=True)]
    racks = counts[0] if len(counts) == 3 else 0
    return Group(gpu_type.strip(), racks, counts[-2], counts[-1])


def _count(word: str, name: str, where: str) -> int:
    found = f"found {word!r}" if word else "found nothing"
    if not re.fullmatch("[0-9]+", word) or not word.strip("0"):
        raise InputError(where, found, "a whole number of at least 1, as in '16x4' or '4x8x8'", name)
    if len(word) > len(str(MAX_GPUS)):
        raise InputError(where, found, f"at most {MAX_GPUS:,} GPUs in all", name)
    return int(word)


def _check_types(groups: list[Group], where: str) -> None:
    seen: set[str] = set()
    for group in groups:
        if not group.gpu_type and len(groups) > 1:
            raise InputError(where, "several parts, one of them without a GPU type", "'TYPE=NODESxGPUS' in every part")
        if group.gpu_type.lower() in seen:
            raise InputError(
                where, f"GPU type {group.gpu_type!r} found twice", "each GPU type once (a YAML file can mix)"
            )
        seen.add(group.gpu_type.lower())


def _nodes(groups: list[Group]) -> tuple[Node, ...]:
    nodes: list[Node] = []
    first_rack = 0
    for group in groups:
        for i in range(max(group.racks, 1) * group.nodes):
            rack = f"rack{first_rack + i // group.nodes}"
            nodes.append(Node(f"node{len(nodes)}", group.gpus, group.gpu_type or "gpu", rack))
        first_rack += group.racks
    return tuple(nodes)


# -- public files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """What the caller states beside the file; ``None`` and empty leave it to the file or the default."""

    gpus_per_node: int | None = None
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class ShapeFormat:
    """A kind of file, recognised by columns that must all be there."""

    name: str
    columns: tuple[str, ...]
    read: Callable[[list[Row], ShapeOptions], Cluster]
    sample: str
    """A few lines of that format, for documentation and tests."""
    node_column: str = ""
    """The column that names a node, where a line is a node: no name may come twice."""
    states_gpus: bool = True
    """Whether the file itself says how many GPUs a node has."""


def _lingjun(rows: list[Row], options: ShapeOptions) -> Cluster:
    """Rack = ASW, the top-of-rack switch. Nodes are grouped by rack, racks in order of appearance."""
    gpus = options.gpus_per_node or LINGJUN_GPUS_PER_NODE
    racks: dict[str, list[Node]] = {}
    for row in rows:
        rack = _name(row, "ASW")
        racks.setdefault(rack, []).append(Node(_name(row, "ip"), gpus, options.gpu_type or "gpu", rack))
    notes: tuple[str, ...] = ()
    if options.gpus_per_node is None:
        notes = (f"the topology file states no GPUs: {gpus} per host assumed (topology.gpus_per_node changes it)",)
    return Cluster(tuple(node for nodes in racks.values() for node in nodes), notes=notes)


def _tiresias(rows: list[Row], options: ShapeOptions) -> Cluster:
    """One line per kind of rack: switches, nodes per switch, GPUs per node. A switch is a rack."""
    nodes: list[Node] = []
    racks = total = 0
    for row in rows:
        switches, per_rack = row.integer("num_switch", 1), row.integer("num_node_p_switch", 1)
        gpus = row.integer("num_gpu_p_node", 1)
        total += switches * per_rack * gpus
        check_size(total, row.where)
        for i in range(switches * per_rack):
            name, rack = f"node{len(nodes)}", f"rack{racks + i // per_rack}"
            nodes.append(Node(name, gpus, options.gpu_type or "gpu", rack))
        racks += switches
    return Cluster(tuple(nodes))


def _philly(rows: list[Row], options: ShapeOptions) -> Cluster:
    gpu_type = options.gpu_type or "gpu"
    return _machine_list([Node(_name(r, "machineId"), r.integer("number of GPUs"), gpu_type) for r in rows])


def _openb(rows: list[Row], options: ShapeOptions) -> Cluster:
    nodes = []
    for row in rows:
        gpus = row.integer("gpu")
        gpu_type = options.gpu_type or (_name(row, "model") if gpus else "")
        nodes.append(Node(_name(row, "sn"), gpus, gpu_type))
    return _machine_list(nodes)


def _machine_list(nodes: list[Node]) -> Cluster:
    """Machines as listed, without those that have no GPU; the file knows no racks."""
    kept = tuple(node for node in nodes if node.gpus)
    notes = ["the file states no racks: all nodes are in one"]
    if len(kept) < len(nodes):
        notes.insert(0, f"{len(nodes) - len(kept)} of {len(nodes)} nodes have no GPU and were left out")
    return Cluster(kept, notes=tuple(notes))


FORMATS: tuple[ShapeFormat, ...] = (
    ShapeFormat(
        "Lingjun topology",
        ("ip", "DSW", "PSW", "ASW"),
        _lingjun,
        "ip,DSW,PSW,ASW\nh0,G1,P1,S1\nh1,G1,P2,S2\nh2,G1,P1,S1\n",
        node_column="ip",
        states_gpus=False,
    ),
    ShapeFormat(
        "Tiresias cluster spec",
        ("num_switch", "num_node_p_switch", "num_gpu_p_node"),
        _tiresias,
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,4,64,256",
    ),
    ShapeFormat(
        "Philly machine list",
        ("machineId", "number of GPUs"),
        _philly,
        ",machineId,number of GPUs\n0,m0,8\n1,m1,2\n2,m7,0\n",
        node_column="machineId",
    ),
    ShapeFormat(
        "Alibaba openb node list",
        ("sn", "gpu", "model"),
        _openb,
        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,131072,0,\nn2,96000,786432,8,V100M32\n",
        node_column="sn",
    ),
)


def detect(text: str) -> ShapeFormat | None:
    """The format whose columns the first line holds."""
    columns = set(header(text))
    return next((f for f in FORMATS if columns.issuperset(f.columns)), None)


def header(text: str) -> list[str]:
    """Cells of the first line, stripped."""
    return [cell.strip() for cell in text[:10_000].partition("\n")[0].split(",")]


def read_shape(kind: ShapeFormat, text: str, where: str, options: ShapeOptions) -> Cluster:
    """The cluster that ``text`` describes."""
    if options.gpus_per_node is not None and kind.states_gpus:
        raise InputError(where, f"this {kind.name} states the GPUs of each node itself", "no gpus_per_node beside it")
    ragged = Ragged(expected=f"{{width}} columns, as in the header of a {kind.name}")
    rows = list(CsvTable(where, text, ragged=ragged))
    if not rows:
        raise InputError(where, "no line below the header", f"a {kind.name} with at least one line")
    _check_names(kind, rows)
    cluster = kind.read(rows, options)
    if not cluster.nodes:
        raise InputError(where, "no node has a GPU", "at least one GPU")
    check_size(cluster.gpu_count, where)
    return cluster


def _name(row: Row, column: str) -> str:
    return row.filled(column, "a name", "found nothing")


def _check_names(kind: ShapeFormat, rows: list[Row]) -> None:
    if not kind.node_column:
        return
    seen: dict[str, str] = {}
    for row in rows:
        name = _name(row, kind.node_column)
        if name in seen:
            raise InputError(
                row.where, f"{name!r} found twice, first at {seen[name]}", "each node once", kind.node_column
            )
        seen[name] = row.where
