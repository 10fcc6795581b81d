"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, comments that begin with ``;``.

Processors are taken as GPUs. -1 means unknown. Header comments give the date of second 0 and the names of queues.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping

from trine.core.errors import InputError
from trine.inputs.csv_table import Row, is_number
from trine.trace.format import NEVER_STARTED, Draft, Format, Likeness
from trine.trace.source import FirstLine

FIELDS = (
    *("job", "submit", "wait", "run", "processors", "cpu_time", "memory", "requested_processors", "requested_time"),
    *("requested_memory", "status", "user", "group", "executable", "queue", "partition", "preceding_job", "think_time"),
)
_COLUMNS = {name: position for position, name in enumerate(FIELDS)}
_HEADER = re.compile(r"^[ \t]*;[ \t]*(\w+)[ \t]*:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
PARTIAL, PARTS = "partial-execution", ("2", "3", "4")
UNKNOWN_RUN = "unknown-run-time"
CANCELLED = "5"


class SwfRow(Row):
    """A line of an SWF file, with the names that its header gives to queues."""

    __slots__ = ("queues",)

    def __init__(self, source: str, line: int, number: int, cells: list[str], queues: Mapping[str, str]) -> None:
        super().__init__(source, line, number, _COLUMNS, cells)
        self.queues = queues

    def known(self, field: str) -> float | None:
        """The number of a field; ``None`` for -1."""
        value = self.number(field, minimum=-1.0, expected="a number, or -1 for unknown")
        return None if value == -1.0 else value


class Swf(Format):
    name = "swf"
    title = "Standard Workload Format"
    source = "Parallel Workloads Archive, cs.huji.ac.il/labs/parallel/workload/swf.html (version 2.2)"
    units = (
        "seconds; GPUs are the processors allocated, or those requested where they are unknown (-1); the queue, by its "
        "name in the header if it has one, is the group; `UnixStartTime` of the header dates second 0"
    )
    aliases = ("parallel-workloads-archive",)
    layouts = ()
    has_header = False
    examples = (
        "; Version: 2.2\n; UnixStartTime: 1000000000\n; Queue: 1 batch (24 h)\n;\n"
        "  1 0 10 100 4 -1 -1 4 3600 -1 1 5 2 -1 1 -1 -1 -1\n"
        "2 50.5 20 200 -1 -1 -1 8 7200 -1 0 6 2 -1 2 -1 -1 -1\n"
        "3 100 -1 -1 -1 -1 -1 2 60 -1 5 7 2 -1 1 -1 -1 -1\n"
        "4 120 0 60 2 -1 -1 2 60 -1 1 7 2 -1 1 -1 -1 -1\n"
        "4 120 0 20 2 -1 -1 2 60 -1 2 7 2 -1 1 -1 -1 -1\n",
    )
    rules = {
        PARTIAL: "part of a job that a line of its own counts whole",
        UNKNOWN_RUN: "run time or processors unknown (-1)",
    }

    def detects(self, sample: FirstLine) -> bool:
        cells = _first_job(sample.whole)
        return len(cells) == len(FIELDS) and all(map(is_number, cells))

    def columns(self, sample: FirstLine) -> dict[str, int]:
        cells = _first_job(sample.whole)
        if len(cells) != len(FIELDS) or not all(map(is_number, cells)):
            found = f"{len(cells)} fields" if len(cells) != len(FIELDS) else "fields that are no numbers"
            expected = "18 numbers separated by blanks (format 'swf')"
            raise InputError(sample.where, f"a first job line of {found}", expected)
        return dict(_COLUMNS)

    def likeness(self, sample: FirstLine) -> Likeness:
        cells = _first_job(sample.whole)
        numbers = sum(map(is_number, cells))
        if numbers < 2 or numbers < len(cells):
            return Likeness(0.0, "")
        share = min(len(cells), len(FIELDS)) / max(len(cells), len(FIELDS))
        return Likeness(share, f"18 numbers a line, not {len(cells)} (closest format: {self.name})")

    def rows(self, sample: FirstLine) -> Iterator[Row]:
        self.columns(sample)
        queues = _queues(sample.whole)
        jobs = ((line, cells) for line, cells in _lines(sample.whole) if cells)
        for number, (line, cells) in enumerate(jobs):
            if len(cells) != len(FIELDS):
                raise InputError(f"{sample.source}:{line}", f"{len(cells)} fields", f"{len(FIELDS)}")
            yield SwfRow(sample.source, line, number, cells, queues)

    def draft(self, row: Row) -> Draft:
        assert isinstance(row, SwfRow)
        allocated, run_s = row.known("processors"), row.known("run")
        processors = row.known("requested_processors") if allocated is None else allocated
        queue = row.text("queue")
        return Draft(
            id=row.text("job"),
            submit_s=row.number("submit"),
            gpus=1.0 if processors is None else processors,
            duration_s=run_s,
            user="" if row.known("user") is None else row.text("user"),
            group="" if row.known("queue") is None else row.queues.get(queue, queue),
            skip=_why_no_job(row, processors, run_s),
        )

    def unix_start_s(self, sample: FirstLine) -> float | None:
        text = next((value for key, value in _HEADER.findall(sample.whole) if key == "UnixStartTime"), "")
        # 0 is what converters write when they do not know.
        return float(text) if is_number(text) and float(text) > 0 else None


def _why_no_job(row: SwfRow, processors: float | None, run_s: float | None) -> str:
    if row.text("status") in PARTS:
        return PARTIAL
    if row.text("status") == CANCELLED and not run_s:
        return NEVER_STARTED
    return UNKNOWN_RUN if processors is None or run_s is None else ""


def _queues(text: str) -> dict[str, str]:
    """Names of queues by number: ``; Queue: 1 batch (details)``."""
    words = [value.split() for key, value in _HEADER.findall(text) if key == "Queue"]
    return {parts[0]: parts[1] for parts in words if len(parts) > 1}


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of every line; a comment has none."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        yield number, [] if line.lstrip().startswith(";") else line.split()


def _first_job(text: str) -> list[str]:
    return next((cells for _, cells in _lines(text) if cells), [])
