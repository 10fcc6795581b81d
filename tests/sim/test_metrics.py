"""The numbers people compare, from runs small enough for pencil and paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.sim.tiny import one_node, simulate
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.core.result import Summary


def test_a_run_by_hand() -> None:
    """Two GPUs: a and b run 0-100 and 0-300, c waits for both until 300, d overtakes nobody."""
    jobs = [Job("a", 0, 1, 100), Job("b", 0, 1, 300), Job("c", 50, 2, 100), Job("d", 60, 1, 40)]
    out = simulate(jobs, one_node(2), event_driven=True)
    assert out.times == {"a": (0, 100), "b": (0, 300), "c": (300, 400), "d": (400, 440)}
    assert [r.jct_s for r in out.records.values()] == [100, 300, 350, 380]
    assert [r.wait_s for r in out.records.values()] == [0, 0, 250, 340]
    assert [r.slowdown for r in out.records.values()] == [1, 1, 3.5, 9.5]
    s = out.summary
    assert (s.jobs, s.finished, s.jct_mean_s, s.jct_p50_s, s.makespan_s) == (4, 4, 282.5, 325, 440)
    assert [s.jct_p95_s, s.jct_p99_s] == pytest.approx([350 + 0.85 * 30, 350 + 0.97 * 30])
    assert [s.wait_mean_s, s.wait_p95_s] == pytest.approx([147.5, 250 + 0.85 * 90])
    assert s.utilization == pytest.approx((100 + 300 + 200 + 40) / (2 * 440))
    assert (s.preemptions, s.migrations, s.lost_work_s, s.comm_gpu_s, s.cost) == (0, 0, 0, 0, 0)


def test_the_makespan_runs_from_the_first_submission() -> None:
    out = simulate([Job("a", 1000, 1, 50), Job("b", 1200, 1, 50)], one_node(1), round_s=300)
    assert out.finish("b") == 1550
    assert out.summary.makespan_s == 550
    assert out.summary.utilization == pytest.approx(100 / 550)


def test_waiting_after_a_preemption_counts_as_waiting() -> None:
    out = simulate([Job("a", 0, 1, 1000), Job("b", 100, 1, 150)], one_node(1), "srtf", event_driven=True)
    assert (out.records["a"].wait_s, out.records["a"].start_s) == (150, 0)


def test_gpus_held_to_the_end_of_the_round_are_not_counted_as_used() -> None:
    jobs = [Job("a", 0, 1, 100), Job("b", 0, 1, 100)]
    assert simulate(jobs, one_node(1), round_s=200).summary.utilization == pytest.approx(200 / 300)
    assert simulate(jobs, one_node(1), round_s=200, finish="round").summary.utilization == 1.0


def test_communication_is_what_the_network_adds() -> None:
    """Two GPUs on two nodes, 1.5 times slower: 150 s instead of 100 s, 50 s on each of two GPUs. Restores are not."""
    jobs = [Job("wide", 0, 2, 100), Job("narrow", 50, 1, 10)]
    out = simulate(jobs[:1], Cluster.uniform(2, 1), event_driven=True, locality_penalty=1.5)
    assert out.summary.comm_gpu_s == pytest.approx(100)
    out = simulate(jobs, Cluster.uniform(2, 1), "srtf", event_driven=True, locality_penalty=1.5, restore_s=30)
    assert out.finish("wide") == 50 + 10 + 30 + 100
    assert out.summary.comm_gpu_s == pytest.approx(100)


def test_cost_is_gpu_hours_times_the_price_of_the_type() -> None:
    cluster = replace(Cluster.uniform(1, 2, "v100"), prices_per_gpu_h={"v100": 3.6})
    assert simulate([Job("a", 0, 2, 500)], cluster, event_driven=True).summary.cost == pytest.approx(1.0)


def test_segments_cover_exactly_the_time_a_job_held_gpus() -> None:
    jobs = [Job(f"j{i}", 13.0 * i, 1 + i % 3, 60 + 17 * (i % 4)) for i in range(12)]
    out = simulate(jobs, Cluster.uniform(2, 2), "las", "packed", round_s=25, migration_s=3, restore_s=7)
    for job_id, life in out.lives.items():
        stretches = out.stretches(job_id)
        assert sum(end - start for start, end in stretches) == pytest.approx(life.held_s)
        assert all(a[1] <= b[0] for a, b in pairwise(stretches))
        assert (stretches[0][0], stretches[-1][1]) == (life.start_s, life.finish_s)


def test_every_key_of_the_summary_is_explained_once_and_shown_where_its_metadata_says() -> None:
    summary = simulate([Job("a", 0, 1, 100)], one_node(1)).summary
    keys = [metric.key for metric in Summary.metrics()]
    unknown_here = ("deadlines", "deadlines_missed", "energy_kwh")
    assert [key for key in keys if key not in unknown_here] == list(summary.as_dict())
    assert all(metric.doc for metric in Summary.metrics())
    assert all(bool(metric.title) == bool(metric.column) for metric in Summary.metrics())
