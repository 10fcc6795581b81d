"""Proof of an answer, from shares and prices alone: who found them, and how, does not enter."""

from __future__ import annotations

import math

import numpy as np

from trine.policy.shares.solver.form import Array, Certified, RateProblem
from trine.policy.shares.solver.highs import Program


def repair(x: Array, gang: Array, capacity: Array) -> Array:
    """The nearest shares below that respect capacities and the time of each job: clip, shrink columns, shrink rows."""
    x = np.maximum(x, 0.0)
    used = gang @ x
    over = used > capacity
    if True in over.tolist():
        x *= np.where(over, capacity / np.where(over, used, 1.0), 1.0)
    x /= np.maximum(1.0, np.add.reduce(x, axis=1))[:, None]
    return x


def reached(rates: Array, x: Array) -> Array:
    """Effective rate of every job under shares ``x``."""
    total: Array = np.einsum("mj,mj->m", rates, x)
    return total


def level(problem: RateProblem, x: Array) -> float:
    """The t that shares ``x`` support; minus infinity where a row without demand misses its floor by more than 1e-9."""
    rate, active = reached(problem.rates, x), problem.demand > 0
    rest = ~active
    if rest.any() and (rate < problem.floor - 1e-9 * np.maximum(1.0, np.abs(problem.floor)))[rest].any():
        return -np.inf
    return float(((rate - problem.floor)[active] / problem.demand[active]).min())


def dual_bound(problem: RateProblem, duals: Array, prices: Array) -> float:
    """Weak duality: no t is above this, for any ``duals >= 0`` with ``duals @ demand == 1`` and ``prices >= 0``."""
    profit = duals[:, None] * problem.rates
    profit -= problem.gang[:, None] * prices
    best = profit.max(axis=1, initial=0.0)
    return float(best.sum() + (problem.capacity * prices).sum() - (duals * problem.floor).sum())


def normal_duals(problem: RateProblem, duals: Array) -> Array:
    duals = np.maximum(duals, 0.0)
    total = float((duals * problem.demand).sum())
    if not 0.0 < total < np.inf:  # no usable direction: any normal one still gives a true, if weak, bound
        duals, total = (problem.demand > 0).astype(np.float64), float(problem.demand.sum())
    return duals / total


def certify(problem: RateProblem, x: Array, duals: Array, prices: Array, solver: str, iterations: int = 0) -> Certified:
    """Make ``x`` feasible, scale the duals, and measure value, bound and gap."""
    x = repair(x, problem.gang, problem.capacity)
    value = level(problem, x)
    duals, prices = normal_duals(problem, duals), np.maximum(prices, 0.0)
    bound = dual_bound(problem, duals, prices)
    return Certified(x, value, bound, relative_gap(value, bound), duals, prices, solver, iterations)


def relative_gap(value: float, bound: float) -> float:
    """Distance from the bound relative to the value; infinite when either is not a number."""
    gap = (bound - value) / max(abs(value), abs(bound) * 1e-6, 1e-300)
    return gap if math.isfinite(gap) else math.inf


def program_bound(program: Program, duals: Array, upper: Array) -> float:
    """A lower bound on the minimum of ``program`` from any row ``duals``, given true upper bounds of its columns.

    Duals that point to a side a row does not have count as zero.
    """
    pushes_up, pushes_down = np.maximum(duals, 0.0), np.minimum(duals, 0.0)
    pushes_up = np.where(np.isfinite(program.row_lower), pushes_up, 0.0)
    pushes_down = np.where(np.isfinite(program.row_upper), pushes_down, 0.0)
    rows = np.where(pushes_up > 0, pushes_up * np.where(pushes_up > 0, program.row_lower, 0.0), 0.0)
    rows += np.where(pushes_down < 0, pushes_down * np.where(pushes_down < 0, program.row_upper, 0.0), 0.0)
    column = np.repeat(np.arange(len(program.cost)), np.diff(program.start))
    used = (pushes_up + pushes_down)[program.index] * program.value
    reduced = program.cost - np.bincount(column, weights=used, minlength=len(program.cost))
    return float(rows.sum() + np.where(reduced < 0, reduced * upper, 0.0).sum())
