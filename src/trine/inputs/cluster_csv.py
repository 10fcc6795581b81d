"""Public files that describe a cluster's shape: Lingjun topology, Tiresias spec, Philly machines, Alibaba openb nodes.

A format is one entry of ``FORMATS``: its columns, a sample and a function from rows to nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.inputs.cluster_shape import check_size
from trine.inputs.csv_table import CsvTable, Ragged, Row

LINGJUN_GPUS_PER_NODE = 8
"""The topology file lists hosts and switches but no GPUs; the hosts of that dataset have eight."""


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
