"""The page of a reproduction: what held, all figures side by side, and the curves."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from trine.report import figures, page
from trine.report.staging import write_all
from trine.reproduce.checks import Check, Curve, Reproduction


def write_page(found: Reproduction, out_dir: Path) -> None:
    """Write ``report.html`` into ``out_dir``, or nothing."""

    def fill(folder: Path) -> None:
        (folder / "report.html").write_text(_page(found), encoding="utf-8")

    write_all(out_dir, fill)


def _page(found: Reproduction) -> str:
    tables = [
        page.section(name, _table(list(checks))) for name, checks in groupby(found.checks, key=lambda c: c.experiment)
    ]
    panels = [list(curves) for _, curves in groupby(found.curves, key=lambda c: c.panel)]
    plots = [page.section(p[0].panel, page.figure(f"panel-{i}", _figure(p))) for i, p in enumerate(panels)]
    return page.page(f"{found.paper}, run again", found.sentence(), [page.notes(found.notes), *tables, *plots])


def _table(checks: list[Check]) -> str:
    header = [page.Cell(text, number=False) for text in ("what", "published", "reference", "ours", "")]
    marks = {True: "in its band", False: "OUTSIDE its band", None: ""}
    return page.table(
        header,
        [
            [page.Cell(t, number=False) for t in (c.what, c.published, c.reference, c.ours, marks[c.held])]
            for c in checks
        ],
    )


def _figure(curves: list[Curve]) -> dict[str, Any]:
    return _dots(curves) if curves[0].half else _lines(curves)


def _lines(curves: list[Curve]) -> dict[str, Any]:
    data = [
        {"type": "scatter", "mode": "lines+markers", "name": c.name, "x": c.x, "y": c.y, "line": figures.line_style(i)}
        for i, c in enumerate(curves)
    ]
    x_title = curves[0].panel.rsplit(" by ", 1)[-1].capitalize()
    layout = {
        "height": 320,
        "xaxis": figures.axis(x_title),
        "yaxis": figures.axis(curves[0].panel.split(", ")[-1].split(" by ")[0]),
    }
    return {"data": data, "layout": layout}


def _dots(curves: list[Curve]) -> dict[str, Any]:
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": c.x,
            "y": [figures.plotly_text(c.name)],
            "error_x": {"type": "data", "array": c.half},
            "marker": {"size": 9, "color": figures.line_colour(i)},
        }
        for i, c in enumerate(curves)
    ]
    layout = {
        "height": 120 + 28 * len(curves),
        "showlegend": False,
        "xaxis": figures.axis(
            "Gain in average JCT (%, more is better), 95 % interval over seeds", zerolinecolor="@muted"
        ),
        "yaxis": figures.axis("", autorange="reversed", type="category", automargin=True),
    }
    return {"data": data, "layout": layout}
