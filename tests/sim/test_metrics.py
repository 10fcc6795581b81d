"""The numbers people compare, from runs small enough for pencil and paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.sim.tiny import one_node, simulate
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.result import Summary, flat_results
from trine.inputs.power import gpu_watts
from trine.sim.metrics import energy_kwh, jain_index


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
    unknown_here = ("deadlines", "deadlines_missed", "energy_kwh", "dependents", "eligible_wait_mean_s")
    assert [key for key in keys if key not in unknown_here] == list(summary.as_dict())
    assert all(metric.doc for metric in Summary.metrics())
    assert all(bool(metric.title) == bool(metric.column) for metric in Summary.metrics())


def test_the_bounded_slowdown_counts_ten_seconds_of_short_jobs() -> None:
    """One GPU: a runs 0-100, b (2 s) waits until 100, c (50 s) until 102."""
    jobs = [Job("a", 0, 1, 100), Job("b", 40, 1, 2), Job("c", 52, 1, 50)]
    out = simulate(jobs, one_node(1), event_driven=True)
    assert [r.slowdown for r in out.records.values()] == [1, 31, 2]
    assert [r.bounded_slowdown for r in out.records.values()] == [1, 6.2, 2]
    s = out.summary
    assert s.bounded_slowdown_mean == pytest.approx(9.2 / 3)
    assert s.bounded_slowdown_max == 6.2
    short = simulate([Job("a", 0, 1, 3)], one_node(1), event_driven=True).records["a"]
    assert (short.slowdown, short.bounded_slowdown) == (1, 1), "below 1 is no merit of the scheduler"


def test_the_index_of_jain_is_that_of_rho() -> None:
    jobs = [Job("a", 0, 1, 100), Job("b", 0, 1, 100), Job("c", 0, 1, 100)]
    out = simulate(jobs, one_node(1), event_driven=True)
    rho = [record.rho for record in out.records.values()]
    assert out.summary.jain_index == pytest.approx(sum(rho) ** 2 / (3 * sum(r * r for r in rho)))
    assert jain_index(np.array([2.0, 2.0, 2.0])) == 1
    assert jain_index(np.array([5.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain_index(np.zeros(1)) == 0


def test_hours_and_use_of_gpus_by_type() -> None:
    """Two GPUs of one type, one of the other; 3,600 s of each type once, during 7,200 s."""
    cluster = Cluster((Node("a", 2, "v100"), Node("b", 1, "k80")))
    jobs = [Job("fast", 0, 2, 1800, gpu_types=("v100",)), Job("slow", 0, 1, 7200, gpu_types=("k80",))]
    s = simulate(jobs, cluster, event_driven=True).summary
    assert s.gpu_h_by_type == {"v100": pytest.approx(1), "k80": pytest.approx(2)}
    assert s.utilization_by_type == {"v100": pytest.approx(0.25), "k80": pytest.approx(1)}
    assert sum(s.gpu_h_by_type.values()) / 6 == pytest.approx(s.utilization)


def test_energy_is_hours_times_board_power_where_all_types_have_one() -> None:
    held_h = {"v100": 3.0, "K80": 2.0}
    assert energy_kwh(held_h, gpu_watts()) == pytest.approx((3 * 300 + 2 * 150) / 1000)
    assert energy_kwh(held_h, gpu_watts(("v100=250", "k80=100"))) == pytest.approx(0.95)
    assert energy_kwh(held_h | {"tpu": 0.0}, gpu_watts()) == 0
    assert energy_kwh({"tpu": 2.0}, gpu_watts(("TPU=500",))) == 1
    for wrong in ("v100", "v100=", "=3", "v100=-1", "v100=inf"):
        with pytest.raises(InputError, match="TYPE=WATTS"):
            gpu_watts((wrong,))


def test_flat_results_name_the_type() -> None:
    assert flat_results({"jobs": 3, "gpu_h_by_type": {"a": 1.0, "b": 2.0}}) == {
        "jobs": 3,
        "gpu_h_by_type.a": 1.0,
        "gpu_h_by_type.b": 2.0,
    }


def test_metrics_are_chosen_by_key_or_by_what_several_begin_with() -> None:
    assert [metric.key for metric in Summary.chosen(["rho", "cost"])] == ["rho_mean", "rho_p99", "rho_max", "cost"]
    assert Summary.chosen([]) == ()
    with pytest.raises(InputError, match=r"unknown metric 'wait_means' .did you mean 'wait_mean_s'"):
        Summary.chosen(["wait_means"])
