"""One Newton system of the interior-point method: 2x2 blocks per job, bordered by one row per GPU type and one for t.

Jobs meet in the rows of GPUs and in t alone. With prices and t held, the equations of each job are a 2x2 system (its
time and its rate), solved for all jobs at once; what is left is a dense system of one row per type and one for t. A
step so costs time linear in the jobs, where a general solver factors a sparse matrix of twice as many rows.

Arrays hold jobs in their last axis. Rows 0..J-1 are the shares x, row J the idle time u, row J+1 the surplus rate e.
A share of the idle "type" has rate 0, so x and u are treated alike. The 2x2 system of a job is a weighted straight-line
fit of values over the rates of its columns: ``fit`` gives weighted mean and slope, the weights being value / slack.
Rates are centred on their weighted mean, twice: plain 2x2 inverses lose all digits when no two jobs are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from trine.core.sums import rows_times
from trine.policy.shares.solver.polytope import Array, Index

_PIECE = 2048
"""Jobs whose pairs of columns are computed at once where they are too many to be kept."""
_STORED = 4_000_000
"""Largest number of values kept for all pairs of columns; beyond, they are computed again in each iteration."""


@dataclass(frozen=True)
class TypePairs:
    """Pairs of columns, the columns outside each, and the map from pair weights to a matrix with zero row sums."""

    first: Index
    second: Index
    others: Index
    laplace: Array

    @staticmethod
    @cache
    def of(columns: int) -> TypePairs:
        first, second = np.triu_indices(columns, 1)
        every = np.arange(columns)
        others = np.array([np.delete(every, pair) for pair in zip(first, second, strict=True)], dtype=np.intp)
        out, pair = np.zeros((columns, columns, len(first))), np.arange(len(first))
        out[first, second, pair] = out[second, first, pair] = -1.0
        out[first, first, pair] = out[second, second, pair] = 1.0
        return TypePairs(first, second, others, out.reshape(columns * columns, len(first)))

    def spread(self, rate: Array) -> Array:
        """For each pair and other column the product of the other's distances in rate to both."""
        other = rate.take(self.others, axis=0)
        out: Array = (other - rate[self.first][:, None]) * (other - rate[self.second][:, None])
        return out


@dataclass(frozen=True)
class ScaledProblem:
    """What stays the same over the iterations. ``rate`` has one more row than there are types: zeros, for idle time."""

    rate: Array
    demand: Array
    floor: Array
    gang: Array
    capacity: Array
    pairs: TypePairs
    spread: Array | None

    @staticmethod
    def of(rates: Array, demand: Array, floor: Array, gang: Array, capacity: Array) -> ScaledProblem:
        rate = np.zeros((rates.shape[1] + 1, len(rates)))
        rate[:-1] = rates.T
        pairs = TypePairs.of(len(rate))
        spread = pairs.spread(rate) if pairs.others.size * len(rates) <= _STORED else None
        return ScaledProblem(rate, demand, floor, gang, capacity, pairs, spread)

    @property
    def n_types(self) -> int:
        return len(self.capacity)


class InteriorPoint:
    """Primal values and dual slacks, each as one vector: all z (x, u, e), spare capacities, t.

    The multipliers need no place of their own: a = slack of e, b = -slack of u, prices = slack of the spare capacity.
    """

    __slots__ = ("dual", "primal", "slack", "spare", "t", "t_slack", "z")

    def __init__(self, primal: Array, dual: Array, types: int) -> None:
        self.primal, self.dual = primal, dual
        self.z = primal[: -types - 1].reshape(types + 2, -1)
        self.slack = dual[: -types - 1].reshape(types + 2, -1)
        self.spare = primal[-types - 1 : -1]
        self.t, self.t_slack = float(primal[-1]), float(dual[-1])


class Blocks:
    """The job blocks at a point: weights, centred rates, pivots, and ``fit``: weighted mean and slope of any values."""

    __slots__ = ("centred", "fit", "gang_weight", "per_rate", "rate_pivot", "surplus", "time_pivot", "weight")

    def __init__(self, shape: ScaledProblem, point: InteriorPoint) -> None:
        weight = point.z / point.slack
        columns = weight[:-1]
        time_pivot = np.add.reduce(columns)
        self.fit = np.empty((2, *columns.shape))
        mean, slope = self.fit
        np.divide(columns, time_pivot, out=mean)
        centred = shape.rate - np.einsum("kn,kn->n", shape.rate, mean)
        centred -= np.einsum("kn,kn->n", centred, mean)
        np.multiply(centred, columns, out=slope)
        self.rate_pivot = np.einsum("kn,kn->n", slope, centred)
        self.rate_pivot += weight[-1]
        slope /= self.rate_pivot
        self.weight, self.surplus, self.centred, self.time_pivot = columns, weight[-1], centred, time_pivot
        self.gang_weight = columns[:-1] * shape.gang
        self.per_rate = shape.demand / self.rate_pivot


