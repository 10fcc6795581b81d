"""Reads step times by placement as CSV, to fit the network model with: one row per model, gang and spread."""

from __future__ import annotations

from pathlib import Path

from trine.core.errors import InputError
from trine.inputs.csv_table import CELLS, CsvTable, Row
from trine.inputs.text_file import read_text
from trine.perf.network_fit import StepRow

REQUIRED = ("model", "gpus", "nodes", "racks", "step_s")
OPTIONAL = ("bytes", "compute_s")
WHAT = f"a CSV with the columns {','.join(REQUIRED)} and, where known, {','.join(OPTIONAL)}"
MOST_GPUS = 100_000


def read_steps(path: str | Path) -> list[StepRow]:
    """The rows of ``path`` (gzip'ed or not) in the order of the file; at least two."""
    table = CsvTable(str(path), read_text(path, WHAT), comments=True, ragged=CELLS)
    if table.names:
        table.check_columns(REQUIRED, OPTIONAL, WHAT)
    rows = [_step(row) for row in table]
    if len(rows) < 2:
        raise InputError(str(path), f"{len(rows)} rows", f"at least two rows of {WHAT}")
    return rows


def _step(row: Row) -> StepRow:
    for column in REQUIRED:
        row.filled(column)
    gpus, nodes, racks = (row.integer(column, 1, MOST_GPUS) for column in ("gpus", "nodes", "racks"))
    if nodes > gpus:
        raise InputError(row.where, f"{nodes} nodes for {gpus} GPUs", "at most as many nodes as GPUs", "nodes")
    if racks > nodes:
        raise InputError(row.where, f"{racks} racks for {nodes} nodes", "at most as many racks as nodes", "racks")
    step_s = row.number("step_s", above=0.0, maximum=1e9, expected="seconds greater than 0")
    sent, compute_s = (
        row.number_or_none(column, maximum=1e15, expected="a number of at least 0") for column in OPTIONAL
    )
    return StepRow(row.text("model"), gpus, nodes, racks, step_s, sent, compute_s)
