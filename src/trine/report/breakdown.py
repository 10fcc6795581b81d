"""Where job time went: waiting, ideal run time, and what GPU type, chip, network, sharing and restarts added to it.

Means over jobs, as a table and as stacked bars, per run and per class of jobs. The parts of each job come from the
simulation (``core.result.JobTime``) and add up to its completion time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trine.core.result import JobRecord, JobTime
from trine.report import page
from trine.report.figures import Figure, axis, plotly_text
from trine.report.page import Cell
from trine.report.series import size_classes
from trine.report.text import median, share, time_unit

PARTS = {
    "wait_s": ("waiting", "@c6"),
    "ideal_s": ("ideal run time", "@c0"),
    "type_s": ("slower type", "@c5"),
    "chip_s": ("slow chips", "@c1"),
    "network_s": ("network", "@c2"),
    "sharing_s": ("sharing", "@c3"),
    "restart_s": ("restarts", "@c4"),
    "round_end_s": ("end of the round", "@background"),
}
MEANING = (
    "Mean per job; the parts add up to the completion time. Ideal: median GPUs of the best type, packed and alone; "
    "restarts include work that a stop threw away."
)
MAX_MODELS = 10
_NOTHING_S = 1e-6
"""A part below this, of which the sum of rounding errors is made, is none."""

Group = tuple[str, JobTime]


def mean_time(jobs: Sequence[JobRecord]) -> JobTime | None:
    """The mean of each part over the jobs of which it is known; ``None`` if that is none."""
    known = [j.time for j in jobs if j.time is not None]
    return JobTime(*(sum(part) / len(known) for part in zip(*known, strict=True))) if known else None


def by_size(jobs: Sequence[JobRecord]) -> list[Group]:
    """Means per number of GPUs, or per range of them where there are many."""
    classes = size_classes(sorted({j.gpus for j in jobs}))
    groups = [
        (f"{low}" if low == high else f"{low}–{high}", mean_time([j for j in jobs if low <= j.gpus <= high]))
        for low, high in classes
    ]
    return [(name, mean) for name, mean in groups if mean is not None]


def by_model(jobs: Sequence[JobRecord]) -> list[Group]:
    """Means per model, those first that took most time; nothing if there is one model only."""
    models: dict[str, list[JobRecord]] = {}
    for job in jobs:
        models.setdefault(job.model or "no model", []).append(job)
    if len(models) < 2:
        return []
    largest = sorted(models.items(), key=lambda item: (-sum(j.jct_s for j in item[1]), item[0]))[:MAX_MODELS]
    groups = [(name, mean_time(mine)) for name, mine in largest]
    return [(name, mean) for name, mean in groups if mean is not None]


def parts_shown(groups: Sequence[Group]) -> list[str]:
    """The parts that any of the groups has; waiting and the ideal run time in any case."""
    always = ("wait_s", "ideal_s")
    return [p for p in PARTS if p in always or any(abs(getattr(mean, p)) > _NOTHING_S for _, mean in groups)]


def table(groups: Sequence[Group], of: str) -> str:
    """One line per group, all in one unit, the completion time last."""
    unit = time_unit(median(sum(mean) for _, mean in groups))
    shown = parts_shown(groups)
    header = [Cell(of, number=False), *(Cell(f"{PARTS[p][0]} ({unit.symbol})") for p in shown)]
    header.append(Cell(f"completion time ({unit.symbol})"))
    rows = []
    for name, mean in groups:
        values = [*(getattr(mean, p) for p in shown), sum(mean)]
        # A part that is a rounding error below zero is zero.
        shown_values = (round(v / unit.seconds, 2) + 0.0 for v in values)
        rows.append([Cell(name, number=False), *(Cell(f"{v:,.2f}") for v in shown_values)])
    return page.table(header, rows)


def figure(groups: Sequence[Group], of: str) -> Figure:
    """A bar per group, its parts one after the other; time that was gained stands left of zero."""
    unit = time_unit(median(sum(mean) for _, mean in groups))
    names = [plotly_text(name) for name, _ in groups]
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": PARTS[part][0],
            "y": names,
            "x": [round(getattr(mean, part) / unit.seconds, 6) for _, mean in groups],
            "text": [share(getattr(mean, part) / sum(mean)) for _, mean in groups],
            "textposition": "none",
            "marker": {"color": PARTS[part][1]},
            "hovertemplate": f"%{{y}}: {PARTS[part][0]} %{{x:.4~r}} {unit.symbol} (%{{text}})<extra></extra>",
        }
        for part in parts_shown(groups)
    ]
    layout = {
        "height": 150 + 30 * len(groups),
        "barmode": "relative",
        "xaxis": axis(f"Mean completion time ({unit.plural})", rangemode="tozero"),
        "yaxis": axis(of, type="category", autorange="reversed", showgrid=False),
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    return {"data": data, "layout": layout}


def title(mean: JobTime) -> str:
    """What took most of the completion time besides the work itself."""
    total = sum(mean)
    added = {p: getattr(mean, p) for p in PARTS if p != "ideal_s"}
    largest = max(added, key=lambda p: added[p])
    if added[largest] <= _NOTHING_S:
        return "Job time is ideal run time: nothing was added to it"
    ideal, most = share(mean.ideal_s / total), share(added[largest] / total)
    return f"{ideal} of job time is ideal run time; the largest part of the rest: {PARTS[largest][0]}, {most}"
