"""The allocation program with pairs of jobs on shared GPUs, as one sparse linear program for HiGHS.

Every row keeps its sign: throughput rows >= floor, time rows <= 1, capacity rows <= GPUs. Without pairs the structured
solver in ``solver`` is faster; this one takes any pairs, demands and floors, and proves its answers from its duals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trine.policy.shares.solver.highs import Program, Session
from trine.policy.view import Floats, Ints


@lru_cache
def _no_pairs(types: int) -> tuple[Ints, Floats]:
    return np.zeros((0, 2), np.int64), np.zeros((0, 2, types))


@dataclass(frozen=True)
class Space:
    """Which shares are allowed, and what they bring: jobs alone and pairs, by GPU type."""

    rates: Floats
    gang: Floats
    capacity: Floats
    jobs: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    pair_rates: Floats = field(default_factory=lambda: np.zeros((0, 2, 0)))

    def __post_init__(self) -> None:
        if not len(self.jobs):
            object.__setattr__(self, "pair_rates", np.zeros((0, 2, len(self.capacity))))

    @classmethod
    def alone(cls, rates: Floats, gang: Floats, capacity: Floats) -> Space:
        """Without pairs."""
        made, (jobs, pair_rates) = object.__new__(cls), _no_pairs(len(capacity))
        made.__dict__.update(rates=rates, gang=gang, capacity=capacity, jobs=jobs, pair_rates=pair_rates)
        return made

    def divided(self, by: Floats) -> Space:
        """The same shares with every job's throughput in units of its own."""
        pair_rates = self.pair_rates / by[self.jobs][:, :, None] if len(self.jobs) else self.pair_rates
        return Space(self.rates / by[:, None], self.gang, self.capacity, self.jobs, pair_rates)

    def reordered(self, order: Ints) -> Space:
        """The same jobs in another order."""
        return Space(self.rates[order], self.gang[order], self.capacity, np.argsort(order)[self.jobs], self.pair_rates)

    def throughput(self, x: Floats, y: Floats) -> Floats:
        """Steps per second of every job."""
        result: Floats = np.einsum("mj,mj->m", self.rates, x)
        for side in (0, 1):
            np.add.at(result, self.jobs[:, side], np.einsum("rj,rj->r", self.pair_rates[:, side], y))
        return result


@dataclass(frozen=True)
class Aim:
    """What a sum counts: throughput of a job on a type times both worths, less the cost of the GPUs it holds there."""

    job: Floats
    kind: Floats
    cost: Floats = field(default_factory=lambda: np.zeros(0))
    """Per GPU, by type."""

    def everywhere(self, space: Space) -> Floats:
        """(jobs, types): what a job's whole time on a type counts."""
        worth = self.job[:, None] * space.rates * self.kind
        return worth - space.gang[:, None] * self.cost if len(self.cost) else worth

    def singles(self, space: Space, m: Ints, j: Ints) -> Floats:
        return self.everywhere(space)[m, j]

    def pairs(self, space: Space, r: Ints, j: Ints) -> Floats:
        worth: Floats = (self.job[space.jobs[r]] * space.pair_rates[r, :, j]).sum(axis=1) * self.kind[j]
        return worth - space.gang[space.jobs[r, 0]] * self.cost[j] if len(self.cost) else worth


@dataclass(frozen=True)
class Extra:
    """One more variable per job, in its throughput row: ``sign`` +1 fills what a floor lacks, -1 rises above it."""

    sign: float
    worth: Floats
    upper: Floats


@dataclass(frozen=True)
class PackedAnswer:
    """Shares alone (jobs, types) and in pairs (rows, types), with a bound on the value of any other."""

    x: Floats
    y: Floats
    value: float
    bound: float
    duals: Floats
    """What a unit of floor costs, by job."""
    prices: Floats
    extra: Floats

    @property
    def gap(self) -> float:
        return max(0.0, (self.bound - self.value) / max(abs(self.value), 1e-12))


def level(space: Space, demand: Floats, floor: Floats | None = None, session: Session | None = None) -> PackedAnswer:
    """Maximise t with throughput >= floor + demand t for every job."""
    floor = np.zeros(len(demand)) if floor is None else floor
    model = _Model.of(space, floor, demand)
    primal, dual = model.run(session)
    x, y = model.shares(primal)
    active = demand > 0
    value = float(((space.throughput(x, y) - floor)[active] / demand[active]).min())
    prices, time, duals = model.multipliers(dual)
    scale = float(duals @ demand)
    bound = model.bound(prices / scale, time / scale, duals / scale)
    return PackedAnswer(x, y, value, bound, duals / scale, prices / scale, np.zeros(0))


def total(
    space: Space, aim: Aim, floor: Floats | None = None, extra: Extra | None = None, session: Session | None = None
) -> PackedAnswer:
    """Maximise what ``aim`` counts, plus what ``extra`` is worth, with throughput >= floor for every job."""
    floor = np.zeros(len(space.rates)) if floor is None else floor
    model = _Model.of(space, floor, aim=aim, extra=extra)
    primal, dual = model.run(session)
    x, y = model.shares(primal)
    more = primal[model.shared :]
    prices, time, duals = model.multipliers(dual)
    value = model.worth_of(x, y) + (float(extra.worth @ more) if extra else 0.0)
    bound = model.bound(prices, time, duals)
    return PackedAnswer(x, y, value, bound, duals, prices, more)


