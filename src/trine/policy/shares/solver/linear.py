"""Linear programs over the polytope of shares, by HiGHS: the largest sum, the highest level with pairs, floors.

Without pairs ``max_min`` finds levels faster, and sums are taken by class (``maximise_sum``). With pairs this takes any
demands, floors and worths, and proves its solutions from its duals. Where the optimum is not unique the solution is the
vertex that HiGHS ends in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trine.core.sums import dot
from trine.policy.shares.solver import presolve
from trine.policy.shares.solver.highs import INFINITY, HighsSession, Program
from trine.policy.shares.solver.polytope import (
    Array,
    Index,
    InfeasibleError,
    LevelProblem,
    Polytope,
    Solution,
    relative_gap,
    repair,
    throughput,
)

FLOOR_SLACK = 1e-9


@dataclass(frozen=True)
class Worth:
    """What a sum counts: throughput of a job on a type times both worths, less the cost of the GPUs it holds there."""

    by_job: Array
    by_type: Array
    gpu_cost: Array = field(default_factory=lambda: np.zeros(0))
    """Per GPU, by type; empty where GPUs cost nothing."""

    def alone(self, polytope: Polytope) -> Array:
        """(jobs, types): what a job's whole time on a type counts."""
        worth = self.by_job[:, None] * polytope.rates * self.by_type
        return worth - polytope.gang[:, None] * self.gpu_cost if len(self.gpu_cost) else worth

    def paired(self, polytope: Polytope, pair: Index, type_index: Index) -> Array:
        """The same of pairs on types."""
        made = self.by_job[polytope.pairs[pair]] * polytope.pair_rates[pair, :, type_index]
        worth: Array = made.sum(axis=1) * self.by_type[type_index]
        held = polytope.gang[polytope.pairs[pair, 0]]
        return worth - held * self.gpu_cost[type_index] if len(self.gpu_cost) else worth


@dataclass(frozen=True)
class Extra:
    """One more variable per job, in its throughput row: ``sign`` +1 fills what a floor lacks, -1 rises above it."""

    sign: float
    worth: Array
    upper: Array


# -- without pairs, by class -----------------------------------------------------------------------------------------


def maximise_sum(
    worth: Array,
    gang: Array,
    capacity: Array,
    *,
    rates: Array | None = None,
    floors: Array | None = None,
    session: HighsSession | None = None,
) -> Solution:
    """Shares with the largest ``(worth * x).sum()``, with ``rates @ x >= floors`` per job where floors are positive.

    Equal jobs count as one, so the cost depends on the classes of jobs and not on their number. ``duals`` are those of
    the floors; ``session`` is kept by callers that solve many such problems.
    """
    worth, gang = np.asarray(worth, dtype=np.float64), np.asarray(gang, dtype=np.float64)
    floors = np.zeros(len(gang)) if floors is None else np.asarray(floors, dtype=np.float64)
    rates = worth if rates is None else np.asarray(rates, dtype=np.float64)
    found = presolve.equal_rows((worth, rates, floors, gang))
    assert found is not None
    head, size = found.first, found.size.astype(np.float64)
    merged = Polytope.alone(rates[head], gang[head] * size, np.asarray(capacity, dtype=np.float64))
    solution = _sum_of_classes(merged, worth[head], size, floors[head], session or HighsSession())
    return presolve.spread(solution, found)


def _sum_of_classes(merged: Polytope, worth: Array, size: Array, floors: Array, session: HighsSession) -> Solution:
    """``merged`` holds the rate of one job and the GPUs of all jobs of each class."""
    program = _sum_program(merged, worth * size[:, None], floors)
    optimum = session.minimise(program)
    x, _ = repair(merged, optimum.x.reshape(worth.shape))
    if (throughput(merged.rates, x) < floors * (1.0 - FLOOR_SLACK) - FLOOR_SLACK).any():
        raise InfeasibleError("the floors are not met")
    value = float((worth * x * size[:, None]).sum())
    bound = -program.lower_bound(optimum.duals, np.ones(len(program.cost)))
    n = len(size)
    duals, prices = np.maximum(optimum.duals[:n], 0.0), np.maximum(-optimum.duals[2 * n :], 0.0)
    gap = relative_gap(value, bound)
    return Solution(x, value, bound, gap, duals, prices, "highs", iterations=optimum.iterations)


