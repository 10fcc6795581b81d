"""Baselines that others are compared with: FIFO that only fills gaps, log2 queues, time slices with packing moves."""

from __future__ import annotations

import pytest

from tests.policy.views import Seen, order
from tests.sim.tiny import one_node, simulate
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.policy.gandiva_slices import GandivaSlices
from trine.policy.las import Las
from trine.policy.srsf import Srsf
from trine.policy.srtf import Srtf
from trine.policy.tiresias import Tiresias

HOUR_S = 3600.0


@pytest.mark.parametrize("placement", ["packed", "packed-sticky"])
def test_fifo_with_backfill_fills_gaps_and_never_stops_anything(placement: str) -> None:
    """wide does not fit beside a; small overtakes it and keeps its GPU although wide could start at 100 without it.

    ``strict=false`` means the same."""
    jobs = [Job("a", 0, 3, 100), Job("wide", 1, 4, 100), Job("small", 2, 1, 500)]
    out = simulate(jobs, one_node(4), "fifo", placement, event_driven=True, backfill=True)
    assert out.times == {"a": (0, 100), "wide": (502, 602), "small": (2, 502)}
    loose = simulate(jobs, one_node(4), "fifo", placement, event_driven=True, strict=False)
    assert loose.times == out.times and loose.summary.preemptions == 0


@pytest.mark.parametrize("placement", ["packed", "packed-sticky"])
def test_las_with_a_quantum_lets_a_job_run_for_one_at_least(placement: str) -> None:
    """Two equal jobs on one GPU in rounds of 10 s: exactly counted, they stop each other all the time.

    In quanta, the one that runs goes on as long as the other has not had less of them."""
    jobs = [Job("a", 0, 1, 1000), Job("b", 0, 1, 1000)]
    finely = simulate(jobs, one_node(1), "las", placement, round_s=10)
    quanta = simulate(jobs, one_node(1), "las", placement, round_s=10, quantum_s=250)
    assert finely.summary.preemptions > 90
    assert quanta.stretches("a") == [(0, 250), (750, 1250), (1750, 2000)]
    assert quanta.stretches("b") == [(250, 750), (1250, 1750)]
    assert quanta.summary.preemptions == 3


@pytest.mark.parametrize("policy", ["srtf", "srsf"])
def test_a_newcomer_that_needs_exactly_as_long_does_not_stop_a_running_job(policy: str) -> None:
    """After 0.1 + 0.2 s of work, what is left of ``a`` is 0.7 s but for a rounding error, as much as ``b`` needs."""
    jobs = [Job("a", 0.0, 1, 1.0), Job("b", 0.3, 1, 0.7)]
    out = simulate(jobs, one_node(1), policy, event_driven=True)
    assert out.summary.preemptions == 0 and out.start("b") == 1.0


@pytest.mark.parametrize("since_s", [0.1, 0.3, 0.7, 1.1, 12345.678])
def test_times_left_that_differ_by_rounding_are_equal(since_s: float) -> None:
    """Whichever way the error goes: the one that came first ranks first."""
    left = [Seen("a", 86_400.3, submit_s=0, running_since_s=0.0), Seen("b", 86_400.3 - since_s, submit_s=since_s)]
    assert order(Srtf(), since_s, left) == "ab"
    assert order(Srsf(), since_s, left) == "ab"


@pytest.mark.parametrize(
    ("ran_s", "since_s", "now", "left_s"),
    [(28.3, 835.8, 1268.6, 85939.2), (233.1, 230.9, 449.7, 85948.4), (837.6, 556.5, 1198.8, 84920.4)],
)
def test_an_equal_newcomer_ranks_behind_a_job_that_ran_in_two_parts(
    ran_s: float, since_s: float, now: float, left_s: float
) -> None:
    """``a`` has ``left_s`` of 86,400.3 s left, but for the rounding error of adding up its two runs."""
    jobs = [Seen("a", 86_400.3, submit_s=0, ran_s=ran_s, running_since_s=since_s), Seen("b", left_s, submit_s=now)]
    assert order(Srtf(), now, jobs) == "ab"
    assert order(Srsf(), now, jobs) == "ab"


