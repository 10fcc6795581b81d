"""Totals, ratios and floors against the plain program, and the published cost cases."""

from __future__ import annotations

import numpy as np
import pytest

from tests.policy.shares.solver.problems import assert_feasible, random_problem
from trine.policy.shares.solver.form import Array, InfeasibleError
from trine.policy.shares.solver.linear import maximise_ratio, maximise_sum, meetable

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


def test_floors_that_cannot_be_met_together_are_refused_and_named() -> None:
    floors = np.array([1.9, 2.9])
    with pytest.raises(InfeasibleError):
        maximise_sum(TWO, np.ones(2), np.ones(3), floors=floors)
    kept = meetable(TWO, floors, np.ones(2), np.ones(3))
    assert kept.sum() == 1
    assert maximise_sum(TWO, np.ones(2), np.ones(3), floors=np.where(kept, floors, 0.0)).gap <= 1e-9


def test_a_floor_beyond_the_fastest_type_is_named_alone() -> None:
    assert meetable(TWO, np.array([2.5, 1.0]), np.ones(2), np.ones(3)).tolist() == [False, True]


def test_a_gang_wider_than_a_type_may_still_combine_types() -> None:
    assert meetable(np.array([[2.0, 2.0]]), np.array([2.0]), np.array([4.0]), np.array([2.0, 2.0])).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_best_ratio_cannot_be_beaten_by_any_mix(seed: int) -> None:
    """At the best ratio R no shares make ``worth - R cost`` positive."""
    problem = random_problem(seed, 12, 3)
    cost = problem.gang[:, None] * PRICES
    floors = np.where(np.arange(12) % 3 == 0, 0.02, 0.0)
    answer = maximise_ratio(problem.rates, cost, problem.gang, problem.capacity, floors=floors)
    assert answer.gap <= 1e-7
    assert ((problem.rates * answer.x).sum(axis=1) >= floors * (1 - 1e-8)).all()
    beyond = problem.rates - answer.value * cost
    best = maximise_sum(beyond, problem.gang, problem.capacity, rates=problem.rates, floors=floors)
    assert best.value == pytest.approx(0.0, abs=1e-6)


def test_without_floors_only_the_best_bargain_runs() -> None:
    answer = maximise_ratio(TWO, np.tile(PRICES, (2, 1)), np.ones(2), np.ones(3))
    assert answer.value == pytest.approx(1.25)
    assert answer.x == pytest.approx(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