def _sum_program(merged: Polytope, worth: Array, floors: Array) -> Program:
    """Columns x row by row; rows of floors, time and capacity."""
    n, types = merged.rates.shape
    job, type_index = np.repeat(np.arange(n), types), np.tile(np.arange(types), n)
    column = np.arange(n * types)
    entries = (
        (job, n + job, 2 * n + type_index),
        (column, column, column),
        (merged.rates, np.ones(n * types), merged.gang[job]),
    )
    lower = np.concatenate((np.where(floors > 0, floors, -INFINITY), np.full(n + types, -INFINITY)))
    upper = np.concatenate((np.full(n, INFINITY), np.ones(n), merged.capacity))
    return Program.of(-worth.ravel(), entries, lower, upper)


# -- with pairs ------------------------------------------------------------------------------------------------------


def highest_level(problem: LevelProblem, session: HighsSession | None = None) -> Solution:
    """The largest t with throughput >= floor + demand t for every job, pairs taking part."""
    demand, floor = problem.demand, problem.floor
    model = _Model.of(problem, floor, demand)
    primal, dual = model.run(session)
    x, y = model.shares(primal)
    active = demand > 0
    value = float(((problem.throughput(x, y) - floor)[active] / demand[active]).min())
    prices, time, duals = model.multipliers(dual)
    scale = dot(duals, demand)
    bound = model.bound(prices / scale, time / scale, duals / scale)
    return Solution(x, value, bound, _gap(value, bound), duals / scale, prices / scale, "highs", y)


def highest_sum(
    polytope: Polytope,
    worth: Worth,
    floor: Array | None = None,
    extra: Extra | None = None,
    session: HighsSession | None = None,
) -> Solution:
    """The largest sum of ``worth``, plus what ``extra`` is worth, with throughput >= floor for every job."""
    floor = np.zeros(len(polytope.rates)) if floor is None else floor
    model = _Model.of(polytope, floor, worth=worth, extra=extra)
    primal, dual = model.run(session)
    x, y = model.shares(primal)
    more = primal[model.shared :]
    prices, time, duals = model.multipliers(dual)
    value = model.worth_of(x, y) + (dot(extra.worth, more) if extra else 0.0)
    bound = model.bound(prices, time, duals)
    return Solution(x, value, bound, _gap(value, bound), duals, prices, "highs", y, extra=more)


def _gap(value: float, bound: float) -> float:
    return max(0.0, (bound - value) / max(abs(value), 1e-12))


