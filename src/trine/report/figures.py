"""Plot descriptions as plain dictionaries for plotly.js. Colours are names such as ``@c0`` that the page resolves for
its light and its dark theme; texts that come from the input are escaped here, as plotly reads a subset of HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trine.report import series
from trine.report.text import TimeUnit, count, duration, log_ticks, number, share, time_unit, times

Figure = dict[str, Any]
LINE_COLOURS = 7
LOG_FACTORS = [m * 10.0**k for k in range(-3, 6) for m in (1, 2, 5)]
DASHES = ("solid", "dash", "dot", "dashdot")


def plotly_text(text: str) -> str:
    """``text`` so that plotly shows it letter by letter."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def line_colour(index: int) -> str:
    return f"@c{index % LINE_COLOURS}"


def type_colour(type_index: int) -> str:
    """Of a GPU type, in the load over time and beside the Gantt chart; the first colours there are other lines."""
    return line_colour(3 + type_index)


def line_style(index: int) -> dict[str, Any]:
    """Colour and dash by rank: more lines than colours still look different."""
    return {"color": line_colour(index), "width": 2, "dash": DASHES[index // LINE_COLOURS % len(DASHES)]}


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def log_time_axis(title: str, low_s: float, high_s: float) -> dict[str, Any]:
    """A logarithmic axis over seconds whose marks read ``1 min``, ``10 h``; the page leaves out those without room."""
    at, text = zip(*log_ticks(low_s, high_s), strict=True)
    marks = {"tickvals": list(at), "ticktext": list(text), "tickangle": 0}
    return axis(f"{title} (log scale)", type="log", range=_log_range(low_s, high_s), **marks)


def _log_range(low: float, high: float) -> list[float]:
    """The exponents of the ends, with a little room; half a decade each way around a single value."""
    if not 0 < low < high:
        return [math.log10(max(low, 1e-9)) - 0.5, math.log10(max(high, 1e-9)) + 0.5]
    first, last = math.log10(low), math.log10(high)
    room = 0.02 * (last - first)
    return [first - room, last + room]


def cdf_figure(curves: Sequence[tuple[str, series.Floats]], title: str) -> Figure:
    """Cumulative distributions of durations; ``curves`` are (name, ascending seconds)."""
    data = [_cdf_line(i, name, values) for i, (name, values) in enumerate(curves)]
    many = len(curves) > 1
    seen = [v for line in data for v in line["x"]] or [1.0]
    layout = {
        "height": 360 + 18 * len(curves) if many else 340,
        "xaxis": log_time_axis(title, min(seen), max(seen)),
        "yaxis": axis("Share of jobs (%)", range=[0, 102], ticksuffix=" %"),
        "showlegend": many,
        "legend": {"orientation": "h", "y": -0.28, "yanchor": "top"},
    }
    return {"data": data, "layout": layout}


def log_axis(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis of plain numbers from ``low`` to ``high``; the page leaves out marks without room."""
    marks = {"tickvals": LOG_FACTORS, "ticktext": [number(f) for f in LOG_FACTORS], "tickangle": 0}
    return {"type": "log", "range": _log_range(low, high), **marks}


def ratio_cdf_figure(curves: Sequence[tuple[str, series.Floats]], title: str) -> Figure:
    """Cumulative distributions of ratios to 1, which is marked; ``curves`` are (name, ascending values)."""
    data = [_cdf_line(i, name, values, times) for i, (name, values) in enumerate(curves)]
    seen = [v for line in data for v in line["x"]] or [1.0]
    low, high = min(1.0, *seen), max(1.0, *seen)
    marks = {"tickvals": LOG_FACTORS, "ticktext": [f"{number(f)}×" for f in LOG_FACTORS], "tickangle": 0}
    one = {"type": "line", "yref": "paper", "x0": 1, "x1": 1, "y0": 0, "y1": 1}
    layout = {
        "height": 360 + 18 * len(curves) if len(curves) > 1 else 340,
        "xaxis": axis(f"{title} (log scale)", type="log", range=_log_range(low, high), **marks),
        "yaxis": axis("Share of jobs (%)", range=[0, 102], ticksuffix=" %"),
        "shapes": [{**one, "line": {"color": "@muted", "width": 1, "dash": "dot"}}],
        "showlegend": len(curves) > 1,
        "legend": {"orientation": "h", "y": -0.28, "yanchor": "top"},
    }
    return {"data": data, "layout": layout}


def _cdf_line(
    index: int, name: str, ordered: series.Floats, write: Callable[[float], str] = duration
) -> dict[str, Any]:
    values, height = series.cdf(ordered)
    label = f"<br>{plotly_text(name)}" if name else ""
    return {
        "type": "scatter",
        "mode": "lines" if len(values) > 1 else "markers",
        "name": plotly_text(name),
        "x": rounded(values, 3),
        "y": rounded(100 * height, 2),
        "text": [write(v) for v in values],
        "hovertemplate": f"%{{y:.1f}} % within %{{text}}{label}<extra></extra>",
        "line": {**line_style(index), "shape": "hv"},
    }


def rounded(values: series.Floats, decimals: int) -> list[float]:
    """Fewer digits, smaller page; a float in between would be below what a screen resolves."""
    return [float(v) for v in np.round(values, decimals)]


def clock_axis(span: tuple[float, float], unit: TimeUnit, **more: Any) -> dict[str, Any]:
    end = (span[1] - span[0]) / unit.seconds
    return axis(f"Time since the start of the trace ({unit.plural})", range=[0, end], hoverformat=".2f", **more)


def load_figure(load: series.ClusterLoad) -> Figure:
    """Utilization above, running and waiting jobs below, on one clock."""
    span, unit = load.span, time_unit(load.span[1] - load.span[0])
    percent = series.Steps(load.busy.at_s, 100 * load.busy.values)
    data = [
        {**step_line("GPUs busy", percent, span, unit, "@c0", " %"), "yaxis": "y", "fill": "tozeroy"},
        {**step_line("waiting jobs", load.waiting, span, unit, "@c1"), "yaxis": "y2", "fill": "tozeroy"},
        {**step_line("running jobs", load.running, span, unit, "@c2"), "yaxis": "y2"},
    ]
    for i, (gpu_type, busy) in enumerate(load.busy_by_type.items()):
        percent = series.Steps(busy.at_s, 100 * busy.values)
        line = step_line(f"{plotly_text(gpu_type)} busy", percent, span, unit, type_colour(i), " %")
        data.append({**line, "yaxis": "y", "line": {**line["line"], "dash": "dot"}})
    layout = {
        "height": 480,
        "meta": {"clock": unit.symbol},
        "xaxis": clock_axis(span, unit, anchor="y2"),
        "yaxis": axis("GPUs busy (%)", domain=[0.57, 1], range=[0, 102], ticksuffix=" %"),
        "yaxis2": axis("Jobs (number)", domain=[0, 0.47], rangemode="tozero"),
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.04, "yanchor": "bottom"},
    }
    return {"data": data, "layout": layout}


def step_line(
    name: str, exact: series.Steps, span: tuple[float, float], unit: TimeUnit, colour: str, suffix: str = ""
) -> dict[str, Any]:
    steps = series.thinned(exact)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": rounded((steps.at_s - span[0]) / unit.seconds, 5),
        "y": rounded(steps.values, 2),
        "line": {"color": colour, "width": 1.5, "shape": "hv"},
        "fillcolor": f"{colour}-soft",
        "hovertemplate": f"{name}: %{{y:,.4~r}}{suffix}<extra></extra>",
    }


def _log_marks(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis of ratios: powers of ten only where there would be more than a dozen marks."""
    marks = [f for f in LOG_FACTORS if high < 1000 * low or math.log10(f) % 1 == 0]
    return {"type": "log", "tickvals": marks, "ticktext": [f"{number(f)}×" for f in marks]}


def slowdown_figure(groups: Sequence[tuple[str, list[series.SizeClass]]]) -> Figure:
    """Boxes of the slowdown per job size, one group of boxes per (name, classes)."""
    data = [_boxes(i, name, classes) for i, (name, classes) in enumerate(groups)]
    data += [_box_texts(name, classes) for name, classes in groups]
    tops = [c.quantiles[4] for _, classes in groups for c in classes]
    lows = [c.quantiles[0] for _, classes in groups for c in classes]
    wide = bool(tops) and max(tops) > 15 * min(lows)
    layout = {
        "height": 380 if len(groups) == 1 else 420,
        "xaxis": axis("GPUs per job (number)", type="category"),
        "yaxis": axis(
            f"Slowdown (× ideal run time{', log scale' if wide else ''})",
            **(_log_marks(min(lows), max(tops)) if wide else {"rangemode": "tozero"}),
        ),
        "boxmode": "group",
        "scattermode": "group",
        "hovermode": "closest",
        "showlegend": len(groups) > 1,
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"},
    }
    return {"data": data, "layout": layout}


def _boxes(index: int, name: str, classes: list[series.SizeClass]) -> dict[str, Any]:
    q = [[round(c.quantiles[k], 4) for c in classes] for k in range(5)]
    return {
        "type": "box",
        "name": plotly_text(name),
        "x": [c.label for c in classes],
        "lowerfence": q[0],
        "q1": q[1],
        "median": q[2],
        "q3": q[3],
        "upperfence": q[4],
        "line": {"color": line_colour(index), "width": 1.5},
        "fillcolor": f"{line_colour(index)}-soft",
        "offsetgroup": plotly_text(name),
        "hoverinfo": "skip",
    }


def _box_texts(name: str, classes: list[series.SizeClass]) -> dict[str, Any]:
    """Unseen points that carry the boxes' texts: plotly's own would call the 5 % and 95 % whiskers min and max."""
    head = f"<b>{plotly_text(name)}</b><br>" if name else ""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [c.label for c in classes],
        "y": [round(c.quantiles[2], 4) for c in classes],
        "text": [head + _box_text(c) for c in classes],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 24, "opacity": 0},
        "offsetgroup": plotly_text(name),
        "showlegend": False,
    }


def _box_text(c: series.SizeClass) -> str:
    low, q1, middle, q3, high = (times(q) for q in c.quantiles)
    size = f"{c.label} GPU{'' if c.label == '1' else 's'}, {count(c.jobs, 'job')}"
    return f"{size}<br>median {middle}<br>middle half {q1} to {q3}<br>5 % to 95 %: {low} to {high}"


def jct_title(ordered: series.Floats) -> str:
    if not len(ordered):
        return "No job finished"
    if len(ordered) == 1:
        return f"The one finished job took {duration(float(ordered[0]))}"
    return f"Half of the jobs finish within {duration(series.quantile(ordered, 0.5))}"


def wait_title(ordered: series.Floats) -> str:
    if not len(ordered):
        return "No job finished, so no wait is known"
    if ordered[-1] <= 0:
        return "No job ever waits"
    never = float(np.searchsorted(ordered, 0.0, side="right")) / len(ordered)
    if never >= 0.5:
        return f"{share(never)} of the jobs never wait"
    return f"Half of the jobs wait for less than {duration(series.quantile(ordered, 0.5))}"


def slowdown_title(classes: list[series.SizeClass]) -> str:
    if not classes:
        return "No slowdown is known"
    worst = max(classes, key=lambda c: c.quantiles[2])
    if len(classes) == 1:
        return f"The median job takes {times(worst.quantiles[2])} its ideal run time"
    gpus = "GPU" if worst.label == "1" else "GPUs"
    return f"Jobs of {worst.label} {gpus} are slowed down most: {times(worst.quantiles[2])} at the median"


def load_title(load: series.ClusterLoad) -> str:
    mean = series.time_mean(load.busy)
    if not math.isfinite(mean):
        return "Nothing ran"
    most = round(float(load.waiting.values.max()))
    queue = "no job ever waits" if most == 0 else f"up to {count(most, 'job')} wait{'s' if most == 1 else ''} at once"
    return f"{share(mean)} of the GPUs are busy on average; {queue}"


def load_caption(load: series.ClusterLoad) -> str:
    """How long the cluster was full, and whether the curves were averaged."""
    full = f"At least 95 % of the GPUs are held during {share(series.time_share_above(load.busy, 0.95))} of the time."
    if series.thinned(load.busy).averaged:
        return f"{full} The curves are means over {series.MAX_STEPS:,} equal stretches of time."
    return full
