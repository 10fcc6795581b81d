"""The tables of a world directory as rows: columns checked by name, plain or gzip'ed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trine.core.errors import InputError, nearest
from trine.inputs.csv_table import AS_ON_LINE, CsvTable, Row
from trine.inputs.text_file import read_text


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file with named columns; some columns begin with a prefix and end in a name (``speed_v100``)."""

    path: str
    suffixes: tuple[str, ...]
    """What follows the prefix in the columns that have it, in file order."""
    rows: tuple[Row, ...]


def read_table(folder: Path, name: str, required: Sequence[str], prefix: str) -> Table:
    """The table ``name`` or ``name.gz`` of ``folder``; a missing, unknown or repeated column is an error."""
    path, what = _existing(folder, name), f"a table with the columns {','.join(required)},{prefix}..."
    text = read_text(path, what)
    if not text.strip():
        raise InputError(str(path), "an empty file", what)
    table = CsvTable(str(path), text, ragged=AS_ON_LINE)
    _check_columns(table.where, table.names, required, prefix)
    suffixes = tuple(name.removeprefix(prefix) for name in table.names if name.startswith(prefix))
    return Table(str(path), suffixes, tuple(table))


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.exists():
            return path
    raise InputError(str(folder), f"no file {name} or {name}.gz", "a world: cluster.json, gpus.csv and jobs.csv")


def _check_columns(where: str, found: Sequence[str], required: Sequence[str], prefix: str) -> None:
    for column in required:
        if column not in found:
            raise InputError(
                where, f"no such column{nearest(column, found)}", f"the columns {','.join(required)}", column
            )
    for column in found:
        if found.count(column) > 1:
            raise InputError(where, "the column appears twice", "every column once", column)
        if column not in required and not column.startswith(prefix):
            hint = nearest(column, [*required, prefix])
            raise InputError(
                where, f"unknown column {column!r}{hint}", f"columns {','.join(required)} and {prefix}NAME"
            )
    if not any(column.startswith(prefix) for column in found):
        raise InputError(where, f"no column {prefix}NAME", f"at least one column {prefix}NAME")
