"""The page of one run: headline numbers, where job time went, distributions, load over time, the Gantt chart, use by
GPU type, slowdowns, what the network did to it (GPU time by tier, tuned waits, load of the links), how it was made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from trine.core.cluster import Tier
from trine.core.result import JobRecord, LinkLoad, RunResult, Summary, TierTime, TimerChange
from trine.report import breakdown, figures, gantt, page, provenance, series
from trine.report.compare import label
from trine.report.figures import LINE_COLOURS, Figure, axis, clock_axis, line_colour, step_line
from trine.report.page import Cell
from trine.report.text import (
    MISSING,
    count,
    duration,
    median,
    number,
    share,
    time_unit,
    times,
    when_decided,
    written,
)

WORST_JOBS = 20
TIER_NAMES = {Tier.GPU: "one GPU", Tier.NODE: "one node", Tier.RACK: "one rack", Tier.NETWORK: "several racks"}


def run_page(result: RunResult, command: str = "") -> str:
    """``report.html`` of a run that ``command`` made."""
    s = result.summary
    size = f"{count(s.jobs, 'job')} on {count(result.cluster.gpu_count, 'GPU')}"
    title = f"{label(s.policy)} with {label(s.placement)}: {size}"
    body = [
        page.cards(_cards(s)),
        page.notes(_unfinished(s), result.notes),
        _breakdown(result.jobs),
        _distributions(result.jobs),
        _fairness(result.jobs),
        _load(result),
        _types(result),
        _map(result),
        _tier_times(result),
        _links(result),
        _timers(result),
        _slowdown(result.jobs),
        _worst(result.jobs),
        provenance.section("run", result.settings, command),
    ]
    decided = when_decided(result.settings)
    lead = [result.cluster.describe(), f"decided {decided}" if decided else "", f"seed {s.seed}"]
    return page.page(title, "; ".join(filter(None, lead)), body)


def _unfinished(s: Summary) -> list[str]:
    left = s.jobs - s.finished
    return [f"{count(left, 'job')} did not finish; times, waits and the queue leave them out."] if left > 0 else []


def _cards(s: Summary) -> list[tuple[str, str]]:
    """Values with what they are; optional ones, such as costs, as far as the run knows of them."""
    finished = "jobs, all finished" if s.finished == s.jobs else f"of {s.jobs:,} jobs finished"
    values = [(f"{s.finished:,}", finished)]
    for metric in Summary.metrics():
        value = getattr(s, metric.key)
        if not metric.card or (metric.optional and value <= 0):
            continue
        # A summary of nothing holds zeros, which would read as very good.
        unknown = s.finished == 0 and metric.kind in ("duration", "share") and not metric.optional
        values.append((MISSING if unknown else written(metric.kind, value), metric.card))
    return values


def _distributions(jobs: list[JobRecord]) -> str:
    jct, wait = series.jcts(jobs), series.waits(jobs)
    left, right = page.empty("No job finished."), page.empty("No job waited." if jobs else "No job finished.")
    if len(jct):
        left = page.figure("jct-cdf", figures.cdf_figure([("", jct)], "Job completion time"))
    if len(wait) and wait[-1] > 0:
        right = page.figure("wait-cdf", figures.cdf_figure([("", wait)], "Waiting time"))
    return page.pair(
        page.section(figures.jct_title(jct), left, caption=_tail("finish within", "the longest takes", jct)),
        page.section(figures.wait_title(wait), right, caption=_tail("wait for at most", "the longest wait is", wait)),
    )


def _tail(verb: str, longest: str, ordered: series.Floats) -> str:
    if len(ordered) < 2 or ordered[-1] <= 0:
        return ""
    p95, p99 = (duration(series.quantile(ordered, q)) for q in (0.95, 0.99))
    return f"95 % {verb} {p95}, 99 % {verb} {p99}; {longest} {duration(float(ordered[-1]))}."


def _breakdown(jobs: list[JobRecord]) -> str:
    """Where job time went: over all jobs, by GPUs per job, by model."""
    mean = breakdown.mean_time(jobs)
    if mean is None:
        return ""
    sizes, models = breakdown.by_size(jobs), breakdown.by_model(jobs)
    parts = [
        page.figure("job-time", breakdown.figure([("all", mean), *sizes], "GPUs per job")),
        breakdown.table([("all jobs", mean), *((f"GPUs per job: {name}", m) for name, m in sizes)], "jobs"),
    ]
    if models:
        parts.append(page.figure("job-time-models", breakdown.figure(models, "Model")))
    return page.section(breakdown.title(mean), *parts, caption=breakdown.MEANING)


def _fairness(jobs: list[JobRecord]) -> str:
    """Bounded slowdown and finish-time fairness."""
    sections = []
    for ratio in series.RATIOS:
        values = ratio.values(jobs)
        if not len(values):
            continue
        middle, p99 = (times(series.quantile(values, q)) for q in (0.5, 0.99))
        title = f"{ratio.title}: {middle} at the median, {p99} at the 99th percentile"
        spec = figures.ratio_cdf_figure([("", values)], ratio.title)
        sections.append(page.section(title, page.figure(f"{ratio.key}-cdf", spec), caption=ratio.meaning))
    return page.pair(*sections) if sections else ""


def _types(result: RunResult) -> str:
    """How much of each GPU type was used; nothing where there is one type only."""
    if len(result.cluster.types) < 2 or not result.segments:
        return ""
    use = series.use_by_type(result)
    header = [Cell("type", number=False), Cell("GPUs"), Cell("GPU time held (hours)"), Cell("utilization (%)")]
    rows = [
        [Cell(t, number=False), Cell(f"{u.gpus:,}"), Cell(f"{u.held_gpu_s / 3600:,.1f}"), Cell(f"{100 * u.share:.1f}")]
        for t, u in use.items()
    ]
    most, least = max(use, key=lambda t: use[t].share), min(use, key=lambda t: use[t].share)
    title = f"Utilization by type: {share(use[most].share)} of {most}, {share(use[least].share)} of {least}"
    return page.section(title, page.table(header, rows), caption="GPU time held by jobs over that of the cluster.")


def _load(result: RunResult) -> str:
    if not result.segments:
        return _without_segments(result)
    load = series.load_over_time(result)
    spec = figures.load_figure(load)
    return page.section(figures.load_title(load), page.figure("load", spec), caption=figures.load_caption(load))


def _without_segments(result: RunResult) -> str:
    if result.jobs:
        return page.section("Load over time", page.empty("This run kept no timeline, so there is no load and no map."))
    return page.section("Nothing ran", page.empty("No GPU was ever held."))


def _map(result: RunResult) -> str:
    drawn = gantt.map_figure(result)
    if drawn is None:
        return ""
    return page.section(f"Gantt chart: {gantt.map_title(result)}", page.figure("map", drawn[0]), caption=drawn[1])


def _tier_times(result: RunResult) -> str:
    """Where GPU time went: compute and communication, on one machine and on several."""
    times = [t for t in result.tier_times if t.held_gpu_s > 0]
    if not times:
        return ""
    spec = tier_time_figure(times)
    caption = "Of jobs by how far apart their GPUs were; communication that compute hides counts as compute."
    return page.section(tier_time_title(times), page.figure("tier-time", spec), caption=caption)


def _links(result: RunResult) -> str:
    """How busy the links between nodes were."""
    if not result.link_loads:
        return ""
    loads = result.link_loads
    spec = link_figure(loads, series.clock_span(result))
    caption = f"Averages over an iteration, looked at {count(len(loads), 'time')}; background traffic is not counted."
    return page.section(link_title(loads), page.figure("links", spec), caption=caption)


def _timers(result: RunResult) -> str:
    """How long jobs waited for a better place at most, over time."""
    if not result.timers:
        return ""
    spec, caption = timer_figure(result.timers, series.clock_span(result))
    title = f"Waits for a better place were tuned {count(len(result.timers), 'time')}"
    return page.section(title, page.figure("timers", spec), caption=caption)


def _slowdown(jobs: list[JobRecord]) -> str:
    classes = series.slowdown_by_size(jobs)
    if not classes:
        return ""
    spec = figures.slowdown_figure([("", classes)])
    numbers = ", ".join(f"{c.label}: {c.jobs:,}" for c in classes)
    return page.section(
        figures.slowdown_title(classes),
        page.figure("slowdown", spec),
        caption=f"Boxes hold the middle half of the jobs, whiskers 5 % to 95 %. Jobs per size: {numbers}.",
    )


def _worst(jobs: list[JobRecord]) -> str:
    known = [j for j in jobs if math.isfinite(j.slowdown)]
    worst = sorted(known, key=lambda j: (-j.slowdown, j.job_id))[:WORST_JOBS]
    if not worst:
        return ""
    columns = [(title, texts, is_number) for title, texts, is_number in _worst_columns(worst) if any(texts)]
    header = [Cell(title, number=is_number) for title, _, is_number in columns]
    rows = [[Cell(texts[i], number=is_number) for _, texts, is_number in columns] for i in range(len(worst))]
    title = f"The worst job, {worst[0].job_id}, took {times(worst[0].slowdown)} its ideal run time"
    caption = f"The {count(len(worst), 'job')} with the largest slowdown." if len(worst) > 1 else ""
    return page.section(title, page.table(header, rows), caption=caption)


def _worst_columns(jobs: list[JobRecord]) -> list[tuple[str, list[str], bool]]:
    """Title, texts and whether they are numbers; each duration in one unit. A column without texts says nothing."""
    return [
        ("job", [j.job_id for j in jobs], False),
        ("user", [j.user for j in jobs], False),
        ("model", [j.model for j in jobs], False),
        ("GPUs", [f"{j.gpus:,}" for j in jobs], True),
        ("slowdown", [times(j.slowdown) for j in jobs], True),
        _in_one_unit("completion", [j.jct_s for j in jobs]),
        _in_one_unit("wait", [j.wait_s for j in jobs]),
        ("preemptions", [f"{j.preemptions:,}" for j in jobs], True),
        ("migrations", [f"{j.migrations:,}" for j in jobs], True),
        ("tier", [j.tier for j in jobs], False),
    ]


def _in_one_unit(title: str, seconds: list[float]) -> tuple[str, list[str], bool]:
    unit = time_unit(median(seconds))
    return f"{title} ({unit.symbol})", [number(s / unit.seconds) for s in seconds], True


# -- what the network did to a run -----------------------------------------------------------------------------------


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
