"""``gpus.csv`` of a world: one row per GPU with its node, rack, type and its slowdown per application class."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from trine.core.cluster import Node
from trine.core.errors import InputError, unknown_name
from trine.inputs.csv_table import Row
from trine.sim.worlds.table import Table, read_table

COLUMNS = ("gpu", "node", "rack", "type")
PREFIX = "slowdown_"


@dataclass(frozen=True, slots=True)
class WorldGpus:
    """Nodes in order of GPU ids, and slowdowns by class and GPU id."""

    path: str
    nodes: tuple[Node, ...]
    slowdowns: dict[str, tuple[float, ...]]


def read_gpus(folder: Path, types: tuple[str, ...]) -> WorldGpus:
    """The GPUs of a world whose ``cluster.json`` knows ``types``."""
    table = read_table(folder, "gpus.csv", COLUMNS, PREFIX)
    rows = _in_order(table)
    for row in rows:
        if row.text("type") not in types:
            raise unknown_name(row.where, "GPU type", row.text("type"), types, "type")
    slowdowns = {name: tuple(_slowdown(row, f"{PREFIX}{name}") for row in rows) for name in table.suffixes}
    return WorldGpus(table.path, _nodes(rows), slowdowns)


def _in_order(table: Table) -> list[Row]:
    """Rows by GPU id: every id from 0 on, each once."""
    by_id: dict[int, Row] = {}
    for row in table.rows:
        gpu = row.whole_or_none("gpu")
        if gpu is None:
            raise InputError(row.where, "the cell is empty", "a GPU id: 0, 1, 2 ...", "gpu")
        if gpu in by_id:
            found = f"GPU {gpu} again, first on line {by_id[gpu].line}"
            raise InputError(row.where, found, "one row for each GPU", "gpu")
        by_id[gpu] = row
    if not by_id:
        raise InputError(table.path, "no GPUs", "one row for each GPU")
    missing = next((gpu for gpu in range(len(by_id)) if gpu not in by_id), None)
    if missing is not None:
        raise InputError(table.path, f"no row for GPU {missing}", f"GPU ids from 0 to {len(by_id) - 1}", "gpu")
    return [by_id[gpu] for gpu in range(len(by_id))]


def _slowdown(row: Row, column: str) -> float:
    value = row.number(column)
    if value == 0:
        raise InputError(row.where, "found 0", "a slowdown above 0", column)
    return value


def _nodes(rows: list[Row]) -> tuple[Node, ...]:
    """The GPUs of a node are numbered one after another, and have one type and one rack."""
    first: dict[str, Row] = {}
    for before, row in zip([None, *rows], rows, strict=False):
        name = row.text("node")
        known = first.setdefault(name, row)
        if known is not row:
            _check_same_node(known, before, row)
    counts = Counter(row.text("node") for row in rows)
    return tuple(
        Node(_named("node", name), counts[name], row.text("type"), _named("rack", row.text("rack")))
        for name, row in first.items()
    )


def _check_same_node(known: Row, before: Row | None, row: Row) -> None:
    name = row.text("node")
    if before is None or before.text("node") != name:
        found = f"GPU {row.text('gpu')} is on node {name!r}, and GPUs of other nodes lie between"
        raise InputError(row.where, found, "the GPUs of a node numbered one after another", "node")
    for column in ("type", "rack"):
        if row.text(column) != known.text(column):
            found = f"{row.text(column)!r} on node {name!r}, and {known.text(column)!r} on line {known.line}"
            raise InputError(row.where, found, f"one {column} for all GPUs of a node", column)


def _named(kind: str, name: str) -> str:
    """``node3`` for a node that the file calls 3."""
    return f"{kind}{name}" if name.isdigit() else name
