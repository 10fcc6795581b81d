"""One row of a trace file: typed access to its cells, with file, line and column in every complaint."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trine.core.errors import InputError

EPOCH = datetime(1970, 1, 1)


class Row:
    """Cells by column name. Numbers are finite and not negative unless asked for otherwise."""

    __slots__ = ("cells", "columns", "line", "number_in_file", "source")

    def __init__(
        self, source: str, line: int, number_in_file: int, columns: Mapping[str, int], cells: Sequence[str]
    ) -> None:
        self.source, self.line, self.columns, self.cells = source, line, columns, cells
        self.number_in_file = number_in_file
        """Data rows above this one: the id of jobs in files without ids."""

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

    def number(self, column: str, minimum: float = 0.0) -> float:
        """A finite number of at least ``minimum``."""
        value = self._float(column)
        if not minimum <= value < math.inf:
            raise self._out_of_range(column, value, minimum)
        return value

    def number_or_none(self, column: str, minimum: float = 0.0) -> float | None:
        """As ``number``; ``None`` for an empty cell or a missing column."""
        return self.number(column, minimum) if self.given(column) else None

    def whole_or_none(self, column: str) -> int | None:
        value = self.number_or_none(column)
        if value is not None and value != int(value):
            raise InputError(self.where, f"found {self.text(column)!r}", "a whole number", column)
        return None if value is None else int(value)

    def limit_or_none(self, column: str, mark: float = math.inf) -> float | None:
        """A deadline: an empty cell and ``inf`` mean none, in some formats also a ``mark`` such as -1."""
        if not self.given(column):
            return None
        value = self._float(column)
        if value in (math.inf, mark):
            return None
        return self.number(column)

    def timestamp(self, column: str) -> float:
        """Seconds since 1970 of an ISO date and time; without a zone it is taken as it stands."""
        text = self.text(column)
        if not text:
            raise self._missing(column)
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                moment = moment.astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            expected = "a date and time such as 2017-10-09 07:01:55"
            raise InputError(self.where, f"found {text!r}", expected, column) from None
        return (moment - EPOCH).total_seconds()

    def flag(self, column: str, default: bool) -> bool:
        """``true``/``false`` or 1/0."""
        text = self.text(column).lower()
        if not text:
            return default
        if text in ("true", "1"):
            return True
        if text in ("false", "0"):
            return False
        raise InputError(self.where, f"found {self.text(column)!r}", "true or false", column)

    def _float(self, column: str) -> float:
        text = self.cells[self.columns[column]]
        try:
            # Python reads 1_000 as a number; a trace with an underscore in a number is damaged.
            return float(text if "_" not in text else "damaged")
        except ValueError:
            pass
        if not text.strip():
            raise self._missing(column)
        raise InputError(self.where, f"found {text.strip()!r}", "a number", column)

    def _missing(self, column: str) -> InputError:
        return InputError(self.where, "the cell is empty", "a value", column)

    def _out_of_range(self, column: str, value: float, minimum: float) -> InputError:
        expected = f"a number of at least {minimum:g}" if math.isfinite(value) else "a finite number"
        return InputError(self.where, f"found {self.text(column)!r}", expected, column)
