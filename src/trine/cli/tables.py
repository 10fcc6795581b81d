"""The tables of all commands: fitted to a terminal's width, plain columns that are never cut where it is none."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from trine.cli.live.job_text import NOTHING, clean

if TYPE_CHECKING:
    from rich.table import Table

    from trine.core.result import Metric, RunResult, Summary

Rows = Sequence[Sequence[str]]
_GAP = 2
_DRAWN_GAP, _DRAWN_EDGE = 3, 1
"""Of tables that rich draws: spaces between two columns, and at either end of a line."""
_ELLIPSIS = "…"


@dataclass(frozen=True)
class Fit:
    """What a table gives up on a narrow terminal, each in the order in which it does. Columns go by their names."""

    rest: str
    """Takes the room that is left."""
    rest_width: int
    """What the rest should have; the others are cut and left out for so much."""
    least: dict[str, int]
    """Columns that may be cut, down to this width."""
    extras: Sequence[str]
    """Left out if the table is too wide otherwise."""
    last_resort: Sequence[str]
    """Left out if the others, cut as far as they may be, are still too wide."""


def print_columns(header: Sequence[str], rows: Rows, right: Iterable[str] = (), fit: Fit | None = None) -> None:
    """Columns named in ``right`` are aligned to the right; the last one takes what space is left."""
    if not sys.stdout.isatty():
        typer.echo("\n".join(plain(header, rows, right)))
    elif fit is not None:
        typer.echo("\n".join(fitted(header, rows, right, fit, terminal_width())))
    else:
        console().print(drawn(header, rows, right))


_UNBOUNDED = 10_000


def print_table(rows: Rows, numbers_from: int = 2) -> None:
    """A table of figures. The first row is the header; columns from ``numbers_from`` on are aligned to the right.

    Figures are never cut: on a narrow terminal the columns go on in a further table below.
    """
    output = console()
    room = output.width if output.is_terminal else _UNBOUNDED
    output.width = max(output.width, room)
    for block in blocks(rows, numbers_from, room):
        output.print(_drawn(block[0], block[1:], lambda i: {"justify": "right" if i >= numbers_from else "left"}))


def blocks(rows: Rows, numbers_from: int, room: int) -> list[Rows]:
    """The table in parts that are at most ``room`` wide, each with the columns before ``numbers_from``."""
    widths = [max(width(row[i]) for row in rows) + _DRAWN_GAP for i in range(len(rows[0]))]
    room += _DRAWN_GAP - 2 * _DRAWN_EDGE  # no gap behind the last column, but an edge on both sides
    parts: list[list[int]] = [[]]
    for i in range(numbers_from, len(rows[0])):
        if parts[-1] and sum(widths[:numbers_from]) + sum(widths[k] for k in parts[-1]) + widths[i] > room:
            parts.append([])
        parts[-1].append(i)
    return [[[*row[:numbers_from], *(row[i] for i in part)] for row in rows] for part in parts]


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


def plain(header: Sequence[str], rows: Rows, right: Iterable[str] = ()) -> list[str]:
    """One line per row, columns two spaces apart."""
    cells = [list(header), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(header))]
    to_right = [name in set(right) for name in header]
    return [_line(row, widths, to_right) for row in cells]


def fitted(header: Sequence[str], rows: Rows, right: Iterable[str], fit: Fit, room: int) -> list[str]:
    """As ``plain``, but no line is wider than ``room``: cells are cut with an ellipsis and columns left out."""
    cells = [list(header), *([clean(cell) for cell in row] for row in rows)]
    natural = {name: max(width(row[i]) for row in cells) for i, name in enumerate(header)}
    for i, name in enumerate(header):
        # A column that says nothing of any job goes before a word of another is cut.
        if _total(natural) > room and name != fit.rest and rows and all(row[i] == NOTHING for row in rows):
            del natural[name]
    widths = _widths(natural, fit, room)
    places = [i for i, name in enumerate(header) if name in widths]
    to_right = [header[i] in set(right) for i in places]
    return [
        _line([cut(row[i], widths[header[i]]) for i in places], [widths[header[i]] for i in places], to_right)
        for row in cells
    ]


def _widths(natural: dict[str, int], fit: Fit, room: int) -> dict[str, int]:
    """Width of each column that is shown."""
    wanted = dict(natural)
    wanted[fit.rest] = min(natural[fit.rest], fit.rest_width)
    least = {name: min(width, fit.least.get(name, width)) for name, width in wanted.items()}
    shortest = {**least, fit.rest: wanted[fit.rest]}
    for name in fit.extras:
        if name in wanted and _total(shortest) > room:
            del shortest[name], wanted[name], least[name]
    for name in fit.last_resort:
        if name in wanted and _total(least) > room:
            del wanted[name], least[name]
    for name in fit.least:
        if name in wanted:
            wanted[name] = max(least[name], wanted[name] - max(0, _total(wanted) - room))
    if fit.rest in wanted:
        spare = max(0, room - _total(wanted))
        wanted[fit.rest] = min(natural[fit.rest], wanted[fit.rest] + spare)
    return wanted


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _line(cells: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    padded = []
    for cell, wide, side in zip(cells, widths, to_right, strict=True):
        space = " " * (wide - width(cell))
        padded.append(space + cell if side else cell + space)
    return (" " * _GAP).join(padded).rstrip()


def width(text: str) -> int:
    """Places that text takes on a terminal: Chinese letters take two, accents that stand alone none."""
    return len(text) if text.isascii() else sum(map(_places, text))


def _places(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, wide: int) -> str:
    """Text that takes ``wide`` places at most; an ellipsis says that something is missing."""
    if width(text) <= wide:
        return text
    kept, used = "", 0
    for letter in text:
        used += _places(letter)
        if used > wide - 1:
            break
        kept += letter
    return kept.rstrip() + _ELLIPSIS


def drawn(header: Sequence[str], rows: Rows, right: Iterable[str] = ()) -> Table:
    """A table whose last column is folded to the room that is left."""
    last, to_right = len(header) - 1, frozenset(right)

    def options(i: int) -> dict[str, Any]:
        return {"justify": "right" if header[i] in to_right else "left", "no_wrap": i != last, "overflow": "fold"}

    return _drawn(header, [[clean(cell) for cell in row] for row in rows], options)


def _drawn(header: Sequence[str], rows: Rows, options: Callable[[int], dict[str, Any]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(header):
        table.add_column(name, **{"no_wrap": True, **options(i)})
    for row in rows:
        table.add_row(*row)
    return table


def console() -> Any:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line."""
    wide = max(len(name) for name, _ in pairs)
    typer.echo("\n".join(f"{name:<{wide}}  {clean(value)}" for name, value in pairs))


