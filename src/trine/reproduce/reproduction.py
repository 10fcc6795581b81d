"""What a reproduction gives: checks, plots and tables by experiment, one sentence at the end, and the page of all."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from trine.report import figures, page, provenance
from trine.report.data_files import write_all
from trine.report.provenance import InputFile
from trine.report.text import count
from trine.reproduce.checks import Check

NAMED_MISSES, NAMED_MISSES_UNGROUPED = 8, 3
"""Figures outside their bands that the last sentence names."""
OUTSIDE = "OUT OF TOLERANCE"
MARKS = {
    (True, True): "within tolerance",
    (False, True): OUTSIDE,
    (True, False): "as expected",
    (False, False): "not as expected",
}
"""By whether it holds and whether it counts."""
COLUMNS = ("", "what", "published", "reference", "ours", "band")
MOST_MARKS = 6
"""Points on a linear axis that are marked one by one."""
LONGEST = 22
"""Letters of a bar's label, or of a cell, in one line."""

Line = tuple[str, list[float], list[float]]
"""Name, x, y of a line in a plot; for bars x counts the labels."""


@dataclass(frozen=True)
class Panel:
    """One plot: lines over numbers, with ``labels`` bars beside each other, or with ``halves`` a mean per line."""

    title: str
    x_title: str
    y_title: str
    lines: list[Line]
    labels: list[str] = field(default_factory=list)
    """One group of bars per label."""
    log: bool = False
    halves: list[float] = field(default_factory=list)
    """Half the width of the interval of each line's only x: means from left to right, one below the other."""

    def curves(self) -> list[dict[str, Any]]:
        """The lines as plain values, for ``--json``."""
        half = [[h] for h in self.halves] or [[] for _ in self.lines]
        return [
            {"panel": self.title, "name": name, "x": x, "y": y, "half": h}
            for (name, x, y), h in zip(self.lines, half, strict=True)
        ]

    def figure(self) -> dict[str, Any]:
        """The specification that plotly.js draws."""
        if self.halves:
            return self._means()
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
        named = {"name": figures.plotly_text(name)}
        if self.labels:
            labels = ["<br>".join(map(figures.plotly_text, _wrapped(self.labels[int(i)]))) for i in x]
            return named | {"type": "bar", "x": labels, "y": y, "marker": {"color": figures.line_colour(index)}}
        mode = "lines+markers" if len(x) <= 40 else "lines"
        return named | {"type": "scatter", "mode": mode, "x": x, "y": y, "line": figures.line_style(index)}

    def _means(self) -> dict[str, Any]:
        data = [
            {
                "type": "scatter",
                "mode": "markers",
                "x": x,
                "y": [figures.plotly_text(name)],
                "error_x": {"type": "data", "array": [half]},
                "marker": {"size": 9, "color": figures.line_colour(i)},
            }
            for i, ((name, x, _), half) in enumerate(zip(self.lines, self.halves, strict=True))
        ]
        layout = {
            "height": 120 + 28 * len(self.lines),
            "showlegend": False,
            "xaxis": figures.axis(self.x_title, zerolinecolor="@muted"),
            "yaxis": figures.axis(self.y_title, autorange="reversed", type="category", automargin=True),
        }
        return {"data": data, "layout": layout}


def _wrapped(label: str) -> list[str]:
    """Long labels are broken, so that they leave room for the bars."""
    return textwrap.wrap(label, LONGEST, break_long_words=False, break_on_hyphens=False)


