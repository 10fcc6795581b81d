"""Loads a table of slowdowns per GPU from CSV and checks it against the cluster. The table itself is in perf."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trine.core.cluster import Cluster
from trine.core.errors import InputError, nearest
from trine.inputs.csv_table import CsvTable, Row
from trine.inputs.text_file import read_text
from trine.perf.variability import VariabilityTable

WHAT = "a CSV file with the columns gpu, node and slowdown_A, slowdown_B ... (or GPU_ID, Node_ID, PerfVar_classA ...)"

_GPU, _NODE = ("gpu", "gpu_id"), ("node", "node_id")
_IGNORED = ("rack", "type")
_CLASS = re.compile(r"slowdown_(?P<own>.+)|(?:\w+_)?class_?(?P<published>[^_].*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns as the file names them: of the GPU, of the node, and by class."""

    gpu: str
    node: str
    classes: dict[str, str]


@dataclass(frozen=True, slots=True)
class _GpuRow:
    where: str
    gpu: int
    node: str
    slowdowns: tuple[float, ...]


def load_variability(path: str | Path, cluster: Cluster) -> VariabilityTable:
    """The slowdowns in ``path`` (gzip'ed or not), one row per GPU of ``cluster``, in any order and taken as they are.

    Nodes are given by name or by index. The columns rack and type are allowed and not compared.
    """
    table = CsvTable(str(path), read_text(path, WHAT))
    columns = _columns(table.names, table.where)
    by_gpu = _one_per_gpu([_gpu_row(row, columns) for row in table], str(path), cluster, columns.gpu)
    _check_nodes(by_gpu, cluster, columns.node)
    slowdowns = {c: tuple(row.slowdowns[i] for row in by_gpu) for i, c in enumerate(columns.classes)}
    return VariabilityTable(cluster.gpu_count, slowdowns)


def _columns(names: list[str], where: str) -> _Columns:
    gpu, node = (_named(names, known, where) for known in (_GPU, _NODE))
    classes: dict[str, str] = {}
    for name in names:
        if name in (gpu, node) or name.lower() in _IGNORED:
            continue
        app_class = _class_name(name, where)
        if app_class in classes:
            raise InputError(where, f"class {app_class!r} found twice", "each class once", name)
        classes[app_class] = name
    if not classes:
        raise InputError(where, "no column of slowdowns", WHAT)
    return _Columns(gpu, node, classes)


def _named(names: list[str], known: tuple[str, ...], where: str) -> str:
    found = [name for name in names if name.lower() in known]
    if len(found) != 1:
        problem = "found twice" if found else "no such column"
        raise InputError(where, problem, WHAT, known[0])
    return found[0]


def _class_name(column: str, where: str) -> str:
    match = _CLASS.fullmatch(column)
    if match is None:
        hint = nearest(column, ("gpu", "node", *_IGNORED, "slowdown_A"))
        raise InputError(where, f"unknown column {column!r}{hint}", WHAT)
    return match["own"] or match["published"]


def _gpu_row(row: Row, columns: _Columns) -> _GpuRow:
    gpu = row.integer(columns.gpu, expected="a GPU id: 0, 1, 2 ...")
    slowdowns = (row.number(c, above=0.0, expected="a finite number greater than 0") for c in columns.classes.values())
    return _GpuRow(row.where, gpu, row.text(columns.node), tuple(slowdowns))


def _one_per_gpu(rows: list[_GpuRow], path: str, cluster: Cluster, field: str) -> list[_GpuRow]:
    """Rows by GPU id, each id of the cluster exactly once."""
    by_gpu: dict[int, _GpuRow] = {}
    for row in rows:
        if row.gpu in by_gpu:
            found = f"GPU {row.gpu} found twice, first at {by_gpu[row.gpu].where}"
            raise InputError(row.where, found, "one row for each GPU", field)
        by_gpu[row.gpu] = row
    count, end = cluster.gpu_count, rows[-1].where if rows else f"{path}:1"
    if len(rows) != count:
        raise InputError(end, f"{len(rows)} GPUs", f"{count}, the number of GPUs in the cluster", field)
    missing = next((gpu for gpu in range(count) if gpu not in by_gpu), None)
    if missing is not None:
        raise InputError(end, f"no row for GPU {missing}", f"one row for each GPU from 0 to {count - 1}", field)
    return [by_gpu[gpu] for gpu in range(count)]


def _check_nodes(by_gpu: list[_GpuRow], cluster: Cluster, field: str) -> None:
    """Every GPU must be on the node that the cluster puts it on: the table of another cluster is no use."""
    names = [node.name for node in cluster.nodes]
    by_name = {row.node for row in by_gpu} <= set(names)
    labels = names if by_name else [str(index) for index in range(len(names))]
    for row in by_gpu:
        expected = labels[cluster.node_of[row.gpu]]
        if row.node != expected:
            found = f"GPU {row.gpu} is on node {row.node!r}"
            raise InputError(row.where, found, f"node {expected!r}, as in the cluster", field)
