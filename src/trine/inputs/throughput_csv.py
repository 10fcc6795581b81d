"""Reads and writes throughputs in our own CSV: one row per model, gang, GPU type and placement, or per pair of models.

Lines that start with ``#`` are comments. docs/throughputs.md lists the columns for people.
"""

from __future__ import annotations

import csv
import io

from trine.core.errors import InputError, unknown_name
from trine.inputs.csv_table import CELLS, CsvTable, Row
from trine.inputs.throughput_rows import MOST_GPUS, NOT_A_RATE, Place, RateRows
from trine.perf.throughput import ThroughputTable

REQUIRED = ("model", "gpus", "gpu_type", "steps_per_s")
OPTIONAL = ("placement", "other", "other_steps_per_s", "source")
PLACEMENTS = ("packed", "spread")
WHAT = f"a CSV with the columns {','.join(REQUIRED)} and, where needed, {','.join(OPTIONAL)}"


def read_csv(path: str, text: str) -> RateRows:
    """Every rate of the file; at least one."""
    table = CsvTable(path, text, comments=True, ragged=CELLS)
    if table.names:
        table.check_columns(REQUIRED, OPTIONAL, WHAT)
    rows, count = RateRows(), 0
    for row in table:
        count += 1
        place, model, other = _place(row), row.filled("model"), row.text("other")
        if other:
            rows.add_pair(row.where, model, other, place, (_rate(row, "steps_per_s"), _rate(row, "other_steps_per_s")))
        elif row.given("other_steps_per_s"):
            raise InputError(row.where, "a rate of another model without its name", "a model in this column", "other")
        else:
            rows.add(row.where, model, place, _rate(row, "steps_per_s"))
    if not count:
        raise InputError(path, "no rows", WHAT)
    return rows


def _place(row: Row) -> Place:
    placement = row.text("placement") or PLACEMENTS[0]
    if placement not in PLACEMENTS:
        raise unknown_name(row.where, "placement", placement, PLACEMENTS, "placement")
    gpu_type = row.filled("gpu_type").lower()
    row.filled("gpus")
    return Place(gpu_type, row.integer("gpus", 1, MOST_GPUS), placement == PLACEMENTS[1])


def _rate(row: Row, column: str) -> float:
    row.filled(column)
    return row.number(column, expected=NOT_A_RATE)


def table_csv(table: ThroughputTable, source: str = "") -> str:
    """The text of a CSV that reads back as ``table``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((*REQUIRED, *OPTIONAL))
    for placement, part in zip(PLACEMENTS, (table, table.spread), strict=True):
        for (model, gang), rates in sorted(part.rates.items() if part else ()):
            writer.writerows((model, gang, t, repr(r), placement, "", "", source) for t, r in sorted(rates.items()))
        for (one, other, gang), pairs in sorted(part.pairs.items() if part else ()):
            writer.writerows(
                (one, gang, t, repr(a), placement, other, repr(b), source) for t, (a, b) in sorted(pairs.items())
            )
    return stream.getvalue()
