"""The highest common level: form (P) by presolve, classes, structured interior point, and HiGHS where that fails.

Where the optimum is not unique the answer is the centre of the optimal face (of the problem as solved, so in classes
equal jobs get equal shares); with GPUs for all each job has its fastest type, the first of equal ones.
"""

from __future__ import annotations

import numpy as np

from trine.policy.shares.solver import highs, interior, presolve
from trine.policy.shares.solver.interior import NEAR_BOUNDARY, TOLERANCE, Warm, cold
from trine.policy.shares.solver.newton import ScaledProblem
from trine.policy.shares.solver.polytope import InfeasibleError, LevelProblem, Solution, UnservableError, certify

REFINE_ABOVE = 1e-6
FALL_BACK_ABOVE = 1e-5
CAUTIOUS = 0.5
"""Part of the way to the boundary that a second, more central run goes at most."""


def solve(
    problem: LevelProblem, warm: Warm | None = None, classes: bool = True, tolerance: float = TOLERANCE
) -> Solution:
    """The optimum of ``problem`` with its certificate.

    ``warm`` is filled with what helps the next similar problem; ``tolerance`` is where the interior point may stop.
    ``UnservableError`` names rows that no type can run, ``InfeasibleError`` says that the floors cannot be met.
    """
    found = presolve.classes_of(problem, at_most=problem.n_jobs // 2) if classes and problem.n_jobs > 1 else None
    if found is None:
        return _solve_rows(problem, warm, tolerance)
    try:
        return presolve.spread(_solve_rows(presolve.merged(problem, found), warm, tolerance), found)
    except UnservableError as stuck:
        raise UnservableError(np.flatnonzero(np.isin(found.member_of, stuck.rows)).tolist(), stuck.why) from None


def _solve_rows(problem: LevelProblem, warm: Warm | None, tolerance: float) -> Solution:
    presolve.check(problem)
    reduced = presolve.reduce(problem)
    answer = presolve.solve_closed(reduced.problem) or solve_interior(reduced.problem, warm, tolerance)
    answer = presolve.expand(problem, reduced, answer)
    if answer.gap <= max(REFINE_ABOVE, 10.0 * tolerance):
        return answer
    again = solve_interior(reduced.problem, near_boundary=CAUTIOUS)
    answer = min(answer, presolve.expand(problem, reduced, again), key=lambda one: one.gap)
    if answer.gap > FALL_BACK_ABOVE:
        answer = min(answer, _by_simplex(problem), key=lambda one: one.gap)
    if not np.isfinite(answer.gap):
        raise InfeasibleError("no shares were found that meet the floors")
    return answer


def solve_interior(
    problem: LevelProblem,
    warm: Warm | None = None,
    tolerance: float = TOLERANCE,
    near_boundary: float = NEAR_BOUNDARY,
) -> Solution:
    """Scale, iterate, scale back. Types without GPUs and rows without a rate must be gone."""
    units = presolve.Units.of(problem)
    active = (problem.demand > 0).astype(np.float64)
    rates, floor = problem.rates / units.row[:, None], problem.floor / units.row
    shape = ScaledProblem.of(rates, active, floor, problem.gang, problem.capacity)
    if warm is None:
        found = interior.run(shape, cold(shape), tolerance, near_boundary)
    else:
        found = _run_warm(shape, problem, units, warm, tolerance)
    duals = found.point.slack[-1] * (units.level / units.row)
    prices = found.point.dual[-shape.n_types - 1 : -1] * units.level
    return certify(problem, found.point.z[: shape.n_types].T, duals, prices, "ipm", found.iterations)


def _run_warm(
    shape: ScaledProblem, problem: LevelProblem, units: presolve.Units, warm: Warm, tolerance: float
) -> interior.Interior:
    keys = presolve.keys(problem.rates)
    start = warm.point(keys, shape, units.row, units.level)
    found = interior.run(shape, start or cold(shape), tolerance)
    if start and found.score > max(REFINE_ABOVE, 10.0 * tolerance):
        found = interior.run(shape, cold(shape), tolerance)
    warm.keep(keys, shape, found.early, units.row, units.level)
    return found


def _by_simplex(problem: LevelProblem) -> Solution:
    x, duals, prices, iterations = highs.solve_rates(problem)
    return certify(problem, x, duals, prices, "highs", iterations)
