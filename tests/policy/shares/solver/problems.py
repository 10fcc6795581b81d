"""Random allocation problems of every kind: ties, zero rates, wild ranges, few and many GPUs."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from trine.policy.shares.solver.highs import minimise, rate_program
from trine.policy.shares.solver.polytope import Array, LevelProblem


def _rates(rng: np.random.Generator, n: int, types: int, kind: str) -> Array:
    if kind == "ties":
        rates: Array = rng.choice([0.5, 1.0, 2.0, 4.0], (n, types))
    elif kind == "wild":
        rates = rng.lognormal(0.0, 2.0, (n, types))
    elif kind == "few":
        rates = rng.uniform(0.1, 4.0, (5, types))[rng.integers(5, size=n)]
    else:
        rates = rng.uniform(0.1, 4.0, (n, types))
    return rates


def _demand(rng: np.random.Generator, n: int, kind: str) -> Array:
    if kind == "equal":
        return np.ones(n)
    if kind == "levels":
        return rng.choice([1.0, 2.0, 5.0], n)
    return rng.uniform(0.1, 5.0, n) if kind == "different" else rng.lognormal(0.0, 3.0, n)


def random_problem(
    seed: int,
    n: int,
    types: int,
    rates: str = "smooth",
    demand: str = "equal",
    gpus_per_job: float = 0.6,
    zeros: float = 0.0,
) -> LevelProblem:
    rng = np.random.default_rng(seed)
    table = _rates(rng, n, types, rates) * (rng.random((n, types)) >= zeros)
    stuck = table.max(axis=1) == 0
    table[stuck, rng.integers(types, size=int(stuck.sum()))] = 1.0
    gang = rng.choice([1.0, 2.0, 4.0, 8.0], n) if seed % 2 else np.ones(n)
    capacity = np.maximum(1.0, np.round(n * gpus_per_job * rng.dirichlet(np.ones(types))))
    return LevelProblem(rates=table, demand=_demand(rng, n, demand), gang=gang, capacity=capacity)


def rate_problems(most_jobs: int) -> st.SearchStrategy[LevelProblem]:
    return st.builds(
        random_problem,
        seed=st.integers(0, 10_000),
        n=st.one_of(st.integers(1, 12), st.integers(1, most_jobs)),
        types=st.integers(2, 10),
        rates=st.sampled_from(["smooth", "ties", "wild", "few"]),
        demand=st.sampled_from(["equal", "levels", "different", "heavy"]),
        gpus_per_job=st.sampled_from([0.03, 0.3, 1.0, 3.0, 20.0]),
        zeros=st.sampled_from([0.0, 0.3, 0.7]),
    )


def simplex_value(problem: LevelProblem) -> float:
    return -minimise(rate_program(problem)).value


def assert_feasible(x: Array, gang: Array, capacity: Array) -> None:
    assert x.min() >= 0.0
    assert x.sum(axis=1).max() <= 1 + 1e-9
    assert (gang @ x <= capacity * (1 + 1e-9) + 1e-9).all()
