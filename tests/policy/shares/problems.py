"""Small allocation problems the tests share: Gavel's two jobs, the paper's three, and odd ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trine.policy.shares.allocation import Allocation
from trine.policy.shares.problem import Entity, Pairs, Problem

TYPES = ("k80", "p100", "v100")
TWO = np.array([[0.5, 1.0, 2.0], [1.0, 2.0, 3.0]])
"""Steps per second of two jobs by type, as in Gavel's own tests."""
THREE = np.array([[10.0, 40.0], [4.0, 12.0], [50.0, 100.0]])
"""The example of Gavel's section 4.1: k80 and v100."""


def workers(v100: int, p100: int, k80: int) -> dict[str, int]:
    return {"k80": k80, "p100": p100, "v100": v100}


def pair(rates: NDArray[np.float64] = TWO) -> Pairs:
    """Jobs 0 and 1 together, with ``rates`` of either."""
    return Pairs(np.array([[0, 1]]), rates[None])


def two(cluster: dict[str, int], paired: bool = False, **more: Any) -> Problem:
    if paired:
        more["pairs"] = pair()
    return Problem.of(cluster, TWO, **more)


def three(**more: Any) -> Problem:
    return Problem.of({"k80": 1, "v100": 1}, THREE, **more)


def random_problem(seed: int, jobs: int = 12, **more: Any) -> Problem:
    """All fields filled; a third of the jobs have gangs, some cannot run on some types."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.2, 5.0, (jobs, 3)) * (rng.random((jobs, 3)) < 0.8)
    rates[:, 2] = np.maximum(rates[:, 2], 0.1)
    gang = rng.choice([1, 1, 2], jobs)
    entities = (Entity("a", 1.0), Entity("b", 2.0, "fifo"))
    given: dict[str, Any] = {
        "gang": gang,
        "weight": rng.choice([1.0, 1.0, 5.0], jobs),
        "steps_left": rng.uniform(10.0, 1e4, jobs),
        "elapsed_s": rng.uniform(0.0, 500.0, jobs),
        "isolated_s": rng.uniform(0.0, 200.0, jobs),
        "entity": rng.integers(-1, 2, jobs),
        "entities": entities,
        "prices": {"k80": 0.5, "p100": 1.5, "v100": 3.0},
    }
    return Problem.of(workers(4, 3, 2), rates, **(given | more))


def all_pairs(problem: Problem, speed: float = 0.7) -> Pairs:
    """Every two jobs of equal gang, each at ``speed`` of its rate alone."""
    n = len(problem)
    found = [(a, b) for a in range(n) for b in range(a + 1, n) if problem.gang[a] == problem.gang[b]]
    jobs = np.array(found, np.int64).reshape(-1, 2)
    return Pairs(jobs, problem.throughput[jobs] * speed)


def assert_valid(problem: Problem, found: Allocation, slack: float = 1e-9) -> None:
    """No job above full time, no type above its GPUs, throughputs as the shares say."""
    assert np.isfinite(found.shares).all() and np.isfinite(found.pair_shares).all()
    assert found.shares.min(initial=0.0) >= 0 and found.pair_shares.min(initial=0.0) >= 0
    assert found.total().sum(axis=1).max(initial=0.0) <= 1 + slack
    used = problem.gang @ found.shares + problem.gang[problem.pairs.jobs[:, 0]] @ found.pair_shares
    by_type = np.zeros(len(problem.types))
    np.add.at(by_type, problem.column_type, used)
    assert (by_type <= problem.capacity * (1 + slack) + slack).all()
    rate = (problem.throughput * found.shares).sum(axis=1)
    for side in (0, 1):
        for k, job in enumerate(problem.pairs.jobs[:, side]):
            rate[job] += problem.pairs.throughput[k, side] @ found.pair_shares[k]
    np.testing.assert_allclose(found.effective, rate, rtol=1e-9, atol=1e-12)
