"""Step times: as jobs report them, in lines of their output or in the file that TRINE_PROGRESS names, and as a CSV by
placement, to fit the network model with.

A line counts if it is a JSON object or a text with a name such as ``step_time`` (seconds) or ``sps`` (steps per second)
and a number.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from trine.core.errors import InputError
from trine.inputs.csv_table import CELLS, CsvTable, Row
from trine.inputs.text_file import read_text
from trine.perf.network_fit import StepRow

PROGRESS_VARIABLE = "TRINE_PROGRESS"

_SECONDS = ("step_s", "step_time", "step_time_s", "sec_per_step")
_PER_SECOND = ("sps", "steps_per_s", "steps_per_sec")
_TEXT = re.compile(
    rf"\b(?P<name>{'|'.join((*_SECONDS, *_PER_SECOND))})\s*[=:]\s*(?P<value>[0-9.]+(?:e[+-]?[0-9]+)?)\s*(?P<ms>ms\b)?",
    re.IGNORECASE,
)
_MAX_LINE = 65_536

REQUIRED = ("model", "gpus", "nodes", "racks", "step_s")
OPTIONAL = ("bytes", "compute_s")
WHAT = f"a CSV with the columns {','.join(REQUIRED)} and, where known, {','.join(OPTIONAL)}"
MOST_GPUS = 100_000


def step_pattern(text: str) -> re.Pattern[str]:
    """A pattern of the user's own; its first group is the step time in seconds."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InputError("--step-pattern", f"{text!r} is no regular expression ({error})", "one with a group") from None
    if pattern.groups < 1:
        raise InputError("--step-pattern", f"{text!r} has no group", "a group (...) around the seconds of a step")
    return pattern


class StepTimes:
    """Collects step times from text that arrives in pieces."""

    def __init__(self, pattern: re.Pattern[str] | None = None) -> None:
        self._pattern = pattern
        self._rest = b""
        self.seconds: list[float] = []

    def feed(self, data: bytes) -> None:
        *lines, rest = re.split(rb"[\r\n]", self._rest + data)
        # Output without line ends must not fill the memory.
        self._rest = rest[-_MAX_LINE:]
        for line in lines:
            self._line(line)

    def close(self) -> None:
        self._line(self._rest)
        self._rest = b""

    def _line(self, line: bytes) -> None:
        value = step_seconds(line.decode("utf-8", "replace"), self._pattern)
        if value is not None:
            self.seconds.append(value)


class ProgressFile:
    """Reads what is added to a file; what it held before is of another run. The file may appear later, or never."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.is_file() else 0

    def new(self) -> bytes:
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._at)
                data = stream.read()
        except OSError:
            return b""
        self._at += len(data)
        return data


def step_seconds(line: str, pattern: re.Pattern[str] | None = None) -> float | None:
    """The seconds of a step that ``line`` reports, if any."""
    if pattern is not None:
        match = pattern.search(line)
        return _positive(match[1]) if match else None
    if line.lstrip().startswith("{"):
        return _from_json(line)
    match = _TEXT.search(line)
    if match is None:
        return None
    value = _as_seconds(match["name"].lower(), match["value"])
    return value / 1000 if value is not None and match["ms"] else value


def _from_json(line: str) -> float | None:
    try:
        values = json.loads(line)
    except ValueError:
        return None
    names = [name for name in (*_SECONDS, *_PER_SECOND) if name in values]
    return _as_seconds(names[0], values[names[0]]) if names else None


def _as_seconds(name: str, value: Any) -> float | None:
    number = _positive(value)
    return 1 / number if number is not None and name in _PER_SECOND else number


def _positive(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None


# -- step times by placement as CSV: one row per model, gang and spread ----------------------------------------------


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
