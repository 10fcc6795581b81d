"""Gavel's round clock: slices of whole steps, what is charged for them, and gangs that fail."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.sim.test_share_rounds import job, rounds
from tests.sim.tiny import simulate
from trine.core.cluster import Cluster, Node
from trine.parity.flags import Compat
from trine.parity.gavel_clock import LAST_FAILURE, RunningJob, SliceClock, pair_cost_part, slice_clock
from trine.perf.model import PerfModel
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable

CLUSTER = Cluster.uniform(1, 4)
RATES = ThroughputTable({("m", 1): {"gpu": 2.0}, ("m", 4): {"gpu": 2.0}})
PERF = PerfModel(CLUSTER, VariabilityTable.of_cluster(CLUSTER), throughputs=RATES)


def clock(**quirks: bool) -> SliceClock:
    return SliceClock(PERF, 100.0, **({"charge_gap": False, "remainder_failure": False} | quirks))


def running(job_index: int, steps: float, done: float = 0.0, gpus: int = 1) -> RunningJob:
    known, held = job(str(job_index), 0.0, steps, gpus), tuple(range(gpus))
    return RunningJob(job_index, known, done, held, PERF.speed(known, held))


def test_as_published_a_round_ends_with_its_last_whole_step() -> None:
    """Of 0.33 steps/s a round of 100 s holds 33 whole steps: the second begins exactly when the 33rd is made."""
    table = ThroughputTable({("m", 1): {"gpu": 0.33}})
    jobs = [job("a", 0.0, 50.0)]
    out = simulate(
        jobs, Cluster.uniform(1, 1), "isolated", throughputs=table, round_s=100.0, compat__round_ends_early=True
    )
    assert out.finish("a") == pytest.approx(50 / 0.33)
    assert out.world.rounds == 2


def test_as_published_idle_time_jumps_to_the_next_arrival() -> None:
    jobs = [job("a", 0.0, 100.0), job("b", 777.0, 100.0)]
    out = rounds(jobs, "isolated", compat__round_ends_early=True)
    assert (out.start("b"), out.finish("b")) == (777.0, 827.0)


def test_a_gang_with_fewer_steps_than_gpus_fails_only_as_published() -> None:
    cluster = Cluster((Node("f", 2, "fast"),))
    jobs = [job("gang", 0.0, 301.0, gpus=2)]
    quirks: dict[str, Any] = {"compat__round_ends_early": True}
    fair = rounds(jobs, "isolated", cluster, **quirks)
    harsh = rounds(jobs, "isolated", cluster, compat__remainder_failure=True, **quirks)
    assert fair.finish("gang") == pytest.approx(301 / 3)
    assert harsh.lives["gang"].done == 300.0


def test_a_round_ends_with_its_last_slice_and_without_jobs_never() -> None:
    slices = clock()
    assert slices.end_s == math.inf
    slices.begin(10.0, [running(0, 60.0), running(1, 1000.0)], {})
    assert slices.end_s == 110.0
    assert [(s.job_index, s.steps, s.end_s, s.charged_s) for s in slices.end()] == [
        (0, 60.0, 40.0, 30.0),
        (1, 200.0, 110.0, 100.0),
    ]


def test_idle_time_before_a_round_is_charged_only_as_published() -> None:
    for quirk, charged_s in ((False, 10.0), (True, 10.0 + 40.0)):
        slices = clock(charge_gap=quirk)
        slices.begin(0.0, [running(0, 20.0)], {})
        slices.end()
        slices.begin(50.0, [running(1, 20.0)], {})
        assert [s.charged_s for s in slices.end()] == [charged_s]


def test_the_jobs_of_a_pair_end_their_slices_together() -> None:
    slices = clock()
    slices.begin(0.0, [running(0, 20.0), running(1, 60.0)], {0: 1, 1: 0})
    assert [(s.steps, s.end_s) for s in slices.end()] == [(20.0, 30.0), (60.0, 30.0)]


def test_a_job_is_given_up_after_failures_in_a_row_and_not_before() -> None:
    slices = clock(remainder_failure=True)
    for failures in range(1, LAST_FAILURE + 1):
        assert not slices.gives_up(0)
        slices.begin(0.0, [running(0, 103.0, done=100.0, gpus=4)], {})
        assert [(s.failed, s.charged_s) for s in slices.end()] == [(True, 0.0)], failures
    assert slices.gives_up(0)


def test_only_flags_put_the_clock_in_and_let_both_of_a_pair_pay() -> None:
    assert slice_clock(Compat(charge_gap=True), PERF, 100.0) is None
    assert slice_clock(Compat(round_ends_early=True), PERF, 100.0) is not None
    assert [pair_cost_part(Compat()), pair_cost_part(Compat(pair_cost_twice=True))] == [0.5, 1.0]
