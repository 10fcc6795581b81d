"""What the plots show, as arrays: distributions, step functions of time, slowdown by job size. No colours, no HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trine.core.result import SHORT_JOB_S, JobRecord, RunResult, Segment

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_STEPS = 1500
"""Step functions with more changes than this are shown as means over as many equal bins."""
CDF_POINTS = 400
MAX_SIZES = 10


@dataclass(frozen=True)
class Steps:
    """A step function: ``values[i]`` holds from ``at_s[i]`` to ``at_s[i + 1]``. ``averaged`` if it was thinned out."""

    at_s: Floats
    values: Floats
    averaged: bool = False


@dataclass(frozen=True)
class SizeClass:
    """Slowdowns of the jobs of one range of GPU counts: 5th, 25th, 50th, 75th and 95th percentile."""

    label: str
    jobs: int
    quantiles: tuple[float, float, float, float, float]


def finite(values: Sequence[float] | Floats) -> Floats:
    """The finite values, ascending."""
    array = np.asarray(values, np.float64)
    return np.sort(array[np.isfinite(array)])


def jcts(jobs: Sequence[JobRecord]) -> Floats:
    """Completion times of the finished jobs, seconds, ascending."""
    return finite([j.jct_s for j in jobs if math.isfinite(j.finish_s)])


def waits(jobs: Sequence[JobRecord]) -> Floats:
    """Waiting times of the finished jobs, seconds, ascending."""
    return finite([j.wait_s for j in jobs if math.isfinite(j.finish_s)])


def bounded_slowdowns(jobs: Sequence[JobRecord]) -> Floats:
    """Bounded slowdowns of the finished jobs, ascending."""
    return finite([j.bounded_slowdown for j in jobs if math.isfinite(j.finish_s) and j.slowdown > 0])


def rhos(jobs: Sequence[JobRecord]) -> Floats:
    """Finish-time fairness of the finished jobs, ascending; empty where it was not computed."""
    return finite([j.rho for j in jobs if math.isfinite(j.finish_s) and j.rho > 0])


@dataclass(frozen=True)
class Ratio:
    """A figure of a job that is a ratio to 1, with its distribution."""

    key: str
    title: str
    meaning: str
    values: Callable[[Sequence[JobRecord]], Floats]


RATIOS = (
    Ratio(
        "bounded-slowdown",
        "Bounded slowdown",
        f"Completion time over the ideal run time, of which at least {SHORT_JOB_S:g} s count; 1 is perfect.",
        bounded_slowdowns,
    ),
    Ratio(
        "fairness",
        "Finish-time fairness (rho)",
        "Completion time over that with an equal share of the cluster; above 1 a job fared worse than that.",
        rhos,
    ),
)


def quantile(ordered: Floats, q: float) -> float:
    return float(np.quantile(ordered, q)) if len(ordered) else math.nan


def cdf(ordered: Floats) -> tuple[Floats, Floats]:
    """Positive values and the share of all values at or below each; thinned to a few hundred evenly ranked points.

    Zeros do not fit a logarithmic axis: they raise the height at which the curve begins.
    """
    first = int(np.searchsorted(ordered, 0.0, side="right"))
    if first == len(ordered):
        return np.empty(0), np.empty(0)
    ranks = np.unique(np.linspace(first, len(ordered) - 1, CDF_POINTS).round().astype(np.int64))
    values = ordered[ranks]
    return values, np.searchsorted(ordered, values, side="right") / len(ordered)


def clock_span(result: RunResult) -> tuple[float, float]:
    """From the first to the last thing that happened, on the trace's clock; ``(0, 0)`` if nothing did."""
    times = [j.submit_s for j in result.jobs] + [j.finish_s for j in result.jobs]
    times += [s.start_s for s in result.segments] + [s.end_s for s in result.segments]
    seen = finite(times)
    return (float(seen[0]), float(seen[-1])) if len(seen) else (0.0, 0.0)


