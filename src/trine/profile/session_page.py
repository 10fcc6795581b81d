"""The page of a measuring session: slowdown of every device with its interval and runs, and the drift that was taken
out. Self-contained; nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from trine.core.errors import require_extra
from trine.profile.device_effects import ClassEstimate, without_drift
from trine.profile.kernels import KERNELS
from trine.profile.measurements import MeasurementRecord

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 1100px; margin: 0 auto; padding: 1.5rem; }
h2 { margin: 2rem 0 0; font-size: 1.1rem; } p { margin: .2rem 0 .6rem; }
"""
# Colours that can be read on white and on black alike.
_INK, _GRID = "#808890", "rgba(128,136,144,0.25)"
_SAME, _SLOWER, _FASTER = "#808890", "#d9603b", "#2a9d8f"
_COLOURS = {"same": _SAME, "slower": _SLOWER, "faster": _FASTER}
_DRAW = """
for (const place of document.querySelectorAll("[data-figure]")) {
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displayModeBar: false});
}
"""


def require_page() -> None:
    """Raise unless this installation can make the page."""
    require_extra("profile", "plotly", purpose="the page of a profile needs")


def session_page(title: str, estimates: Sequence[ClassEstimate], records: Sequence[MeasurementRecord]) -> str:
    """The whole HTML document."""
    require_page()
    from plotly.offline import get_plotlyjs

    about = {kernel.app_class: f"{kernel.name}, {kernel.about}" for kernel in KERNELS}
    level = without_drift(records)
    sections = [
        _section(
            f"Class {e.app_class} ({about.get(e.app_class, 'unknown kernel')})", e.finding(), _devices(e, level), i
        )
        for i, e in enumerate(estimates)
    ]
    drift = "Time of all devices together by run, against the middle of the session: this is taken out above."
    sections.append(_section("Drift", drift, _drift(estimates), len(estimates)))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        f"{''.join(sections)}<script>{get_plotlyjs()}</script>\n<script>{_DRAW}</script></body></html>\n"
    )


def _section(title: str, sentence: str, figure: dict[str, Any], number: int) -> str:
    # No character of the data may end the element that it stands in.
    data = json.dumps(figure, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
    return (
        f"<section><h2>{escape(title)}</h2><p>{escape(sentence[:1].upper() + sentence[1:])}</p>"
        f'<div data-figure="figure-{number}"></div>'
        f'<script type="application/json" id="figure-{number}">{data}</script></section>\n'
    )


def _layout(x: str, y: str, **more: Any) -> dict[str, Any]:
    axis = {"gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GRID, "automargin": True}
    return {
        "height": 380,
        "margin": {"t": 20, "r": 20},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": _INK},
        "xaxis": {**axis, "title": {"text": x}},
        "yaxis": {**axis, "title": {"text": y}},
        "legend": {"orientation": "h", "y": 1.12},
        **more,
    }


def _devices(estimate: ClassEstimate, level: Sequence[MeasurementRecord]) -> dict[str, Any]:
    """Runs as dots, the estimate with its interval on top."""
    runs = [record for record in level if record.app_class == estimate.app_class]
    middle_s = estimate.devices[0].perf_s / estimate.devices[0].slowdown
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "runs, drift taken out",
        "x": [_text(record.gpu) for record in runs],
        "y": [round(record.perf_s / middle_s, 5) for record in runs],
        "marker": {"size": 5, "color": _INK, "opacity": 0.5},
        "hovertemplate": "%{x}: %{y:.3f}<extra></extra>",
    }
    layout = _layout("Device", "Slowdown (1 = median device)")
    # Without an order of its own the axis would follow that of the shuffled measurements.
    order = [_text(device.gpu) for device in estimate.devices]
    layout["xaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": order}
    return {"data": [dots, _intervals(estimate)], "layout": layout}


def _intervals(estimate: ClassEstimate) -> dict[str, Any]:
    devices = estimate.devices
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "slowdown with 95 % interval",
        "x": [_text(device.gpu) for device in devices],
        "y": [round(device.slowdown, 5) for device in devices],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [round(device.high - device.slowdown, 6) for device in devices],
            "arrayminus": [round(device.slowdown - device.low, 6) for device in devices],
            "color": _INK,
        },
        "marker": {"size": 11, "symbol": "diamond", "color": [_COLOURS[device.verdict] for device in devices]},
        "text": [f"{device.verdict}, {device.perf_s * 1000:.3g} ms, {device.runs} runs" for device in devices],
        "hovertemplate": "%{x}: %{y:.3f}<br>%{text}<extra></extra>",
    }


def _drift(estimates: Sequence[ClassEstimate]) -> dict[str, Any]:
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"class {_text(estimate.app_class)}",
            "x": list(range(1, estimate.runs + 1)),
            "y": [round(100 * (factor - 1), 4) for factor in estimate.drift_by_run],
            "hovertemplate": "run %{x}: %{y:+.2f} %<extra></extra>",
        }
        for estimate in estimates
    ]
    return {"data": lines, "layout": _layout("Run (number)", "Time against the middle (%)", height=300)}


def _text(text: str) -> str:
    """Plotly reads a subset of HTML: show names letter by letter."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
