"""The interface of a trace format: one subclass per file in ``trine.trace.formats``, which turns rows into drafts."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from trine.core.errors import InputError, nearest
from trine.inputs.csv_table import Row, table_lines, table_rows
from trine.trace.source import FirstLine

NEVER_STARTED, STILL_RUNNING, END_FIRST = "never-started", "still-running", "end-before-start"
"""Why a row of a log is no job: it holds no run time. Published logs cannot be corrected, so none is an error."""


@dataclass(slots=True)
class Draft:
    """A job as a format read it, before the rules of the schema: what the file says, in seconds and GPUs.

    Numbers are finite and not negative already (``Row`` sees to that); the rest is up to ``trine.trace.rules``.

    Work is any of: ``steps`` and ``step_s``; ``steps`` and ``duration_s``; ``duration_s`` alone (steps of one second);
    ``steps`` alone (only a throughput table can tell the time); nothing (the caller's ``duration_s`` is used).
    """

    id: str
    submit_s: float | None
    """``None``: the file has no arrivals, one is drawn."""
    gpus: float
    """May be zero or a fraction."""
    steps: float | None = None
    step_s: float | None = None
    duration_s: float | None = None
    model: str = ""
    user: str = ""
    group: str = ""
    app_class: str = ""
    batch_size: int | None = None
    priority: float = 0.0
    weight: float = 1.0
    deadline_s: float | None = None
    gpu_types: tuple[str, ...] = ()
    restore_s: float | None = None
    migration_s: float | None = None
    checkpoint_every_s: float | None = None
    tracked: bool = True
    after: tuple[str, ...] = ()
    """Ids of jobs that have to end first."""
    array: str = ""
    """As in ``Job``."""
    line: int = 0
    skip: str = ""
    """Reason why this row is no job, if the format knows one."""
    changes: tuple[str, ...] = ()
    """Rules the format itself applied to the row."""


class Observed(NamedTuple):
    """What a log says of a job's run: the reason why it is no job, or its seconds."""

    skip: str = ""
    duration_s: float | None = None


def observed(start_s: float | None, end_s: float | None) -> Observed:
    """The run between two times of a log, either of which may be missing."""
    if start_s is None:
        return Observed(NEVER_STARTED)
    if end_s is None:
        return Observed(STILL_RUNNING)
    return Observed(duration_s=end_s - start_s) if end_s >= start_s else Observed(END_FIRST)


class Likeness(NamedTuple):
    """How much a file resembles a format, and what would make it one."""

    share: float
    """Of the columns (or keys) of file and format together, those that both have."""
    change: str


class Layout(NamedTuple):
    """Columns that must be there, and columns that may be."""

    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()


class Format(ABC):
    """How one public layout maps onto jobs. Subclasses state the facts and write ``draft``."""

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    """Public repository the layout comes from."""
    units: ClassVar[str]
    """What the time columns count, and what the reader makes of the rest; printed in the reference."""
    layouts: ClassVar[tuple[Layout, ...]]
    examples: ClassVar[tuple[str, ...]]
    """A small valid file per layout: documentation, and what the contract tests read and damage."""
    aliases: ClassVar[tuple[str, ...]] = ()
    tab_separated: ClassVar[bool] = False
    """Tab-separated files have no header; their layouts differ in the number of columns."""
    has_header: ClassVar[bool] = True
    """The first line names the columns; false for files without a header and for JSON."""
    identity: ClassVar[Literal["id", "row", "none"]] = "id"
    """What makes two rows the same job: the first column, the whole row, or nothing (every row is a job)."""
    absolute_clock: ClassVar[bool] = False
    rules: ClassVar[dict[str, str]] = {}
    """Sentences for the codes that this format alone uses: ``{"censored": "were still running ..."}``."""
    companions: ClassVar[tuple[str, ...]] = ()
    """Names of files that are read, too, where they lie beside the trace."""

    @abstractmethod
    def draft(self, row: Row) -> Draft:
        """What one row says about a job, in seconds and GPUs; the schema's rules come after."""

    def drafts(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Draft]]:
        """Every row with what it says; formats in which several rows make a job put them together here."""
        return ((row, self.draft(row)) for row in rows)

    def rows(self, sample: FirstLine) -> Iterator[Row]:
        """The rows of the file; ``columns`` has been asked already, so its errors come first."""
        lines = table_lines(sample.source, sample.whole, delimiter="\t" if self.tab_separated else ",")
        if self.has_header:
            next(lines)
        return table_rows(sample.source, lines, self.columns(sample), len(self.fields(sample)), sample.line)

    def has_dates(self) -> bool:
        """Whether submissions are dates, which are counted from the earliest; asked when all rows have been read."""
        return self.absolute_clock

    def unix_start_s(self, sample: FirstLine) -> float | None:  # noqa: ARG002 - most files do not say
        """Unix time of second 0 where the file's clock counts from a date that the file states."""
        return None

    def notes(self, sample: FirstLine) -> tuple[str, ...]:  # noqa: ARG002 - most files speak for themselves
        """Sentences about how this file was read, beside the counts."""
        return ()

    def gap_s(self, rng: random.Random, jobs_per_h: float) -> float:
        """Seconds to the next arrival where the file has none: Poisson."""
        return -math.log(1.0 - rng.random()) * 3600.0 / jobs_per_h

    def fields(self, sample: FirstLine) -> tuple[str, ...]:
        return sample.tab_fields if self.tab_separated else sample.fields

    def detects(self, sample: FirstLine) -> bool:
        """The first line is exactly one of the layouts (columns in any order)."""
        found = self.fields(sample)
        if self.tab_separated:
            return any(len(found) == len(layout.columns) for layout in self.layouts)
        return any(
            set(layout.columns) <= set(found) <= set(layout.columns + layout.optional) for layout in self.layouts
        )

    def columns(self, sample: FirstLine) -> dict[str, int]:
        """Position by column name; a column that is missing is an error with the nearest name found."""
        found = self.fields(sample)
        if self.tab_separated:
            return self._by_count(sample, found)
        layout = self._nearest(set(found))
        for column in layout.columns:
            if column not in found:
                raise InputError(sample.where, f"no such column{nearest(column, found)}", self._wanted(), column)
        for column in layout.columns + layout.optional:
            if found.count(column) > 1:
                raise InputError(sample.where, "the column appears twice", "every column once", column)
        wanted = layout.columns + layout.optional
        return {column: position for position, column in enumerate(found) if column in wanted}

    def likeness(self, sample: FirstLine) -> Likeness:
        """How close the first line is to the nearest layout."""
        if not self.has_header:
            return Likeness(0.0, "")
        found = set(sample.fields)
        layout = max(self.layouts, key=lambda each: _shared(found, each))
        missing = [column for column in layout.columns if column not in found]
        if missing:
            return Likeness(_shared(found, layout), f"also {','.join(missing)} (closest format: {self.name})")
        extra = ",".join(c for c in sample.fields if c not in layout.columns + layout.optional)
        change = f"no {extra} (closest format: {self.name}; --format {self.name} ignores other columns)"
        return Likeness(_shared(found, layout), change)

    def _nearest(self, found: set[str]) -> Layout:
        """The layout that lacks fewest columns and leaves fewest columns of the other layouts unread."""
        named = found & {c for layout in self.layouts for c in layout.columns + layout.optional}
        return min(
            self.layouts,
            key=lambda layout: len(set(layout.columns) - found) + len(named - set(layout.columns + layout.optional)),
        )

    def _by_count(self, sample: FirstLine, found: tuple[str, ...]) -> dict[str, int]:
        for layout in self.layouts:
            if len(layout.columns) == len(found):
                return {column: position for position, column in enumerate(layout.columns)}
        raise InputError(sample.where, f"{len(found)} tab-separated columns", self._wanted())

    def _wanted(self) -> str:
        if self.tab_separated:
            counts = " or ".join(str(len(layout.columns)) for layout in self.layouts)
            return f"{counts} columns (format {self.name!r})"
        layouts = " or ".join(",".join(layout.columns) for layout in self.layouts)
        return f"the columns {layouts} (format {self.name!r})"


def _shared(found: set[str], layout: Layout) -> float:
    return len(found.intersection(layout.columns + layout.optional)) / len(found.union(layout.columns))
