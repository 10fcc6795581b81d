"""The order each key policy gives, on views small enough to rank by hand."""

from __future__ import annotations

import pytest

from tests.policy.views import Seen, order
from tests.sim.tiny import one_node, simulate
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.core.plugins import discover
from trine.parity.pal import remaining_by_wall_time
from trine.placement.base import Placement
from trine.policy.fifo import Fifo
from trine.policy.las import Las
from trine.policy.srsf import Srsf
from trine.policy.srtf import Srtf


def test_fifo_goes_by_submission_and_by_arrival_among_equals() -> None:
    jobs = [
        Seen("a", submit_s=5),
        Seen("b", submit_s=3),
        Seen("c", submit_s=3, running_since_s=4),
        Seen("d", submit_s=1),
    ]
    assert order(Fifo(), 10, jobs) == "dbca"


@pytest.mark.parametrize("policy", [Fifo(), Srtf(), Srsf(), Las()])
def test_priority_goes_before_every_key(policy: Fifo | Srtf | Srsf | Las) -> None:
    """The job that each of the keys would put last goes first, larger priorities before smaller ones."""
    jobs = [Seen("a", 10), Seen("b", 9000, 8, submit_s=9, priority=1), Seen("c", 9999, 8, submit_s=9, priority=2)]
    assert order(policy, 10, jobs) == "cba"


def test_srtf_goes_by_the_work_that_is_left() -> None:
    jobs = [
        Seen("a", 1000, ran_s=100),  # 900 left
        Seen("b", 1000, ran_s=100, running_since_s=500),  # 400 left at 1000
        Seen("c", 600),  # 600 left
        Seen("d", 1000, running_since_s=500, rate=0.5),  # slow GPUs: 250 of 1000 done, 750 left
    ]
    assert order(Srtf(), 1000, jobs) == "bcda"


def test_wall_attained_counts_the_time_run_whatever_was_done() -> None:
    """500 s on GPUs of half the speed: 750 s of work are left, 500 s by the published rule."""
    jobs = [Seen("a", 600), Seen("b", 1000, running_since_s=500, rate=0.5)]
    assert order(Srtf(), 1000, jobs) == "ab"
    assert order(Srtf(), 1000, jobs, remaining_by_wall_time) == "ba"


def test_srsf_weighs_the_work_left_by_the_gang() -> None:
    jobs = [Seen("a", 100, gpus=8), Seen("b", 300, gpus=2), Seen("c", 900, gpus=1, ran_s=400)]
    assert order(Srtf(), 0, jobs) == "abc"
    assert order(Srsf(), 0, jobs) == "cba"  # 500, 600, 800 GPU-seconds


def test_las_goes_by_seconds_held_not_by_gpu_seconds_or_work() -> None:
    jobs = [
        Seen("a", ran_s=300, gpus=1),
        Seen("b", ran_s=100, running_since_s=900, gpus=8, rate=0.1),  # 200 s at 1000
        Seen("c", ran_s=200, gpus=1),
        Seen("d", gpus=8),
    ]
    assert order(Las(), 1000, jobs) == "dbca"


PLACEMENTS = [name + suffix for name in sorted(discover("trine.placement", Placement)) for suffix in ("", "-sticky")]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("arrivals_s", [(0, 0, 0), (0, 1, 2)], ids=["together", "one by one"])
def test_fifo_head_of_line_blocks_even_those_that_would_fit(placement: str, arrivals_s: tuple[float, ...]) -> None:
    """a leaves one GPU, b needs two, c only one: c waits for b all the same."""
    jobs = [Job(i, s, g, 100) for i, s, g in zip("abc", arrivals_s, (3, 2, 1), strict=True)]
    out = simulate(jobs, one_node(4), "fifo", placement, event_driven=True)
    assert out.times == {"a": (0, 100), "b": (100, 200), "c": (100, 200)}
    loose = simulate(jobs, one_node(4), "fifo", placement, event_driven=True, strict=False)
    assert loose.start("c") == arrivals_s[2]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_fifo_never_stops_a_job_for_another(placement: str) -> None:
    jobs = [Job(f"j{i}", i * 7.0, 1 + i % 4, 50 + 37 * (i % 5)) for i in range(30)]
    assert simulate(jobs, Cluster.uniform(2, 4), "fifo", placement, round_s=20).summary.preemptions == 0


def test_srtf_stops_the_longer_job_and_resumes_it() -> None:
    """One GPU: a runs 0-100, b (150 s) has less left than a (900 s) and takes over, a goes on at 250."""
    jobs = [Job("a", 0, 1, 1000), Job("b", 100, 1, 150)]
    out = simulate(jobs, one_node(1), "srtf", event_driven=True)
    assert out.times == {"a": (0, 1150), "b": (100, 250)}
    assert out.stretches("a") == [(0, 100), (250, 1150)]
    assert (out.records["a"].preemptions, out.records["b"].preemptions) == (1, 0)


def test_srsf_and_srtf_disagree_about_a_wide_short_job() -> None:
    """a: 4 GPUs x 100 s = 400; b: 1 GPU x 300 s = 300. Four GPUs hold only one of them at a time."""
    jobs = [Job("a", 0, 4, 100), Job("b", 0, 1, 300)]
    assert simulate(jobs, one_node(4), "srtf", event_driven=True).times == {"a": (0, 100), "b": (100, 400)}
    assert simulate(jobs, one_node(4), "srsf", event_driven=True, round_s=1e6).times == {"a": (300, 400), "b": (0, 300)}


def test_las_takes_turns() -> None:
    """Two jobs, one GPU, rounds of 100 s: a on ties (it came first), else who ran less."""
    out = simulate([Job("a", 0, 1, 250), Job("b", 0, 1, 150)], one_node(1), "las", round_s=100)
    assert out.stretches("a") == [(0, 100), (200, 300), (400, 450)]
    assert out.stretches("b") == [(100, 200), (300, 350)]


@pytest.mark.parametrize("policy", ["las", "gittins", "tiresias"])
def test_a_move_does_not_wipe_out_the_service_a_job_has_had(policy: str) -> None:
    """Packed, re-placed every round: b and c move at 100 when a ends. Nobody has run less than 200 s at 200."""
    jobs = [Job("a", 0, 1, 100), Job("b", 0, 2, 500), Job("c", 0, 1, 1000)]
    out = simulate(jobs, Cluster.uniform(2, 2), policy, "packed", round_s=100)
    assert out.summary.migrations > 0
    for job in jobs:
        job_index = list(out.lives).index(job.id)
        assert out.engine.table.attained_s[job_index] == pytest.approx(out.lives[job.id].held_s)