_LINES = ("JCT", "wait", "makespan", "utilization", "preemptions", "cost")
"""Lines of metrics in this order; further ones follow."""


def run_lines(result: RunResult, metrics: Sequence[Metric] = ()) -> list[str]:
    """The summary of one run, one subject a line; or these metrics, one a line."""
    from trine.report.compare import label
    from trine.report.text import when_decided

    s = result.summary
    if metrics:
        wide = max(len(metric.key) for metric in metrics)
        return [f"{metric.key:<{wide}} {_metric_text(metric, getattr(s, metric.key))}" for metric in metrics]
    values = {
        "cluster": result.cluster.describe(),
        "policy": f"{label(s.policy)} with {label(s.placement)}",
        "jobs": f"{s.jobs} ({s.finished} finished)",
        **_metric_lines(s),
        "decided": f"{when_decided(result.settings)}, {s.rounds:,} times",
        "simulated": f"in {s.sim_cpu_s:.2f} s of processor time",
    }
    return [f"{name:<12} {value}" for name, value in values.items()]


def _metric_lines(s: Summary) -> dict[str, str]:
    """Metrics by the line they stand in, without optional ones that are 0."""
    values: dict[str, list[str]] = {name: [] for name in _LINES}
    for metric in s.metrics():
        value = getattr(s, metric.key)
        if metric.line is None or (metric.optional and value <= 0):
            continue
        name, label = metric.line
        values.setdefault(name, []).append(f"{label} {_metric_text(metric, value)}".lstrip())
    return {name: ", ".join(texts) for name, texts in values.items() if texts}


def _metric_text(metric: Metric, value: Any) -> str:
    from trine.report.text import written

    return str(value) if metric.kind == "count" else written(metric.kind, value)
