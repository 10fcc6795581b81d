"""Finish-time fairness: the smallest worst ratio rho of expected finish to ideal finish, by cuts from form (P).

For a given rho every job must run at ``steps / (rho ideal - elapsed)``. The duals of that problem say which rho no
shares can reach: the root of one equation, a lower bound that rises to the optimum within a few problems.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trine.policy.shares.solver import classes as grouping
from trine.policy.shares.solver.certificate import reached
from trine.policy.shares.solver.form import Array, Certified, Index, Mask, RateProblem
from trine.policy.shares.solver.maxmin import solve
from trine.policy.shares.solver.start import Warm

GAP = 1e-8
MAX_PROBLEMS = 60
_FIRST, _LAST = 1e-2, 1e-9
_NEAR, _BETWEEN = 0.05, 0.5


@dataclass(frozen=True)
class _Jobs:
    rates: Array
    steps_left: Array
    elapsed_s: Array
    ideal_s: Array
    gang: Array

    def columns(self) -> tuple[Array, ...]:
        return self.rates, self.steps_left, self.elapsed_s, self.ideal_s, self.gang

    def taken(self, rows: Mask | Index) -> _Jobs:
        return _Jobs(*(np.asarray(part, dtype=np.float64)[rows] for part in self.columns()))

    def demand(self, rho: float) -> Array:
        """Steps per second each job needs to finish within ``rho`` times its ideal time."""
        return self.steps_left / (rho * self.ideal_s - self.elapsed_s)

    def ratio(self, x: Array) -> float:
        """The worst ratio under shares ``x``."""
        with np.errstate(divide="ignore"):
            left_s = self.steps_left / reached(self.rates, x)
        return float(((self.elapsed_s + left_s) / self.ideal_s).max())

    def unreachable(self, capacity: Array, answer: Certified, least: float, most: float) -> float:
        """The largest rho that the duals of ``answer`` rule out, between ``least`` and ``most``."""
        profit = answer.duals[:, None] * self.rates - self.gang[:, None] * answer.prices
        worth = float(profit.max(axis=1, initial=0.0).sum() + (capacity * answer.prices).sum())
        rho = most
        for _ in range(100):  # the worth needed falls with rho and is convex in it: Newton from the left is monotone
            spare_s = rho * self.ideal_s - self.elapsed_s
            needed = answer.duals * self.steps_left / spare_s
            slope = float((needed * self.ideal_s / spare_s).sum())
            step = (float(needed.sum()) - worth) / slope
            following = max(rho + step, 0.5 * (least + rho))
            if abs(following - rho) <= 1e-15 * rho:
                break
            rho = following
        return rho


def solve_finish_time(
    rates: Array,
    steps_left: Array,
    elapsed_s: Array,
    ideal_s: Array,
    gang: Array,
    capacity: Array,
    warm: Warm | None = None,
) -> Certified:
    """Shares with the smallest worst rho = (elapsed + steps / rate) / ideal; ``value`` is rho, ``bound`` is below it.

    ``ideal_s`` is the finish time each job would have on its own part of the cluster. Jobs without steps get no share.
    """
    left = np.asarray(steps_left) > 0
    if not left.any():
        raise ValueError("no job has steps left")
    if (np.asarray(ideal_s) <= 0).any():
        raise ValueError("ideal_s must be positive")
    jobs = _Jobs(rates, steps_left, elapsed_s, ideal_s, gang).taken(left)
    found = grouping.find(jobs.columns(), at_most=int(left.sum()) // 2)
    gpus, warm = np.asarray(capacity, dtype=np.float64), warm or Warm()
    if found is None:
        return _restore(_search(jobs, gpus, warm), left)
    merged = jobs.taken(found.first)
    merged = replace(merged, gang=merged.gang * found.size)
    return _restore(grouping.spread(_search(merged, gpus, warm), found), left)


def _restore(answer: Certified, left: Mask) -> Certified:
    x, duals = np.zeros((len(left), answer.x.shape[1])), np.zeros(len(left))
    x[left], duals[left] = answer.x, answer.duals
    return replace(answer, x=x, duals=duals)


def _search(jobs: _Jobs, capacity: Array, warm: Warm) -> Certified:
    """Raise the bound problem by problem until the shares found meet it."""
    bound = least = float((jobs.elapsed_s / jobs.ideal_s).max())
    rho, gap, best, iterations = max(2.0 * least, 1.0), 1.0, None, 0
    for _ in range(MAX_PROBLEMS):
        problem = RateProblem(rates=jobs.rates, demand=jobs.demand(rho), gang=jobs.gang, capacity=capacity)
        answer = solve(problem, warm, classes=False, tolerance=_tolerance(gap))
        iterations += answer.iterations
        value, bound = jobs.ratio(answer.x), max(bound, jobs.unreachable(capacity, answer, least, rho))
        if best is None or value < best.value:
            best = replace(answer, value=value)
        gap = (best.value - bound) / best.value
        if gap <= GAP:
            break
        # Far from the optimum a cut is too low and the shares are too poor: the truth lies between.
        rho = bound if gap < _NEAR else bound + _BETWEEN * (best.value - bound)
    assert best is not None
    return replace(best, bound=bound, gap=gap, iterations=iterations)


def _tolerance(gap: float) -> float:
    """How exactly the next problem is solved: any duals give a true cut, near the optimum they must be good ones."""
    return _FIRST if gap > _NEAR else _LAST if gap < 1e-3 else 1e-6
