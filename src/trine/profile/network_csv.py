"""Reads step times by placement as CSV, to fit the network model with: one row per model, gang and spread."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trine.core.errors import InputError, unknown_name
from trine.inputs.text_file import read_text
from trine.perf.network_fit import StepRow

REQUIRED = ("model", "gpus", "nodes", "racks", "step_s")
OPTIONAL = ("bytes", "compute_s")
WHAT = f"a CSV with the columns {','.join(REQUIRED)} and, where known, {','.join(OPTIONAL)}"
MOST_GPUS = 100_000


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    cells: dict[str, str]

    def text(self, column: str) -> str:
        found = self.cells.get(column, "")
        if not found:
            raise InputError(self.where, "the cell is empty", "a value", column)
        return found

    def whole(self, column: str) -> int:
        text = self.text(column)
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST_GPUS):
            raise InputError(self.where, f"found {text!r}", f"a whole number from 1 to {MOST_GPUS:,}", column)
        return int(text)

    def seconds(self, column: str) -> float:
        value = self._number(column)
        if not 0 < value <= 1e9:
            raise InputError(self.where, f"found {self.text(column)!r}", "seconds greater than 0", column)
        return value

    def optional(self, column: str) -> float | None:
        """A number of at least 0, or nothing where the cell is empty."""
        if not self.cells.get(column):
            return None
        value = self._number(column)
        if not 0 <= value <= 1e15:
            raise InputError(self.where, f"found {self.text(column)!r}", "a number of at least 0", column)
        return value

    def _number(self, column: str) -> float:
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(self.where, f"found {text[:40]!r}", "a number", column)
        return value


def read_steps(path: str | Path) -> list[StepRow]:
    """The rows of ``path`` (gzip'ed or not) in the order of the file; at least two."""
    rows = [_step(row) for row in _rows(str(path), read_text(path, WHAT))]
    if len(rows) < 2:
        raise InputError(str(path), f"{len(rows)} rows", f"at least two rows of {WHAT}")
    return rows


def _step(row: _Row) -> StepRow:
    gpus, nodes, racks = (row.whole(column) for column in ("gpus", "nodes", "racks"))
    if nodes > gpus:
        raise InputError(row.where, f"{nodes} nodes for {gpus} GPUs", "at most as many nodes as GPUs", "nodes")
    if racks > nodes:
        raise InputError(row.where, f"{racks} racks for {nodes} nodes", "at most as many racks as nodes", "racks")
    step_s, sent, compute_s = row.seconds("step_s"), row.optional("bytes"), row.optional("compute_s")
    return StepRow(row.text("model"), gpus, nodes, racks, step_s, sent, compute_s)


def _rows(path: str, text: str) -> Iterator[_Row]:
    header: list[str] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for raw in reader:
            where, cells = f"{path}:{reader.line_num}", [cell.strip() for cell in raw]
            if not cells or cells[0].startswith("#"):
                continue
            if not header:
                header = _header(where, cells)
            elif len(cells) != len(header):
                raise InputError(where, f"{len(cells)} cells", f"{len(header)}, as in the first line")
            else:
                yield _Row(where, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}", f"a line that cannot be split ({error})", "CSV") from None


def _header(where: str, cells: list[str]) -> list[str]:
    for name in cells:
        if name not in REQUIRED + OPTIONAL:
            raise unknown_name(where, "column", name, REQUIRED + OPTIONAL)
        if cells.count(name) > 1:
            raise InputError(where, "the column appears twice", "every column once", name)
    for name in REQUIRED:
        if name not in cells:
            raise InputError(where, "no such column", WHAT, name)
    return cells