def test_fifo_with_backfill_does_not_stop_for_priority_either() -> None:
    jobs = [Job("a", 0, 1, 100), Job("urgent", 1, 1, 100, priority=5)]
    for placement in ("packed", "packed-sticky"):
        assert simulate(jobs, one_node(1), "fifo", placement, round_s=10, backfill=True).start("urgent") == 100


def test_las_in_log2_queues_goes_by_doubling_gpu_hours() -> None:
    """a and b are in queue 1 (1 and 2.9 GPU-hours), c in queue 2, d in queue 0; in a queue the oldest goes first."""
    jobs = [
        Seen("a", 1e6, 2, submit_s=2, ran_s=0.5 * HOUR_S),
        Seen("b", 1e6, 1, submit_s=1, ran_s=2.9 * HOUR_S),
        Seen("c", 1e6, 1, submit_s=0, ran_s=3 * HOUR_S),
        Seen("d", 1e6, 1, submit_s=3, ran_s=0.9 * HOUR_S),
    ]
    assert order(Las(queues="log2"), 0, jobs) == "dbac"
    assert order(Las(), 0, jobs) == "adbc"


def test_equals_do_not_take_turns_in_log2_queues() -> None:
    jobs = [Job("a", 0, 1, 2000), Job("b", 0, 1, 2000)]
    assert simulate(jobs, one_node(1), "las", round_s=100, queues="log2").summary.preemptions == 0
    assert simulate(jobs, one_node(1), "las", round_s=100).summary.preemptions > 10


def test_tiresias_in_log2_queues_has_more_than_two() -> None:
    jobs = [Seen("a", 1e6, ran_s=8 * HOUR_S), Seen("b", 1e6, submit_s=1, ran_s=4 * HOUR_S)]
    assert order(Tiresias(promote_after=0), 0, jobs) == "ab"
    assert order(Tiresias(promote_after=0, queues="log2"), 0, jobs) == "ba"


def test_slices_go_round() -> None:
    """Three jobs, one GPU, slices of 60 s: each waits for the two others."""
    jobs = [Job(i, 0, 1, 120) for i in "abc"]
    out = simulate(jobs, one_node(1), "gandiva-slices", round_s=60)
    assert [out.stretches(i) for i in "abc"] == [
        [(0, 60), (180, 240)],
        [(60, 120), (240, 300)],
        [(120, 180), (300, 360)],
    ]


def test_nothing_gives_way_while_there_is_room() -> None:
    jobs = [Job(i, 0, 1, 1000) for i in "abc"]
    assert simulate(jobs, one_node(4), "gandiva-slices", round_s=60).summary.preemptions == 0


def test_a_slice_is_not_cut_short() -> None:
    jobs = [Job("a", 0, 1, 1000), Job("b", 10, 1, 1000)]
    out = simulate(jobs, one_node(1), "gandiva-slices", round_s=30, slice_s=300)
    assert out.stretches("a")[0] == (0, 300) and out.stretches("b")[0] == (300, 600)


def test_whoever_waited_longest_goes_next_and_the_longest_turn_ends_first() -> None:
    now = 1000.0
    jobs = [
        Seen("a", running_since_s=500),
        Seen("b", running_since_s=100),
        Seen("c", idle_since_s=900),
        Seen("d", idle_since_s=800),
        Seen("e", idle_since_s=950, priority=1),
    ]
    assert order(GandivaSlices(), now, jobs) == "edcab"


def test_a_gang_that_is_spread_moves_to_pack() -> None:
    jobs = [Job("a", 0, 2, 100), Job("b", 0, 2, 900), Job("gang", 0, 2, 900)]
    out = simulate(jobs, Cluster.uniform(2, 3), "gandiva-slices", round_s=60, locality_penalty=2.0)
    assert out.records["gang"].migrations == 1 and out.summary.preemptions == 0
    stays = simulate(jobs, Cluster.uniform(2, 3), "gandiva-slices", round_s=60, locality_penalty=2.0, pack=False)
    assert stays.summary.migrations == 0 and stays.finish("gang") > out.finish("gang")
