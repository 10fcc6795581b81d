"""The Gantt chart of the GPUs as a plot: which job held which GPU when, with the GPU types, racks and slow chips.

Grids come from ``occupancy``; the page's script unpacks the jobs and colours them. Beside the rows stand up to two
strips: the GPU type, where there are several, and how slow the chip is, where chips differ.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from trine.core.cluster import Cluster
from trine.core.result import RunResult
from trine.report import occupancy as maps
from trine.report import series
from trine.report.figures import Figure, axis, clock_axis, plotly_text, rounded, type_colour
from trine.report.text import count, duration, number, share, time_unit, times

SLOW_CHIP = 1.1
"""A chip that takes so many times as long as the median of its type is called slow."""
_STRIP = 0.028
"""Width of a strip, as a part of the plot."""
_ROW_PX = 11
_LEGEND_PX = 108
"""Below the rows: the axis with its title, and GPU types one below the other on a phone."""
_STILL = {"itemclick": False, "itemdoubleclick": False}
_LABEL_PX = 15


def map_figure(result: RunResult, max_cells: int = maps.MAX_CELLS) -> tuple[Figure, str] | None:
    """The Gantt chart and the sentence that says how it was drawn; ``None`` if no GPU was ever held."""
    built = maps.build_map(result, max_cells)
    if built is None:
        return None
    drawn, sentence = _job_map(result, built) if isinstance(built, maps.JobMap) else _load_map(result, built)
    return drawn, " ".join(part for part in (sentence, _cluster_sentence(result.cluster)) if part)


def worst_chips(cluster: Cluster) -> list[float]:
    """Slowdown by GPU id for the class that suffers most; empty where all chips count as equal."""
    worst = [max(values) for values in zip(*cluster.scores.values(), strict=True)]
    return worst if any(value != 1.0 for value in worst) else []


def _cluster_sentence(cluster: Cluster) -> str:
    """What the strips and lines beside the jobs mean."""
    said = []
    if len(cluster.types) > 1:
        said.append("The first strip is the GPU type.")
    if worst := worst_chips(cluster):
        slow = sum(value >= SLOW_CHIP for value in worst)
        said.append(
            f"The stronger a GPU's mark, the slower its chip: {number(min(worst))} to {number(max(worst))} times the "
            f"median of its type, {count(slow, 'GPU')} at least {SLOW_CHIP:g} times."
        )
    if len(cluster.racks) > 1:
        said.append("Thick lines separate racks.")
    return " ".join(said)


def gpu_texts(cluster: Cluster) -> list[str]:
    """What is said of each GPU on hovering: where it is, its type, its chip by application class."""
    texts = []
    for gpu, node_index in enumerate(cluster.node_of):
        node = cluster.nodes[node_index]
        text = f"GPU {gpu} on {plotly_text(node.name)} ({plotly_text(node.gpu_type)}, {plotly_text(node.rack)})"
        chips = [f"{plotly_text(name)} {times(values[gpu])}" for name, values in cluster.scores.items()]
        texts.append(f"{text}, chip {', '.join(chips)}" if chips else text)
    return texts


def _strips(cluster: Cluster, rows: list[list[int]]) -> tuple[list[dict[str, Any]], dict[str, Any], float]:
    """Type and chip beside each row of GPUs: traces, their axes, and where the jobs begin (a part of the width)."""
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    if len(cluster.types) > 1:
        data += _type_strip(cluster, rows)
        axes["xaxis2"] = _strip_axis("type", 0)
    if worst := worst_chips(cluster):
        data.append(_chip_strip(worst, rows, f"x{2 + len(axes)}"))
        axes[f"xaxis{2 + len(axes)}"] = _strip_axis("chip", len(axes))
    return data, axes, (_STRIP * len(axes) + 0.006 if axes else 0.0)


def _strip_axis(title: str, place: int) -> dict[str, Any]:
    ends = [_STRIP * place, _STRIP * (place + 1) - 0.004]
    label = {"tickvals": [0], "ticktext": [title], "tickangle": -90, "side": "top", "ticks": ""}
    return axis("", domain=ends, fixedrange=True, showgrid=False, zeroline=False, automargin=False, **label)


def _type_strip(cluster: Cluster, rows: list[list[int]]) -> list[dict[str, Any]]:
    index = {t: i for i, t in enumerate(cluster.types)}
    n = len(index)
    types = [cluster.type_of(row[0]) for row in rows]
    steps = [[[i / n, type_colour(i)], [(i + 1) / n, type_colour(i)]] for i in range(n)]
    strip = {
        **_strip([index[t] for t in types], [plotly_text(t) for t in types], "x2"),
        "zmin": -0.5,
        "zmax": n - 0.5,
        "colorscale": [stop for step in steps for stop in step],
    }
    # Points that are never seen, for the legend: a heat map has none.
    names = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": plotly_text(f"{t} ({count(cluster.gpus_by_type[t], 'GPU')})"),
            "x": [None],
            "y": [None],
            "marker": {"symbol": "square", "size": 11, "color": type_colour(i)},
        }
        for t, i in index.items()
    ]
    return [strip, *names]


def _chip_strip(worst: list[float], rows: list[list[int]], x_axis: str) -> dict[str, Any]:
    values = [max(worst[gpu] for gpu in row) for row in rows]
    texts = [f"{'chip' if len(row) == 1 else 'slowest chip'} {times(v)}" for row, v in zip(rows, values, strict=True)]
    return {
        **_strip([round(v, 4) for v in values], texts, x_axis),
        "zmin": 1.0,
        "zmax": round(max(1.2, *worst), 4),
        "colorscale": [[k / 4, f"@h{k}"] for k in range(5)],
    }


def _strip(values: list[Any], texts: list[str], x_axis: str) -> dict[str, Any]:
    places = {"type": "heatmap", "x": [0], "y": list(range(len(values))), "xaxis": x_axis, "yaxis": "y"}
    return {
        **places,
        "z": [[v] for v in values],
        "text": [[t] for t in texts],
        "hoverinfo": "text",
        "showscale": False,
        "ygap": 1 if len(values) <= 96 else 0,
    }


def _rack_lines(cluster: Cluster, row_of_node: list[int]) -> list[dict[str, Any]]:
    """Between rows: thin where a node ends, thick where a rack does. Nothing between nodes of one row."""
    lines = []
    for (before, row), (after, next_row) in pairwise(enumerate(row_of_node)):
        if row != next_row and cluster.rack_of[before] != cluster.rack_of[after]:
            lines.append(_line(next_row - 0.5, "@muted", 2))
    return lines


def _line(at: float, colour: str, width: int) -> dict[str, Any]:
    style = {"color": colour, "width": width}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at, "line": style}


def _layout(result: RunResult, rows: list[list[int]], nodes_per_row: int, y_title: str, from_: float) -> dict[str, Any]:
    span = series.clock_span(result)
    unit = time_unit(span[1] - span[0])
    several = len(result.cluster.types) > 1
    height = int(min(760, max(220, 110 + len(rows) * _ROW_PX))) + (_LEGEND_PX - 52 if several else 0)
    at, names = maps.row_labels(result.cluster, nodes_per_row, most=max(2, (height - 110) // _LABEL_PX))
    return {
        "height": height,
        "meta": {"clock": unit.symbol},
        "xaxis": clock_axis(span, unit, showgrid=False, domain=[from_, 1]),
        "yaxis": axis(
            y_title,
            range=[len(rows) - 0.5, -0.5],
            tickvals=at,
            ticktext=[plotly_text(t) for t in names],
            showgrid=False,
            zeroline=False,
            automargin=True,
            anchor="x2" if from_ else "x",
        ),
        "margin": {"l": 56, "r": 12, "t": 46 if from_ else 26, "b": _LEGEND_PX if several else 52},
        "showlegend": several,
        # At the bottom of the picture: how far that is below the axis depends on its title, of two lines on a phone.
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", **_STILL},
    }


def _clock(result: RunResult, edges_s: series.Floats) -> tuple[list[float], float, float]:
    """Edges in the axis's unit, the clock's zero and the unit's length, both in seconds."""
    span = series.clock_span(result)
    unit = time_unit(span[1] - span[0])
    return rounded((edges_s - span[0]) / unit.seconds, 6), span[0], unit.seconds


