"""The page of a comparison: a table, dot plots with intervals, differences to the baseline, distributions, where job
time went, Gantt charts, and how the page was made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from trine.core.result import Metric, RunResult
from trine.report import breakdown, figures, gantt, page, provenance, series
from trine.report.compare import (
    METRICS,
    Comparison,
    Contender,
    Estimate,
    best,
    column_title,
    column_unit,
    columns_of,
    headline,
    label,
    metric_estimate,
    name_of,
    names_of,
    paired_difference,
)
from trine.report.occupancy import MAX_CELLS
from trine.report.page import Cell
from trine.report.text import count, duration, times, when_decided

DOT_METRICS = tuple(m for m in METRICS if m.key != "jct_p50_s")
MAX_VIEWS = 16
"""Policies whose load and map are embedded; more would make the file too large to mail."""
MAX_CURVES = 12
FAR_APART = 15.0
"""Means that differ by more than this factor stand on a logarithmic axis."""
_ROOM = 0.02
"""A dot at zero would touch the name of its row: so much of the width is left beside it."""
_TITLE_OF_AXIS_PX = 148
"""A plot of one row would be lower than the title beside it is long."""


def compare_page(comparison: Comparison, command: str = "") -> str:
    """``report.html`` of a comparison that ``command`` made."""
    contenders = comparison.contenders
    body = [
        page.notes(_warnings(comparison), comparison.notes),
        _table(comparison),
        _dots(comparison),
        _differences(comparison),
        _breakdown(comparison),
        _distributions(comparison),
        _fairness(comparison),
        _views(comparison),
        _types(comparison),
        _slowdown(comparison),
        provenance.section("comparison", comparison.settings, command),
    ]
    seeds = len({r.seed for r in comparison.rows})
    lead = f"{count(len(contenders), 'combination')} of policy and placement, {count(seeds, 'seed')}"
    return page.page(headline(comparison), f"{lead}{_cluster(comparison)}{_decided(comparison)}", body)


def _cluster(comparison: Comparison) -> str:
    described = {run.cluster.describe() for run in comparison.runs.values()}
    return f"; {described.pop()}" if len(described) == 1 else ""


def _decided(comparison: Comparison) -> str:
    decided = {when_decided(run.settings) for run in comparison.runs.values()}
    return f"; decided {decided.pop()}" if len(decided) == 1 and "" not in decided else ""


def _warnings(comparison: Comparison) -> list[str]:
    return [s for s in (_single_seed(comparison), _unfinished(comparison)) if s]


def _single_seed(comparison: Comparison) -> str:
    counts = {c: len(comparison.rows_of(c)) for c in comparison.contenders}
    if all(n == 1 for n in counts.values()):
        if comparison.settings.get("trace"):
            return "One run of each combination on one trace: there is no interval, and others may rank them otherwise."
        return "Every combination ran with one seed only: there is no interval, and differences may be chance."
    single = [name_of(c) for c, n in counts.items() if n == 1]
    return f"One seed only, hence no interval: {', '.join(single)}." if single else ""


def _unfinished(comparison: Comparison) -> str:
    names = dict.fromkeys(
        name_of((r.policy, r.placement)) for r in comparison.rows if r.results["finished"] < r.results["jobs"]
    )
    return f"Not all jobs finished with {', '.join(names)}; the times leave them out." if names else ""


def _table(comparison: Comparison) -> str:
    contenders, titles = comparison.contenders, columns_of(comparison)
    columns = [_column(comparison, metric, title) for metric, title in titles.items()]
    header = [Cell("policy", False), Cell("placement", False), Cell("seeds"), *(head for head, _ in columns)]
    rows = [
        [
            *(Cell(label(name), False) for name in c),
            Cell(str(len(comparison.rows_of(c)))),
            *(cells[i] for _, cells in columns),
        ]
        for i, c in enumerate(contenders)
    ]
    with_intervals = any(len(comparison.rows_of(c)) > 1 for c in contenders)
    caption = (
        "Means over seeds [95 % confidence interval, Student's t on the logarithm]."
        if with_intervals
        else "One run each."
    )
    return page.section("Results", page.table(header, rows), caption=f"{caption} The best of each column is bold.")


def _column(comparison: Comparison, metric: Metric, title: str) -> tuple[Cell, list[Cell]]:
    estimates = [metric_estimate(comparison, c, metric) for c in comparison.contenders]
    unit, winners = column_unit(estimates, metric), best(estimates, metric)
    cells = []
    for i, e in enumerate(estimates):
        mean, bracket, interval = unit.write(e).partition("[")
        cells.append(Cell(mean.strip(), best=i in winners, detail=bracket + interval))
    return Cell(column_title(title, unit)), cells


def _dots(comparison: Comparison) -> str:
    names = names_of(comparison)
    sections = []
    for metric in DOT_METRICS:
        found = [(names[c], metric_estimate(comparison, c, metric)) for c in comparison.contenders]
        spec = dot_figure(found, metric, of=_rows_are(comparison))
        sections.append(page.section(_dot_title(found, metric), page.figure(f"dots-{metric.key}", spec)))
    return page.pair(*sections)


def _dot_title(found: list[tuple[str, Estimate]], metric: Metric) -> str:
    estimates = [e for _, e in found]
    winners, unit = best(estimates, metric), column_unit(estimates, metric)
    if len(winners) != 1:
        return metric.title
    winner = winners.pop()
    side = "highest" if metric.more_is_better else "lowest"
    return f"{metric.title}: {side} with {found[winner][0]}, {unit.after(unit.write(estimates[winner]))}"


def _rows_are(comparison: Comparison) -> str:
    """What tells the rows apart: names leave out what all have in common (``names_of``)."""
    names, contenders = set(names_of(comparison).values()), comparison.contenders
    for part, what in ((0, "Policy"), (1, "Placement")):
        if names == {label(contender[part]) for contender in contenders}:
            return what
    return "Policy, placement"


def dot_figure(
    found: list[tuple[str, Estimate]], metric: Metric, reference: bool = False, of: str = "Policy, placement"
) -> dict[str, Any]:
    """A dot per contender with its interval, and its single runs as small dots.

    ``reference`` is for differences to a baseline: zero is marked, and the baseline's colour is left out. ``of`` says
    what the rows are.
    """
    unit = column_unit([e for _, e in found], metric)
    data = []
    for i, (name, e) in enumerate(found, start=int(reference)):
        shown, colour = figures.plotly_text(name), figures.line_colour(i)
        runs = {"x": [v / unit.scale for v in e.values], "y": [shown] * len(e.values)}
        hover = f"{shown}, one run: %{{x:.4~r}}<extra></extra>"
        small = {"color": colour, "size": 5, "opacity": 0.35}
        data.append({"type": "scatter", "mode": "markers", "marker": small, "hovertemplate": hover, **runs})
        data.append(_mean_dot(shown, e, unit.scale, colour))
    direction = "more is better" if metric.more_is_better else "less is better"
    title = "Difference" if reference else metric.title
    line = {"zerolinecolor": "@muted", "rangemode": "tozero"} if reference else _reach(found, unit.scale)
    scale = "log scale" if line.get("type") == "log" else ""
    words = ", ".join(word for word in (unit.plural, scale, direction) if word)
    layout = {
        "height": max(_TITLE_OF_AXIS_PX, 96 + 26 * len(found)),
        "xaxis": figures.axis(_with_remark(title, words), **line),
        "yaxis": figures.axis(of, autorange="reversed", type="category", showgrid=False),
        "showlegend": False,
        "hovermode": "closest",
    }
    return {"data": data, "layout": layout}


def _with_remark(title: str, remark: str) -> str:
    """A remark in brackets; in those that a title ends with, if it does."""
    return f"{title[:-1]}; {remark})" if title.endswith(")") else f"{title} ({remark})"


def _reach(found: list[tuple[str, Estimate]], scale: float) -> dict[str, Any]:
    """From zero to the largest run or end of an interval, but at most to twice the largest run: two skewed seeds have
    an interval without bound, beside which nothing else could be seen. Logarithmic where means lie far apart."""
    values = [v / scale for _, e in found for v in e.values]
    ends = [end / scale for _, e in found for end in (e.low, e.high) if end is not None]
    if not values or max(values) <= 0:
        return {"rangemode": "tozero"}
    highest = max([max(values), *(min(end, 2 * max(values)) for end in ends)])
    means = [e.mean / scale for _, e in found if math.isfinite(e.mean)]
    if min(values) <= 0 or max(means) < FAR_APART * min(means):
        return {"range": [-_ROOM * highest, (1 + 2 * _ROOM) * highest], "zeroline": True}
    lowest = min([min(values), *(max(end, min(values) / 2) for end in ends)])
    return figures.log_axis(lowest, highest)


def _mean_dot(name: str, e: Estimate, scale: float, colour: str) -> dict[str, Any]:
    low, high = (0.0 if end is None else abs(end - e.mean) / scale for end in (e.low, e.high))
    bars = {"type": "data", "symmetric": False, "array": [high], "arrayminus": [low], "color": colour, "thickness": 2}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [e.mean / scale],
        "y": [name],
        "error_x": {**bars, "width": 5, "visible": e.half is not None},
        "marker": {"color": colour, "size": 10},
        "cliponaxis": False,  # a dot at zero would be cut in half
        "hovertemplate": f"{name}: %{{x:.4~r}}<extra></extra>",
    }


def _differences(comparison: Comparison) -> str:
    """Paired by seed: what the seeds have in common cancels out, so the interval is narrower than that of two means."""
    names, others = names_of(comparison), comparison.contenders[1:]
    if not others:
        return ""
    base = names[comparison.contenders[0]]
    found = {m: [(names[c], paired_difference(comparison, c, m)) for c in others] for m in DOT_METRICS[:2]}
    paired = {m: [(n, d) for n, d in ds if d is not None] for m, ds in found.items()}
    if not any(paired.values()):
        return page.section(f"Differences to {base}", page.empty("The seeds do not agree, so runs cannot be paired."))
    sections = []
    for metric, differences in paired.items():
        spec = dot_figure(differences, metric, reference=True, of=_rows_are(comparison))
        title = _difference_title(differences, metric, base)
        caption = f"Same seeds, paired; left of zero is better than {base}."
        left_out = len(others) - len(differences)
        caption += f" Left out for other seeds: {count(left_out, 'combination')}." if left_out else ""
        sections.append(page.section(title, page.figure(f"difference-{metric.key}", spec), caption=caption))
    return page.pair(*sections)


def _difference_title(differences: list[tuple[str, Estimate]], metric: Metric, base: str) -> str:
    if all(d.half is None for _, d in differences):
        return f"{metric.title} against {base}"
    better = [n for n, d in differences if d.excludes_zero and d.mean < 0]
    if not better:
        return f"{metric.title}: none is clearly better than {base}"
    if len(better) == 1:
        return f"{metric.title}: {better[0]} is clearly better than {base}"
    return f"{metric.title}: {len(better)} of {len(differences)} are clearly better than {base}"


def _runs(comparison: Comparison, limit: int) -> list[tuple[Contender, RunResult]]:
    runs = [(c, comparison.runs[c]) for c in comparison.contenders if c in comparison.runs]
    return runs[:limit]


def _limit_sentence(comparison: Comparison, limit: int) -> str:
    total = sum(c in comparison.runs for c in comparison.contenders)
    return f" The first {limit} of {total} combinations are shown." if total > limit else ""


def _distributions(comparison: Comparison) -> str:
    names, runs = names_of(comparison), _runs(comparison, MAX_CURVES)
    caption = f"One run each (seed {_seeds(runs)}).{_limit_sentence(comparison, MAX_CURVES)}"
    parts = [
        _cdf_section("jct-cdf", "Job completion time", [(names[c], series.jcts(r.jobs)) for c, r in runs], caption),
        _cdf_section("wait-cdf", "Waiting time", [(names[c], series.waits(r.jobs)) for c, r in runs], caption),
    ]
    return page.pair(*parts) if any(parts) else ""


def _seeds(runs: list[tuple[Contender, RunResult]]) -> str:
    return ", ".join(dict.fromkeys(str(r.summary.seed) for _, r in runs))


def _cdf_section(figure_id: str, title: str, curves: list[tuple[str, series.Floats]], caption: str) -> str:
    if not any(len(v) and v[-1] > 0 for _, v in curves):
        return ""
    medians = [(series.quantile(v, 0.5), n) for n, v in curves if len(v)]
    low, high = min(medians), max(medians)
    spec = figures.cdf_figure(curves, title)
    return page.section(_medians(title, low, high, duration), page.figure(figure_id, spec), caption=caption)


def _medians(title: str, low: tuple[float, str], high: tuple[float, str], write: Callable[[float], str]) -> str:
    """A title with the smallest and the largest median, each with the name of its curve."""
    first, last = write(low[0]), write(high[0])
    if first == last:
        return f"{title}: {first} at the median" + (" of each" if low[1] != high[1] else "")
    return f"{title}: medians from {first} ({low[1]}) to {last} ({high[1]})"


def _fairness(comparison: Comparison) -> str:
    """Distributions of the bounded slowdown and of finish-time fairness."""
    names, runs = names_of(comparison), _runs(comparison, MAX_CURVES)
    parts = []
    for ratio in series.RATIOS:
        curves = [(names[c], ratio.values(r.jobs)) for c, r in runs]
        curves = [(name, values) for name, values in curves if len(values)]
        if curves:
            medians = [(series.quantile(v, 0.5), name) for name, v in curves]
            low, high = min(medians), max(medians)
            title = _medians(ratio.title, low, high, times)
            spec = figures.ratio_cdf_figure(curves, ratio.title)
            parts.append(page.section(title, page.figure(f"{ratio.key}-cdf", spec), caption=ratio.meaning))
    return page.pair(*parts) if parts else ""


def _breakdown(comparison: Comparison) -> str:
    """Where job time went, on average over the jobs of one run of each combination."""
    names, runs = names_of(comparison), _runs(comparison, MAX_VIEWS)
    groups = [(names[c], breakdown.mean_time(r.jobs)) for c, r in runs]
    known = [(name, mean) for name, mean in groups if mean is not None]
    if not known:
        return ""
    caption = f"{breakdown.MEANING} One run each (seed {_seeds(runs)}).{_limit_sentence(comparison, MAX_VIEWS)}"
    return page.section(
        "Where job time went",
        page.figure("job-time", breakdown.figure(known, _rows_are(comparison))),
        breakdown.table(known, _rows_are(comparison).lower()),
        caption=caption,
    )


def _types(comparison: Comparison) -> str:
    """How much of each GPU type was used."""
    names = names_of(comparison)
    runs = [(c, r) for c, r in _runs(comparison, MAX_VIEWS) if r.segments and len(r.cluster.types) > 1]
    if not runs:
        return ""
    found = [(names[c], series.use_by_type(r)) for c, r in runs]
    header = [Cell(_rows_are(comparison).lower(), False), *(Cell(f"{t} (%)") for t in found[0][1])]
    rows = [[Cell(name, False), *(Cell(f"{100 * u.share:.1f}") for u in use.values())] for name, use in found]
    caption = f"GPU time held over that of the cluster. One run each.{_limit_sentence(comparison, MAX_VIEWS)}"
    return page.section("Utilization by GPU type", page.table(header, rows), caption=caption)


def _views(comparison: Comparison) -> str:
    """Load over time and map, one policy at a time."""
    runs = [(c, r) for c, r in _runs(comparison, MAX_VIEWS) if r.segments]
    if not runs:
        return ""
    cells = min(MAX_CELLS, max(20_000, 4 * MAX_CELLS // len(runs)))
    note = _limit_sentence(comparison, MAX_VIEWS).strip()
    return page.section("Load over time", _chosen(runs, _load_view, comparison), caption=note) + page.section(
        "Gantt chart of the GPUs", _chosen(runs, lambda key, r: _map_view(key, r, cells), comparison), caption=note
    )


def _chosen(
    runs: list[tuple[Contender, RunResult]], draw: Callable[[str, RunResult], str], comparison: Comparison
) -> str:
    names = names_of(comparison)
    choice = page.selector([(f"v{i}", names[c]) for i, (c, _) in enumerate(runs)])
    return choice + "".join(page.view(f"v{i}", draw(f"v{i}", r), shown=i == 0) for i, (_, r) in enumerate(runs))


def _load_view(key: str, result: RunResult) -> str:
    load = series.load_over_time(result)
    sentence = f"{figures.load_title(load)}. {figures.load_caption(load)}"
    return page.caption_of(sentence) + page.figure(f"load-{key}", figures.load_figure(load))


def _map_view(key: str, result: RunResult, max_cells: int) -> str:
    drawn = gantt.map_figure(result, max_cells)
    if drawn is None:
        return page.empty("No GPU was ever held.")
    return page.caption_of(f"{_sentence(gantt.map_title(result))} {drawn[1]}") + page.figure(f"map-{key}", drawn[0])


def _sentence(title: str) -> str:
    return f"{title[:1].upper()}{title[1:]}."


def _slowdown(comparison: Comparison) -> str:
    names, runs = names_of(comparison), _runs(comparison, MAX_CURVES)
    groups = [(names[c], series.slowdown_by_size(r.jobs)) for c, r in runs]
    groups = [(name, classes) for name, classes in groups if classes]
    if not groups:
        return ""
    caption = f"Boxes hold the middle half of the jobs, whiskers 5 % to 95 %.{_limit_sentence(comparison, MAX_CURVES)}"
    return page.section(
        "Slowdown by job size", page.figure("slowdown", figures.slowdown_figure(groups)), caption=caption
    )
