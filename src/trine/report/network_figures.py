"""Plots of what the network did to a run: where GPU time went by tier, tuned waits, load of the links over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from trine.core.cluster import Tier
from trine.core.result import LinkLoad, TierTime, TimerChange
from trine.report import series
from trine.report.figures import LINE_COLOURS, Figure, axis, clock_axis, line_colour, step_line
from trine.report.text import count, duration, share, time_unit

TIER_NAMES = {Tier.GPU: "one GPU", Tier.NODE: "one node", Tier.RACK: "one rack", Tier.NETWORK: "several racks"}


def tier_time_title(times: Sequence[TierTime]) -> str:
    """The share of communication, split at one machine."""
    held = sum(t.held_gpu_s for t in times)
    inside = sum(t.comm_gpu_s for t in times if t.tier <= Tier.NODE)
    across = sum(t.comm_gpu_s for t in times if t.tier > Tier.NODE)
    whole, one, several = share((inside + across) / held), duration(inside), duration(across)
    return f"{whole} of the GPU time is communication: {one} on one machine, {several} on several"


def tier_time_figure(times: Sequence[TierTime]) -> Figure:
    """GPU hours by tier, compute and exposed communication on top of each other."""
    names = [TIER_NAMES[t.tier] for t in times]
    parts = (
        ("compute, loading, restarts", [t.held_gpu_s - t.comm_gpu_s for t in times], "@c0"),
        ("communication that compute does not hide", [t.comm_gpu_s for t in times], "@c1"),
    )
    data = [
        {
            "type": "bar",
            "name": name,
            "x": names,
            "y": [round(s / 3600, 4) for s in seconds],
            "text": [share(s / t.held_gpu_s) for s, t in zip(seconds, times, strict=True)],
            "marker": {"color": colour},
            "hovertemplate": f"{name}: %{{y:,.4~r}} GPU hours (%{{text}})<extra></extra>",
        }
        for name, seconds, colour in parts
    ]
    layout = {
        "height": 340,
        "barmode": "stack",
        "xaxis": axis("GPUs of a job within", type="category"),
        "yaxis": axis("GPU time (hours)", rangemode="tozero"),
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.04, "yanchor": "bottom"},
    }
    return {"data": data, "layout": layout}


def timer_figure(changes: Sequence[TimerChange], span: tuple[float, float]) -> tuple[Figure, str]:
    """Timers by GPU demand and tier over time, those that changed most often, and a sentence on what is shown."""
    often = Counter((c.gpus, c.tier) for c in changes).most_common(LINE_COLOURS)
    shown = sorted(demand for demand, _ in often)
    unit, data = time_unit(span[1] - span[0]), []
    for i, (gpus, tier) in enumerate(shown):
        mine = [c for c in changes if (c.gpus, c.tier) == (gpus, tier)]
        at_s = np.array([*(c.at_s for c in mine), span[1]])
        hours = np.array([*(c.timer_s for c in mine), mine[-1].timer_s]) / 3600
        name = f"{count(gpus, 'GPU')} in {TIER_NAMES[tier]}"
        data.append(step_line(name, series.Steps(at_s, hours), span, unit, line_colour(i), " h"))
    layout = {
        "height": 340,
        "meta": {"clock": unit.symbol},
        "xaxis": clock_axis(span, unit),
        "yaxis": axis("Longest wait (hours)", rangemode="tozero"),
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.25, "yanchor": "top"},
    }
    others = len({(c.gpus, c.tier) for c in changes}) - len(shown)
    caption = (
        "How long jobs of so many GPUs wait for them to be that close together; a line begins with its first change."
    )
    return {"data": data, "layout": layout}, caption + (
        f" {others} that changed less often are not shown." if others else ""
    )


def link_title(loads: Sequence[LinkLoad]) -> str:
    """The highest load that was seen."""
    return f"The busiest link carries up to {share(max(max(load.nic, load.uplink) for load in loads))} of its capacity"


def link_figure(loads: Sequence[LinkLoad], span: tuple[float, float]) -> Figure:
    """Load of the busiest NIC and of the busiest link between racks over time."""
    at_s, unit = np.array([load.at_s for load in loads]), time_unit(span[1] - span[0])
    parts = [
        ("busiest NIC", [load.nic for load in loads]),
        ("busiest uplink or spine", [load.uplink for load in loads]),
    ]
    data = [
        step_line(name, series.Steps(at_s, 100 * np.array(values)), span, unit, line_colour(i), " %")
        for i, (name, values) in enumerate(parts)
        if max(values) > 0
    ]
    layout = {
        "height": 300,
        "meta": {"clock": unit.symbol},
        "xaxis": clock_axis(span, unit),
        "yaxis": axis("Load of the link (%)", rangemode="tozero", ticksuffix=" %"),
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.04, "yanchor": "bottom"},
    }
    return {"data": data, "layout": layout}