def _job_map(result: RunResult, built: maps.JobMap) -> tuple[Figure, str]:
    cluster = result.cluster
    gpus = [[gpu] for gpu in range(cluster.gpu_count)]
    strips, axes, from_ = _strips(cluster, gpus)
    layout = _layout(result, gpus, 0, "GPUs, by node (one row each)", from_) | axes
    nodes = [_line(first - 0.5, "@paper", 2) for first in cluster.first_gpu[1:]]
    layout["shapes"] = [*nodes, *_rack_lines(cluster, cluster.first_gpu)]
    x, zero_s, unit_s = _clock(result, built.edges_s)
    table = maps.job_table(result, built.segments)
    table["jobs"] = [plotly_text(j) for j in table["jobs"]]
    rows = [maps.run_lengths(r) for r in built.cells]
    job_map = {"x": x, "rows": rows, "table": table, "zero_s": zero_s, "unit_s": unit_s, "gpus": gpu_texts(cluster)}
    return {"data": strips, "layout": layout, "jobmap": job_map}, _job_map_sentence(built)


def _job_map_sentence(built: maps.JobMap) -> str:
    legend = "Each colour is a job (colours repeat), grey is background load, blank is idle; hover for details."
    if built.exact:
        return legend
    step = duration(float(built.edges_s[1] - built.edges_s[0]))
    return f"{legend} Sampled at {len(built.edges_s) - 1:,} moments, one every {step}: shorter stays may not show."


