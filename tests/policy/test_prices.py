"""Prices of GPU types: optimal where whole jobs allow it, never over capacity, and stable from round to round."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from trine.policy.prices import TypePrices, assign_types
from trine.policy.view import Floats, Ints


def assigned(value: list[list[float]], gangs: list[int], capacity: list[int]) -> list[int]:
    figures, sizes, room = np.array(value), np.array(gangs), np.array(capacity)
    prices = TypePrices().update(figures, sizes, room)
    answer: list[int] = assign_types(figures, sizes, room, prices).tolist()
    return answer


def test_a_job_that_does_not_care_leaves_the_fast_type_to_one_that_does() -> None:
    """Both are faster on type 0, but the second loses little on type 1."""
    assert assigned([[1.0, 0.1], [1.0, 0.9]], [1, 1], [1, 1]) == [0, 1]


def test_the_price_is_what_the_first_job_left_out_would_pay() -> None:
    value = np.array([[3.0], [2.0], [1.0]])
    assert TypePrices().update(value, np.array([1, 1, 1]), np.array([2])).tolist() == pytest.approx([1.0])


def test_types_that_are_not_full_are_free() -> None:
    assert TypePrices().update(np.array([[3.0, 2.0]]), np.array([2]), np.array([4, 4])).tolist() == [0.0, 0.0]


def test_a_wide_job_must_be_worth_all_its_gpus() -> None:
    assert assigned([[3.9], [1.0], [1.0], [1.0], [1.0]], [4, 1, 1, 1, 1], [4]) == [-1, 0, 0, 0, 0]
    assert assigned([[4.1], [1.0], [1.0], [1.0], [1.0]], [4, 1, 1, 1, 1], [4]) == [0, -1, -1, -1, -1]


def test_no_jobs_and_jobs_that_run_nowhere() -> None:
    assert assign_types(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), np.array([1, 1]), np.zeros(2)).tolist() == []
    assert assigned([[0.0, 0.0]], [1], [1, 1]) == [-1]


problems = st.integers(1, 12).flatmap(
    lambda jobs: st.tuples(
        st.lists(st.lists(st.floats(0.01, 10), min_size=3, max_size=3), min_size=jobs, max_size=jobs),
        st.lists(st.sampled_from([1, 2, 4]), min_size=jobs, max_size=jobs),
        st.lists(st.integers(0, 8), min_size=3, max_size=3),
    )
)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(problems)
def test_whole_gangs_within_capacity_and_no_gpu_idle_that_a_job_could_use(
    problem: tuple[list[list[float]], list[int], list[int]],
) -> None:
    value, gangs, capacity = problem
    chosen = assigned(value, gangs, capacity)
    left = [room - sum(g for g, t in zip(gangs, chosen, strict=True) if t == i) for i, room in enumerate(capacity)]
    assert min(left) >= 0
    for gang, t in zip(gangs, chosen, strict=True):
        assert t >= 0 or gang > max(left), "a job waits although a type has room for it"


@settings(derandomize=True, max_examples=60, deadline=None)
@given(problems)
def test_single_gpus_get_nearly_the_best_total(problem: tuple[list[list[float]], list[int], list[int]]) -> None:
    """Against the optimum of the linear program, which is whole for gangs of one."""
    value, gangs, capacity = np.array(problem[0]), np.ones(len(problem[1]), dtype=np.int64), np.array(problem[2])
    prices = TypePrices()
    for _ in range(4):  # prices go on from the round before
        prices.update(value, gangs, capacity)
    chosen = assign_types(value, gangs, capacity, prices.by_type)
    total = sum(value[i, t] for i, t in enumerate(chosen.tolist()) if t >= 0)
    assert total >= 0.9 * _optimum(value, capacity)


def _optimum(value: Floats, capacity: Ints) -> float:
    jobs, types = value.shape
    per_job = np.kron(np.eye(jobs), np.ones(types))
    per_type = np.kron(np.ones(jobs), np.eye(types))
    bounds = np.concatenate((np.ones(jobs), capacity.astype(np.float64)))
    found = linprog(-value.ravel(), A_ub=np.vstack((per_job, per_type)), b_ub=bounds, bounds=(0, 1))
    return -float(found.fun)


def test_prices_settle() -> None:
    rng = np.random.default_rng(1)
    value, gangs, capacity = rng.uniform(0.1, 1, (300, 3)), rng.choice([1, 4, 8], 300), np.array([96, 96, 96])
    prices = TypePrices()
    first = prices.update(value, gangs, capacity)
    for _ in range(3):
        last = prices.update(value, gangs, capacity)
    assert last == pytest.approx(first, rel=0.05)


def test_gpus_that_a_wide_gang_leaves_over_are_not_kept_at_its_price() -> None:
    """The gang of eight does not fit the first type and sets its price; a small job uses what is there all the same."""
    assert assigned([[9.0, 8.9], [1.0, 0.9]], [8, 4], [4, 12]) == [1, 0]
