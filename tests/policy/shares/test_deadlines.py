"""Deadlines as floors: the best ratio of throughput to price above them, and which jobs are said to miss theirs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.policy.shares.problems import random_problem, two, workers
from trine.policy.shares.max_throughput import MaxThroughput
from trine.policy.shares.min_cost import MinCost
from trine.policy.shares.program import needed_rate
from trine.policy.shares.solver.linear import maximise_sum


@pytest.mark.parametrize("seed", range(6))
def test_the_best_ratio_cannot_be_beaten_by_any_mix(seed: int) -> None:
    """At the best ratio R no shares that meet the deadlines make ``throughput - R price`` positive."""
    problem = random_problem(seed, 12, deadline_s=np.where(np.arange(12) % 3 == 0, 1e5, np.inf))
    found = MinCost(form="ratio").allocate(problem)
    floors = needed_rate(problem)
    assert floors.any() and not found.notes
    assert found.gap <= 1e-7
    assert (found.effective >= floors * (1 - 1e-8)).all()
    beyond = problem.rates - found.objective * problem.gang[:, None] * problem.prices
    best = maximise_sum(beyond, problem.gang.astype(np.float64), problem.capacity, rates=problem.rates, floors=floors)
    assert best.value == pytest.approx(0.0, abs=1e-6)


def test_deadlines_that_cannot_be_met_together_are_named_and_the_others_kept() -> None:
    problem = two(workers(1, 1, 1), steps_left=[190.0, 290.0], deadline_s=100.0)
    found = MaxThroughput().allocate(problem)
    (note,) = found.notes
    kept = 1 - note.job
    assert found.effective[kept] >= needed_rate(problem)[kept] * (1 - 1e-8)


def test_a_deadline_beyond_the_fastest_type_is_named_alone() -> None:
    found = MaxThroughput().allocate(two(workers(1, 1, 1), steps_left=[250.0, 100.0], deadline_s=100.0))
    assert [note.job for note in found.notes] == [0]