def _load_map(result: RunResult, built: maps.LoadMap) -> tuple[Figure, str]:
    cluster, rows = result.cluster, len(built.share)
    per_row = "one node" if built.nodes_per_row == 1 else f"{built.nodes_per_row} nodes"
    row_of_node = [i // built.nodes_per_row for i in range(len(cluster.nodes))]
    gpus: list[list[int]] = [[] for _ in range(rows)]
    for gpu, node in enumerate(cluster.node_of):
        gpus[row_of_node[node]].append(gpu)
    strips, axes, from_ = _strips(cluster, gpus)
    y_title = "Nodes" if built.nodes_per_row == 1 else f"Nodes ({per_row} per row)"
    layout = _layout(result, gpus, built.nodes_per_row, y_title, from_) | axes
    layout["shapes"] = _rack_lines(cluster, row_of_node)
    x, _, _ = _clock(result, built.edges_s)
    heat = {
        "type": "heatmap",
        "x": x,
        "y": list(range(rows)),
        "z": np.round(100 * built.share).astype(np.int64).tolist(),
        "zmin": 0,
        "zmax": 100,
        "colorscale": [[k / 4, f"@s{k}"] for k in range(5)],
        "colorbar": {"title": {"text": "GPUs busy (%)"}, "thickness": 12, "outlinewidth": 0},
        "hovertemplate": "<b>%{text}</b><br>%{z} % of the GPUs busy<extra></extra>",
    }
    step = duration(float(built.edges_s[1] - built.edges_s[0]))
    sentence = (
        f"The cluster has {count(cluster.gpu_count, 'GPU')}, too many for a row each. A row stands for {per_row}, "
        f"a column for {step}; the stronger its colour, the more of its GPU time was used."
    )
    names = [plotly_text(n) for n in maps.row_names(cluster, built.nodes_per_row)]
    return {"data": [heat, *strips], "layout": layout, "rows": names}, sentence


def map_title(result: RunResult) -> str:
    wide = series.gpu_time_across_nodes(result.segments)
    if not math.isfinite(wide):
        return "no GPU was ever held"
    if wide == 0:
        return "every job ran inside one node"
    return f"{share(wide)} of the GPU time went to jobs that span nodes"
