"""The page of a capacity search: what every cluster that was simulated costs and gives, with the target."""

from __future__ import annotations

import math
from pathlib import Path

from trine.planning.capacity import Candidate, Search
from trine.report import figures, page
from trine.report.data_files import write_all
from trine.report.page import Cell

_WIDE = 20.0
"""From this ratio of the largest to the smallest value on, the scale is logarithmic."""


def write_capacity_page(search: Search, best: Candidate | None, out_dir: Path, unit: str) -> None:
    """Write ``report.html`` into ``out_dir``, or nothing."""

    def fill(folder: Path) -> None:
        (folder / "report.html").write_text(_page(search, best, unit), encoding="utf-8")

    write_all(out_dir, fill)


def _page(search: Search, best: Candidate | None, unit: str) -> str:
    metric, limit_h = search.target.metric, search.target.limit_s / 3600
    found = "No cluster of these types meets it." if best is None else f"The least that does: {search.cluster(best)}."
    lead = f"Target: {metric} of at most {limit_h:g} h. {found}"
    simulated = page.section("Clusters simulated", _plot(search, unit), _table(search, unit))
    return page.page("Capacity plan", lead, [simulated])


def _plot(search: Search, unit: str) -> str:
    known = [each for each in search.tried.values() if math.isfinite(each.value_s)]
    values_s = [search.target.limit_s, *(each.value_s for each in known)]
    # Clusters near the target, which are those that matter, would else lie on the axis below one that is far too small.
    wide, data = min(values_s) > 0 and max(values_s) > _WIDE * min(values_s), []
    unit_s = 1.0 if wide else 3600.0
    for index, (name, meets) in enumerate((("meets the target", True), ("does not", False))):
        own = [each for each in known if each.meets is meets]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [each.price_per_h for each in own],
                "y": [each.value_s / unit_s for each in own],
                "cliponaxis": False,
                "text": [figures.plotly_text(search.cluster(each)) for each in own],
                "marker": {"size": 9, "color": figures.line_colour(index), "symbol": "circle" if meets else "x"},
            }
        )
    prices = [each.price_per_h for each in known] or [0.0, 1.0]
    limit = search.target.limit_s / unit_s
    line = {"type": "scatter", "mode": "lines", "name": "target", "x": [min(prices), max(prices)], "y": [limit] * 2}
    layout = {
        "height": 420,
        "xaxis": figures.axis(unit, rangemode="tozero"),
        "yaxis": figures.log_time_axis(search.target.metric, min(values_s), max(values_s))
        if wide
        else figures.axis(f"{search.target.metric} (h)", rangemode="tozero"),
        "showlegend": True,
    }
    return page.figure("capacity", {"data": [*data, line | {"line": figures.line_style(2)}], "layout": layout})


def _table(search: Search, unit: str) -> str:
    names = ("cluster", unit, f"{search.target.metric} (h)", "meets")
    header = [Cell(text, number=i > 0) for i, text in enumerate(names)]
    rows = [
        [
            Cell(search.cluster(each), number=False),
            Cell(f"{each.price_per_h:g}"),
            Cell(f"{each.value_s / 3600:.2f}" if math.isfinite(each.value_s) else "some job never fits"),
            Cell("yes" if each.meets else "", best=each.meets),
        ]
        for each in sorted(search.tried.values(), key=lambda each: each.price_per_h)
    ]
    return page.table(header, rows)
