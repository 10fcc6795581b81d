"""Shares alone and in pairs as the columns of one program, in the form that the published solver is given.

Rows: ``-share <= 0`` for every column, GPUs by type, time by job, throughput by job. Columns: units (jobs, then pairs)
by type, then t if there is a level to raise. A job alone has one leg, a pair two: where its shares count for a job.

With pairs, equal jobs are merged to one row and equal pairs to one unit. That changes no step of the walk but by
rounding: the program is the same under every exchange of equal jobs, so is the start, and each step depends on the
point alone, so that values of equal rows and columns stay equal. Sums over rows and columns count each as often as it
stands for one (``row_count``, ``unit_count``); the system then grows with the classes of jobs and not with the jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trine.core.sums import dot

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SCALINGS = 3
"""Rows and columns are divided by the roots of their largest entries so many times."""
MOST_CLASSES = 0.8
"""Part of the jobs up to which merging equal ones is worth it."""


@dataclass
class ConeProgram:
    """Minimise ``cost @ x`` subject to ``times(x) <= limits``, scaled so that all entries are near 1."""

    job: Index
    """Of each leg: of the jobs alone, of the first of each pair, of the second of each pair."""
    bound: Array
    """(units, types): entries of the rows ``-share <= 0``, but for the sign."""
    load: Array
    """(units, types): entries of the rows of GPUs."""
    time: Array
    """(legs, types)"""
    rate: Array
    """(legs, types): entries of the rows of throughput, but for the sign."""
    level: Array
    """By job: what t adds to its row of throughput; all 0 without t."""
    limit: Array
    """Right-hand sides of the rows of GPUs, time and throughput."""
    with_level: bool
    size: Array
    """Jobs that each row of time and throughput stands for."""
    unit_of: Index | None = None
    """Of every job and pair as given, the unit that stands for it; none where every unit stands for itself."""

    def __post_init__(self) -> None:
        units, types = self.load.shape
        self._count()
        self._column = np.ones((units, types))
        self._level_column = 1.0
        for _ in range(SCALINGS):
            self._scale()
        self.cost = np.zeros(units * types + self.with_level)
        if self.with_level:
            self.cost[-1] = -1.0 / self._level_column
        self.limits = np.concatenate((np.zeros(units * types), self.limit))

    @classmethod
    def of(cls, rates: Array, gang: Array, capacity: Array, jobs: Index, pair_rates: Array, need: Array) -> ConeProgram:
        """Throughput of at least ``need`` for every job; no program has t."""
        return cls._of(rates, gang, capacity, jobs, pair_rates, np.zeros(len(rates)), -need)

    @classmethod
    def raising(cls, rates: Array, gang: Array, capacity: Array, jobs: Index, pair_rates: Array) -> ConeProgram:
        """Throughput of at least t for every job, t as high as can be."""
        n = len(rates)
        return cls._of(rates, gang, capacity, jobs, pair_rates, np.ones(n), np.zeros(n), with_level=True)

    @classmethod
    def _of(
        cls,
        rates: Array,
        gang: Array,
        capacity: Array,
        jobs: Index,
        pair_rates: Array,
        level: Array,
        need: Array,
        with_level: bool = False,
    ) -> ConeProgram:
        classes = _Classes.of(rates, gang, jobs, pair_rates, need) if len(jobs) else None
        if classes is not None:
            rates, gang, level, need = (part[classes.first] for part in (rates, gang, level, need))
            jobs, pair_rates = classes.pairs, classes.pair_rates
        n, types = rates.shape
        size, unit_of = (np.ones(n), None) if classes is None else (classes.size, classes.unit_of)
        legs = np.concatenate((np.arange(n), jobs[:, 0], jobs[:, 1]))
        load = np.repeat(np.concatenate((gang, gang[jobs[:, 0]]))[:, None], types, axis=1)
        rate = np.concatenate((rates, pair_rates[:, 0], pair_rates[:, 1]))
        limit = np.concatenate((capacity, np.ones(n), need))
        return cls(legs, np.ones(load.shape), load, np.ones(rate.shape), rate, level, limit, with_level, size, unit_of)

    def _count(self) -> None:
        """How often rows, units and legs count: of a job, a leg stands for its time with all jobs of the other row."""
        units, n = len(self.load), self.n
        first, second = self.job[n:units], self.job[units:]
        one, other = self.size[first], self.size[second]
        same = first == second
        together = np.where(same, one * (one - 1) / 2, one * other)
        self.unit_count = np.concatenate((self.size, together))
        of_first, of_second = (np.where(same, (one - 1) / 2, count) for count in (other, one))
        self.leg_count = np.concatenate((np.ones(n), of_first, of_second))
        types = self.load.shape[1]
        self.row_count = np.concatenate((np.ones(types), self.size, self.size))
        by_column = np.repeat(self.unit_count, types)
        self.column_count = np.append(by_column, 1.0) if self.with_level else by_column
        self.all_row_count = np.concatenate((by_column, self.row_count))

    # -- shapes --------------------------------------------------------------------------------------------------

    @cached_property
    def n(self) -> int:
        return len(self.level)

    @cached_property
    def held(self) -> int:
        """Columns that are bounded below."""
        return self.load.size

    @cached_property
    def pairs(self) -> int:
        return len(self.load) - self.n

    def legs(self, by_unit: Array) -> Array:
        """Values of units, for each leg."""
        return np.concatenate((by_unit, by_unit[self.n :])) if self.pairs else by_unit

    def units(self, by_leg: Array) -> Array:
        """Values of legs, summed by unit."""
        if not self.pairs:
            return by_leg
        units = len(self.load)
        found = by_leg[:units].copy()
        found[self.n :] += by_leg[units:]
        return found

    def jobs(self, by_leg: Array) -> Array:
        """Values of legs, summed by job."""
        if not self.pairs:
            return by_leg
        return np.bincount(self.job, by_leg, self.n).astype(np.float64)

    # -- scaling -------------------------------------------------------------------------------------------------

    def _scale(self) -> None:
        n, types = self.n, len(self.limit) - 2 * self.n
        of_time, of_rate = np.zeros(n), np.abs(self.level)
        np.maximum.at(of_time, self.job, self.time.max(axis=1))
        np.maximum.at(of_rate, self.job, self.rate.max(axis=1))
        both = np.maximum(self.time, self.rate)
        of_column = np.maximum(np.maximum(self.bound, self.load), both[: len(self.load)])
        of_column[n:] = np.maximum(of_column[n:], both[len(self.load) :])
        by_load, by_time, by_rate = _root(self.load.max(axis=0)), _root(of_time), _root(of_rate)
        column, level = _root(of_column), float(_root(np.array([self.level.max()]))[0])
        self.bound = self.bound / (_root(self.bound) * column)
        self.load = self.load / (by_load * column)
        by_leg = self.legs(column)
        self.time = self.time / (by_time[self.job][:, None] * by_leg)
        self.rate = self.rate / (by_rate[self.job][:, None] * by_leg)
        self.level = self.level / (by_rate * level)
        self.limit = self.limit / np.concatenate((by_load, by_time, by_rate))
        assert len(by_load) == types
        self._column, self._level_column = self._column * column, self._level_column * level

    def shares(self, x: Array) -> Array:
        """Columns as shares of time, by type: of every job, then of every pair, as they were given."""
        found: Array = x[: self.held].reshape(self.load.shape) / self._column
        return found if self.unit_of is None else found[self.unit_of]

    # -- products ------------------------------------------------------------------------------------------------

    def times(self, x: Array) -> Array:
        """All rows times ``x``."""
        share = x[: self.held].reshape(self.load.shape)
        by_leg = self.legs(share)
        gpus = np.einsum("uj,uj->j", self.load, share * self.unit_count[:, None])
        time = self.jobs(self.leg_count * np.einsum("lj,lj->l", self.time, by_leg))
        rate = self.jobs(self.leg_count * np.einsum("lj,lj->l", self.rate, by_leg))
        lack = -rate + self.level * x[-1] if self.with_level else -rate
        return np.concatenate((-(self.bound * share).ravel(), gpus, time, lack))

    def transposed_times(self, z: Array) -> Array:
        """The transpose of all rows, times ``z``."""
        bound = z[: self.held].reshape(self.load.shape)
        gpus, time, rate = self.split(z[self.held :])
        by_leg = self.time * time[self.job][:, None] - self.rate * rate[self.job][:, None]
        found = self.units(by_leg) + self.load * gpus - self.bound * bound
        return np.append(found, dot(self.size * self.level, rate)) if self.with_level else found.ravel()

    def split(self, rows: Array) -> tuple[Array, Array, Array]:
        """Values of rows as those of GPUs, time and throughput."""
        types = self.load.shape[1]
        return rows[:types], rows[types : types + self.n], rows[types + self.n :]


def _root(values: Array) -> Array:
    return np.where(values < 1e-6, 1.0, np.sqrt(values))


@dataclass(frozen=True)
class _Classes:
    """Jobs with equal rates, gangs and needs, of which any two make the same with a third."""

    first: Index
    """A job of each class."""
    size: Array
    pairs: Index
    """(pairs, 2): classes, the lower first."""
    pair_rates: Array
    unit_of: Index

    @classmethod
    def of(cls, rates: Array, gang: Array, jobs: Index, pair_rates: Array, need: Array) -> _Classes | None:
        """None where few jobs are equal, or equal jobs differ in the pairs they can form."""
        table = np.column_stack((rates, gang, need))
        _, first, member_of = np.unique(table, axis=0, return_index=True, return_inverse=True)
        size = np.bincount(member_of)
        n = len(first)
        if n > MOST_CLASSES * len(rates):
            return None
        one, other = member_of[jobs].T
        made = np.where((one > other)[:, None, None], pair_rates[:, ::-1], pair_rates)
        low, high = np.minimum(one, other), np.maximum(one, other)
        _, head, row, count = np.unique(low * n + high, return_index=True, return_inverse=True, return_counts=True)
        pairs = np.stack((low[head], high[head]), axis=1)
        same = pairs[:, 0] == pairs[:, 1]
        all_of = size[pairs].prod(axis=1)
        all_of[same] = (size * (size - 1) // 2)[pairs[same, 0]]
        alike = (made == made[head[row]]).all() and (made[head[same], 0] == made[head[same], 1]).all()
        if not alike or (count != all_of).any():
            return None
        return cls(first, size.astype(np.float64), pairs, made[head], np.concatenate((member_of, n + row)))
