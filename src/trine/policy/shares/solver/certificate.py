"""Proof of a solution by weak duality, from shares and prices alone: how they were found does not enter."""

from __future__ import annotations

import math

import numpy as np

from trine.policy.shares.solver.polytope import Array, LevelProblem, Solution, repair, throughput


def level(problem: LevelProblem, x: Array) -> float:
    """The t that shares ``x`` support; minus infinity where a row without demand misses its floor by more than 1e-9."""
    rate, active = throughput(problem.rates, x), problem.demand > 0
    rest = ~active
    if rest.any() and (rate < problem.floor - 1e-9 * np.maximum(1.0, np.abs(problem.floor)))[rest].any():
        return -np.inf
    return float(((rate - problem.floor)[active] / problem.demand[active]).min())


def dual_bound(problem: LevelProblem, duals: Array, prices: Array) -> float:
    """Weak duality: no t is above this, for any ``duals >= 0`` with ``duals @ demand == 1`` and ``prices >= 0``."""
    profit = duals[:, None] * problem.rates
    profit -= problem.gang[:, None] * prices
    best = profit.max(axis=1, initial=0.0)
    return float(best.sum() + (problem.capacity * prices).sum() - (duals * problem.floor).sum())


def normal_duals(problem: LevelProblem, duals: Array) -> Array:
    duals = np.maximum(duals, 0.0)
    total = float((duals * problem.demand).sum())
    if not 0.0 < total < np.inf:  # no usable direction: any normal one still gives a true, if weak, bound
        duals, total = (problem.demand > 0).astype(np.float64), float(problem.demand.sum())
    return duals / total


def certify(problem: LevelProblem, x: Array, duals: Array, prices: Array, solver: str, iterations: int = 0) -> Solution:
    """Make ``x`` feasible, scale the duals, and measure value, bound and gap."""
    x, _ = repair(problem, x)
    value = level(problem, x)
    duals, prices = normal_duals(problem, duals), np.maximum(prices, 0.0)
    bound = dual_bound(problem, duals, prices)
    return Solution(x, value, bound, relative_gap(value, bound), duals, prices, solver, iterations=iterations)


def relative_gap(value: float, bound: float) -> float:
    """Distance from the bound relative to the value; infinite when either is not a number."""
    gap = (bound - value) / max(abs(value), abs(bound) * 1e-6, 1e-300)
    return gap if math.isfinite(gap) else math.inf