def step_sum(start_s: Floats, end_s: Floats, span: tuple[float, float]) -> Steps:
    """How many of the intervals are open at each moment of ``span``."""
    at = np.concatenate([start_s, end_s])
    change = np.concatenate([np.ones(len(start_s)), -np.ones(len(end_s))])
    times, index = np.unique(np.concatenate([np.asarray(span), at]), return_inverse=True)
    counted = np.bincount(index, np.concatenate([np.zeros(2), change]), len(times))
    values = np.cumsum(counted.astype(np.float64))
    return Steps(times, values)


def thinned(steps: Steps, bins: int = MAX_STEPS) -> Steps:
    """``steps`` itself if short, else its means over ``bins`` equal intervals of time."""
    if len(steps.at_s) <= bins:
        return steps
    edges = np.linspace(steps.at_s[0], steps.at_s[-1], bins + 1)
    area = np.concatenate([[0.0], np.cumsum(steps.values[:-1] * np.diff(steps.at_s))])
    means = np.diff(np.interp(edges, steps.at_s, area)) / np.diff(edges)
    return Steps(edges, np.append(means, means[-1]), averaged=True)


@dataclass(frozen=True)
class Holdings:
    """Which GPU was held from when to when, one row per GPU and segment."""

    gpu: Ints
    start_s: Floats
    end_s: Floats
    segment: Ints


def holdings(segments: Sequence[Segment]) -> Holdings:
    """All (GPU, segment) pairs, in the order of the segments; segments of no length are left out."""
    kept = [i for i, s in enumerate(segments) if s.end_s > s.start_s]
    sizes = np.array([len(segments[i].gpus) for i in kept], np.int64)
    gpu = np.fromiter((g for i in kept for g in segments[i].gpus), np.int64, int(sizes.sum()))
    start = np.array([segments[i].start_s for i in kept], np.float64)
    end = np.array([segments[i].end_s for i in kept], np.float64)
    return Holdings(gpu, np.repeat(start, sizes), np.repeat(end, sizes), np.repeat(np.array(kept, np.int64), sizes))


def without_overlap(held: Holdings) -> Holdings:
    """The same occupied time with every GPU counted once, where jobs share a GPU."""
    order = np.lexsort((held.start_s, held.gpu))
    gpu, segment = held.gpu[order], held.segment[order]
    start, end = held.start_s[order], held.end_s[order]
    if not len(gpu):
        return held
    # Ranks in place of times: a running maximum per GPU is then one exact integer scan over all of them.
    times, rank = np.unique(end, return_inverse=True)
    offset = gpu * len(times)
    reach = np.maximum.accumulate(rank + offset)
    before = np.concatenate([[-1], reach[:-1]]) - offset
    covered = before >= 0
    start = np.where(covered, np.maximum(start, times[np.where(covered, before, 0)]), start)
    kept = end > start
    return Holdings(gpu[kept], start[kept], end[kept], segment[kept])


def busy_share(result: RunResult, span: tuple[float, float]) -> Steps:
    """Share of the cluster's GPUs that are held, background jobs included."""
    held = without_overlap(holdings(result.segments))
    busy = step_sum(held.start_s, held.end_s, span)
    return Steps(busy.at_s, busy.values / max(1, result.cluster.gpu_count), busy.averaged)


@dataclass(frozen=True)
class TypeUse:
    """What jobs held of one GPU type: GPUs of the type, GPU-seconds, and the share of all there were."""

    gpus: int
    held_gpu_s: float
    share: float


def use_by_type(result: RunResult) -> dict[str, TypeUse]:
    """By GPU type over the whole run, background jobs included, GPUs that jobs share counted once."""
    held, (start_s, end_s) = without_overlap(holdings(result.segments)), clock_span(result)
    by_gpu = np.bincount(held.gpu, held.end_s - held.start_s, result.cluster.gpu_count)
    type_of = np.array([result.cluster.nodes[n].gpu_type for n in result.cluster.node_of])
    found = {}
    for gpu_type, gpus in result.cluster.gpus_by_type.items():
        held_s = float(by_gpu[type_of == gpu_type].sum())
        found[gpu_type] = TypeUse(gpus, held_s, held_s / (gpus * (end_s - start_s)) if end_s > start_s else math.nan)
    return found


