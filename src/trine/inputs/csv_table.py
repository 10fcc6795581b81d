"""The one reader of CSV tables: columns by name, cells by type; every error names file, line and column.

A reader of a certain file opens a ``CsvTable``, says which columns it knows, and takes typed cells from each ``Row``.
Quotes must be well formed, blank lines are passed over, numbers are finite.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from trine.core.errors import InputError, unknown_name

EPOCH = datetime(1970, 1, 1)
_MOST_DIGITS = 9
"""Of a whole number: what has more is no count of anything here, and ``int`` takes quadratic time for it."""


ABSENT = ("", "None", "NaT", "nan", "Unknown")
"""What logs write where there is no time."""


def naive_s(moment: datetime) -> float:
    """Seconds since 1970; a moment without a zone is taken as it stands."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - EPOCH).total_seconds()


def is_number(text: str) -> bool:
    """Whether ``text`` reads as a number, finite or not."""
    try:
        float(text)
    except ValueError:
        return False
    return True


class Ragged(NamedTuple):
    """What is said of a line with more or fewer cells than the first; formatted with count, width and line."""

    found: str = "{count} columns"
    expected: str = "{width} columns, as in the header"


CELLS = Ragged("{count} cells", "{width}, as in the first line")
"""For tables whose first line may stand below comments."""
AS_ON_LINE = Ragged(expected="{width}, as on line {line}")