@dataclass(frozen=True)
class ResultTable:
    """Figures side by side, written out; the first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True)
class Part:
    """What one experiment gave."""

    checks: list[Check]
    panels: list[Panel] = field(default_factory=list)
    tables: list[ResultTable] = field(default_factory=list)


@dataclass(frozen=True)
class Reproduction:
    """All that one paper's experiments gave; ``grouped``: shown and summed up by experiment."""

    paper: str
    parts: list[Part]
    notes: Sequence[str]
    grouped: bool = True
    files: Sequence[InputFile] = ()
    """What the runs read of the public data, for the page."""

    @property
    def checks(self) -> list[Check]:
        return [check for part in self.parts for check in part.checks]

    @property
    def panels(self) -> list[Panel]:
        return [panel for part in self.parts for panel in part.panels]

    @property
    def tables(self) -> list[ResultTable]:
        return [table for part in self.parts for table in part.tables]

    @property
    def judged(self) -> list[Check]:
        return [check for check in self.checks if check.held is not None and check.counted]

    @property
    def missed(self) -> list[Check]:
        return [check for check in self.judged if not check.held]

    @property
    def uncounted(self) -> list[Check]:
        """Directions and times, which can miss on one side only."""
        return [check for check in self.checks if check.held is not None and not check.counted]

    @property
    def shown(self) -> list[Check]:
        """Figures that there is nothing to hold against."""
        return [check for check in self.checks if check.held is None]

    @property
    def held(self) -> bool:
        return not self.missed

    def sentence(self) -> str:
        """What held and what did not, in one sentence."""
        if not self.grouped:
            return self._ungrouped()
        summed, missed = self.held_where(), self.missed
        outside = [f"{c.experiment}: {c.what}, {_expected(c)}" for c in missed[:NAMED_MISSES]]
        if len(missed) > NAMED_MISSES:
            outside.append(f"and {len(missed) - NAMED_MISSES} more")
        bands = f"{summed}; outside: {'; '.join(outside)}." if missed else f"{summed}; none is out of it."
        return f"{bands}{self.expected()}"

    def expected(self) -> str:
        """The directions and times beside the bands, if there are any, and how many figures are only shown."""
        are = "is" if len(self.shown) == 1 else "are"
        left = f" {count(len(self.shown), 'further figure')} {are} shown only." if self.shown else ""
        if not self.uncounted:
            return left
        other = [f"{c.experiment}: {c.what}, {c.ours} ({c.band})" for c in self.uncounted if not c.held]
        named = f"; not: {'; '.join(other[:NAMED_MISSES])}" if other else ""
        as_expected = f"{len(self.uncounted) - len(other)} of {len(self.uncounted)}"
        return f" Not counted: {as_expected} directions and times are as expected{named}.{left}"

    def held_where(self) -> str:
        """How many figures are within tolerance, and in which experiments all."""
        broken = {c.experiment for c in self.missed}
        whole = [name for name in dict.fromkeys(c.experiment for c in self.judged) if name not in broken]
        return self._count() + (f", all of them in {', '.join(whole)}" if whole else "")

    def _count(self) -> str:
        return f"{len(self.judged) - len(self.missed)} of {len(self.judged)} figures are within tolerance"

    def _ungrouped(self) -> str:
        if self.held:
            judged = f"All {len(self.judged)} figures that can be held against a reference are within tolerance."
            return judged + self.expected()
        named = [f"{c.experiment} {c.what}: {_expected(c)}" for c in self.missed[:NAMED_MISSES_UNGROUPED]]
        return f"{self._count()}; outside: {'; '.join(named)}.{self.expected()}"

    def as_dict(self) -> dict[str, Any]:
        """Everything but the look of the plots, as plain values."""
        plain = {
            "paper": self.paper,
            "held": self.held,
            "sentence": self.sentence(),
            "checks": [asdict(c) for c in self.checks],
            "curves": [curve for panel in self.panels for curve in panel.curves()],
            "notes": list(self.notes),
        }
        tables = [asdict(table) for table in self.tables]
        return plain | ({"tables": tables} if tables else {})


def _expected(check: Check) -> str:
    return f"{check.ours}, expected {check.reference} ({check.band})"


# -- the page ------------------------------------------------------------------------------------------------------


def write_page(found: Reproduction, out_dir: Path, command: str = "") -> None:
    """Write ``report.html`` into ``out_dir``, or nothing; ``command`` is what made it."""

    def fill(folder: Path) -> None:
        (folder / "report.html").write_text(_page(found, command), encoding="utf-8")

    write_all(out_dir, fill)


def _page(found: Reproduction, command: str) -> str:
    outside = [page.section("Out of tolerance", _table(found.missed, named=True))] if found.missed else []
    parts = [section for number, part in enumerate(found.parts) for section in _sections(number, part)]
    lead = f"{found.held_where()}.{found.expected()}"
    made = provenance.made_with("reproduction", {}, found.files, command)
    return page.page(f"{found.paper}, run again", lead, [*outside, page.notes((), found.notes), *parts, made])


def _sections(number: int, part: Part) -> list[str]:
    """Tables of an experiment, its plots, then its figures."""
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


def _written(table: ResultTable) -> str:
    rows = [[page.Cell(text, number=i > 0) for i, text in enumerate(row)] for row in (table.header, *table.rows)]
    return page.table(rows[0], rows[1:])


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _table(checks: list[Check], named: bool = False) -> str:
    """One row per figure; ``named``: with its experiment."""
    rows = [
        (_mark(c), f"{c.experiment}: {c.what}" if named else c.what, c.published, c.reference, c.ours, c.band)
        for c in checks
    ]
    header = [page.Cell(text, number=False) for text in COLUMNS]
    body = [[_cell(name, text) for name, text in zip(COLUMNS, row, strict=True)] for row in rows]
    return page.table(header, body)


def _cell(column: str, text: str) -> page.Cell:
    long = column in ("what", "ours", "band") and len(text) > LONGEST
    return page.Cell(text, number=False, best=text == OUTSIDE, wrap=long)


def _mark(check: Check) -> str:
    return "" if check.held is None else MARKS[check.held, check.counted]
