"""Between rounds free GPUs are given out, but nobody is stopped: how the live scheduler behaves, simulated."""

from __future__ import annotations

from tests.sim.tiny import simulate
from trine.core.cluster import Cluster
from trine.core.job import Job


def test_free_gpus_do_not_wait_for_the_round() -> None:
    jobs = [Job("a", 10.0, 2, 50.0), Job("b", 20.0, 2, 30.0)]
    outcome = simulate(jobs, Cluster.uniform(1, 2), "fifo", "packed-sticky", fill=True, round_s=1000.0)
    assert outcome.times == {"a": (10.0, 60.0), "b": (60.0, 90.0)}


def test_nobody_is_stopped_before_the_round() -> None:
    jobs = [Job("long", 0.0, 2, 500.0), Job("short", 10.0, 2, 20.0)]
    outcome = simulate(jobs, Cluster.uniform(1, 2), "srtf", "packed-sticky", fill=True, round_s=100.0)
    assert outcome.times == {"long": (0.0, 520.0), "short": (100.0, 120.0)}


def test_placements_that_place_anew_move_nobody_between_rounds() -> None:
    jobs = [Job("a", 0.0, 1, 30.0), Job("b", 0.0, 2, 300.0), Job("c", 40.0, 1, 10.0)]
    outcome = simulate(jobs, Cluster.uniform(2, 2), "fifo", "packed", fill=True, round_s=1000.0)
    assert outcome.records["b"].migrations == 0
    assert outcome.start("c") == 40.0