@dataclass
class _Model:
    """The columns that can bring something: single (job, type), pair (row, type), then t or one extra per job."""

    space: Space
    floor: Floats
    demand: Floats | None
    single: tuple[Ints, Ints]
    pair: tuple[Ints, Ints]
    single_worth: Floats
    pair_worth: Floats
    extra: Extra | None
    unit: Floats
    """Throughput rows are divided by this, so that jobs of very different speed weigh alike in the solver."""

    @classmethod
    def of(
        cls,
        space: Space,
        floor: Floats,
        demand: Floats | None = None,
        aim: Aim | None = None,
        extra: Extra | None = None,
    ) -> _Model:
        single, pair = _where(space.rates > 0), _where(space.pair_rates.sum(axis=1) > 0)
        single_worth = aim.singles(space, *single) if aim else np.zeros(len(single[0]))
        pair_worth = aim.pairs(space, *pair) if aim else np.zeros(len(pair[0]))
        return cls(space, floor, demand, single, pair, single_worth, pair_worth, extra, space.rates.max(axis=1))

    @property
    def shared(self) -> int:
        return len(self.single[0]) + len(self.pair[0])

    def run(self, session: Session | None = None) -> tuple[Floats, Floats]:
        """Values of the columns and duals of the rows; ``InfeasibleError`` if no shares reach all floors."""
        found = (session or Session()).minimise(self._program())
        return found.x, found.duals

    def _program(self) -> Program:
        n, kinds = self.space.rates.shape
        worth = np.concatenate([self.single_worth, self.pair_worth, self._last_worth()])
        start, index, value = self._matrix()
        return Program(
            cost=-worth,
            row_lower=np.concatenate([self.floor / self.unit, np.full(n + kinds, -np.inf)]),
            row_upper=np.concatenate([np.full(n, np.inf), np.ones(n), self.space.capacity]),
            start=start,
            index=index,
            value=value,
            col_upper=self._upper(),
        )

    def _last_worth(self) -> Floats:
        if self.demand is not None:
            return np.ones(1)
        return np.zeros(0) if self.extra is None else self.extra.worth

    def _upper(self) -> Floats:
        last = np.full(1, np.inf) if self.demand is not None else np.zeros(0)
        return np.concatenate([np.full(self.shared, np.inf), last if self.extra is None else self.extra.upper])

    def _matrix(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """Column by column: three entries for a job alone, five for a pair, then the last columns."""
        space, n = self.space, len(self.space.rates)
        (m, j), (r, k) = self.single, self.pair
        a, b = space.jobs[r].T
        one, two = np.ones(len(m)), np.ones(len(r))
        alone = np.stack([space.rates[m, j] / self.unit[m], one, space.gang[m]], axis=1)
        one_of, other_of = (space.pair_rates[r, :, k] / self.unit[space.jobs[r]]).T
        both = np.stack([one_of, other_of, two, two, space.gang[a]], axis=1)
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

    def _last_columns(self) -> tuple[Ints, Floats, Ints]:
        """Rows, values and number of entries of t, or of the extras."""
        n = len(self.floor)
        if self.demand is not None:
            active = np.flatnonzero(self.demand)
            need = self.demand[active] / self.unit[active]
            return active, -need / np.median(need), np.array([len(active)])
        if self.extra is not None:
            return np.arange(n), self.extra.sign / self.unit, np.ones(n, np.int64)
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)

    def shares(self, primal: Floats) -> tuple[Floats, Floats]:
        """Feasible to rounding: clipped, then columns and rows that are too large shrunk."""
        space = self.space
        x, y = np.zeros(space.rates.shape), np.zeros((len(space.jobs), len(space.capacity)))
        x[self.single] = np.maximum(primal[: len(self.single[0])], 0.0)
        y[self.pair] = np.maximum(primal[len(self.single[0]) : self.shared], 0.0)
        used = space.gang @ x + space.gang[space.jobs[:, 0]] @ y
        shrink = np.divide(space.capacity, used, out=np.ones(len(used)), where=used > space.capacity)
        x, y = x * shrink, y * shrink
        time = x.sum(axis=1)
        np.add.at(time, space.jobs.ravel(), np.repeat(y.sum(axis=1), 2))
        left = 1.0 / np.maximum(1.0, time)
        return x * left[:, None], y * left[space.jobs].min(axis=1, initial=1.0)[:, None]

    def multipliers(self, dual: Floats) -> tuple[Floats, Floats, Floats]:
        """Prices of types, of the time of each job, and of its floor, all >= 0."""
        n = len(self.space.rates)
        return np.maximum(-dual[2 * n :], 0.0), np.maximum(-dual[n : 2 * n], 0.0), np.maximum(dual[:n], 0.0) / self.unit

    def worth_of(self, x: Floats, y: Floats) -> float:
        return float(self.single_worth @ x[self.single] + self.pair_worth @ y[self.pair])

    def bound(self, prices: Floats, time: Floats, duals: Floats) -> float:
        """Weak duality; a column that is still worth more than it costs counts with the whole time it could run."""
        space = self.space
        (m, j), (r, k) = self.single, self.pair
        single = self.single_worth + duals[m] * space.rates[m, j] - time[m] - space.gang[m] * prices[j]
        both = (duals[space.jobs[r]] * space.pair_rates[r, :, k]).sum(axis=1)
        pair = self.pair_worth + both - time[space.jobs[r]].sum(axis=1) - space.gang[space.jobs[r, 0]] * prices[k]
        missed = np.maximum(single, 0.0).sum() + np.maximum(pair, 0.0).sum()
        if self.extra is not None:
            gain = self.extra.worth + self.extra.sign * duals
            room = np.where(np.isfinite(self.extra.upper), self.extra.upper, 0.0)
            missed += float((np.maximum(gain, 0.0) * room).sum())
        return float(space.capacity @ prices + time.sum() - duals @ self.floor + missed)


def _where(flags: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    first, second = np.nonzero(flags)
    return first, second
