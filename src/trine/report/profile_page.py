"""The page of a measuring session: slowdown of every device with its interval and runs, and the drift that was taken
out. The look is that of all pages (``page``); what is measured and estimated is in ``trine.profile``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trine.core.errors import require_extra
from trine.profile.device_effects import ClassEstimate, without_drift
from trine.profile.kernels import KERNELS
from trine.profile.measurements import MeasurementRecord
from trine.report import page, provenance
from trine.report.figures import Figure, axis, line_style, plotly_text

_COLOURS = {"same": "@c6", "slower": "@c1", "faster": "@c2"}


def require_page() -> None:
    """Raise unless this installation can make the page."""
    require_extra("profile", "plotly", purpose="the page of a profile needs")


def session_page(
    title: str,
    estimates: Sequence[ClassEstimate],
    records: Sequence[MeasurementRecord],
    settings: Mapping[str, object],
    command: str = "",
) -> str:
    """The whole HTML document."""
    require_page()
    about = {kernel.app_class: f"{kernel.name}, {kernel.about}" for kernel in KERNELS}
    level = without_drift(records)
    body = [
        page.section(
            f"Class {e.app_class} ({about.get(e.app_class, 'unknown kernel')})",
            page.figure(f"class-{i}", _devices(e, level)),
            caption=_sentence(e.finding()),
        )
        for i, e in enumerate(estimates)
    ]
    drift = "Time of all devices together by run, against the middle of the session: this is taken out above."
    body.append(page.section("Drift", page.figure("drift", _drift(estimates)), caption=drift))
    body.append(provenance.section("profile", settings, command))
    devices = len({record.gpu for record in records})
    lead = f"{devices} devices, {len(records):,} measurements; 1 is the median device, larger is slower"
    return page.page(title, lead, body)


def _sentence(finding: str) -> str:
    return finding[:1].upper() + finding[1:]


def _layout(x: str, y: str, **more: Any) -> dict[str, Any]:
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    return {"height": 380, "xaxis": axis(x), "yaxis": axis(y), "showlegend": True, "legend": legend, **more}


def _devices(estimate: ClassEstimate, level: Sequence[MeasurementRecord]) -> Figure:
    """Runs as dots, the estimate with its interval on top."""
    runs = [record for record in level if record.app_class == estimate.app_class]
    middle_s = estimate.devices[0].perf_s / estimate.devices[0].slowdown
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "runs, drift taken out",
        "x": [plotly_text(record.gpu) for record in runs],
        "y": [round(record.perf_s / middle_s, 5) for record in runs],
        "marker": {"size": 5, "color": "@muted", "opacity": 0.5},
        "hovertemplate": "%{x}: %{y:.3f}<extra></extra>",
    }
    layout = _layout("Device", "Slowdown (1 = median device)")
    # Without an order of its own the axis would follow that of the shuffled measurements.
    order = [plotly_text(device.gpu) for device in estimate.devices]
    layout["xaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": order}
    return {"data": [dots, _intervals(estimate)], "layout": layout}


def _intervals(estimate: ClassEstimate) -> dict[str, Any]:
    """Too few runs have intervals over many powers of ten, beside which nothing could be seen: none are drawn."""
    devices, enough = estimate.devices, estimate.runs >= estimate.runs_needed
    drawn: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "slowdown with 95 % interval" if enough else "slowdown",
        "x": [plotly_text(device.gpu) for device in devices],
        "y": [round(device.slowdown, 5) for device in devices],
        "marker": {"size": 11, "symbol": "diamond", "color": [_COLOURS[device.verdict] for device in devices]},
        "text": [f"{device.verdict}, {device.perf_s * 1000:.3g} ms, {device.runs} runs" for device in devices],
        "hovertemplate": "%{x}: %{y:.3f}<br>%{text}<extra></extra>",
    }
    if enough:
        drawn["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [round(device.high - device.slowdown, 6) for device in devices],
            "arrayminus": [round(device.slowdown - device.low, 6) for device in devices],
            "color": "@muted",
        }
    return drawn


def _drift(estimates: Sequence[ClassEstimate]) -> Figure:
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"class {plotly_text(estimate.app_class)}",
            "x": list(range(1, estimate.runs + 1)),
            "y": [round(100 * (factor - 1), 4) for factor in estimate.drift_by_run],
            "line": line_style(i),
            "hovertemplate": "run %{x}: %{y:+.2f} %<extra></extra>",
        }
        for i, estimate in enumerate(estimates)
    ]
    return {"data": lines, "layout": _layout("Run (number)", "Time against the middle (%)", height=300)}
