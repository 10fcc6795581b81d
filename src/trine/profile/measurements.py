"""Measurement records: how long one run of an application class took on one GPU. Reads them from CSV, in one unit.

What they say about the GPUs is in ``variability_profile``; a session writes them in ``gpu_session``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from trine.core.errors import InputError, nearest
from trine.inputs.csv_table import CsvTable, Row
from trine.inputs.text_file import read_text

WHAT = "a CSV file of measurements with the columns gpu (or uuid) and perf_s (or perf, perf_ms)"
COLUMNS = ("gpu", "node", "place", "class", "run", "perf_s", "at_s")
"""Columns of our own CSV, in order; only gpu and perf_s must be there."""

_ALIASES = {
    "gpu": ("gpu", "uuid", "gpu_id"),
    "class": ("class", "app_class"),
    "run": ("run",),
    "at_s": ("at_s", "ts"),
    "node": ("node", "node_id"),
    "cabinet": ("cabinet",),
    "device": ("device",),
    "place": ("place",),
}
_SECONDS_PER_UNIT = {"perf_s": 1.0, "perf_ms": 1e-3, "perf": 1e-3}
"""Columns of times, best first. ``perf`` is that of the published measurements, which states no unit (``_unit_s``)."""
_PERF_UNITS_S = (1e-3, 1.0, 1e-6, 1e-9)
_RUN_S = (1e-3, 1e3)
"""Seconds that the median of a class lasts in its right unit."""
_RUN_COLUMNS = ("run", "at_s", "ts", "job_id", "reps")
"""Columns that distinguish runs: with one of them, two equal rows are one measurement written twice."""
_A_TIME = "a finite number greater than 0"

GAP = 30.0
"""Neighbouring times further apart than this factor are not two chips but two units, or a run that hung."""
_UNITS = (1e3, 1e6, 1e9)
_NEAR = 3.0
"""Two groups differ by a unit if their medians are within this factor of a thousand, a million ..."""
_HUNG_SHARE = 0.05
"""A group of slow runs below this share of a class may be runs that hung; above it, the file is refused."""
_HUNG_LONGEST = 1e5


@dataclass(frozen=True, slots=True)
class MeasurementRecord:
    """One run: ``perf_s`` seconds on ``gpu``; lower is faster. ``at_s`` is the Unix time, ``run`` counts per GPU."""

    gpu: str
    app_class: str
    perf_s: float
    run: int = 0
    at_s: float | None = None
    node: str = ""
    place: str = ""
    """Cabinet, node and device, as in ``c002-4-1``: the same chip may have other names in other files."""

    def __post_init__(self) -> None:
        if not self.gpu:
            raise InputError("measurement", "a record without a GPU", "the name of the GPU", "gpu")
        if not math.isfinite(self.perf_s) or self.perf_s <= 0:
            where = f"measurement of GPU {self.gpu}, run {self.run}"
            raise InputError(where, f"found {self.perf_s!r}", "a finite time greater than 0", "perf_s")


@dataclass(frozen=True)
class Measurements:
    """The records of one file in the order of the file, without duplicates, and what a reader must know about it."""

    records: tuple[MeasurementRecord, ...]
    source: str
    """Name of the file, without its folder."""
    duplicates: int = 0
    rescaled: int = 0
    """Records that were in another unit of time than most."""
    notes: tuple[str, ...] = ()


def read_records(path: str | Path, app_class: str = "", column: str = "") -> Measurements:
    """The records in ``path`` (gzip'ed or not). ``app_class`` goes for all rows; without it the column class decides.

    ``column`` names the column to read in place of the times, in whatever unit it has.
    """
    text = read_text(path, WHAT)
    if not text.strip():
        raise InputError(str(path), "the file is empty", WHAT)
    table = CsvTable(str(path), text)
    layout = _CsvColumns.of(table.names, table.where, column)
    kept, duplicates = _without_duplicates(list(table), layout)
    if layout.perf.lower() == "perf" and not column:
        layout = replace(layout, seconds_per_unit=_unit_s([row.number(layout.perf, above=0.0) for row in kept]))
    records = [_record(row, layout, app_class) for row in kept]
    if not records:
        raise InputError(str(path), "no measurements", WHAT)
    _check_one_class(records, str(path), app_class)
    named = [replace(r, app_class=app_class) for r in records] if app_class else records
    clean, rescaled, notes = _numbered(_with_true_places(named), layout), 0, tuple[str, ...]()
    if not column:
        clean, rescaled, notes = in_one_unit(clean, [row.where for row in kept])
    if duplicates:
        notes = (f"{Path(path).name}: {duplicates} duplicate rows dropped", *notes)
    return Measurements(tuple(clean), Path(path).name, duplicates, rescaled, notes)


def name_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that counts: ``gpu2`` comes before ``gpu10``."""
    return tuple((0, int(p), "") if "0" <= p[0] <= "9" else (1, 0, p) for p in re.split(r"([0-9]{1,18})", name) if p)


@dataclass(frozen=True, slots=True)
class _CsvColumns:
    """Where the columns of one file are."""

    columns: dict[str, str]
    """The file's name of each column that is known here."""
    perf: str
    seconds_per_unit: float
    has_runs: bool
    compared: list[int]
    """Columns in which duplicate rows must be equal: all but row numbers without a name."""

    @classmethod
    def of(cls, names: list[str], where: str, column: str) -> _CsvColumns:
        lower = [name.lower() for name in names]
        found = {key: _find(lower, aliases) for key, aliases in _ALIASES.items()}
        known = {key: names[i] for key, i in found.items() if i is not None}
        if "gpu" not in known:
            raise InputError(where, f"no such column{nearest('gpu', lower)}", WHAT, "gpu")
        perf, unit = _perf_column(names, where, column)
        compared = [i for i, name in enumerate(lower) if name and not name.startswith("unnamed")]
        return cls(known, perf, unit, any(column in lower for column in _RUN_COLUMNS), compared)

    def text(self, row: Row, key: str) -> str:
        """The cell of ``key``, empty where the file has no such column or says -1 for unknown."""
        cell = row.text(self.columns[key]) if key in self.columns else ""
        return "" if cell == "-1" else cell


def _find(names: list[str], aliases: Sequence[str]) -> int | None:
    return next((names.index(alias) for alias in aliases if alias in names), None)


def _perf_column(names: list[str], where: str, column: str) -> tuple[str, float]:
    if column:
        if column not in names:
            raise InputError(where, f"no such column{nearest(column, names)}", f"one of {', '.join(names)}", column)
        return column, 1.0
    lower = [name.lower() for name in names]
    for name, seconds in _SECONDS_PER_UNIT.items():
        if name in lower:
            return names[lower.index(name)], seconds
    raise InputError(where, f"no such column{nearest('perf_s', lower)}", WHAT, "perf_s")


def _unit_s(times: list[float]) -> float:
    """Seconds per unit of a column that states none: the first unit in which the median run lasts a plausible time.

    The published files have milliseconds, those of Frontera seconds (training) and nanoseconds (kernels).
    """
    middle = median(times) if times else 1.0
    low_s, high_s = _RUN_S
    return next((unit for unit in _PERF_UNITS_S if low_s <= middle * unit < high_s), _PERF_UNITS_S[0])


def _without_duplicates(rows: list[Row], layout: _CsvColumns) -> tuple[list[Row], int]:
    """Rows that say the same twice are one measurement, unless no column of the file distinguishes runs."""
    if not layout.has_runs:
        return rows, 0
    first: dict[tuple[str, ...], Row] = {}
    for row in rows:
        first.setdefault(tuple(row.cells[i] for i in layout.compared), row)
    return list(first.values()), len(rows) - len(first)


def _record(row: Row, layout: _CsvColumns, app_class: str) -> MeasurementRecord:
    gpu = row.filled(layout.columns["gpu"], "the name of a GPU", "found nothing")
    found_class = layout.text(row, "class")
    if not found_class and not app_class:
        raise InputError(row.where, "found nothing", "an application class, here or as CLASS=FILE", "class")
    perf_s = row.number(layout.perf, above=0.0, expected=_A_TIME) * layout.seconds_per_unit
    node, place = _node_and_place(row, layout)
    at_s = row.number(layout.columns["at_s"], above=0.0, expected=_A_TIME) if layout.text(row, "at_s") else None
    return MeasurementRecord(gpu, found_class or app_class, perf_s, _run(row, layout), at_s, node, place)


def _run(row: Row, layout: _CsvColumns) -> int:
    if not layout.text(row, "run"):
        return 0
    return row.integer(layout.columns["run"], expected="the number of the run: 0, 1, 2 ...")


def _node_and_place(row: Row, layout: _CsvColumns) -> tuple[str, str]:
    cabinet, node, device = (layout.text(row, key) for key in ("cabinet", "node", "device"))
    if cabinet and node:
        # The published files write one node as 4 and as 004.
        node = f"{cabinet}-{node.lstrip('0') or node}"
    place = layout.text(row, "place") or (f"{node}-{device}" if cabinet and node and device else "")
    return node, place


def _check_one_class(records: list[MeasurementRecord], path: str, app_class: str) -> None:
    found = sorted({r.app_class for r in records})
    if app_class and len(found) > 1:
        raise InputError(path, f"holds the classes {', '.join(found)}", f"one class, or the file without {app_class}=")


def _with_true_places(records: list[MeasurementRecord]) -> list[MeasurementRecord]:
    """Places are kept only if they name GPUs one to one in the whole file; otherwise they say nothing."""
    pairs = {(r.gpu, r.place) for r in records}
    by_gpu, by_place = Counter(gpu for gpu, _ in pairs), Counter(place for _, place in pairs)
    if all(n == 1 for n in by_gpu.values()) and all(n == 1 for n in by_place.values()):
        return records
    return [replace(r, place="") for r in records]


def _numbered(records: list[MeasurementRecord], layout: _CsvColumns) -> list[MeasurementRecord]:
    """Runs counted per GPU and class in the order of the file, where the file does not number them."""
    if "run" in layout.columns:
        return records
    seen: Counter[tuple[str, str]] = Counter()
    numbered = []
    for r in records:
        numbered.append(replace(r, run=seen[r.gpu, r.app_class]))
        seen[r.gpu, r.app_class] += 1
    return numbered


# -- one unit of time ------------------------------------------------------------------------------------------------


def in_one_unit(
    records: Sequence[MeasurementRecord], wheres: Sequence[str] = ()
) -> tuple[list[MeasurementRecord], int, tuple[str, ...]]:
    """The records in one unit per class, how many were rescaled, and notes. ``wheres`` are the places for errors.

    Chips differ by a few times, units by a thousand: groups whose medians differ by a thousand (a million ...) are the
    same unit times that, and the larger is divided.
    Rare slow runs at another factor are kept as they are; two large groups at another factor are refused.
    """
    clean, rescaled, notes = list(records), 0, []
    for app_class in sorted({r.app_class for r in records}):
        while split := _split([(r.perf_s, i) for i, r in enumerate(clean) if r.app_class == app_class]):
            low, high = split
            ratio = median(t for t, _ in high) / median(t for t, _ in low)
            factor = next((u for u in _UNITS if u / _NEAR <= ratio <= u * _NEAR), None)
            if factor is None:
                notes.append(_kept_or_refused(clean, low, high, ratio, wheres))
                break
            for time, i in high:
                clean[i] = replace(clean[i], perf_s=time / factor)
            rescaled += len(high)
            notes.append(f"class {app_class}: {len(high)} of {len(low) + len(high)} times divided by {factor:,.0f}")
    return clean, rescaled, tuple(notes)


Times = list[tuple[float, int]]


def _split(times: Times) -> tuple[Times, Times] | None:
    """The times below and above the widest gap, if there is one."""
    ordered = sorted(times)
    gaps = [(high[0] / low[0], i + 1) for i, (low, high) in enumerate(pairwise(ordered))]
    widest, at = max(gaps, default=(1.0, 0))
    return (ordered[:at], ordered[at:]) if widest > GAP else None


def _kept_or_refused(
    records: Sequence[MeasurementRecord], low: Times, high: Times, ratio: float, wheres: Sequence[str]
) -> str:
    odd = high[0][1] if len(high) <= len(low) else low[0][1]
    gpu, app_class = records[odd].gpu, records[odd].app_class
    if ratio > _HUNG_LONGEST or len(high) > max(1, _HUNG_SHARE * (len(low) + len(high))):
        where = wheres[odd] if wheres else f"measurement of GPU {gpu}"
        found = f"times of class {app_class} in two groups a factor {ratio:,.0f} apart (GPU {gpu} and others)"
        raise InputError(where, found, "times of one application in one unit", "perf_s")
    return f"class {app_class}: {len(high)} runs took {ratio:,.0f} times as long as the others (GPU {gpu} and others)"
