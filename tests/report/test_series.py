from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.plausible import plausible_run
from trine.core.cluster import Cluster
from trine.core.result import JobRecord, RunResult, Segment
from trine.report import series
from trine.report.occupancy import JobMap, LoadMap, build_map, run_lengths


def stay(job: str, start_s: float, end_s: float, *gpus: int, tracked: bool = True) -> Segment:
    return Segment(job, start_s, end_s, gpus, "node", 1.0, "placed", "finished", tracked)


def record(
    job: str, submit_s: float, start_s: float, finish_s: float, gpus: int = 1, slowdown: float = 1.0
) -> JobRecord:
    jct_s = finish_s - submit_s
    return JobRecord(job, submit_s, start_s, finish_s, jct_s, start_s - submit_s, gpus, "", "", 0, 0, "gpu", slowdown)


def run_of(segments: list[Segment], jobs: list[JobRecord], cluster: Cluster | None = None) -> RunResult:
    return RunResult(plausible_run(jobs=1).summary, jobs, segments, cluster or Cluster.uniform(1, 4))


def value_at(steps: series.Steps, at_s: float) -> float:
    return float(steps.values[np.searchsorted(steps.at_s, at_s, side="right") - 1])


def test_busy_share_counts_a_shared_gpu_once() -> None:
    result = run_of([stay("a", 0, 100, 0, 1), stay("b", 50, 150, 1, 2), stay("c", 60, 70, 1)], [])
    busy = series.load_over_time(result).busy
    assert [value_at(busy, t) for t in (10, 65, 120, 150)] == [0.5, 0.75, 0.5, 0.0]
    assert series.time_mean(busy) == pytest.approx((2 * 50 + 3 * 50 + 2 * 50) / 150 / 4)


STAYS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 10), st.sets(st.integers(0, 3), min_size=1)), min_size=1, max_size=12
)


@given(STAYS)
def test_occupied_time_is_the_union_of_the_stays(stays: list[tuple[int, int, set[int]]]) -> None:
    held = series.without_overlap(series.holdings([stay(str(i), a, a + n, *g) for i, (a, n, g) in enumerate(stays)]))
    taken = {(gpu, second) for a, n, gpus in stays for gpu in gpus for second in range(a, a + n)}
    assert (held.end_s - held.start_s).sum() == len(taken)


def test_waiting_and_running_follow_submission_preemption_and_finish() -> None:
    jobs = [record("a", 0, 10, 100), record("b", 20, 100, 130)]
    stays = [stay("a", 10, 40, 0), stay("a", 60, 100, 0), stay("b", 100, 130, 0), stay("x", 0, 200, 3, tracked=False)]
    load = series.load_over_time(run_of(stays, jobs))
    assert [value_at(load.waiting, t) for t in (5, 15, 30, 50, 70, 110, 150)] == [1, 0, 1, 2, 1, 0, 0]
    assert [value_at(load.running, t) for t in (5, 15, 50, 70, 110, 150)] == [0, 1, 0, 1, 1, 0]


def test_thinning_keeps_the_mean() -> None:
    load = series.load_over_time(plausible_run(jobs=2000))
    thin = series.thinned(load.busy, bins=50)
    assert thin.averaged
    assert len(thin.at_s) == 51
    assert series.time_mean(thin) == pytest.approx(series.time_mean(load.busy))


@given(st.lists(st.floats(0, 1e7), max_size=900))
def test_a_cdf_rises_to_one_however_it_is_thinned(values: list[float]) -> None:
    x, y = series.cdf(series.finite(values))
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()
    assert (x > 0).all()
    if len(x):
        assert (x[-1], y[-1]) == (max(values), 1.0)


def test_jobs_of_many_sizes_are_grouped_by_powers_of_two() -> None:
    classes = series.slowdown_by_size([record(str(g), 0, 0, 1, gpus=g, slowdown=g) for g in range(1, 18)])
    assert [(c.label, c.jobs) for c in classes] == [
        ("1", 1),
        ("2", 1),
        ("3–4", 2),
        ("5–8", 4),
        ("9–16", 8),
        ("17–32", 1),
    ]


def test_a_slowdown_that_is_not_known_is_left_out() -> None:
    assert series.slowdown_by_size([record("a", 0, 0, 1, slowdown=math.nan)]) == []


def test_a_small_map_is_exact() -> None:
    built = build_map(run_of([stay("a", 0, 10, 0, 1), stay("b", 10, 30, 1), stay("c", 5, 8, 3)], []))
    assert isinstance(built, JobMap)
    assert built.exact
    assert built.edges_s.tolist() == [0, 5, 8, 10, 30]
    assert built.cells.tolist() == [[0, 0, 0, -1], [0, 0, 0, 1], [-1] * 4, [-1, 2, -1, -1]]


def test_a_large_map_keeps_the_gpu_time() -> None:
    result = plausible_run(jobs=3000, nodes=400, gpus_per_node=8)
    built = build_map(result)
    assert isinstance(built, LoadMap)
    held = sum((s.end_s - s.start_s) * len(s.gpus) for s in result.segments)
    gpus_per_row = 8 * built.nodes_per_row
    rows = np.minimum(gpus_per_row, 3200 - gpus_per_row * np.arange(len(built.share)))
    mapped = (built.share * rows[:, None]).sum() * (built.edges_s[1] - built.edges_s[0])
    assert mapped == pytest.approx(held)


def test_no_map_without_segments() -> None:
    assert build_map(run_of([], [])) is None


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=40))
def test_run_lengths_unpack_to_the_row(row: list[int]) -> None:
    flat = run_lengths(np.array(row, np.int32))
    unpacked = [v for n, v in zip(flat[::2], flat[1::2], strict=True) for _ in range(n)]
    assert unpacked == row
