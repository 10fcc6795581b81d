"""Feasible shares of time as one polytope, the max-min problem over it, and the certified solution of either.

Every solver of this package takes these types and returns a ``Solution``. No algorithm lives here but the one repair
that makes shares feasible to the last bit, and the proof of a solution by weak duality, from shares and prices alone:
how they were found does not enter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trine.core.sums import columns_times

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class UnservableError(ValueError):
    """Some rows can never reach a positive rate; ``rows`` are their indices."""

    def __init__(self, rows: list[int], why: str) -> None:
        self.rows, self.why = rows, why
        super().__init__(f"{why}: rows {rows}")


class InfeasibleError(ValueError):
    """No shares reach all the floors, whatever the level of the others."""


@lru_cache
def _no_pairs(types: int) -> tuple[Index, Array]:
    return np.zeros((0, 2), np.intp), np.zeros((0, 2, types))


@dataclass(frozen=True)
class Polytope:
    """Shares x[m, j] of rows alone and y[p, j] of pairs of rows, on GPU types j. A row is a job, or a class of equal
    jobs whose number (``size``) the solver is given beside it; x is then the share of each of them, and y the time of
    all pairs of such jobs together.

    Feasible are x, y >= 0 with, for every row and every type,
    ``sum_j x[m, j] + sum_{p with m} sum_j y[p, j] / size[m] <= 1`` and
    ``sum_m size[m] gang[m] x[m, j] + sum_p gang[p] y[p, j] <= capacity[j]``.
    """

    rates: Array
    """(rows, types): throughput of one job alone; 0 = cannot run there."""
    gang: Array
    """GPUs of one job."""
    capacity: Array
    """GPUs by type."""
    pairs: Index = field(default_factory=lambda: _no_pairs(0)[0])
    """(pairs, 2): rows of equal gang."""
    pair_rates: Array = field(default_factory=lambda: _no_pairs(0)[1])
    """(pairs, 2, types): throughput of either job while both share GPUs."""

    def __post_init__(self) -> None:
        if not len(self.pairs):
            object.__setattr__(self, "pair_rates", _no_pairs(len(self.capacity))[1])

    @classmethod
    def alone(cls, rates: Array, gang: Array, capacity: Array) -> Polytope:
        """Without pairs and without the checks and conversions of a constructor, for calls in every round."""
        made, (pairs, pair_rates) = object.__new__(Polytope), _no_pairs(len(capacity))
        made.__dict__.update(rates=rates, gang=gang, capacity=capacity, pairs=pairs, pair_rates=pair_rates)
        return made

    def divided(self, by: Array) -> Polytope:
        """The same shares with every row's throughput in units of its own."""
        pair_rates = self.pair_rates / by[self.pairs][:, :, None] if len(self.pairs) else self.pair_rates
        return Polytope(self.rates / by[:, None], self.gang, self.capacity, self.pairs, pair_rates)

    def reordered(self, order: Index) -> Polytope:
        """The same rows in another order."""
        pairs = np.argsort(order)[self.pairs]
        return Polytope(self.rates[order], self.gang[order], self.capacity, pairs, self.pair_rates)

    def throughput(self, x: Array, y: Array) -> Array:
        """Throughput of every job, rows being jobs."""
        result = throughput(self.rates, x)
        for side in (0, 1):
            np.add.at(result, self.pairs[:, side], np.einsum("rj,rj->r", self.pair_rates[:, side], y))
        return result

    def pair_time(self, found: Solution) -> Array:
        """(pairs, types): time of the pairs in a solution, an empty array where there are none."""
        return self.pair_rates[:, 0] if found.y is None else found.y

    @property
    def n_jobs(self) -> int:
        return len(self.rates)

    @property
    def n_types(self) -> int:
        return int(self.rates.shape[1])


