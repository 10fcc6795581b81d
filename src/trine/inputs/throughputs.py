"""Measured throughputs: Gavel's JSON, our own CSV, or a table shipped with the package by its name.

Our CSV has one row per model, gang, GPU type and placement, or per pair of models; docs/throughputs.md lists its
columns, and lines that start with ``#`` are comments. ``check_jobs`` says whether a table can run the jobs of a trace.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from trine.core.errors import InputError, nearest, unknown_name
from trine.core.job import Job
from trine.inputs.csv_table import CELLS, CsvTable, Row
from trine.inputs.text_file import read_text
from trine.inputs.throughput_json import read_json
from trine.inputs.throughput_rows import MOST_GPUS, NOT_A_RATE, RatePlace, RateRows
from trine.perf.throughput import ThroughputTable

SHIPPED = Path(__file__).parent / "tables"
WHAT = "throughputs as Gavel's JSON or as CSV, or the name of a shipped table (see docs/throughputs.md)"
REQUIRED = ("model", "gpus", "gpu_type", "steps_per_s")
OPTIONAL = ("placement", "other", "other_steps_per_s", "source")
PLACEMENTS = ("packed", "spread")
CSV_WHAT = f"a CSV with the columns {','.join(REQUIRED)} and, where needed, {','.join(OPTIONAL)}"


def table_names() -> list[str]:
    """Names of the throughput tables shipped with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.csv"))


def load_throughputs(name: str) -> ThroughputTable:
    """The table in the file ``name`` (plain or gzip'ed), or the shipped table called ``name``."""
    if name in table_names():
        return _shipped(name)
    if not Path(name).exists() and "/" not in name and "." not in name:
        raise unknown_name("--throughputs", "table", name, table_names())
    return _read(name)


@lru_cache
def _shipped(name: str) -> ThroughputTable:
    return _read(str(SHIPPED / f"{name}.csv"))


def _read(path: str) -> ThroughputTable:
    text = read_text(path, WHAT)
    read = read_json if text.lstrip()[:1] in ("{", "[") else read_csv
    return read(path, text).table()


def read_csv(path: str, text: str) -> RateRows:
    """Every rate of the file; at least one."""
    table = CsvTable(path, text, comments=True, ragged=CELLS)
    if table.names:
        table.check_columns(REQUIRED, OPTIONAL, CSV_WHAT)
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
        raise InputError(path, "no rows", CSV_WHAT)
    return rows


def _place(row: Row) -> RatePlace:
    placement = row.text("placement") or PLACEMENTS[0]
    if placement not in PLACEMENTS:
        raise unknown_name(row.where, "placement", placement, PLACEMENTS, "placement")
    gpu_type = row.filled("gpu_type").lower()
    row.filled("gpus")
    return RatePlace(gpu_type, row.integer("gpus", 1, MOST_GPUS), placement == PLACEMENTS[1])


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


def check_jobs(jobs: Iterable[Job], table: ThroughputTable, types: Sequence[str], source: str) -> None:
    """Raises ``InputError`` for an unknown model, one that runs on none of ``types``, or a deadline in the past.

    Jobs that bring a step time of their own need no entry in the table, if they name no model or there is one GPU type
    only: on several types a model that the table lacks would run equally fast on all of them.
    """
    several = bool(table.rates) and len(types) > 1
    judged: dict[tuple[str, int], bool] = {}
    for job in jobs:
        if job.deadline_s is not None and job.deadline_s <= job.submit_s:
            found = f"job {job.id} has its deadline at {job.deadline_s:g} s and is submitted at {job.submit_s:g} s"
            raise InputError(_where(source, job), found, "a deadline after the submission", "deadline")
        key = job.model, job.gpus
        if key not in judged:
            judged[key] = _runs(job, table, types, source)
        if not judged[key] and (job.step_s is None or (job.model and several)):
            raise _unknown(job, table, source)


def _runs(job: Job, table: ThroughputTable, types: Sequence[str], source: str) -> bool:
    """Whether the table knows the model; one that it knows to run on none of the types is an error."""
    rates = [table.rate(job.model, job.gpus, gpu_type) for gpu_type in types]
    if all(rate is None for rate in rates):
        return False
    if not any(rates):
        found = f"job {job.id}: model {job.model!r} makes 0 steps/s with {job.gpus} GPUs on all of {', '.join(types)}"
        raise InputError(_where(source, job), found, "a throughput above 0 on at least one GPU type", "model")
    return True


def _unknown(job: Job, table: ThroughputTable, source: str) -> InputError:
    hint = nearest(job.model, table.models)
    found = f"job {job.id}: the throughput table does not know model {job.model!r}{hint}"
    return InputError(_where(source, job), found, "a model of the table, or a table with this model", "model")


def _where(source: str, job: Job) -> str:
    return f"{source}:{job.line}" if job.line else source
