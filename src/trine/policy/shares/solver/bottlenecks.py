"""Bottlenecks without duals: a mixed-integer program over all jobs at once, for small cases."""

from __future__ import annotations

import numpy as np

from trine.policy.shares.solver.form import Array, Mask, RateProblem
from trine.policy.shares.solver.highs import INFINITY, Program, minimise

_STEP = 1e-5
"""Rise, relative to the largest level, that counts as a rise."""
_LENIENT = 1e-9
"""Levels are met to this precision only, far below a rise."""


def by_milp(problem: RateProblem, levels: Array, active: Mask) -> Mask:
    """Active rows that stay behind when as many as possible rise a little and nobody falls."""
    n, types = problem.rates.shape
    step = _STEP * max(float(levels.max()), 1e-9)
    program = _program(problem, levels, active, step)
    rises = minimise(program, tolerance=1e-10).x[n * types :]
    return active & (rises < 0.5)


def _program(problem: RateProblem, levels: Array, rising: Mask, step: float) -> Program:
    """Most rises: columns x row by row, then one rise per row of at most 1, in units of ``step``."""
    n, types = problem.rates.shape
    job, kind, column = np.repeat(np.arange(n), types), np.tile(np.arange(types), n), np.arange(n * types)
    rise = n * types + np.arange(n)
    entries = (
        (job, np.arange(n), n + job, 2 * n + kind),
        (column, rise, column, column),
        (problem.rates, np.full(n, -step), np.ones(n * types), problem.gang[job]),
    )
    lower = np.concatenate((levels * (1.0 - _LENIENT), np.full(n + types, -INFINITY)))
    upper = np.concatenate((np.full(n, INFINITY), np.ones(n), problem.capacity))
    cost = np.concatenate((np.zeros(n * types), np.where(rising, -1.0, 0.0)))
    most = np.concatenate((np.full(n * types, INFINITY), np.where(rising, 1.0, 0.0)))
    integer = np.concatenate((np.zeros(n * types, dtype=bool), rising))
    return Program.of(cost, entries, lower, upper, col_upper=most, integer=integer)