@dataclass(frozen=True, kw_only=True)
class LevelProblem(Polytope):
    """Maximise t over feasible shares with a throughput of at least ``demand[m] * t + floor[m]`` in every row."""

    demand: Array
    floor: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        for name in ("rates", "demand", "gang", "capacity", "floor"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if not self.floor.size:
            object.__setattr__(self, "floor", np.zeros(len(self.demand)))
        super().__post_init__()
        self._check()

    @classmethod
    def unchecked(cls, rates: Array, demand: Array, gang: Array, capacity: Array) -> LevelProblem:
        """From arrays known to be good, without floors and pairs, for calls in every round."""
        made, (pairs, pair_rates) = object.__new__(cls), _no_pairs(len(capacity))
        floor = np.zeros(len(demand))
        made.__dict__.update(rates=rates, demand=demand, gang=gang, capacity=capacity, floor=floor)
        made.__dict__.update(pairs=pairs, pair_rates=pair_rates)
        return made

    @classmethod
    def over(cls, polytope: Polytope, demand: Array, floor: Array | None = None) -> LevelProblem:
        """The highest level over the shares of ``polytope``, unchecked."""
        made = object.__new__(cls)
        made.__dict__.update({name: polytope.__dict__[name] for name in _POLYTOPE})
        made.__dict__.update(demand=demand, floor=np.zeros(len(demand)) if floor is None else floor)
        return made

    def _check(self) -> None:
        rows = (self.n_jobs,)
        if self.rates.ndim != 2 or self.capacity.shape != (self.n_types,):
            raise ValueError(f"rates {self.rates.shape} and capacity {self.capacity.shape} do not match")
        if not self.demand.shape == self.gang.shape == self.floor.shape == rows:
            raise ValueError(f"demand, gang and floor must hold one value for each of {rows[0]} rows")
        # One sum sees every NaN and infinity, without an array of marks.
        total = self.rates.sum() + self.demand.sum() + self.gang.sum() + self.capacity.sum() + self.floor.sum()
        if not np.isfinite(total):
            raise ValueError("rates, demand, gang, capacity and floor must be finite")
        if self.n_jobs and min(self.rates.min(initial=0.0), self.demand.min(), self.capacity.min(initial=0.0)) < 0:
            raise ValueError("rates, demand and capacity must not be negative")
        if self.n_jobs and self.gang.min() <= 0:
            raise ValueError("gang must be positive")


_POLYTOPE = ("rates", "gang", "capacity", "pairs", "pair_rates")


@dataclass(frozen=True)
class Solution:
    """Feasible shares and the proof of how good they are.

    ``bound`` is what no feasible shares can exceed (for a minimum: fall below), from ``duals`` and ``prices``; ``gap``
    is the relative distance of ``value`` and ``bound``.
    """

    x: Array
    """(rows, types): share of each job alone."""
    value: float
    bound: float
    gap: float
    duals: Array
    """By row: what a unit of its floor costs; for a level scaled so that ``duals @ demand == 1``."""
    prices: Array
    """By type: what one more GPU is worth."""
    solver: str
    y: Array | None = None
    """(pairs, types): time of pairs; none without pairs."""
    levels: Array = field(default_factory=lambda: np.zeros(0))
    """By row, for water filling: the normalised throughput that was granted."""
    extra: Array = field(default_factory=lambda: np.zeros(0))
    """By row, for programs with one more variable per row (``linear.Extra``): its value."""
    iterations: int = 0
    """Steps of the solver; for water filling the passes."""


def throughput(rates: Array, x: Array) -> Array:
    """Throughput of every row under shares ``x`` alone."""
    total: Array = np.einsum("mj,mj->m", rates, x)
    return total


def repair(polytope: Polytope, x: Array, y: Array | None = None, size: Array | None = None) -> tuple[Array, Array]:
    """The nearest shares below ``x`` and ``y`` that respect GPUs and time: clip, shrink types, shrink rows.

    Solvers meet the constraints to their tolerance only; what is granted must meet them to rounding. A pair shrinks
    with the fuller of its two rows. ``size`` is the number of jobs of each row, by default one.
    """
    load = polytope.gang if size is None else polytope.gang * size
    x = np.maximum(x, 0.0)
    if y is None or not len(y):
        used = columns_times(load, x)
        over = used > polytope.capacity
        if True in over.tolist():
            x *= np.where(over, polytope.capacity / np.where(over, used, 1.0), 1.0)
        x /= np.maximum(1.0, np.add.reduce(x, axis=1))[:, None]
        return x, polytope.pair_rates[:, 0]
    y = np.maximum(y, 0.0)
    first, second = polytope.pairs[:, 0], polytope.pairs[:, 1]
    used = columns_times(load, x) + columns_times(polytope.gang[first], y)
    shrink = np.divide(polytope.capacity, used, out=np.ones(len(used)), where=used > polytope.capacity)
    x, y = x * shrink, y * shrink
    time, together = x.sum(axis=1), y.sum(axis=1)
    if size is None:
        np.add.at(time, polytope.pairs.ravel(), np.repeat(together, 2))
    else:
        time += pair_sums(polytope, together, together, size)
    left = 1.0 / np.maximum(1.0, time)
    return x * left[:, None], y * np.minimum(left[first], left[second])[:, None]


def pair_sums(polytope: Polytope, of_first: Array, of_second: Array, size: Array) -> Array:
    """Values of pairs of classes, one for either member, summed by class and divided by its ``size`` jobs."""
    first, second = polytope.pairs[:, 0], polytope.pairs[:, 1]
    n = polytope.n_jobs
    total = np.bincount(first, of_first, n) + np.bincount(second, of_second, n)
    return np.asarray(total / np.maximum(size, 1.0), np.float64)


# -- the proof, by weak duality --------------------------------------------------------------------------------------


def level(problem: LevelProblem, x: Array) -> float:
    """The t that shares ``x`` support; minus infinity where a row without demand misses its floor by more than 1e-9."""
    rate, active = throughput(problem.rates, x), problem.demand > 0
    rest = ~active
    if rest.any() and (rate < problem.floor - 1e-9 * np.maximum(1.0, np.abs(problem.floor)))[rest].any():
        return -np.inf
    return float(((rate - problem.floor)[active] / problem.demand[active]).min())


def dual_bound(problem: LevelProblem, duals: Array, prices: Array) -> float:
    """Weak duality: no t is above this, for any ``duals >= 0`` with ``duals @ demand == 1`` and ``prices >= 0``.

    The sum over rows of duals x (rate - floor) is at least t. A row's time is worth no more than its best type after
    the price of its GPUs, or nothing, and all GPUs together cost no more than capacity x prices.
    """
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