@dataclass
class _Model:
    """The program for HiGHS. Columns, only those that can bring something: single (job, type), pair (pair, type), then
    t or one extra per job. Rows keep their sign: throughput >= floor, time <= 1, GPUs <= capacity.
    """

    polytope: Polytope
    floor: Array
    demand: Array | None
    single: tuple[Index, Index]
    pair: tuple[Index, Index]
    single_worth: Array
    pair_worth: Array
    extra: Extra | None
    unit: Array
    """Throughput rows are divided by this, so that jobs of very different speed weigh alike in the solver."""

    @classmethod
    def of(
        cls,
        polytope: Polytope,
        floor: Array,
        demand: Array | None = None,
        worth: Worth | None = None,
        extra: Extra | None = None,
    ) -> _Model:
        single, pair = _where(polytope.rates > 0), _where(polytope.pair_rates.sum(axis=1) > 0)
        single_worth = worth.alone(polytope)[single] if worth else np.zeros(len(single[0]))
        pair_worth = worth.paired(polytope, *pair) if worth else np.zeros(len(pair[0]))
        unit = polytope.rates.max(axis=1)
        return cls(polytope, floor, demand, single, pair, single_worth, pair_worth, extra, unit)

    @property
    def shared(self) -> int:
        """Number of columns that are shares."""
        return len(self.single[0]) + len(self.pair[0])

    def run(self, session: HighsSession | None = None) -> tuple[Array, Array]:
        """Values of the columns and duals of the rows; ``InfeasibleError`` if no shares reach all floors."""
        found = (session or HighsSession()).minimise(self._program())
        return found.x, found.duals

    def _program(self) -> Program:
        n, types = self.polytope.rates.shape
        worth = np.concatenate([self.single_worth, self.pair_worth, self._last_worth()])
        start, index, value = self._matrix()
        return Program(
            cost=-worth,
            row_lower=np.concatenate([self.floor / self.unit, np.full(n + types, -np.inf)]),
            row_upper=np.concatenate([np.full(n, np.inf), np.ones(n), self.polytope.capacity]),
            start=start,
            index=index,
            value=value,
            col_upper=self._upper(),
        )

    def _last_worth(self) -> Array:
        if self.demand is not None:
            return np.ones(1)
        return np.zeros(0) if self.extra is None else self.extra.worth

    def _upper(self) -> Array:
        last = np.full(1, np.inf) if self.demand is not None else np.zeros(0)
        return np.concatenate([np.full(self.shared, np.inf), last if self.extra is None else self.extra.upper])

    def _matrix(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Array]:
        """Column by column: three entries for a job alone, five for a pair, then the last columns."""
        polytope, n = self.polytope, len(self.polytope.rates)
        (m, j), (r, k) = self.single, self.pair
        a, b = polytope.pairs[r].T
        one, two = np.ones(len(m)), np.ones(len(r))
        alone = np.stack([polytope.rates[m, j] / self.unit[m], one, polytope.gang[m]], axis=1)
        one_of, other_of = (polytope.pair_rates[r, :, k] / self.unit[polytope.pairs[r]]).T
        both = np.stack([one_of, other_of, two, two, polytope.gang[a]], axis=1)
        rows = [np.stack([m, n + m, 2 * n + j], axis=1), np.stack([a, b, n + a, n + b, 2 * n + k], axis=1)]
        last_rows, last_values, last_counts = self._last_columns()
        counts = np.concatenate([np.full(len(m), 3), np.full(len(r), 5), last_counts])
        start = np.concatenate([[0], np.cumsum(counts)])
        index = np.concatenate([rows[0].ravel(), rows[1].ravel(), last_rows])
        return (
            start.astype(np.int32),
            index.astype(np.int32),
            np.concatenate([alone.ravel(), both.ravel(), last_values]),
        )

    def _last_columns(self) -> tuple[Index, Array, Index]:
        """Rows, values and number of entries of t, or of the extras."""
        n = len(self.floor)
        if self.demand is not None:
            active = np.flatnonzero(self.demand)
            need = self.demand[active] / self.unit[active]
            return active, -need / np.median(need), np.array([len(active)])
        if self.extra is not None:
            return np.arange(n), self.extra.sign / self.unit, np.ones(n, np.int64)
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)

    def shares(self, primal: Array) -> tuple[Array, Array]:
        """Shares alone and of pairs, feasible to rounding."""
        polytope = self.polytope
        x, y = np.zeros(polytope.rates.shape), np.zeros((len(polytope.pairs), len(polytope.capacity)))
        x[self.single] = primal[: len(self.single[0])]
        y[self.pair] = primal[len(self.single[0]) : self.shared]
        return repair(polytope, x, y)

    def multipliers(self, dual: Array) -> tuple[Array, Array, Array]:
        """Prices of types, of the time of each job, and of its floor, all >= 0."""
        n = len(self.polytope.rates)
        return np.maximum(-dual[2 * n :], 0.0), np.maximum(-dual[n : 2 * n], 0.0), np.maximum(dual[:n], 0.0) / self.unit

    def worth_of(self, x: Array, y: Array) -> float:
        return dot(self.single_worth, x[self.single]) + dot(self.pair_worth, y[self.pair])

    def bound(self, prices: Array, time: Array, duals: Array) -> float:
        """Weak duality; a column that is still worth more than it costs counts with the whole time it could run."""
        polytope = self.polytope
        (m, j), (r, k) = self.single, self.pair
        single = self.single_worth + duals[m] * polytope.rates[m, j] - time[m] - polytope.gang[m] * prices[j]
        members = polytope.pairs[r]
        both = (duals[members] * polytope.pair_rates[r, :, k]).sum(axis=1)
        pair = self.pair_worth + both - time[members].sum(axis=1) - polytope.gang[members[:, 0]] * prices[k]
        missed = np.maximum(single, 0.0).sum() + np.maximum(pair, 0.0).sum()
        if self.extra is not None:
            gain = self.extra.worth + self.extra.sign * duals
            room = np.where(np.isfinite(self.extra.upper), self.extra.upper, 0.0)
            missed += float((np.maximum(gain, 0.0) * room).sum())
        return dot(polytope.capacity, prices) + float(time.sum()) - dot(duals, self.floor) + float(missed)


def _where(flags: NDArray[np.bool_]) -> tuple[Index, Index]:
    first, second = np.nonzero(flags)
    return first, second
