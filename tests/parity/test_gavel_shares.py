"""What the published code does with pairs and with programs, where that differs from what it means to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trine.parity.flags import Compat
from trine.parity.gavel_shares import for_rounds
from trine.policy.shares.base import Memory
from trine.policy.shares.finish_time_fairness import FinishTimeFairness
from trine.policy.shares.gandiva import Gandiva
from trine.policy.shares.makespan import Makespan
from trine.policy.shares.max_min_fairness import MaxMinFairness
from trine.policy.shares.problem import Pairs, Problem


def one_gpu(jobs: int, together: float, **given: Any) -> Problem:
    """One V100 for all; any two make ``together`` of their speed while they share it."""
    first, second = np.triu_indices(jobs, 1)
    pairs = Pairs(np.stack((first, second), axis=1), np.full((len(first), 2, 1), together))
    return Problem.of({"v100": 1}, np.ones((jobs, 1)), pairs=pairs, **given)


def test_two_that_share_get_the_time_of_both() -> None:
    found = Gandiva().allocate(one_gpu(4, 0.6), Memory(0))
    paired = found.pair_shares.ravel()
    assert sorted(paired[paired > 0]) == pytest.approx([0.5, 0.5])
    assert found.effective == pytest.approx([0.3] * 4)


def test_a_pair_that_makes_less_than_one_alone_is_not_formed() -> None:
    found = Gandiva().allocate(one_gpu(4, 0.45), Memory(0))
    assert not found.pair_shares.any()
    assert found.shares.ravel() == pytest.approx([0.25] * 4)


def test_a_bad_pair_stands_until_the_next_computation() -> None:
    """Published: pairs are drawn blindly, and jobs of a pair that cannot run have no share of their own."""
    policy, memory = for_rounds(Gandiva(), Compat(draws_stand=True)), Memory(0)
    bad = one_gpu(3, 0.0)
    first = policy.allocate(bad, memory)
    assert len(memory.co_runners) == 2
    assert (first.shares.ravel() > 0).sum() == 1
    assert not first.pair_shares.any()
    before = dict(memory.co_runners)
    policy.allocate(one_gpu(3, 0.6), memory)
    assert memory.co_runners == before, "what pays by then is kept"


def test_a_pair_has_the_time_of_one_in_the_published_code() -> None:
    found = for_rounds(Gandiva(), Compat(draws_stand=True)).allocate(one_gpu(3, 0.6), Memory(0))
    assert found.shares.sum() + found.pair_shares.sum() == pytest.approx(1.0)
    assert found.shares.max() == pytest.approx(found.pair_shares.max())


@pytest.mark.parametrize(
    "policy", [MaxMinFairness(aware=False), Makespan(aware=False), FinishTimeFairness(aware=False)]
)
def test_without_speeds_time_is_given_where_a_job_cannot_run(policy: Any) -> None:
    rates = np.array([[0.0, 1.0], [1.0, 1.0]])
    problem = Problem.of({"k80": 1, "v100": 1}, rates, steps_left=[100, 100])
    quirks = Compat(any_type=True, centre_of_optima=True, makespan_bisection=True)
    found = for_rounds(policy, quirks).allocate(problem)
    assert found.shares[0, 0] > 0.1
    assert found.effective == pytest.approx((rates * found.shares).sum(axis=1))
    assert policy.allocate(problem).shares[0, 0] == 0


def test_the_centre_reaches_the_level_and_is_not_a_corner() -> None:
    """Two equal jobs on one GPU of each of two equal types: any split is optimal, the centre halves all."""
    problem = Problem.of({"k80": 1, "v100": 1}, np.ones((2, 2)))
    found = for_rounds(MaxMinFairness(), Compat(centre_of_optima=True)).allocate(problem)
    best = MaxMinFairness().allocate(problem)
    assert found.solver == "embedding"
    assert found.objective == pytest.approx(best.objective, rel=1e-7)
    np.testing.assert_allclose(found.shares, 0.5, atol=1e-6)


def test_the_centre_of_pairs_reaches_the_level_of_the_best_pairs() -> None:
    problem = one_gpu(4, 0.8)
    found = for_rounds(MaxMinFairness(), Compat(centre_of_optima=True)).allocate(problem)
    assert found.solver == "embedding"
    assert found.objective == pytest.approx(MaxMinFairness().allocate(problem).objective, rel=1e-6)
    assert found.pair_shares.ravel() == pytest.approx([found.pair_shares[0, 0]] * 6, abs=1e-6)


def test_a_bisected_makespan_suffices_for_its_guess() -> None:
    problem = Problem.of({"k80": 1, "v100": 1}, [[1.0, 3.0], [1.0, 2.0]], steps_left=[3000, 4000])
    best = Makespan().allocate(problem)
    for centred in (False, True):
        quirks = Compat(makespan_bisection=True, centre_of_optima=centred)
        found = for_rounds(Makespan(), quirks).allocate(problem)
        assert best.objective <= found.objective <= 1.05 * best.objective
        assert (found.effective * found.objective >= problem.steps_left * (1 - 1e-6)).all()
