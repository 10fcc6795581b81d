"""The geometric mean of rates: certified, and no small exchange improves it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.policy.shares.solver.problems import assert_feasible, random_problem, rate_problems
from trine.policy.shares.solver.linear import maximise_sum
from trine.policy.shares.solver.nash import solve_nash
from trine.policy.shares.solver.polytope import LevelProblem


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rate_problems(most_jobs=300))
def test_random_problems_are_certified(problem: LevelProblem) -> None:
    answer = solve_nash(problem.rates, problem.demand, problem.gang, problem.capacity)
    assert_feasible(answer.x, problem.gang, problem.capacity)
    rate = (problem.rates * answer.x).sum(axis=1)
    mean = np.exp((problem.demand * np.log(rate)).sum() / problem.demand.sum())
    assert answer.value == pytest.approx(mean, rel=1e-9)
    assert answer.gap <= 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_no_direction_leads_up(seed: int) -> None:
    """The linear program of the gradient, by another solver: no shares gain more than a millionth."""
    problem = random_problem(seed, 40, 3, demand="levels", zeros=0.2)
    answer = solve_nash(problem.rates, problem.demand, problem.gang, problem.capacity)
    rate = (problem.rates * answer.x).sum(axis=1)
    slope = (problem.demand / rate)[:, None] * problem.rates
    best = maximise_sum(slope, problem.gang, problem.capacity).value
    assert best <= problem.demand.sum() * (1 + 1e-6)


def test_equal_jobs_share_equally() -> None:
    answer = solve_nash(np.ones((4, 1)), np.ones(4), np.ones(4), np.ones(1))
    assert answer.x[:, 0] == pytest.approx(np.full(4, 0.25), rel=1e-6)


def test_time_goes_by_weight_on_one_gpu() -> None:
    answer = solve_nash(np.array([[5.0], [1.0]]), np.array([1.0, 3.0]), np.ones(2), np.ones(1))
    assert answer.x[:, 0] == pytest.approx([0.25, 0.75], rel=1e-6)


def test_classes_change_nothing() -> None:
    problem = random_problem(4, 20, 3)
    many = [np.concatenate((part, part, part)) for part in (problem.rates, problem.demand, problem.gang)]
    rates, weights, gang = many
    merged = solve_nash(rates, weights, gang, problem.capacity)
    full = solve_nash(rates, weights, gang, problem.capacity, classes=False)
    assert merged.value == pytest.approx(full.value, rel=1e-7)
