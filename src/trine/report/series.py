"""What the plots show, as arrays: distributions, step functions of time, slowdown by job size. No colours, no HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trine.core.result import JobRecord, RunResult, Segment

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


def load_over_time(result: RunResult) -> ClusterLoad:
    span = clock_span(result)
    return ClusterLoad(span, busy_share(result, span), *running_and_waiting(result, span))


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
    counts = sorted({g for g, _ in known})
    classes = [(g, g) for g in counts] if len(counts) <= MAX_SIZES else _powers_of_two(counts)
    found = []
    for low, high in classes:
        values = finite([s for g, s in known if low <= g <= high])
        if len(values):
            q = tuple(float(v) for v in np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)))
            found.append(SizeClass(f"{low}" if low == high else f"{low}–{high}", len(values), q))  # type: ignore[arg-type]
    return found


def _powers_of_two(counts: Sequence[int]) -> list[tuple[int, int]]:
    top = math.ceil(math.log2(max(counts)))
    return [(1, 1), *((2**k + 1, 2 ** (k + 1)) for k in range(top))] if top else [(1, 1)]


def gpu_time_across_nodes(segments: Sequence[Segment]) -> float:
    """Share of the held GPU time that went to placements wider than one node; NaN if no GPU was held."""
    weights = np.array([(s.end_s - s.start_s) * len(s.gpus) for s in segments], np.float64)
    wide = np.array([s.tier in {"rack", "network"} for s in segments], bool)
    return float(weights[wide].sum() / weights.sum()) if weights.sum() > 0 else math.nan
