"""The largest weighted geometric mean of rates (Nash welfare), by the same structured interior point.

The rate r of a job takes the place of the surplus in newton.py, and its dual is weight / r: the product of the two is
held at the weight while all others go to zero. The proof is a linear bound on a concave function.
"""

from __future__ import annotations

import numpy as np

from trine.policy.shares.solver import presolve
from trine.policy.shares.solver.interior import MAX_ITERATIONS, NEAR_BOUNDARY, Residuals, advance, newton_step
from trine.policy.shares.solver.newton import Blocks, Border, InteriorPoint, ScaledProblem, SingularError, border_matrix
from trine.policy.shares.solver.polytope import Array, LevelProblem, Solution, repair, throughput

TOLERANCE = 1e-8


def solve_nash(rates: Array, weights: Array, gang: Array, capacity: Array, classes: bool = True) -> Solution:
    """Shares with the largest ``prod((rates @ x) ** weights) ** (1 / weights.sum())``.

    ``value`` is that mean, ``gap`` its certified relative distance from the best, ``duals`` are weight over rate.
    """
    problem = LevelProblem(rates=rates, demand=weights, gang=gang, capacity=capacity)
    if not (problem.demand > 0).all():
        raise ValueError("weights must be positive")
    found = presolve.classes_of(problem, at_most=problem.n_jobs // 2) if classes and problem.n_jobs > 1 else None
    if found is None:
        return _solve_rows(problem)
    # A class asks for what its members ask for together: its weight counts as often as it has members.
    merged = presolve.merged(problem, found)
    whole = LevelProblem(
        rates=merged.rates, demand=merged.demand * found.size, gang=merged.gang, capacity=merged.capacity
    )
    return presolve.spread(_solve_rows(whole), found)


def _solve_rows(problem: LevelProblem) -> Solution:
    presolve.check(problem)
    reduced = presolve.reduce(problem)
    small = reduced.problem
    fastest, unit = small.rates.max(axis=1), float(small.demand.mean())
    n = small.n_jobs
    shape = ScaledProblem.of(small.rates / fastest[:, None], np.zeros(n), np.zeros(n), small.gang, small.capacity)
    point, iterations = _run(shape, small.demand / unit)
    x = reduced.expand_x(point.z[: shape.n_types].T)
    prices = point.dual[-shape.n_types - 1 : -1] * unit
    full_prices = np.where(problem.capacity > 0, prices[reduced.column_of], np.inf)
    return _certify(problem, x, full_prices, iterations)


def _certify(problem: LevelProblem, x: Array, prices: Array, iterations: int) -> Solution:
    """Concavity: the log of any rates lies below its tangent at ours, and prices bound the tangent."""
    x, _ = repair(problem, x)
    weights, rate = problem.demand, throughput(problem.rates, x)
    duals = weights / rate
    usable = np.isfinite(prices)
    profit = duals[:, None] * problem.rates[:, usable] - problem.gang[:, None] * prices[usable]
    most = float(profit.max(axis=1, initial=0.0).sum() + (problem.capacity[usable] * prices[usable]).sum())
    total = float(weights.sum())
    value = float(np.exp((weights * np.log(rate)).sum() / total))
    gap = float(np.expm1((most - total) / total))
    prices = np.where(usable, prices, 0.0)
    prices[~usable] = (duals[:, None] * problem.rates / problem.gang[:, None]).max(axis=0)[~usable]
    return Solution(x, value, value * (1.0 + gap), gap, duals, prices, "ipm", iterations=iterations)


def _start(shape: ScaledProblem, weights: Array) -> InteriorPoint:
    n, gpus = shape.n_types, shape.capacity.sum()
    mix = shape.capacity / gpus
    share = 0.9 * min(1.0, float(gpus / shape.gang.sum()))
    z, slack = np.empty((n + 2, len(weights))), np.empty((n + 2, len(weights)))
    z[:n], z[n] = share * mix[:, None], 1.0 - share
    z[n + 1] = np.einsum("kn,kn->n", shape.rate[:n], z[:n])
    slack[n + 1] = weights / z[n + 1]
    price = float(weights.sum() / gpus)
    value = shape.rate[:n] * slack[n + 1] - shape.gang * price
    slack[n] = value.max(axis=0, initial=0.0) + weights
    slack[:n] = slack[n] - value
    spare = shape.capacity * (1.0 - share * shape.gang.sum() / gpus)
    primal = np.concatenate((z.ravel(), spare, [1.0]))
    return InteriorPoint(primal, np.concatenate((slack.ravel(), np.full(n, price), [1.0])), n)


def _run(shape: ScaledProblem, weights: Array) -> tuple[InteriorPoint, int]:
    point = _start(shape, weights)
    n, jobs = shape.n_types, len(weights)
    held = np.s_[(n + 1) * jobs : (n + 2) * jobs]
    best, best_score, best_at = point, np.inf, 0
    with np.errstate(all="ignore"):
        for iteration in range(MAX_ITERATIONS):
            off = Residuals(shape, point)
            free = float(off.products.sum() - off.products[held].sum() - off.products[-1])
            score = free / float(weights.sum()) + float(np.abs(off.products[held] / weights - 1.0).max())
            score += off.missed
            if not np.isfinite(score):
                break
            if score < best_score:
                best, best_score, best_at = point, score, iteration
            if score <= TOLERANCE or (score > 5.0 * best_score and score < 1e-5):
                break
            try:
                point = _iterate(shape, point, off, weights, free)
            except SingularError:
                break
    return best, best_at


def _iterate(shape: ScaledProblem, point: InteriorPoint, off: Residuals, weights: Array, free: float) -> InteriorPoint:
    n, jobs = shape.n_types, len(weights)
    held = np.s_[(n + 1) * jobs : (n + 2) * jobs]
    blocks = Blocks(shape, point)
    border = Border(border_matrix(shape, blocks, point))
    # Products of rates with their duals go to the weights (an optimum has rate x dual = weight), all others to zero.
    aim = np.ones_like(off.products)
    aim[held] -= weights / off.products[held]
    aim[-1] = 0.0  # t is not part of this problem and stays where it is
    move = newton_step(shape, blocks, border, point, off, aim)
    fall = move + aim
    primal, dual = _length(-move), _length(fall)
    left = off.products * (1.0 + primal * move) * (1.0 - dual * fall)
    count = off.products.size - jobs - 1
    mu = free / count
    target = mu * min(1.0, abs(float(left.sum() - left[held].sum() - left[-1])) / free) ** 3
    # As in ``interior``: a step leaves 1 - aim - move x fall of a product, the last term as the predictor found it.
    second = 1.0 - move * fall - np.where(aim == 1.0, target / off.products, 0.0)
    second[held] = aim[held] - (move * fall)[held]
    second[-1] = 0.0
    return advance(point, second, newton_step(shape, blocks, border, point, off, second), NEAR_BOUNDARY)


def _length(fall: Array) -> float:
    return 1.0 / max(1.0, float(np.maximum.reduce(fall)))
