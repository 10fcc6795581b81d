"""What is done before the interior point runs: refuse what has no solution, take out types and rows that do not count,
choose units, and solve in closed form what needs no iterations. What was taken out is put back afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trine.policy.shares.solver.certificate import certify
from trine.policy.shares.solver.polytope import (
    Array,
    Index,
    InfeasibleError,
    LevelProblem,
    Mask,
    Solution,
    UnservableError,
)


@dataclass(frozen=True)
class Reduced:
    """``problem`` has only types with GPUs, only rows that ask for something, and equal types as one."""

    problem: LevelProblem
    rows: Mask
    column_of: Index
    part: Array

    def expand_x(self, x: Array) -> Array:
        """Shares in the original rows and types: merged types share in proportion to their GPUs."""
        full = np.zeros((len(self.rows), len(self.part)))
        full[self.rows] = x[:, self.column_of] * self.part
        return full

    def expand_duals(self, duals: Array) -> Array:
        full = np.zeros(len(self.rows))
        full[self.rows] = duals
        return full


def check(problem: LevelProblem) -> None:
    """Refuses problems without a level: no row has a demand, or one that has can run nowhere."""
    if not (problem.demand > 0).any():
        raise ValueError("no row has a positive demand")
    usable = problem.rates[:, problem.capacity > 0].max(axis=1, initial=0.0) > 0
    stuck = ~usable & ((problem.demand > 0) | (problem.floor > 0))
    if stuck.any():
        raise UnservableError(np.flatnonzero(stuck).tolist(), "no type with GPUs gives these rows a positive rate")


def reduce(problem: LevelProblem) -> Reduced:
    rows = (problem.demand > 0) | (problem.floor > 0)
    kept = np.flatnonzero(problem.capacity > 0)
    leader = _leaders(problem.rates, kept)
    if len(kept) == problem.n_types and rows.all() and (leader == kept).all():
        return Reduced(problem, rows, kept, np.ones(problem.n_types))
    leaders = np.unique(leader)
    capacity = np.bincount(np.searchsorted(leaders, leader), weights=problem.capacity[kept]).astype(np.float64)
    column_of, part = np.zeros(problem.n_types, dtype=np.intp), np.zeros(problem.n_types)
    column_of[kept] = np.searchsorted(leaders, leader)
    part[kept] = problem.capacity[kept] / capacity[column_of[kept]]
    smaller = problem
    if not rows.all() or len(leaders) < problem.n_types:
        smaller = LevelProblem(
            rates=problem.rates[rows][:, leaders],
            demand=problem.demand[rows],
            floor=problem.floor[rows],
            gang=problem.gang[rows],
            capacity=capacity,
        )
    return Reduced(smaller, rows, column_of, part)


def _leaders(rates: Array, kept: Index) -> Index:
    """For each type the first one with the same rates for every job."""
    leader, columns = kept.copy(), kept.tolist()
    first = rates[0].tolist()
    for i, column in enumerate(columns):
        for earlier in columns[:i]:
            if first[earlier] == first[column] and np.array_equal(rates[:, earlier], rates[:, column]):
                leader[i] = leader[np.searchsorted(kept, earlier)]
                break
    return leader


def expand(problem: LevelProblem, reduced: Reduced, answer: Solution) -> Solution:
    """Put back what was taken out; the certificate is computed anew on the original problem."""
    if reduced.problem is problem:
        return answer
    duals, prices = reduced.expand_duals(answer.duals), answer.prices[reduced.column_of]
    empty = problem.capacity <= 0
    if empty.any():  # a type without GPUs costs nothing to price out
        prices[empty] = (duals[:, None] * problem.rates[:, empty] / problem.gang[:, None]).max(axis=0)
    return certify(problem, reduced.expand_x(answer.x), duals, prices, answer.solver, answer.iterations)


@dataclass(frozen=True)
class Units:
    """Rows divided so that every demand is 1 (a floor without demand: 1) and rates so that t is near 1."""

    row: Array
    level: float

    @staticmethod
    def of(problem: LevelProblem) -> Units:
        active = problem.demand > 0
        fastest = problem.rates.max(axis=1)
        by_time = float((fastest[active] / problem.demand[active]).min())
        by_gpus = float(problem.capacity.sum() / (problem.gang * problem.demand / fastest).sum())
        level = min(by_time, by_gpus)
        other = np.where(problem.floor > 0, problem.floor, 1.0)
        return Units(np.where(active, problem.demand * level, other), level)


def solve_closed(problem: LevelProblem) -> Solution | None:
    """The optimum if there is one type only, or if every job can have its fastest type all the time; else None."""
    if problem.n_types == 1:
        return _one_type(problem)
    fastest = problem.rates.argmax(axis=1)
    if True in (np.bincount(fastest, problem.gang, problem.n_types) > problem.capacity).tolist():
        return None
    x = np.zeros_like(problem.rates)
    x[np.arange(len(x)), fastest] = 1.0
    return certify(problem, x, _slowest(problem, problem.rates.max(axis=1)), np.zeros(problem.n_types), "closed-form")


def _slowest(problem: LevelProblem, rate: Array) -> Array:
    """All weight on the row that limits the level when every row runs at ``rate``."""
    asked = problem.demand > 0
    level = np.where(asked, (rate - problem.floor) / np.where(asked, problem.demand, 1.0), np.inf)
    duals = np.zeros(len(level))
    duals[level.argmin()] = 1.0
    return duals


def _one_type(problem: LevelProblem) -> Solution:
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
