"""Makespan and finish-time fairness against bisection with HiGHS."""

from __future__ import annotations

import numpy as np
import pytest

from tests.policy.shares.solver.problems import assert_feasible, simplex_value
from trine.policy.shares.solver.finish_time import solve_finish_time
from trine.policy.shares.solver.max_min import solve
from trine.policy.shares.solver.polytope import Array, LevelProblem


def _workload(seed: int, n: int) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Heavy-tailed jobs: throughputs, steps left, elapsed and ideal seconds, gangs, GPUs."""
    rng = np.random.default_rng(seed)
    throughput = rng.lognormal(0.0, 1.0, (n, 1)) * np.sort(rng.uniform(0.2, 4.0, (n, 3)), axis=1)
    gang, capacity = rng.choice([1.0, 2.0, 4.0], n), np.full(3, max(1.0, n // 4))
    steps = throughput[:, 2] * 60.0 * 10.0 ** rng.uniform(1.5, 4.0, n)
    elapsed = rng.uniform(0.0, 20_000.0, n)
    share = capacity / (n * gang[:, None])
    share /= np.maximum(1.0, share.sum(axis=1))[:, None]
    ideal = elapsed * rng.uniform(0.3, 1.2, n) + steps / (throughput * share).sum(axis=1)
    return throughput, steps, elapsed, ideal, gang, capacity


@pytest.mark.parametrize("seed", range(6))
def test_no_shares_finish_all_jobs_sooner(seed: int) -> None:
    throughput, steps, _, _, gang, capacity = _workload(seed, 40 + 30 * seed)
    problem = LevelProblem(rates=throughput, demand=steps, gang=gang, capacity=capacity)
    answer = solve(problem)
    assert answer.value == pytest.approx(simplex_value(problem), rel=1e-6)
    assert answer.gap <= 1e-6
    last_s = (steps / (throughput * answer.x).sum(axis=1)).max()
    assert last_s == pytest.approx(1.0 / answer.value, rel=1e-9)


def test_a_finished_job_does_not_hold_the_others_up() -> None:
    throughput, steps, _, _, gang, capacity = _workload(3, 20)
    steps[4] = 0.0
    answer = solve(LevelProblem(rates=throughput, demand=steps, gang=gang, capacity=capacity))
    rest = np.arange(20) != 4
    others = LevelProblem(rates=throughput[rest], demand=steps[rest], gang=gang[rest], capacity=capacity)
    assert not answer.x[4].any()
    assert answer.value == pytest.approx(solve(others).value)


def _by_bisection(throughput: Array, steps: Array, elapsed: Array, ideal: Array, gang: Array, capacity: Array) -> float:
    low, high = float((elapsed / ideal).max()), 1e4
    while high - low > 1e-8 * high:
        rho = 0.5 * (low + high)
        demand = steps / (rho * ideal - elapsed)
        problem = LevelProblem(rates=throughput, demand=demand, gang=gang, capacity=capacity)
        low, high = (low, rho) if simplex_value(problem) >= 1.0 else (rho, high)
    return high


@pytest.mark.parametrize("seed", range(5))
def test_the_worst_ratio_is_as_small_as_bisection_finds(seed: int) -> None:
    jobs = _workload(seed, 5 + 9 * seed)
    answer = solve_finish_time(*jobs)
    assert answer.value == pytest.approx(_by_bisection(*jobs), rel=1e-6)
    assert answer.bound <= answer.value
    assert answer.gap <= 1e-6


@pytest.mark.parametrize(("seed", "n"), [(0, 1), (1, 2), (2, 300), (3, 700)])
def test_the_reported_ratio_is_the_one_the_shares_give(seed: int, n: int) -> None:
    throughput, steps, elapsed, ideal, gang, capacity = _workload(seed, n)
    answer = solve_finish_time(throughput, steps, elapsed, ideal, gang, capacity)
    assert_feasible(answer.x, gang, capacity)
    ratio = (elapsed + steps / (throughput * answer.x).sum(axis=1)) / ideal
    assert ratio.max() == pytest.approx(answer.value, rel=1e-9)
    assert answer.gap <= 1e-6


def test_two_jobs_as_published() -> None:
    """A on 1 v100, 2 p100, 3 k80, with 300 and 500 steps, isolated times from equal parts of the cluster."""
    throughput, capacity = np.array([[2.0, 1.0, 0.5], [3.0, 2.0, 1.0]]), np.array([1.0, 2.0, 3.0])
    share = capacity / 2
    share = share / share.sum()
    steps = np.array([300.0, 500.0])
    ideal = steps / (throughput @ share)
    answer = solve_finish_time(throughput, steps, np.zeros(2), ideal, np.ones(2), capacity)
    assert (throughput * answer.x).sum(axis=1) == pytest.approx([1.41935, 2.58065], rel=1e-5)


def test_equal_jobs_get_equal_shares() -> None:
    throughput, steps, elapsed, ideal, gang, capacity = (np.asarray(part) for part in _workload(5, 12))
    three = [np.concatenate((part, part, part)) for part in (throughput, steps, elapsed, ideal, gang)]
    answer = solve_finish_time(three[0], three[1], three[2], three[3], three[4], capacity)
    assert answer.solver.startswith("classes")
    assert np.array_equal(answer.x[:12], answer.x[12:24])
    assert answer.gap <= 1e-6


def test_nothing_to_do_is_refused() -> None:
    throughput, _, elapsed, ideal, gang, capacity = _workload(0, 3)
    with pytest.raises(ValueError, match="steps left"):
        solve_finish_time(throughput, np.zeros(3), elapsed, ideal, gang, capacity)
