"""What single policies promise beyond the contract: orders, partners, deadlines, prices, speed at size."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.shares.problems import TWO, all_pairs, assert_valid, pair, random_problem, three, two, workers
from trine.core.errors import InputError
from trine.policy.shares.allox import AlloX
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.fifo import FifoShares
from trine.policy.shares.finish_time_fairness import FinishTimeFairness
from trine.policy.shares.gandiva import Gandiva
from trine.policy.shares.isolated import Isolated
from trine.policy.shares.makespan import Makespan
from trine.policy.shares.max_min_fairness import MaxMinFairness
from trine.policy.shares.max_throughput import MaxThroughput
from trine.policy.shares.min_cost import MinCost
from trine.policy.shares.problem import Pairs, Problem
from trine.policy.shares.shortest_job_first import ShortestJobFirst

ONE_TYPE: dict[str, int] = {"v100": 2}


def one_type(jobs: int, **more: Any) -> Problem:
    return Problem.of(ONE_TYPE, np.ones((jobs, 1)), **more)


def test_fifo_takes_the_fastest_type_with_room() -> None:
    problem = Problem.of(workers(1, 1, 2), np.array([[1.0, 2, 3], [1, 2, 3], [5, 2, 3], [0, 2, 3]]))
    found = FifoShares().allocate(problem)
    assert found.shares.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_fifo_lets_nobody_overtake() -> None:
    found = FifoShares().allocate(one_type(3, gang=[1, 2, 1]))
    assert found.shares.tolist() == [[1], [0], [0]]
    assert FifoShares().allocate(one_type(3, gang=[1, 2, 1], arrival=[0, 2, 1])).shares.tolist() == [[1], [0], [1]]


@pytest.mark.parametrize(("speed", "joined"), [(0.8, True), (0.7, False)])
def test_fifo_joins_a_running_job_if_that_pays(speed: float, joined: bool) -> None:
    """A third job for two GPUs: it joins where both keep more than 1.5 times the throughput of one."""
    problem = one_type(3)
    rates = np.full((2, 2, 1), 0.2)
    rates[1] = speed
    found = FifoShares().allocate(replace(problem, pairs=Pairs(np.array([[0, 2], [1, 2]]), rates)))
    assert found.pair_shares.tolist() == [[0], [float(joined)]]
    assert found.effective.tolist() == pytest.approx([1, speed, speed] if joined else [1, 1, 0])
    assert (
        not FifoShares(space_sharing=False)
        .allocate(replace(problem, pairs=Pairs(np.array([[0, 2]]), rates[1:])))
        .pair_shares.any()
    )


def test_fifo_that_knows_no_speeds_leaves_jobs_where_they_are() -> None:
    memory = Memory(3)
    problem = two(workers(2, 2, 2))
    first = FifoShares(aware=False).allocate(problem, memory)
    again = [FifoShares(aware=False).allocate(problem, memory).shares.tolist() for _ in range(5)]
    assert again == [first.shares.tolist()] * 5
    drawn = {str(FifoShares(aware=False).allocate(problem, Memory(s)).shares.tolist()) for s in range(12)}
    assert len(drawn) > 1


def test_fifo_as_a_program_serves_the_first_best() -> None:
    found = FifoShares(form="lp").allocate(two(workers(1, 1, 1)))
    np.testing.assert_allclose(found.effective, [2.0, 2.0], atol=1e-9)
    turned = FifoShares(form="lp").allocate(two(workers(1, 1, 1), arrival=[1, 0]))
    assert turned.effective[1] == pytest.approx(3.0)


def test_the_shortest_job_goes_first() -> None:
    problem = Problem.of({"v100": 1, "k80": 1}, [[4.0, 1.0], [2.0, 2.0]], steps_left=[100.0, 10.0])
    found = ShortestJobFirst().allocate(problem)
    assert found.objective == 5.0
    assert found.shares.tolist() == [[0.0, 1.0], [1.0, 0.0]], "the other takes what is left"


def test_allox_matches_waiting_jobs_to_the_shortest_total_time() -> None:
    """One GPU, three jobs: shortest processing time first is optimal."""
    problem = Problem.of({"v100": 1}, np.ones((3, 1)), steps_left=[30.0, 10.0, 20.0])
    assert AlloX().allocate(problem).shares[:, 0].tolist() == [0, 1, 0]


def test_allox_leaves_out_places_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small matching for many jobs finds the same running jobs as the whole one."""
    problem = Problem.of(
        workers(1, 1, 1), random_problem(4, 40).throughput, steps_left=random_problem(4, 40).steps_left
    )
    whole = AlloX().allocate(problem)
    monkeypatch.setattr("trine.policy.shares.allox.LARGEST_MATRIX", 0)
    assert AlloX().allocate(problem).shares.tolist() == whole.shares.tolist()


def test_gandiva_keeps_pairs_and_splits_those_that_do_not_pay() -> None:
    problem = replace(one_type(6), pairs=all_pairs(one_type(6), 0.8))
    memory = Memory(1)
    first = Gandiva().allocate(problem, memory)
    assert first.pair_shares.any(axis=1).sum() == 3
    assert Gandiva().allocate(problem, memory).pair_shares.tolist() == first.pair_shares.tolist()
    slow = replace(problem, pairs=all_pairs(one_type(6), 0.3))
    found = Gandiva().allocate(slow, memory)
    assert not found.pair_shares.any()
    assert found.shares.sum() == pytest.approx(2.0)