class Row:
    """One line of a table. Numbers are not negative unless asked for otherwise."""

    __slots__ = ("cells", "columns", "line", "number_in_file", "source")

    def __init__(
        self, source: str, line: int, number_in_file: int, columns: Mapping[str, int], cells: Sequence[str]
    ) -> None:
        self.source, self.line, self.columns, self.cells = source, line, columns, cells
        self.number_in_file = number_in_file
        """Rows above this one: the id of jobs in traces without ids."""

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"

    def has(self, column: str) -> bool:
        return column in self.columns

    def given(self, column: str) -> bool:
        """The column exists and the cell is not empty."""
        return column in self.columns and bool(self.cells[self.columns[column]].strip())

    def text(self, column: str) -> str:
        """Without surrounding blanks; empty if the column is missing."""
        return self.cells[self.columns[column]].strip() if column in self.columns else ""

    def filled(self, column: str, expected: str = "a value", found: str = "the cell is empty") -> str:
        """A text that must be there."""
        text = self.text(column)
        if not text:
            raise InputError(self.where, found, expected, column)
        return text

    def number(
        self,
        column: str,
        minimum: float = 0.0,
        *,
        above: float = -math.inf,
        maximum: float = math.inf,
        expected: str = "",
    ) -> float:
        """A finite number in [``minimum``, ``maximum``] and greater than ``above``; ``expected`` says so in errors."""
        value = self._float(column, expected)
        # Written so that NaN, which compares false with everything, is refused too.
        if not (minimum <= value <= maximum and above < value < math.inf):
            shown = expected or (f"a number of at least {minimum:g}" if math.isfinite(value) else "a finite number")
            raise self.wrong(column, shown)
        return value

    def number_or_none(
        self, column: str, minimum: float = 0.0, *, maximum: float = math.inf, expected: str = ""
    ) -> float | None:
        """As ``number``; ``None`` for an empty cell or a missing column."""
        return self.number(column, minimum, maximum=maximum, expected=expected) if self.given(column) else None

    def integer(self, column: str, minimum: int = 0, maximum: int | None = None, expected: str = "") -> int:
        """Digits and nothing else."""
        text = self.text(column)
        if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS or not _within(text, minimum, maximum):
            bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum:,}"
            raise self.wrong(column, expected or f"a whole number {bounds}")
        return int(text)

    def whole_or_none(self, column: str) -> int | None:
        """A whole number that may be written as ``4.0``; ``None`` for an empty cell or a missing column."""
        value = self.number_or_none(column)
        if value is not None and value != int(value):
            raise self.wrong(column, "a whole number")
        return None if value is None else int(value)

    def limit_or_none(self, column: str, mark: float = math.inf) -> float | None:
        """A deadline: an empty cell and ``inf`` mean none, in some formats also a ``mark`` such as -1."""
        if not self.given(column) or self._float(column, "") in (math.inf, mark):
            return None
        return self.number(column)

    def timestamp(self, column: str) -> float:
        """Seconds since 1970 of an ISO date and time; without a zone it is taken as it stands."""
        text = self.filled(column)
        try:
            return naive_s(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            raise self.wrong(column, "a date and time such as 2017-10-09 07:01:55") from None

    def timestamp_or_none(self, column: str) -> float | None:
        """As ``timestamp``; ``None`` for an empty cell, a missing column and the marks that logs put there."""
        return None if self.text(column) in ABSENT else self.timestamp(column)

    def flag(self, column: str, default: bool) -> bool:
        """``true``/``false`` or 1/0."""
        text = self.text(column).lower()
        if not text:
            return default
        if text in ("true", "1"):
            return True
        if text in ("false", "0"):
            return False
        raise self.wrong(column, "true or false")

    def wrong(self, column: str, expected: str) -> InputError:
        """An error that shows the cell."""
        return InputError(self.where, f"found {self.text(column)!r}", expected, column)

    def _float(self, column: str, expected: str) -> float:
        text = self.cells[self.columns[column]]
        try:
            # Python reads 1_000 as a number; a table with an underscore in a number is damaged.
            return float(text if "_" not in text else "damaged")
        except ValueError:
            pass
        if not text.strip() and not expected:
            raise InputError(self.where, "the cell is empty", "a value", column)
        raise self.wrong(column, expected or "a number")


class CsvTable:
    """A table whose first line names its columns. Iterating yields its rows; errors come in the order of the file."""

    def __init__(self, source: str, text: str, *, comments: bool = False, ragged: Ragged = Ragged()) -> None:  # noqa: B008
        """``source`` is the name of the file in errors; with ``comments``, lines that begin with ``#`` are skipped."""
        self.source, self._ragged = source, ragged
        self._lines = table_lines(source, text, comments=comments)
        self.line, header = next(self._lines, (1, []))
        self.names = [cell.strip() for cell in header]
        """The columns in the order of the file, as the file writes them; none if the file is empty."""

    @property
    def where(self) -> str:
        """``file:line`` of the first line."""
        return f"{self.source}:{self.line}"

    def check_columns(self, required: Sequence[str], optional: Sequence[str], what: str) -> None:
        """All of ``required`` and, beside them, only ``optional``; ``what`` describes the table in errors."""
        known = (*required, *optional)
        for name in self.names:
            if name not in known:
                raise unknown_name(self.where, "column", name, known)
            if self.names.count(name) > 1:
                raise InputError(self.where, "the column appears twice", "every column once", name)
        for name in required:
            if name not in self.names:
                raise InputError(self.where, "no such column", what, name)

    def __iter__(self) -> Iterator[Row]:
        # Of columns with the same name, which some published files have, the first counts.
        columns = {name: index for index, name in reversed([*enumerate(self.names)])}
        return table_rows(self.source, self._lines, columns, len(self.names), self.line, self._ragged)


def table_rows(
    source: str,
    lines: Iterator[tuple[int, list[str]]],
    columns: Mapping[str, int],
    width: int,
    first_line: int,
    ragged: Ragged = AS_ON_LINE,
) -> Iterator[Row]:
    """``lines`` as rows of ``width`` cells, of which ``columns`` are named."""
    for number, (line, cells) in enumerate(lines):
        if len(cells) != width:
            found = ragged.found.format(count=len(cells))
            raise InputError(f"{source}:{line}", found, ragged.expected.format(width=width, line=first_line))
        yield Row(source, line, number, columns, cells)


def table_lines(
    source: str, text: str, *, delimiter: str = ",", comments: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of every line that is not blank. A quoted cell may go over several lines; the first counts."""
    # Tab-separated traces carry shell commands: a quote in them is a character, not syntax.
    quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    line = 1
    try:
        for cells in reader:
            if not _is_blank(cells) and not (comments and cells[0].startswith("#")):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{source}:{line}", f"a line that cannot be split ({error})", "well-formed CSV") from None


def _is_blank(cells: Sequence[str]) -> bool:
    return not cells or (not cells[0].strip() and not "".join(cells).strip())


def _within(text: str, minimum: int, maximum: int | None) -> bool:
    return int(text) >= minimum and (maximum is None or int(text) <= maximum)
