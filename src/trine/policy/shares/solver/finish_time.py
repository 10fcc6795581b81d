"""Finish-time fairness: the smallest worst ratio rho of expected finish to ideal finish, by cuts
from the duals of max-min problems.

For a given rho every job must run at ``steps / (rho ideal - elapsed)``. The duals of that problem say which rho no
shares can reach: the root of one equation, a lower bound that rises to the optimum within a few problems.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trine.core.sums import dot
from trine.policy.shares.solver import linear, presolve
from trine.policy.shares.solver.highs import HighsSession
from trine.policy.shares.solver.interior import Warm
from trine.policy.shares.solver.max_min import solve
from trine.policy.shares.solver.polytope import Array, Index, LevelProblem, Mask, Polytope, Solution, throughput

GAP = 1e-8
MAX_PROBLEMS = 60
_FIRST, _LAST = 1e-2, 1e-9
_NEAR, _BETWEEN = 0.05, 0.5
PAIR_GAP = 1e-9


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
            left_s = self.steps_left / throughput(self.rates, x)
        return float(((self.elapsed_s + left_s) / self.ideal_s).max())

    def unreachable(self, capacity: Array, answer: Solution, least: float, most: float) -> float:
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
) -> Solution:
    """Shares with the smallest worst rho = (elapsed + steps / rate) / ideal; ``value`` is rho, ``bound`` is below it.

    ``ideal_s`` is the finish time each job would have on its own part of the cluster. Jobs without steps get no share.
    """
    left = np.asarray(steps_left) > 0
    if not left.any():
        raise ValueError("no job has steps left")
    if (np.asarray(ideal_s) <= 0).any():
        raise ValueError("ideal_s must be positive")
    jobs = _Jobs(rates, steps_left, elapsed_s, ideal_s, gang).taken(left)
    found = presolve.equal_rows(jobs.columns(), at_most=int(left.sum()) // 2)
    gpus, warm = np.asarray(capacity, dtype=np.float64), warm or Warm()
    if found is None:
        return _restore(_search(jobs, gpus, warm), left)
    merged = jobs.taken(found.first)
    merged = replace(merged, gang=merged.gang * found.size)
    return _restore(presolve.spread(_search(merged, gpus, warm), found), left)


def _restore(answer: Solution, left: Mask) -> Solution:
    x, duals = np.zeros((len(left), answer.x.shape[1])), np.zeros(len(left))
    x[left], duals[left] = answer.x, answer.duals
    return replace(answer, x=x, duals=duals)


def _search(jobs: _Jobs, capacity: Array, warm: Warm) -> Solution:
    """Raise the bound problem by problem until the shares found meet it."""
    bound = least = float((jobs.elapsed_s / jobs.ideal_s).max())
    rho, gap, best, iterations = max(2.0 * least, 1.0), 1.0, None, 0
    for _ in range(MAX_PROBLEMS):
        problem = LevelProblem(rates=jobs.rates, demand=jobs.demand(rho), gang=jobs.gang, capacity=capacity)
        answer = solve(problem, warm, classes=False, tolerance=_tolerance(gap))
        iterations += answer.iterations
        value, bound = jobs.ratio(answer.x), max(bound, jobs.unreachable(capacity, answer, least, rho))
        if best is None or value < best.value:
            best = replace(answer, value=value)
        gap = (best.value - bound) / best.value
        if gap <= GAP:
            break
        # Far from the optimum a cut is too low and the shares are too poor: the optimum lies between.
        rho = bound if gap < _NEAR else bound + _BETWEEN * (best.value - bound)
    assert best is not None
    return replace(best, bound=bound, gap=gap, iterations=iterations)


def _tolerance(gap: float) -> float:
    """How exactly the next problem is solved: any duals give a true cut, near the optimum they must be good ones."""
    return _FIRST if gap > _NEAR else _LAST if gap < 1e-3 else 1e-6


# -- with pairs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finish:
    """What the finish of each job is measured by. Jobs without steps left are finished and do not count."""

    steps_left: Array
    elapsed_s: Array
    ideal_s: Array

    def demand(self, rho: float) -> Array:
        """Steps per second with which each job ends within rho times its ideal time."""
        spare_s = rho * self.ideal_s - self.elapsed_s
        return np.divide(self.steps_left, spare_s, out=np.zeros(len(spare_s)), where=self.steps_left > 0)

    def worst(self, rate: Array) -> float:
        """The largest rho at these steps per second."""
        left_s = np.full(len(rate), np.inf)
        np.divide(self.steps_left, rate, out=left_s, where=rate > 0)
        return self._largest(self.elapsed_s + left_s)

    def least(self) -> float:
        """No rho is below this: the time that has passed."""
        return self._largest(self.elapsed_s)

    def _largest(self, finish_s: Array) -> float:
        left = self.steps_left > 0
        return float((finish_s[left] / self.ideal_s[left]).max())

    def ruled_out(self, duals: Array, worth: float, least: float, most: float) -> float:
        """The largest rho whose demands are worth more, at these duals, than any shares can bring. By bisection."""
        low, high = least, most
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (middle, high) if dot(duals, self.demand(middle)) > worth else (low, middle)
        return low


def solve_finish_time_pairs(polytope: Polytope, finish: Finish, session: HighsSession) -> Solution:
    """As ``solve_finish_time``, pairs taking part, by linear programs.

    A rho can be had iff every job can make ``finish.demand(rho)``: iff the highest level with it is 1 or more.
    """
    least = bound = finish.least()
    rho = max(2 * least, 1.0)
    best, value = None, np.inf
    for _ in range(MAX_PROBLEMS):
        answer = linear.highest_level(LevelProblem.over(polytope, finish.demand(rho)), session)
        reached = finish.worst(
            polytope.throughput(answer.x, polytope.pair_rates[:, 0] if answer.y is None else answer.y)
        )
        if best is None or reached < value:
            best, value = answer, reached
        bound = max(bound, finish.ruled_out(answer.duals, answer.bound, least, value))
        gap = (value - bound) / value
        if gap <= PAIR_GAP:
            break
        # Far from it, the bound is too low and the shares are too poor: the optimum lies between.
        rho = bound if gap < _NEAR and bound > least else (bound + value) / 2
    assert best is not None
    return replace(best, value=value, bound=bound, gap=max(gap, 0.0))
