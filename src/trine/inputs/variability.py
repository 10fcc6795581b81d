"""Loads a table of slowdowns per GPU from CSV and checks it against the cluster. The table itself is in perf."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path

from trine.core.cluster import Cluster
from trine.core.errors import InputError, nearest
from trine.inputs.text_file import read_text
from trine.perf.variability import VariabilityTable

WHAT = "a CSV file with the columns gpu, node and slowdown_A, slowdown_B ... (or GPU_ID, Node_ID, PerfVar_classA ...)"

_GPU, _NODE = ("gpu", "gpu_id"), ("node", "node_id")
_IGNORED = ("rack", "type")
_CLASS = re.compile(r"slowdown_(?P<own>.+)|(?:\w+_)?class_?(?P<published>[^_].*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the columns are: index of GPU and node, and index by class."""

    gpu: int
    node: int
    classes: dict[str, int]
    names: list[str]


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    gpu: int
    node: str
    slowdowns: tuple[float, ...]


def load_variability(path: str | Path, cluster: Cluster) -> VariabilityTable:
    """The slowdowns in ``path`` (gzip'ed or not), one row per GPU of ``cluster``, in any order and taken as they are.

    Nodes are given by name or by index. The columns rack and type are allowed and not compared.
    """
    reader = csv.reader(io.StringIO(read_text(path, WHAT), newline=""))
    try:
        columns = _columns(next(reader, []), f"{path}:1")
        cells = [(f"{path}:{reader.line_num}", row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}", f"not valid CSV ({error})", WHAT) from None
    rows = [_row(row, where, columns) for where, row in cells]
    by_gpu = _one_per_gpu(rows, str(path), cluster, columns)
    _check_nodes(by_gpu, cluster, columns)
    slowdowns = {c: tuple(row.slowdowns[i] for row in by_gpu) for i, c in enumerate(columns.classes)}
    return VariabilityTable(cluster.gpu_count, slowdowns)


def _columns(cells: list[str], where: str) -> _Columns:
    names = [cell.strip() for cell in cells]
    gpu, node = (_index(names, known, where) for known in (_GPU, _NODE))
    classes: dict[str, int] = {}
    for index, name in enumerate(names):
        if index in (gpu, node) or name.lower() in _IGNORED:
            continue
        app_class = _class_name(name, where)
        if app_class in classes:
            raise InputError(where, f"class {app_class!r} found twice", "each class once", name)
        classes[app_class] = index
    if not classes:
        raise InputError(where, "no column of slowdowns", WHAT)
    return _Columns(gpu, node, classes, names)


def _index(names: list[str], known: tuple[str, ...], where: str) -> int:
    found = [i for i, name in enumerate(names) if name.lower() in known]
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


def _row(cells: list[str], where: str, columns: _Columns) -> _Row:
    if len(cells) != len(columns.names):
        raise InputError(where, f"{len(cells)} columns", f"{len(columns.names)} columns, as in the header")
    gpu = cells[columns.gpu].strip()
    if not re.fullmatch("[0-9]{1,9}", gpu):
        raise InputError(where, f"found {gpu!r}", "a GPU id: 0, 1, 2 ...", columns.names[columns.gpu])
    slowdowns = tuple(_slowdown(cells[i], where, columns.names[i]) for i in columns.classes.values())
    return _Row(where, int(gpu), cells[columns.node].strip(), slowdowns)


def _slowdown(cell: str, where: str, column: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise InputError(where, f"found {cell.strip()!r}", "a finite number greater than 0", column)
    return value


def _one_per_gpu(rows: list[_Row], path: str, cluster: Cluster, columns: _Columns) -> list[_Row]:
    """Rows by GPU id, each id of the cluster exactly once."""
    field = columns.names[columns.gpu]
    by_gpu: dict[int, _Row] = {}
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


def _check_nodes(by_gpu: list[_Row], cluster: Cluster, columns: _Columns) -> None:
    """Every GPU must be on the node that the cluster puts it on: the table of another cluster is no use."""
    names = [node.name for node in cluster.nodes]
    by_name = {row.node for row in by_gpu} <= set(names)
    labels = names if by_name else [str(index) for index in range(len(names))]
    for row in by_gpu:
        expected = labels[cluster.node_of[row.gpu]]
        if row.node != expected:
            found = f"GPU {row.gpu} is on node {row.node!r}"
            raise InputError(row.where, found, f"node {expected!r}, as in the cluster", columns.names[columns.node])
