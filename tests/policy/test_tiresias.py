"""Tiresias: queues by attained GPU-seconds, running first inside a queue, and nobody starves."""

from __future__ import annotations

import pytest

from tests.policy.views import Seen, order, view
from tests.sim.tiny import one_node, simulate
from trine.core.job import Job
from trine.policy.tiresias import Tiresias


def test_a_job_sinks_at_the_limit_and_not_before() -> None:
    """At the limit of 100 GPU-seconds: 99 stays in the first queue, 100 does not."""
    policy = Tiresias((100.0,), promote_after=0)
    jobs = [Seen("a", ran_s=100), Seen("b", ran_s=99, submit_s=7), Seen("c", ran_s=0, submit_s=8)]
    assert order(policy, 10, jobs) == "bca"


def test_service_is_time_times_gpus() -> None:
    policy = Tiresias((100.0,), promote_after=0)
    assert order(policy, 10, [Seen("a", ran_s=50, gpus=2), Seen("b", ran_s=99, submit_s=1)]) == "ba"


def test_several_limits_make_several_queues_in_whatever_order_they_are_given() -> None:
    jobs = [Seen("a", ran_s=2000), Seen("b", ran_s=150), Seen("c", ran_s=20), Seen("d", ran_s=1000)]
    assert order(Tiresias((1000.0, 100.0), promote_after=0), 0, jobs) == "cbad"


def test_running_goes_before_waiting_inside_a_queue_but_not_across_queues() -> None:
    policy = Tiresias((100.0,), promote_after=0)
    jobs = [
        Seen("a", submit_s=0),
        Seen("b", submit_s=5, running_since_s=40),
        Seen("c", submit_s=1, ran_s=200),
        Seen("d", submit_s=2, ran_s=200, running_since_s=40),
    ]
    assert order(policy, 50, jobs) == "badc"


@pytest.mark.parametrize(("now", "expected"), [(899, "ba"), (900, "ab")])
def test_a_starving_job_returns_to_the_first_queue(now: float, expected: str) -> None:
    """a ran 100 s, then waits from 100 on; at 8 times its run time, at 900, it counts as new again."""
    jobs = [Seen("a", ran_s=100, idle_since_s=100), Seen("b", submit_s=1)]
    assert order(Tiresias((50.0,)), now, jobs) == expected


def test_promotion_can_be_switched_off() -> None:
    jobs = [Seen("a", ran_s=100, idle_since_s=100), Seen("b", submit_s=1)]
    assert order(Tiresias((50.0,), promote_after=0), 1e9, jobs) == "ba"


def test_a_promoted_job_sinks_again_after_another_full_limit() -> None:
    policy = Tiresias((50.0,))
    other = Seen("b", submit_s=1)
    assert order(policy, 900, [Seen("a", ran_s=100, idle_since_s=100), other]) == "ab"
    assert order(policy, 949, [Seen("a", ran_s=100, running_since_s=900), other]) == "ab"
    assert order(policy, 950, [Seen("a", ran_s=100, running_since_s=900), other]) == "ba"


def test_a_job_that_never_ran_is_not_promoted_over_others() -> None:
    """Nothing to forgive: a job without service is in the first queue already."""
    policy = Tiresias((50.0,))
    policy.rank(view(1e6, [Seen("a"), Seen("b", submit_s=1)]))
    assert order(policy, 1e6, [Seen("a"), Seen("b", submit_s=1, running_since_s=1e6 - 1)]) == "ba"


TWO = [Job("a", 0, 1, 1000), Job("b", 0, 1, 1000)]


def test_inside_a_queue_it_does_not_take_turns_as_las_does() -> None:
    """Both stay below the limit: a runs through, b follows. Plain LAS swaps them every round."""
    tiresias = simulate(TWO, one_node(1), "tiresias", round_s=300)
    assert tiresias.times == {"a": (0, 1000), "b": (1200, 2200)}
    assert tiresias.summary.preemptions == 0
    las = simulate(TWO, one_node(1), "las", round_s=300)
    assert las.times == {"a": (0, 1900), "b": (300, 2200)}
    assert las.summary.preemptions == 6


def test_demotion_lets_a_waiting_job_in_once() -> None:
    """Limit 600: a sinks at 600, b takes over, sinks at 1200 and goes on, for it runs already; a resumes at 1800."""
    jobs = [Job("a", 0, 1, 2000), Job("b", 0, 1, 1000)]
    out = simulate(jobs, one_node(1), "tiresias", round_s=300, queue_limits_gpu_s="600")
    assert out.stretches("a") == [(0, 600), (1800, 3200)]
    assert out.stretches("b") == [(600, 1600)]


def test_promotion_brings_a_starving_job_back() -> None:
    """As above, but after waiting as long as it ran (600 s) a is in the first queue again, then b in turn."""
    jobs = [Job("a", 0, 1, 2000), Job("b", 0, 1, 1000)]
    out = simulate(jobs, one_node(1), "tiresias", round_s=300, queue_limits_gpu_s="600", promote_after=1)
    assert out.stretches("a") == [(0, 600), (1200, 1800), (2400, 3200)]
    assert out.stretches("b") == [(600, 1200), (1800, 2200)]


# -- the rules of the authors' simulator -----------------------------------------------------------------------------


def test_inside_a_queue_the_simulator_goes_by_entry() -> None:
    """b sank before a: it is ahead of it in the second queue, although a is older and runs."""
    jobs = [Seen("a", ran_s=99, running_since_s=0), Seen("b", ran_s=100, submit_s=1)]
    later = [Seen("a", ran_s=99, running_since_s=0), Seen("b", ran_s=100, submit_s=1)]
    for rules, expected in (("paper", "ab"), ("simulator", "ba")):
        policy = Tiresias((100.0,), promote_after=0, rules=rules)
        assert order(policy, 0, jobs) == "ab"
        assert order(policy, 50, later) == expected


@pytest.mark.parametrize(("rules", "expected"), [("paper", "ba"), ("simulator", "ab")])
def test_in_the_simulator_all_waiting_since_the_last_promotion_adds_up(rules: str, expected: str) -> None:
    """a ran 100 s in two runs, the last up to 700, and waited 800 s in all, only 200 of them since."""
    policy = Tiresias((50.0,), rules=rules)
    jobs = [Seen("a", ran_s=100, idle_since_s=700), Seen("b", submit_s=1)]
    assert order(policy, 900, jobs) == expected


@pytest.mark.parametrize("rules", ["paper", "simulator"])
def test_promotions_and_entries_survive_a_restart(rules: str) -> None:
    starving = [Seen("a", ran_s=100, idle_since_s=100), Seen("b", submit_s=1), Seen("c", ran_s=60, submit_s=2)]
    before = Tiresias((50.0,), rules=rules)
    before.rank(view(900, starving))
    after = Tiresias((50.0,), rules=rules)
    after.restore(before.state(view(900, starving)), view(900, starving), stale=False)
    resumed = [Seen("a", ran_s=100, running_since_s=900), *starving[1:]]
    assert order(after, 949, resumed) == order(before, 949, resumed)