def test_weight_divides() -> None:
    """A job of weight 3 gets three times the normalised throughput."""
    found = MaxMinFairness().allocate(one_type(4, weight=[3, 1, 1, 1]))
    np.testing.assert_allclose(found.effective, [1.0, 1 / 3, 1 / 3, 1 / 3], atol=1e-6)


@pytest.mark.parametrize("policy", [MaxThroughput(), MinCost()])
def test_deadlines_that_cannot_all_be_met_are_told_one_by_one(policy: SharePolicy) -> None:
    """One GPU, three jobs that need 0.6, 0.6 and 0.3 of it: one of the first two has to give way."""
    problem = Problem.of({"v100": 1}, np.ones((3, 1)), steps_left=[60, 60, 30], deadline_s=100.0, prices={"v100": 1.0})
    found = policy.allocate(problem)
    assert_valid(problem, found)
    late = {note.job for note in found.notes}
    assert len(late) == 1 and late <= {0, 1}
    assert all("cannot meet its deadline" in note.text for note in found.notes)
    kept = [i for i in range(3) if i not in late]
    assert (found.effective[kept] >= np.array([0.6, 0.6, 0.3])[kept] * (1 - 1e-9)).all()


def test_a_deadline_in_the_past_is_told() -> None:
    found = MaxThroughput().allocate(two(workers(1, 1, 1), steps_left=[10, 10], deadline_s=[-5.0, np.inf]))
    assert [note.text for note in found.notes] == ["job 0 cannot meet its deadline: it has passed"]
    assert not MaxThroughput(slo=False).allocate(two(workers(1, 1, 1), steps_left=10, deadline_s=1e-3)).notes


def test_a_deadline_raises_a_job_that_would_starve() -> None:
    problem = Problem.of({"v100": 1}, [[1.0], [10.0]], steps_left=[50, 50], deadline_s=[100.0, np.inf])
    np.testing.assert_allclose(MaxThroughput().allocate(problem).effective, [0.5, 5.0], atol=1e-6)
    np.testing.assert_allclose(MaxThroughput(slo=False).allocate(problem).effective, [0.0, 10.0], atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_no_shares_make_more_steps_for_the_price(seed: int) -> None:
    problem = random_problem(seed, 5, gang=1, deadline_s=np.inf)
    found = MinCost(form="ratio").allocate(problem)
    best = (problem.rates / problem.prices).max()
    assert found.objective == pytest.approx(best, rel=1e-6)
    assert found.gap <= 1e-6


def test_the_ratio_with_deadlines_pays_for_what_they_need() -> None:
    """The cheap type alone is too slow: the rest of the time is bought where it costs more."""
    problem = Problem.of(
        {"k80": 1, "v100": 1}, [[1.0, 2.0]], steps_left=150, deadline_s=100, prices={"k80": 1, "v100": 4}
    )
    found = MinCost(form="ratio").allocate(problem)
    np.testing.assert_allclose(found.shares, [[0.5, 0.5]], atol=1e-6)
    assert found.objective == pytest.approx(1.5 / 2.5)


@pytest.mark.parametrize("policy", [MaxMinFairness(), Makespan(), FinishTimeFairness()])
@pytest.mark.parametrize("seed", range(4))
def test_pairs_that_bring_nothing_change_nothing(policy: SharePolicy, seed: int) -> None:
    """The program with pairs and the structured solver have the same optimum."""
    problem = random_problem(seed, 9)
    useless = all_pairs(problem, 1e-6)
    with_pairs = policy.allocate(replace(problem, pairs=useless))
    assert with_pairs.solver == "highs"
    assert with_pairs.objective == pytest.approx(policy.allocate(problem).objective, rel=2e-6)


@pytest.mark.parametrize("policy", [MaxMinFairness(), Makespan(), FinishTimeFairness(), MaxThroughput()])
def test_good_pairs_help(policy: SharePolicy) -> None:
    """Six jobs on two GPUs: two together make 1.8 times the steps of one."""
    problem = one_type(6, steps_left=100.0)
    alone = policy.allocate(problem).objective
    shared = policy.allocate(replace(problem, pairs=all_pairs(problem, 0.9))).objective
    gain = alone / shared if isinstance(policy, (Makespan, FinishTimeFairness)) else shared / alone
    assert gain == pytest.approx(1.8)


def test_nobody_is_worse_off_than_alone() -> None:
    """Max-min fairness with speeds dominates the isolated share of the worst-off job."""
    problem = three()
    fair, isolated = MaxMinFairness().allocate(problem), Isolated().allocate(problem)
    assert (fair.effective >= isolated.effective * (1 - 1e-9)).all()


def test_a_pair_of_unequal_gangs_is_refused() -> None:
    with pytest.raises(InputError, match="job 0 with gpus 1 and job 1 with gpus 2"):
        two(workers(2, 2, 2), gang=[1, 2], pairs=pair(TWO))


def test_a_thousand_jobs_cost_milliseconds() -> None:
    """Arrays in, arrays out: what the policies add to the solver must not show."""
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.5, 4.0, (60, 3))[rng.integers(0, 60, 1000)]
    problem = Problem.of(workers(100, 100, 100), rates, steps_left=rng.uniform(1e3, 1e5, 1000))
    for policy in (MaxMinFairness(), Isolated(), FifoShares(), ShortestJobFirst()):
        memory = Memory()
        policy.allocate(problem, memory)
        start_s = time.process_time()
        policy.allocate(problem, memory)
        assert time.process_time() - start_s < 0.1, policy.name