def border_matrix(shape: ScaledProblem, blocks: Blocks, point: InteriorPoint) -> Array:
    """The (J+1) x (J+1) system in the prices and t, as sums without cancellation.

    Row sums over the types and idle time are zero in exact arithmetic, so that the diagonal follows from the rest. The
    rest is a sum over pairs of columns (Cauchy-Binet) of terms of which almost all are positive, where forming it by
    subtraction would leave rounding only.
    """
    n = shape.n_types
    full = rows_times(shape.pairs.laplace, _pair_weights(shape, blocks)).reshape(n + 1, n + 1)
    full.flat[: n * (n + 2) : n + 2] += point.spare / point.dual[-n - 1 : -1]
    full[:n, n] = full[n, :n] = rows_times(blocks.fit[1, :-1], shape.gang * shape.demand)
    full[n, n] = -point.t_slack / point.t - rows_times(shape.demand, blocks.per_rate)
    return full


def _pair_weights(shape: ScaledProblem, blocks: Blocks) -> Array:
    scale = shape.gang * shape.gang / (blocks.time_pivot * blocks.rate_pivot)
    if shape.spread is not None:
        return rows_times(_ties(shape.pairs, shape.spread, blocks.weight, blocks.surplus), scale)
    total = np.zeros(len(shape.pairs.first))
    for i in range(0, len(scale), _PIECE):
        part = np.s_[..., i : i + _PIECE]
        spread = shape.pairs.spread(shape.rate[part])
        total += rows_times(_ties(shape.pairs, spread, blocks.weight[part], blocks.surplus[part]), scale[part])
    return total


def _ties(pairs: TypePairs, spread: Array, weight: Array, surplus: Array) -> Array:
    """How strongly each pair of columns is tied within each job, up to the determinant of its block."""
    tie: Array = np.einsum("pln,pln->pn", spread, weight.take(pairs.others, axis=0))
    tie += surplus
    tie *= weight.take(pairs.first, axis=0)
    tie *= weight.take(pairs.second, axis=0)
    return tie


class Border:
    """The border system, scaled to a diagonal of ones (up to sign) and factored.

    By elimination, not by an inverse: near the optimum the matrix is close to singular, and only a solution with a
    small residual keeps the capacities met.
    """

    __slots__ = ("_factors", "_scale")

    def __init__(self, matrix: Array) -> None:
        self._scale = 1.0 / np.sqrt(np.abs(matrix.diagonal()))
        self._factors = Factors(matrix * (self._scale * self._scale[:, None]))

    def solve(self, right: Array) -> Array:
        """Moves of the prices, a zero for idle time, and the move of t."""
        found = self._scale * self._factors.solve(right * self._scale)
        out = np.zeros(len(found) + 1)
        out[:-2], out[-1] = found[:-1], found[-1]
        return out


class SingularError(ArithmeticError):
    """A column without a usable pivot."""


class Factors:
    """Factors of one matrix, for several right-hand sides."""

    __slots__ = ("_order", "_rows")

    def __init__(self, matrix: Array) -> None:
        rows: list[list[float]] = matrix.tolist()
        size = len(rows)
        order = list(range(size))
        for k in range(size):
            best = max(range(k, size), key=lambda i: abs(rows[i][k]))
            if not 0.0 < abs(rows[best][k]) < float("inf"):
                raise SingularError
            rows[k], rows[best] = rows[best], rows[k]
            order[k], order[best] = order[best], order[k]
            _eliminate(rows, k)
        self._rows, self._order = rows, order

    def solve(self, right: Array) -> list[float]:
        given, rows = right.tolist(), self._rows
        found = [given[i] for i in self._order]
        for i, row in enumerate(rows):
            for j in range(i):
                found[i] -= row[j] * found[j]
        for i in range(len(rows) - 1, -1, -1):
            row, value = rows[i], found[i]
            for j in range(i + 1, len(rows)):
                value -= row[j] * found[j]
            found[i] = value / row[i]
        return found


def _eliminate(rows: list[list[float]], k: int) -> None:
    """Clear column ``k`` below the pivot, and keep the multipliers in its place."""
    pivot_row, size = rows[k], len(rows)
    for i in range(k + 1, size):
        row = rows[i]
        factor = row[k] / pivot_row[k]
        row[k] = factor
        if factor:
            for j in range(k + 1, size):
                row[j] -= factor * pivot_row[j]
