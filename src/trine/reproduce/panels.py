"""What experiments give beside checks: panels (lines and bars with their own axes), tables, and the page of all."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from trine.report import figures, page
from trine.report.staging import write_all
from trine.reproduce.checks import Check, Curve, Reproduction

MOST_TOLD = 8
"""Figures outside their bands that the last sentence names."""
MARKS = {True: "in its band", False: "OUTSIDE its band", None: ""}
COLUMNS = ("", "what", "published", "reference", "ours", "band")
MOST_MARKS = 6
"""Points on a linear axis that are marked one by one."""
LONGEST = 22
"""Letters of a bar's label, or of a cell, in one line."""


@dataclass(frozen=True)
class Panel:
    """One plot: lines over numbers, or with ``labels`` bars beside each other, one group per label."""

    title: str
    x_title: str
    y_title: str
    lines: list[tuple[str, list[float], list[float]]]
    """Name, x, y; for bars x counts the labels."""
    labels: list[str] = field(default_factory=list)
    log: bool = False

    def curves(self) -> list[Curve]:
        return [Curve(self.title, name, x, y) for name, x, y in self.lines]

    def figure(self) -> dict[str, Any]:
        """As plotly.js wants it."""
        data = [self._trace(i, *line) for i, line in enumerate(self.lines)]
        scale: dict[str, Any] = {"type": "log", "dtick": 1} if self.log else {}
        across = {"automargin": True, "tickangle": -25} if self.labels else self._marks()
        layout = {
            "height": 420,
            "barmode": "group",
            "xaxis": figures.axis(self.x_title, **across),
            "yaxis": figures.axis(self.y_title, **(scale or {"rangemode": "tozero"})),
            "showlegend": True,
            "legend": {"orientation": "h", **self._legend()},
        }
        return {"data": data, "layout": layout}

    def _legend(self) -> dict[str, Any]:
        """Above bars, whose labels are long; below lines, whose names are: above they would reach the buttons."""
        return {"y": 1.04, "yanchor": "bottom"} if self.labels else {"y": -0.22, "yanchor": "top"}

    def _marks(self) -> dict[str, Any]:
        """On a logarithmic axis, and where there are few, each x has its mark."""
        every = sorted({at for _, x, _ in self.lines for at in x})
        marks = {"tickvals": every, "ticktext": [f"{x:g}" for x in every]}
        return {"type": "log", **marks} if self.log else marks if len(every) <= MOST_MARKS else {}

    def _trace(self, index: int, name: str, x: list[float], y: list[float]) -> dict[str, Any]:
        told = {"name": figures.plotly_text(name)}
        if self.labels:
            labels = ["<br>".join(map(figures.plotly_text, _lines(self.labels[int(i)]))) for i in x]
            return told | {"type": "bar", "x": labels, "y": y, "marker": {"color": figures.line_colour(index)}}
        mode = "lines+markers" if len(x) <= 40 else "lines"
        return told | {"type": "scatter", "mode": mode, "x": x, "y": y, "line": figures.line_style(index)}


def _lines(label: str) -> list[str]:
    """Long labels are broken, so that they leave room for the bars."""
    return textwrap.wrap(label, LONGEST, break_long_words=False, break_on_hyphens=False)


@dataclass(frozen=True)
class Table:
    """Figures side by side, written out; the first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True)
class Found:
    """What one experiment gave."""

    checks: list[Check]
    panels: list[Panel] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True)
class PlottedReproduction(Reproduction):
    """All experiments, with the plots as they are to look."""

    parts: list[Found] = field(default_factory=list)

    @property
    def panels(self) -> list[Panel]:
        return [panel for part in self.parts for panel in part.panels]

    @property
    def missed(self) -> list[Check]:
        return [check for check in self.checks if check.held is False]

    def held_where(self) -> str:
        """How many figures lie in their bands, and in which experiments all."""
        judged = [c for c in self.checks if c.held is not None]
        broken = {c.experiment for c in self.missed}
        whole = [name for name in dict.fromkeys(c.experiment for c in judged) if name not in broken]
        told = f"{len(judged) - len(self.missed)} of {len(judged)} figures lie in their bands"
        return told + (f", all of them in {', '.join(whole)}" if whole else "")

    def sentence(self) -> str:
        """What held and what did not, by experiment, in one sentence."""
        told, missed = self.held_where(), self.missed
        outside = [f"{c.experiment}: {c.what}, {c.ours}, expected {c.reference} ({c.band})" for c in missed[:MOST_TOLD]]
        if len(missed) > MOST_TOLD:
            outside.append(f"and {len(missed) - MOST_TOLD} more")
        return f"{told}; outside: {'; '.join(outside)}." if missed else f"{told}; none lies outside."

    @property
    def tables(self) -> list[Table]:
        return [table for part in self.parts for table in part.tables]

    def as_dict(self) -> dict[str, Any]:
        tables = [asdict(table) for table in self.tables]
        return super().as_dict() | ({"tables": tables} if tables else {})

    @classmethod
    def of(cls, paper: str, parts: list[Found], notes: list[str]) -> PlottedReproduction:
        checks = [check for part in parts for check in part.checks]
        curves = [curve for part in parts for panel in part.panels for curve in panel.curves()]
        return cls(paper, checks, curves, notes, parts)


def write_page(found: PlottedReproduction, out_dir: Path) -> None:
    """Write ``report.html`` into ``out_dir``, or nothing."""

    def fill(folder: Path) -> None:
        (folder / "report.html").write_text(_page(found), encoding="utf-8")

    write_all(out_dir, fill)


def _page(found: PlottedReproduction) -> str:
    outside = [page.section("Outside their bands", _table(found.missed, named=True))] if found.missed else []
    parts = [section for number, part in enumerate(found.parts) for section in _sections(number, part)]
    return page.page(f"{found.paper}, run again", f"{found.held_where()}.", [*outside, page.notes(found.notes), *parts])


def _sections(number: int, part: Found) -> list[str]:
    """Plots of an experiment, then its figures."""
    plots = [
        page.caption_of(_capital(panel.title)) + page.figure(f"panel-{number}-{i}", panel.figure())
        for i, panel in enumerate(part.panels)
    ]
    checks = [(name, _table(list(own))) for name, own in groupby(part.checks, key=lambda c: c.experiment)]
    judged = [
        page.section(_capital(name), *(plots if first else ()), table)
        for first, (name, table) in zip([True] + [False] * len(checks), checks, strict=False)
    ]
    alone = [page.section("", *plots)] if plots and not checks else []
    return [*(page.section(_capital(table.title), _written(table)) for table in part.tables), *judged, *alone]


def _written(table: Table) -> str:
    rows = [[page.Cell(text, number=i > 0) for i, text in enumerate(row)] for row in (table.header, *table.rows)]
    return page.table(rows[0], rows[1:])


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _table(checks: list[Check], named: bool = False) -> str:
    """One row per figure; ``named``: with its experiment."""
    rows = [
        (MARKS[c.held], f"{c.experiment}: {c.what}" if named else c.what, c.published, c.reference, c.ours, c.band)
        for c in checks
    ]
    header = [page.Cell(text, number=False) for text in COLUMNS]
    body = [[_cell(name, text) for name, text in zip(COLUMNS, row, strict=True)] for row in rows]
    return page.table(header, body)


def _cell(column: str, text: str) -> page.Cell:
    long = column in ("what", "ours", "band") and len(text) > LONGEST
    return page.Cell(text, number=False, best=text == MARKS[False], wrap=long)
