"""Reads and writes throughputs in our own CSV: one row per model, gang, GPU type and placement, or per pair of models.

Lines that start with ``#`` are comments. docs/throughputs.md lists the columns for people.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trine.core.errors import InputError, unknown_name
from trine.inputs.throughput_rows import MOST_GPUS, NOT_A_RATE, Place, RateRows, is_rate
from trine.perf.throughput import ThroughputTable

REQUIRED = ("model", "gpus", "gpu_type", "steps_per_s")
OPTIONAL = ("placement", "other", "other_steps_per_s", "source")
PLACEMENTS = ("packed", "spread")
WHAT = f"a CSV with the columns {','.join(REQUIRED)} and, where needed, {','.join(OPTIONAL)}"


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    cells: dict[str, str]

    def text(self, column: str) -> str:
        found = self.cells.get(column, "")
        if not found:
            raise InputError(self.where, "the cell is empty", "a value", column)
        return found

    def rate(self, column: str) -> float:
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not is_rate(value):
            raise InputError(self.where, f"found {text!r}", NOT_A_RATE, column)
        return value

    def gang(self) -> int:
        text = self.text("gpus")
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST_GPUS):
            raise InputError(self.where, f"found {text!r}", f"a whole number from 1 to {MOST_GPUS:,}", "gpus")
        return int(text)

    def place(self) -> Place:
        placement = self.cells.get("placement") or PLACEMENTS[0]
        if placement not in PLACEMENTS:
            raise unknown_name(self.where, "placement", placement, PLACEMENTS, "placement")
        return Place(self.text("gpu_type").lower(), self.gang(), placement == PLACEMENTS[1])


def read_csv(path: str, text: str) -> RateRows:
    """Every rate of the file; at least one."""
    rows, count = RateRows(), 0
    for row in _rows(path, text):
        count += 1
        place, model, other = row.place(), row.text("model"), row.cells.get("other", "")
        if other:
            rows.add_pair(row.where, model, other, place, (row.rate("steps_per_s"), row.rate("other_steps_per_s")))
        elif row.cells.get("other_steps_per_s"):
            raise InputError(row.where, "a rate of another model without its name", "a model in this column", "other")
        else:
            rows.add(row.where, model, place, row.rate("steps_per_s"))
    if not count:
        raise InputError(path, "no rows", WHAT)
    return rows


def _rows(path: str, text: str) -> Iterator[_Row]:
    header: list[str] = []
    for line, cells in _lines(path, text):
        if not header:
            header = _header(f"{path}:{line}", cells)
            continue
        if len(cells) != len(header):
            raise InputError(f"{path}:{line}", f"{len(cells)} cells", f"{len(header)}, as in the first line")
        yield _Row(f"{path}:{line}", dict(zip(header, cells, strict=True)))


def _lines(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in reader:
            if cells and not cells[0].startswith("#"):
                yield line, [cell.strip() for cell in cells]
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}:{line}", f"a line that cannot be split ({error})", "well-formed CSV") from None


def _header(where: str, cells: Sequence[str]) -> list[str]:
    for name in cells:
        if name not in REQUIRED + OPTIONAL:
            raise unknown_name(where, "column", name, REQUIRED + OPTIONAL)
        if cells.count(name) > 1:
            raise InputError(where, "the column appears twice", "every column once", name)
    for name in REQUIRED:
        if name not in cells:
            raise InputError(where, "no such column", WHAT, name)
    return list(cells)


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
