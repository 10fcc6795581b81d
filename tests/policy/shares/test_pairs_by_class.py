"""Pairs by kinds of jobs: the same optimum as with every pair listed, and cheap for thousands of jobs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.policy.shares.problems import assert_valid, workers
from trine.core.errors import InputError
from trine.core.plugins import discover
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.max_min_fairness import MaxMinFairness
from trine.policy.shares.max_throughput import MaxThroughput
from trine.policy.shares.min_cost import MinCost
from trine.policy.shares.problem import ClassPairs, Problem

POLICIES: dict[str, type[Any]] = dict(discover("trine.policy.shares", SharePolicy))


def by_kinds(jobs: int, kinds: int, seed: int, gpus: int, **more: Any) -> Problem:
    """Kinds with random speeds; any two of equal gang may share, at 40 to 90 % of the speed alone."""
    rng = np.random.default_rng(seed)
    rates, gang = rng.uniform(0.5, 5.0, (kinds, 3)), rng.choice([1, 1, 2], kinds)
    kind = rng.integers(0, kinds, jobs)
    one, other = np.triu_indices(kinds)
    equal = gang[one] == gang[other]
    pairs = np.stack([one, other], axis=1)[equal]
    together = rates[pairs] * rng.uniform(0.4, 0.9, (len(pairs), 2, 3))
    same = pairs[:, 0] == pairs[:, 1]
    together[same] = together[same].mean(axis=1, keepdims=True)
    table = ClassPairs(kind, pairs, together)
    given: dict[str, Any] = {"prices": {"k80": 0.5, "p100": 1.5, "v100": 3.0}, "steps_left": 1000.0}
    weight = rng.choice([1.0, 3.0], jobs)
    return Problem.of(
        workers(gpus, gpus, gpus), rates[kind], gang=gang[kind], weight=weight, class_pairs=table, **(given | more)
    )


@pytest.mark.parametrize("policy", [MaxMinFairness(), MaxThroughput(), MinCost()])
@pytest.mark.parametrize("seed", range(4))
def test_kinds_and_listed_pairs_have_the_same_optimum(policy: SharePolicy, seed: int) -> None:
    problem = by_kinds(14, 4, seed, gpus=2)
    found, listed = policy.allocate(problem), policy.allocate(problem.listed())
    assert found.objective == pytest.approx(listed.objective, rel=1e-6)
    assert found.gap <= 1e-6 and len(found.pair_jobs) > 0
    assert (problem.gang[found.pair_jobs[:, 0]] == problem.gang[found.pair_jobs[:, 1]]).all()
    assert found.total().sum(axis=1).max() <= 1 + 1e-9
    used = problem.gang @ found.shares + problem.gang[found.pair_jobs[:, 0]] @ found.pair_shares
    assert (used <= problem.capacity * (1 + 1e-9)).all()


def test_throughputs_follow_from_the_pairs_chosen() -> None:
    problem = by_kinds(14, 4, 1, gpus=2)
    found, listed = MaxMinFairness().allocate(problem), problem.listed()
    row = {tuple(pair): k for k, pair in enumerate(listed.pairs.jobs.tolist())}
    rate = (problem.throughput * found.shares).sum(axis=1)
    for (a, b), share in zip(found.pair_jobs.tolist(), found.pair_shares, strict=True):
        made = listed.pairs.throughput[row[a, b]] @ share
        rate[a] += made[0]
        rate[b] += made[1]
    np.testing.assert_allclose(found.effective, rate, rtol=1e-8)


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"allox"}))
def test_every_policy_takes_classes(name: str) -> None:
    problem = by_kinds(8, 3, 2, gpus=1, deadline_s=[500.0] + [np.inf] * 7)
    found = POLICIES[name]().allocate(problem)
    stated = problem.listed() if len(found.pair_jobs) else problem
    if len(found.pair_jobs) == len(stated.pairs):
        assert_valid(stated, found)
    assert found.total().sum(axis=1).max() <= 1 + 1e-9


def test_jobs_of_a_kind_must_be_alike() -> None:
    table = ClassPairs(np.zeros(2, np.int64), np.array([[0, 0]]), np.ones((1, 2, 3)))
    with pytest.raises(InputError, match="job 1 differs from others of its kind"):
        Problem.of(workers(1, 1, 1), [[1.0, 2.0, 3.0], [1.0, 2.0, 4.0]], class_pairs=table)


def test_two_thousand_jobs_cost_milliseconds() -> None:
    problem, memory = by_kinds(2048, 40, 5, gpus=300), Memory()
    MaxMinFairness().allocate(problem, memory)
    start_s = time.process_time()
    found = MaxMinFairness().allocate(problem, memory)
    assert time.process_time() - start_s < 1.0
    assert found.gap <= 1e-6
