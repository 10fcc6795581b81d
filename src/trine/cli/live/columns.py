"""Tables: drawn by rich for a terminal, plain untruncated columns where the output goes elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from trine.cli.live.words import clean

if TYPE_CHECKING:
    from rich.table import Table

Rows = Sequence[Sequence[str]]


def print_columns(header: Sequence[str], rows: Rows, right: Iterable[str] = ()) -> None:
    """Columns named in ``right`` are aligned to the right; the last one takes what space is left."""
    if sys.stdout.isatty():
        console().print(drawn(header, rows, right))
    else:
        typer.echo("\n".join(plain(header, rows, right)))


def plain(header: Sequence[str], rows: Rows, right: Iterable[str] = ()) -> list[str]:
    """One line per row, columns two spaces apart."""
    cells = [list(header), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    to_right = [name in set(right) for name in header]
    lines = [
        [
            cell.rjust(width) if side else cell.ljust(width)
            for cell, width, side in zip(row, widths, to_right, strict=True)
        ]
        for row in cells
    ]
    return ["  ".join(line).rstrip() for line in lines]


def drawn(header: Sequence[str], rows: Rows, right: Iterable[str] = ()) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(header):
        last = i == len(header) - 1
        table.add_column(name, justify="right" if name in right else "left", no_wrap=not last, overflow="fold")
    for row in rows:
        table.add_row(*map(clean, row))
    return table


def console() -> Any:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line."""
    width = max(len(name) for name, _ in pairs)
    typer.echo("\n".join(f"{name:<{width}}  {clean(value)}" for name, value in pairs))
