"""Hands out whole GPUs job by job in a given order. No objective: the order is the policy's."""

from __future__ import annotations

import numpy as np

from trine.policy.shares.problem import Problem
from trine.policy.view import Floats, Ints


def take_fastest(problem: Problem, order: Ints, strict: bool, free: Floats | None = None) -> Ints:
    """The type each job runs on, -1 for none: in ``order``, each takes the fastest type with room for its gang.

    ``strict``: nobody overtakes the first job without room. Of equally fast types the first is taken.
    """
    left = (problem.capacity if free is None else free).tolist()
    chosen = np.full(len(problem), -1, np.int64)
    fastest = np.argsort(-problem.rates, axis=1, kind="stable").tolist()
    can_run, gang = (problem.rates > 0).tolist(), problem.gang.tolist()
    for job in order.tolist():
        kind = next((j for j in fastest[job] if can_run[job][j] and left[j] >= gang[job]), -1)
        if kind >= 0:
            chosen[job] = kind
            left[kind] -= gang[job]
        elif strict or not any(left):
            break
    return chosen


def whole_shares(problem: Problem, chosen: Ints) -> Floats:
    """Full time on the chosen types."""
    x = np.zeros((len(problem), len(problem.types)))
    placed = np.flatnonzero(chosen >= 0)
    x[placed, chosen[placed]] = 1.0
    return x