def busy_by_type(result: RunResult, span: tuple[float, float]) -> dict[str, Steps]:
    """Share of the GPUs of each type that are held over time; empty where there is one type only."""
    if len(result.cluster.types) < 2:
        return {}
    held = without_overlap(holdings(result.segments))
    type_index = {t: i for i, t in enumerate(result.cluster.types)}
    of_gpu = np.array([type_index[result.cluster.nodes[n].gpu_type] for n in result.cluster.node_of])
    found = {}
    for gpu_type, gpus in result.cluster.gpus_by_type.items():
        mine = of_gpu[held.gpu] == type_index[gpu_type]
        busy = step_sum(held.start_s[mine], held.end_s[mine], span)
        found[gpu_type] = Steps(busy.at_s, busy.values / gpus)
    return found


def running_and_waiting(result: RunResult, span: tuple[float, float]) -> tuple[Steps, Steps]:
    """Number of jobs that run and that wait, background jobs left out."""
    tracked = [s for s in result.segments if s.tracked and s.end_s > s.start_s]
    start, end = np.array([s.start_s for s in tracked]), np.array([s.end_s for s in tracked])
    recorded = {j.job_id for j in result.jobs}
    listed = np.array([s.job_id in recorded for s in tracked], bool)
    submit = np.array([j.submit_s for j in result.jobs])
    finish = np.array([j.finish_s if math.isfinite(j.finish_s) else span[1] for j in result.jobs])
    # A job that waits is in the system and does not run: the same sum, where a segment ends a wait and begins one.
    waiting = step_sum(np.concatenate([submit, end[listed]]), np.concatenate([finish, start[listed]]), span)
    return step_sum(start, end, span), Steps(waiting.at_s, np.maximum(waiting.values, 0.0), waiting.averaged)


@dataclass(frozen=True)
class ClusterLoad:
    """How full the cluster and the queue were over time, on the trace's clock."""

    span: tuple[float, float]
    busy: Steps
    running: Steps
    waiting: Steps
    busy_by_type: dict[str, Steps]


def load_over_time(result: RunResult) -> ClusterLoad:
    span = clock_span(result)
    running, waiting = running_and_waiting(result, span)
    return ClusterLoad(span, busy_share(result, span), running, waiting, busy_by_type(result, span))


def time_mean(steps: Steps) -> float:
    length = np.diff(steps.at_s)
    return float((steps.values[:-1] * length).sum() / length.sum()) if length.sum() > 0 else math.nan


def time_share_above(steps: Steps, level: float) -> float:
    """Share of the time during which ``steps`` is at least ``level``."""
    length = np.diff(steps.at_s)
    return float(length[steps.values[:-1] >= level].sum() / length.sum()) if length.sum() > 0 else math.nan


def slowdown_by_size(jobs: Sequence[JobRecord]) -> list[SizeClass]:
    """Quantiles of the slowdown per GPU count, per power of two where there are many counts."""
    known = [(j.gpus, j.slowdown) for j in jobs if math.isfinite(j.slowdown) and j.slowdown > 0]
    found = []
    for low, high in size_classes(sorted({g for g, _ in known})):
        values = finite([s for g, s in known if low <= g <= high])
        if len(values):
            q = tuple(float(v) for v in np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)))
            found.append(SizeClass(f"{low}" if low == high else f"{low}–{high}", len(values), q))  # type: ignore[arg-type]
    return found


def size_classes(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of GPU counts, ends included: each of ``counts`` (ascending) by itself, or powers of two if many."""
    return [(g, g) for g in counts] if len(counts) <= MAX_SIZES else _powers_of_two(counts)


def _powers_of_two(counts: Sequence[int]) -> list[tuple[int, int]]:
    top = math.ceil(math.log2(max(counts)))
    return [(1, 1), *((2**k + 1, 2 ** (k + 1)) for k in range(top))] if top else [(1, 1)]


def gpu_time_across_nodes(segments: Sequence[Segment]) -> float:
    """Share of the held GPU time that went to placements wider than one node; NaN if no GPU was held."""
    weights = np.array([(s.end_s - s.start_s) * len(s.gpus) for s in segments], np.float64)
    wide = np.array([s.tier in {"rack", "network"} for s in segments], bool)
    return float(weights[wide].sum() / weights.sum()) if weights.sum() > 0 else math.nan
