"""A table of no known format, read by ``--columns``: which column holds what, and in which unit.

``submit=when,duration=run_min:min,gpus=n`` names the columns; the rules of the schema are those of every other trace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from trine.core.errors import InputError, nearest, unknown_name
from trine.inputs.csv_table import ABSENT, Row, is_number, table_lines, table_rows
from trine.trace.format import Draft, Format, Observed, observed
from trine.trace.source import FirstLine

OPTION = "--columns"
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
COUNT_UNITS = {"percent": 0.01, "milli": 0.001}
DATE = "date"
MOMENTS, TEXTS = ("submit", "start", "end"), ("id", "user", "group", "model")
FIELDS = (*MOMENTS, "duration", "gpus", *TEXTS)
DELIMITERS = (",", "\t", ";")


class Column(NamedTuple):
    """A column of the file and the unit of its numbers; no unit: seconds, or for a moment a date."""

    name: str
    unit: str = ""


def _units_of(field: str) -> tuple[str, ...]:
    if field in MOMENTS:
        return (*TIME_UNITS, DATE)
    return tuple(TIME_UNITS) if field == "duration" else tuple(COUNT_UNITS) if field == "gpus" else ()


def parse_columns(pairs: Sequence[str]) -> dict[str, str]:
    """``COLUMN`` or ``COLUMN:UNIT`` by field."""
    chosen: dict[str, str] = {}
    for pair in pairs:
        field, sign, column = (part.strip() for part in pair.partition("="))
        if not sign or not column:
            raise InputError(OPTION, f"{pair!r}", "FIELD=COLUMN or FIELD=COLUMN:UNIT, separated by commas")
        if field not in FIELDS:
            raise unknown_name(OPTION, "field", field, FIELDS)
        if field in chosen:
            raise InputError(OPTION, f"{field} twice", "every field once")
        chosen[field] = column
    _check_complete(chosen)
    return chosen


def _check_complete(chosen: Collection[str]) -> None:
    for field in ("submit", "gpus"):
        if field not in chosen:
            raise InputError(OPTION, f"no {field}", f"{field}=COLUMN among the fields")
    given = [field for field in ("duration", "start", "end") if field in chosen]
    if given not in (["duration"], ["start", "end"]):
        expected = "either duration=COLUMN, or start=COLUMN and end=COLUMN"
        raise InputError(OPTION, " and ".join(given) or "no run time", expected)


class MappedTable(Format):
    """The table that the caller described. It is not in the list of formats: nothing recognises it."""

    name = "columns"
    title = "table read by --columns"
    source = "the caller"
    units = "as --columns says; seconds without a unit"
    layouts = ()
    examples = ()

    def __init__(self, pairs: Sequence[str]) -> None:
        self._given = parse_columns(pairs)
        self._columns: dict[str, Column] = {}
        """By field, units told from names: only the header says whether a colon belongs to the name."""
        self._dated = False

    def draft(self, row: Row) -> Draft:
        run, submit_s = self._run(row), self._moment_s(row, "submit")
        gpus, name = self._columns["gpus"], self._columns["submit"].name
        return Draft(
            id=self._text(row, "id") if "id" in self._columns else str(row.number_in_file),
            submit_s=row.number(name) if submit_s is None else submit_s,
            gpus=row.number(gpus.name) * COUNT_UNITS.get(gpus.unit, 1.0),
            duration_s=run.duration_s,
            user=self._text(row, "user"),
            group=self._text(row, "group"),
            model=self._text(row, "model"),
            skip=run.skip,
        )

    def _text(self, row: Row, field: str) -> str:
        return row.text(self._columns[field].name) if field in self._columns else ""

    def _run(self, row: Row) -> Observed:
        if "duration" in self._columns:
            name, unit = self._columns["duration"]
            return Observed(duration_s=row.number(name) * TIME_UNITS[unit or "s"])
        return observed(self._moment_s(row, "start"), self._moment_s(row, "end"))

    def _moment_s(self, row: Row, field: str) -> float | None:
        """Seconds; a cell without a unit that is no number is read as a date."""
        name, unit = self._columns[field]
        text = row.text(name)
        if text in ABSENT:
            return None
        if unit == DATE or (not unit and not is_number(text)):
            self._dated |= field == "submit"
            return row.timestamp(name)
        return row.number(name) * TIME_UNITS[unit or "s"]

    def has_dates(self) -> bool:
        return self._dated

    def columns(self, sample: FirstLine) -> dict[str, int]:
        """Position by column; one that the file does not have is an error with the nearest name."""
        header = _header(sample)
        self._columns = {field: _with_unit(field, text, header) for field, text in self._given.items()}
        for name, _ in self._columns.values():
            if name not in header:
                found = f"no column {name!r}{nearest(name, header)}"
                raise InputError(sample.where, found, f"columns among {', '.join(header)}")
            if header.count(name) > 1:
                raise InputError(sample.where, "the column appears twice", "every column once", name)
        return {name: header.index(name) for name, _ in self._columns.values()}

    def rows(self, sample: FirstLine) -> Iterator[Row]:
        columns, header = self.columns(sample), _header(sample)
        lines = table_lines(sample.source, sample.whole, delimiter=_delimiter(sample))
        next(lines)
        return table_rows(sample.source, lines, columns, len(header), sample.line)


def _with_unit(field: str, text: str, header: Sequence[str]) -> Column:
    """The column and its unit; a name with a colon that the file has as it stands is a name."""
    name, colon, unit = text.rpartition(":")
    if not colon or text in header:
        return Column(text)
    if unit not in _units_of(field):
        units = ", ".join(_units_of(field))
        expected = f"a column of the file, or one of the units {units}" if units else "a column, without a unit"
        raise InputError(OPTION, f"{text!r}", expected, field)
    return Column(name, unit)


def _delimiter(sample: FirstLine) -> str:
    return max(DELIMITERS, key=sample.text.count)


def _header(sample: FirstLine) -> list[str]:
    cells = next(table_lines(sample.source, sample.text, delimiter=_delimiter(sample)), (0, []))[1]
    return [cell.strip() for cell in cells]
