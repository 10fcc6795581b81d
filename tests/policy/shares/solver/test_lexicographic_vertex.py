"""Levels by vertices: as high as the interior point's, proven, and no less left for anybody to use."""

from __future__ import annotations

import numpy as np
import pytest

from trine.policy.shares.solver import max_min
from trine.policy.shares.solver.lexicographic_vertex import LexicographicVertex
from trine.policy.shares.solver.polytope import Array, LevelProblem

CAPACITY = np.array([6.0, 9.0, 12.0])


def problem(rng: np.random.Generator, jobs: int, capacity: Array = CAPACITY) -> tuple[LevelProblem, Array]:
    rates = rng.uniform(0.2, 1.0, (jobs, 3)) * np.array([4.0, 2.0, 1.0])
    rates[rng.random(jobs) < 0.1, 2] = 0.0
    gang = rng.choice((1.0, 1.0, 2.0, 4.0), jobs)
    fair = rates @ (capacity / capacity.sum())
    return LevelProblem(rates=rates, demand=fair / gang, gang=gang, capacity=capacity), rates / fair[:, None]


@pytest.mark.parametrize("seed", range(4))
def test_a_sequence_of_problems_in_which_jobs_come_and_go(seed: int) -> None:
    """Blocks are handed on and the last basis is the start: the level must be that of a solver that starts afresh."""
    rng, kept = np.random.default_rng(seed), LexicographicVertex()
    whole, worth = problem(rng, 60)
    for _ in range(40):
        rows = np.sort(rng.choice(60, int(rng.integers(8, 60)), replace=False))
        part = LevelProblem(
            rates=whole.rates[rows], demand=whole.demand[rows], gang=whole.gang[rows], capacity=CAPACITY
        )
        found, centre = kept.solve(part, worth[rows], rows.tolist()), max_min.solve(part)
        assert found is not None and found.gap <= 1e-7
        assert found.value == pytest.approx(centre.value, rel=1e-6)
        assert (part.gang @ found.x <= CAPACITY * (1 + 1e-9)).all() and (found.x.sum(axis=1) <= 1 + 1e-9).all()
        assert (worth[rows] * found.x).sum() >= (worth[rows] * centre.x).sum() * (1 - 1e-7)
        assert ((found.x > 1e-9).sum(axis=1) > 1).sum() <= ((centre.x > 1e-6).sum(axis=1) > 1).sum()


@pytest.mark.parametrize("jobs", [100, 200, 300])
def test_the_level_comes_first_with_many_jobs_too(jobs: int) -> None:
    asked, worth = problem(np.random.default_rng(jobs), jobs, CAPACITY * jobs / 20)
    found = LexicographicVertex().solve(asked, worth, range(jobs))
    assert found is not None and found.value == pytest.approx(max_min.solve(asked).value, rel=1e-6)


def test_demands_of_any_size() -> None:
    """Steps left range over many orders of magnitude, as under makespan."""
    asked, worth = problem(np.random.default_rng(1), 30)
    far = LevelProblem(rates=asked.rates, demand=np.geomspace(1e3, 1e8, 30), gang=asked.gang, capacity=CAPACITY)
    found = LexicographicVertex().solve(far, worth, range(30))
    assert found is None or found.value == pytest.approx(max_min.solve(far).value, rel=1e-6)


def test_other_capacities_begin_anew() -> None:
    asked, worth = problem(np.random.default_rng(2), 20)
    kept = LexicographicVertex()
    kept.solve(asked, worth, range(20))
    fewer = LevelProblem(rates=asked.rates, demand=asked.demand, gang=asked.gang, capacity=CAPACITY / 3)
    found = kept.solve(fewer, worth, range(20))
    assert found is not None and found.value == pytest.approx(max_min.solve(fewer).value, rel=1e-6)
