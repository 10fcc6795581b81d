"""What a notebook shows of a result: a table, a small picture, notes; and single plots of the report in a frame.

Tables and the small picture are a few kilobytes of static HTML and SVG, so that a saved notebook stays small and is
readable where no script runs. A plot of the report brings plotly.js along (5 MB) and is interactive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from trine.core.errors import TrineError, unknown_name
from trine.report import page
from trine.report.figures import Figure
from trine.report.page import Cell

STYLE = (
    "<style>.trine-cell .best{font-weight:700}.trine-cell .num{text-align:right}"
    ".trine-cell .caption{opacity:.75;margin:.2em 0}"
    ".trine-cell td,.trine-cell th{white-space:nowrap;padding:2px 8px}</style>"
)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666")
"""Distinct for all kinds of colour vision (Okabe and Ito); further curves are left out."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 220, 44, 34
_LEAST_S = 1.0
_MARKS_S = {
    **{1.0: "1 s", 10.0: "10 s", 60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 36e3: "10 h"},
    **{86400.0: "1 d", 864e3: "10 d", 864e4: "100 d", 864e5: "1000 d"},
}
_MOST_NOTES = 5
_POINTS = 101


def cell(*parts: str) -> str:
    """The parts of an object one below the other."""
    return f'<div class="trine-cell">{STYLE}{"".join(part for part in parts if part)}</div>'


def heading(title: str, more: str = "") -> str:
    return f"<b>{escape(title)}</b>" + (f": {escape(more)}" if more else "")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int, best_mark: str = "") -> str:
    """The first ``texts`` columns are text, the others numbers; a cell that ends in ``best_mark`` is bold."""
    head = [Cell(name, number=i >= texts) for i, name in enumerate(header)]
    return page.table(head, [[_cell(text, i >= texts, best_mark) for i, text in enumerate(row)] for row in rows])


def _cell(text: str, number: bool, best_mark: str) -> Cell:
    best = bool(best_mark) and text.endswith(best_mark)
    return Cell(text.removesuffix(best_mark) if best else text, number=number, best=best)


def sentences(lines: Sequence[str]) -> str:
    """Notes as a list; the first few of many."""
    left = len(lines) - _MOST_NOTES
    more = [f"and {left} more in .notes"] if left > 0 else []
    items = "".join(f"<li>{escape(line)}</li>" for line in [*lines[:_MOST_NOTES], *more])
    return f"<ul>{items}</ul>" if items else ""


def cdf_picture(curves: Mapping[str, Sequence[float]], what: str) -> str:
    """Cumulative distributions of times in seconds, on a logarithmic axis, as SVG; nothing if there are no values."""
    known = {name: sorted(max(v, _LEAST_S) for v in values) for name, values in curves.items() if len(values)}
    known = dict(list(known.items())[: len(COLOURS)])
    if not known:
        return ""
    first, last = min(values[0] for values in known.values()), max(values[-1] for values in known.values())
    low = max(mark for mark in _MARKS_S if mark <= first)
    high = min((mark for mark in _MARKS_S if mark >= last and mark > low), default=last)
    lines = "".join(
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{_points(values, low, high)}"/>'
        for colour, values in zip(COLOURS, known.values(), strict=False)
    )
    names = " ".join(
        f'<span style="color:{colour}">&#9644;</span> {escape(name)}'
        for colour, name in zip(COLOURS, known, strict=False)
        if name
    )
    picture = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img">{_axes(low, high)}{lines}</svg>'
    return f'<p class="caption">{escape(what)}: fraction of jobs within this time. {names}</p>{picture}'


def _points(values: Sequence[float], low: float, high: float) -> str:
    """Corners of the curve at every per cent: a curve costs the same however many jobs there are."""
    marks = [
        (q / (_POINTS - 1), values[min(len(values) - 1, q * len(values) // (_POINTS - 1))]) for q in range(_POINTS)
    ]
    return " ".join(f"{_x(value, low, high):.1f},{_y(part):.1f}" for part, value in marks)


def _x(seconds: float, low: float, high: float) -> float:
    return _LEFT + math.log(seconds / low) / math.log(high / low) * (_WIDTH - _LEFT - 16)


def _y(part: float) -> float:
    return 8 + (1 - part) * (_HEIGHT - _BOTTOM - 8)


def _axes(low: float, high: float) -> str:
    style = 'stroke="currentColor" stroke-opacity=".18"'
    text = 'font-size="11" fill="currentColor"'
    parts = []
    for part in (0.0, 0.5, 1.0):
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{_y(part):.1f}" y2="{_y(part):.1f}" {style}/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{_y(part) + 4:.1f}" text-anchor="end" {text}>{part:.0%}</text>')
    for mark in (mark for mark in _MARKS_S if low <= mark <= high):
        x = _x(mark, low, high)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{_HEIGHT - _BOTTOM}" {style}/>')
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle" {text}>{_MARKS_S[mark]}</text>'
        )
    return "".join(parts)


@dataclass(frozen=True)
class Document:
    """A page of its own, shown in a frame: the report, or one plot of it."""

    title: str
    html: str
    height_px: int

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height_px}px;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<{self.title}>"


@dataclass(frozen=True, repr=False)
class Plot(Document):
    """A plot of the report, and its plotly specification as plain values (``figure``)."""

    figure: Figure


class _NoPlotError(TrineError, KeyError):
    """A mapping answers with a ``KeyError``, so that ``in`` and ``get`` work."""

    __str__ = TrineError.__str__


class Plots(Mapping[str, Plot]):
    """The plots of a report by name."""

    def __init__(self, document: str) -> None:
        self._document = document

    @cached_property
    def _found(self) -> dict[str, tuple[str, Figure]]:
        return page.figures_of(self._document)

    def __getitem__(self, name: str) -> Plot:
        if name not in self._found:
            raise _NoPlotError(str(unknown_name("plots", "plot", name, self._found)))
        title, figure = self._found[name]
        height: Any = figure.get("layout", {}).get("height", 340)
        return Plot(title, page.page(title, "", [page.figure(name, figure)]), int(height) + 170, figure)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<plots: {', '.join(self)}>"
