"""Problems whose optimum can be written down: one GPU type, or GPUs for everybody."""

from __future__ import annotations

import numpy as np

from trine.policy.shares.solver.certificate import certify
from trine.policy.shares.solver.form import Array, Certified, InfeasibleError, RateProblem


def solve_closed(problem: RateProblem) -> Certified | None:
    """The optimum if there is one type only, or if every job can have its fastest type all the time; else None."""
    if problem.n_types == 1:
        return _one_type(problem)
    fastest = problem.rates.argmax(axis=1)
    if True in (np.bincount(fastest, problem.gang, problem.n_types) > problem.capacity).tolist():
        return None
    x = np.zeros_like(problem.rates)
    x[np.arange(len(x)), fastest] = 1.0
    return certify(problem, x, _slowest(problem, problem.rates.max(axis=1)), np.zeros(problem.n_types), "closed-form")


def _slowest(problem: RateProblem, rate: Array) -> Array:
    """All weight on the row that limits the level when every row runs at ``rate``."""
    asked = problem.demand > 0
    level = np.where(asked, (rate - problem.floor) / np.where(asked, problem.demand, 1.0), np.inf)
    duals = np.zeros(len(level))
    duals[level.argmin()] = 1.0
    return duals


def _one_type(problem: RateProblem) -> Certified:
    """Everybody's time is set by the level: it rises until a job runs all the time or the GPUs are used up."""
    rate, gang, gpus = problem.rates[:, 0], problem.gang, float(problem.capacity[0])
    per_level, at_zero = gang * problem.demand / rate, gang * problem.floor / rate
    by_time = _slowest(problem, rate)
    row = int(by_time.argmax())
    level = float((rate[row] - problem.floor[row]) / problem.demand[row])
    by_gpus = float((gpus - at_zero.sum()) / per_level.sum())
    x = ((problem.demand * min(level, by_gpus) + problem.floor) / rate)[:, None]
    if x.max() > 1 + 1e-12 or min(level, by_gpus) < 0:
        raise InfeasibleError("the floors ask for more than there is")
    if level <= by_gpus:
        return certify(problem, x, by_time, np.zeros(1), "closed-form")
    price = 1.0 / per_level.sum()
    return certify(problem, x, gang * price / rate, np.full(1, price), "closed-form")
