"""Totals and floors against the plain program, and the published cost cases."""

from __future__ import annotations

import numpy as np
import pytest

from tests.policy.shares.solver.problems import assert_feasible, random_problem
from trine.policy.shares.solver.linear import maximise_sum
from trine.policy.shares.solver.polytope import Array, InfeasibleError

TWO = np.array([[2.0, 1.0, 0.5], [3.0, 2.0, 1.0]])
PRICES = np.array([3.1, 2.0, 0.8])


def test_throughput_sum_of_two_jobs() -> None:
    answer = maximise_sum(TWO, np.ones(2), np.ones(3))
    assert answer.value == pytest.approx(4.0)
    assert answer.gap <= 1e-9


@pytest.mark.parametrize("floors", [None, np.array([0.1, 0.0])])
def test_worth_per_price_puts_each_job_where_it_is_cheapest(floors: Array | None) -> None:
    answer = maximise_sum(TWO / PRICES, np.ones(2), np.ones(3), rates=TWO, floors=floors)
    assert answer.x == pytest.approx(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    assert answer.value == pytest.approx(1.8951613)


@pytest.mark.parametrize("seed", range(8))
def test_classes_lose_nothing(seed: int) -> None:
    kinds = random_problem(seed, 9, 3, zeros=0.2)
    member = np.random.default_rng(seed).integers(9, size=60)
    rates, gang, capacity = kinds.rates[member], kinds.gang[member], np.array([9.0, 7.0, 5.0])
    answer = maximise_sum(rates, gang, capacity)
    apart = maximise_sum(rates * (1 + 1e-13 * np.arange(60)[:, None]), gang, capacity)
    assert_feasible(answer.x, gang, capacity)
    assert answer.solver == "classes+highs"
    assert apart.solver == "highs"
    assert answer.value == pytest.approx(apart.value, rel=1e-9)
    assert answer.gap <= 1e-9


def test_floors_hold_and_cost_something() -> None:
    problem = random_problem(2, 30, 3)
    free = maximise_sum(problem.rates, problem.gang, problem.capacity)
    floors = np.full(30, 0.05)
    held = maximise_sum(problem.rates, problem.gang, problem.capacity, floors=floors)
    assert ((problem.rates * held.x).sum(axis=1) >= floors * (1 - 1e-8)).all()
    assert held.value < free.value
    assert held.gap <= 1e-8


def test_floors_that_cannot_be_met_together_are_refused() -> None:
    floors = np.array([1.9, 2.9])
    with pytest.raises(InfeasibleError):
        maximise_sum(TWO, np.ones(2), np.ones(3), floors=floors)
