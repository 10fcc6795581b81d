"""Measured throughputs: Gavel's JSON, our own CSV, or a table shipped with the package by its name.

Our CSV has one row per model, gang, GPU type and placement, or per pair of models; docs/throughputs.md lists its
columns, and lines that start with ``#`` are comments. Rates are collected one by one, and those that contradict each
other are refused. ``check_jobs`` says whether a table can run the jobs of a trace.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from trine.core.errors import InputError, nearest, unknown_name
from trine.core.job import Job
from trine.inputs.csv_table import CELLS, CsvTable, Row
from trine.inputs.text_file import read_text
from trine.perf.throughput import ThroughputTable

SHIPPED = Path(__file__).parent / "tables"
WHAT = "throughputs as Gavel's JSON or as CSV, or the name of a shipped table (see docs/throughputs.md)"
REQUIRED = ("model", "gpus", "gpu_type", "steps_per_s")
OPTIONAL = ("placement", "other", "other_steps_per_s", "source")
PLACEMENTS = ("packed", "spread")
CSV_WHAT = f"a CSV with the columns {','.join(REQUIRED)} and, where needed, {','.join(OPTIONAL)}"
JSON_WHAT = 'a JSON object of GPU types, each with entries like "(\'ResNet-18 (batch size 16)\', 1)": {"null": 32.4}'
_SPREAD = "_unconsolidated"
_ALONE = "null"
_KEY = "('model', gang size)"
MOST_GPUS = 1_000_000
NOT_A_RATE = "steps per second, 0 or more"


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
    if not table.rates:
        found = f"job {job.id} states no run time, only steps of model {job.model!r}, and there is no throughput table"
        return InputError(_where(source, job), found, "--throughputs, such as gavel-simulation or a file", "model")
    hint = nearest(job.model, table.models)
    found = f"job {job.id}: the throughput table does not know model {job.model!r}{hint}"
    return InputError(_where(source, job), found, "a model of the table, or a table with this model", "model")


def _where(source: str, job: Job) -> str:
    return f"{source}:{job.line}" if job.line else source


# -- Gavel's JSON: GPU type -> (model, gang) -> rate alone and rates beside other models -----------------------------


def read_json(path: str, text: str) -> RateRows:
    """Every rate of the file, alone and in pairs, packed and spread out (``*_unconsolidated``)."""
    data = _parsed(path, text)
    if not isinstance(data, dict) or not data:
        raise InputError(path, f"a JSON {type(data).__name__}{'' if data else ' without content'}", JSON_WHAT)
    rows, names = RateRows(), _Names(path)
    for written, entries in data.items():
        if not isinstance(entries, dict):
            raise InputError(path, f"a JSON {type(entries).__name__}", JSON_WHAT, written)
        _read_type(rows, names, path, written, entries)
    return rows


def _parsed(path: str, text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise InputError(path, f"the key {twice!r} twice in one object", "every key once")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}", f"not JSON ({error.msg})", JSON_WHAT) from None
    except RecursionError:
        raise InputError(path, "objects nested too deeply", JSON_WHAT) from None


def _read_type(rows: RateRows, names: _Names, path: str, written: str, entries: dict[str, Any]) -> None:
    gpu_type = written.lower()
    spread = gpu_type.endswith(_SPREAD)
    for key, entry in entries.items():
        field = f"{written}.{key}"
        model, gang = names.of(key, written)
        place = RatePlace(gpu_type.removesuffix(_SPREAD), gang, spread)
        alone = entry.get(_ALONE) if isinstance(entry, dict) else None
        if not is_rate(alone):
            raise InputError(path, f"throughput {alone!r}", f'{NOT_A_RATE}, under the key "{_ALONE}"', field)
        rows.add(f"{path}: {field}", model, place, float(alone or 0))
        for other_key, rates in entry.items():
            if other_key != _ALONE:
                _read_pair(rows, names, path, f"{field}.{other_key}", (model, place), (other_key, rates))


def _read_pair(
    rows: RateRows, names: _Names, path: str, field: str, one: tuple[str, RatePlace], entry: tuple[str, Any]
) -> None:
    (model, place), (other_key, rates) = one, entry
    other, gang = names.of(other_key, field)
    if gang != place.gang:
        raise InputError(path, f"a pair of {place.gang} and {gang} GPUs", "pairs of equal gangs", field)
    if not isinstance(rates, list) or len(rates) != 2 or not all(is_rate(rate) for rate in rates):
        raise InputError(path, f"throughputs {rates!r}", f"a list of two numbers, each {NOT_A_RATE}", field)
    rows.add_pair(f"{path}: {field}", model, other, place, (float(rates[0]), float(rates[1])))


class _Names:
    """Models and gangs by the way a file writes them: few different keys, each in thousands of places."""

    def __init__(self, path: str) -> None:
        self._path, self._known = path, dict[str, tuple[str, int]]()

    def of(self, key: str, field: str) -> tuple[str, int]:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._read(key, field)
        return known

    def _read(self, key: str, field: str) -> tuple[str, int]:
        try:
            value = ast.literal_eval(key)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            value = None
        if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and value[0].strip()):
            raise InputError(self._path, f"key {key!r}", _KEY, field)
        gang = value[1]
        if not isinstance(gang, int) or isinstance(gang, bool) or not 1 <= gang <= MOST_GPUS:
            raise InputError(self._path, f"key {key!r}", f"{_KEY} with a whole number of at least 1", field)
        return value[0], gang


# -- rates, whatever file they come from -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RatePlace:
    """Where a rate was measured."""

    gpu_type: str
    """In lower case."""
    gang: int
    spread: bool = False
    """The gang did not lie together."""

    def __str__(self) -> str:
        gpus = "1 GPU" if self.gang == 1 else f"{self.gang} GPUs"
        return f"{gpus} of {self.gpu_type}{', spread out' if self.spread else ''}"


@dataclass
class RateRows:
    """A throughput table in the making. ``where`` names file and line or key in every error."""

    alone: dict[tuple[str, RatePlace], tuple[float, str]] = field(default_factory=dict)
    pairs: dict[tuple[str, str, RatePlace], tuple[tuple[float, float], str]] = field(default_factory=dict)

    def add(self, where: str, model: str, place: RatePlace, rate: float, name: str = "") -> None:
        """A job alone; ``name`` is the field of the file."""
        known = self.alone.setdefault((model, place), (rate, where))
        if known[1] != where:
            found = f"{model!r} on {place} a second time (first: {known[1]})"
            raise InputError(where, found, "every model once for each GPU type, gang and placement", name)

    def add_pair(self, where: str, one: str, other: str, place: RatePlace, rates: tuple[float, float]) -> None:
        """Two jobs on the same GPUs. The same pair may be listed again the other way round, with the same rates."""
        known = self.pairs.setdefault((one, other, place), (rates, where))
        pair = f"the pair of {one!r} and {other!r} on {place}"
        if known[1] != where:
            raise InputError(where, f"{pair} a second time (first: {known[1]})", "every pair once")
        turned = self.pairs.get((other, one, place))
        if turned is not None and turned[0] != rates[::-1]:
            found = f"{pair} runs at {rates[0]:g} and {rates[1]:g} steps/s, but {turned[1]} says {turned[0][::-1]}"
            raise InputError(where, found, "the same rates whichever of the two is named first")

    def table(self) -> ThroughputTable:
        """The table, with a table of its own for gangs that were spread out if there are any."""
        for (one, other, place), (_, where) in self.pairs.items():
            for model in (one, other):
                if (model, place) not in self.alone:
                    found = f"a pair with {model!r} on {place}, whose rate alone is missing"
                    raise InputError(where, found, "the rate of each of the two alone as well")
        spread = self._half(spread=True)
        packed = self._half(spread=False)
        return ThroughputTable(packed.rates, packed.pairs, spread) if spread.rates else packed

    def _half(self, spread: bool) -> ThroughputTable:
        rates: dict[tuple[str, int], dict[str, float]] = {}
        pairs: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = {}
        for (model, place), (rate, _) in self.alone.items():
            if place.spread == spread:
                rates.setdefault((model, place.gang), {})[place.gpu_type] = rate
        for (one, other, place), (both, _) in self.pairs.items():
            if place.spread == spread:
                if one > other:
                    one, other, both = other, one, both[::-1]
                pairs.setdefault((one, other, place.gang), {})[place.gpu_type] = both
        return ThroughputTable(rates, pairs)


def is_rate(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
