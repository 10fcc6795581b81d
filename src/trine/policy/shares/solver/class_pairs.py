"""Space sharing by classes of equal jobs: time alone per job, and time of one class with another as one total.

Equal jobs may be treated equally without loss: the mean of any optimum over all orders of equal jobs is an optimum. So
the program grows with the classes and not with the jobs, of which all pairs would be columns (Gavel OSDI'20, section
4.4, lists pairs of jobs). One ``PairSolver`` follows another from round to round: classes have names, so that a program
of other classes starts from what is left of the last basis.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trine.core.sums import dot
from trine.policy.shares.solver.highs import INFINITY, HighsSession, Optimum, Program
from trine.policy.shares.solver.polytope import (
    Array,
    Index,
    InfeasibleError,
    Mask,
    Polytope,
    Solution,
    UnservableError,
    pair_sums,
    relative_gap,
    repair,
)

ROOM = 1e-8
"""Part of a level that is given up so that rounding cannot make it impossible."""
DUAL, PRIMAL = 1, 4
"""Simplex methods. Without a basis the primal one: all shares 0 is a start, and for so few rows presolving takes longer
than it saves. From the basis of a program with a few other classes the dual one takes a tenth of the steps."""
LEVEL_WEIGHT = 100.0
"""How much more the level counts than the mean rate over demand of a job, where both are found by one program."""
PROVEN = 1e-7
"""The level of that program must be this close to its bound."""
NAMES = 1 << 20
"""So many names of classes are kept; then the next program starts from scratch."""


@dataclass(frozen=True)
class _Layout:
    """Where the entries of the matrix are; the same for all class sizes. Pairs that make nothing have no column."""

    n_classes: int
    n_types: int
    pair_at: Index
    type_at: Index
    """Pair and type of each column of pairs."""
    start: NDArray[np.int32]
    index: NDArray[np.int32]

    @staticmethod
    def of(classes: Polytope) -> _Layout:
        n, types = classes.rates.shape
        pair_at, type_at = np.divmod(np.flatnonzero((classes.pair_rates > 0).any(axis=1).ravel()), types)
        first, second = classes.pairs[pair_at].T
        row, type_index = np.repeat(np.arange(n), types), np.tile(np.arange(types), n)
        alone = np.stack((row, n + row, 2 * n + type_index), axis=1)
        # A class with itself uses its two rows once each: the other two entries are left out.
        together = np.stack((first, n + first, 2 * n + type_at, second, n + second), axis=1)
        kept = np.ones(together.shape, dtype=bool)
        kept[first == second, 3:] = False
        index = np.concatenate((alone.ravel(), together[kept], np.arange(n)))
        widths = np.concatenate((np.full(n * types, 3), kept.sum(axis=1), [n]))
        start = np.concatenate(([0], np.cumsum(widths)))
        return _Layout(n, types, pair_at, type_at, start.astype(np.int32), index.astype(np.int32))


class _Names:
    """Numbers for rows and columns that stay the same from program to program, and the last basis by these."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self.basic: Index = np.zeros(0, np.intp)
        self.known: Index = np.zeros(0, np.intp)
        """Basic columns and rows, and all rows; both ascending."""

    def numbers(self, names: Sequence[Hashable]) -> Index:
        if len(self._number) + len(names) >= NAMES:
            self._number.clear()
            self.basic = self.known = np.zeros(0, np.intp)
        return np.array([self._number.setdefault(name, len(self._number)) for name in names], np.intp)


def _among(numbers: Index, ascending: Index) -> Mask:
    """Which of ``numbers`` are in ``ascending``, which is not empty; ``np.isin`` would sort both again."""
    at = np.minimum(ascending.searchsorted(numbers), len(ascending) - 1)
    return np.asarray(ascending[at] == numbers)


class PairSolver:
    """Solves for changing class sizes and demands; the classes stay."""

    def __init__(
        self, classes: Polytope, names: Sequence[Hashable] | None = None, before: PairSolver | None = None
    ) -> None:
        """``classes`` has one row per class, ``names`` are theirs; ``before`` is the solver of other classes, some of
        the same names, whose place this one takes.
        """
        first, second = classes.pairs.T
        if (first > second).any() or (classes.gang[first] != classes.gang[second]).any():
            raise ValueError("pairs must be ordered and join classes of equal gang")
        self.classes = classes
        self._layout = _Layout.of(classes)
        members = classes.pairs[self._layout.pair_at]
        self._members = (members[:, 0], members[:, 1])
        self.session: HighsSession
        self._names: _Names
        if before is None:
            self.session, self._names = HighsSession(presolve="off", solver="simplex"), _Names()
        else:
            self.session, self._names = before.session, before._names
        self._columns_by_name, self._rows_by_name = self._numbered(range(len(classes.gang)) if names is None else names)

    def _numbered(self, names: Sequence[Hashable]) -> tuple[Index, Index]:
        """A number for each column and row by which the next program knows it again.

        Columns count up from 0 and rows down from -1, so that one sorted array holds the basis of both.
        """
        number, layout, types = self._names.numbers(names), self._layout, self._layout.n_types
        one, other = number[self._members[0]], number[self._members[1]]
        lower, upper = np.minimum(one, other) + 1, np.maximum(one, other) + 1
        alone = np.repeat((number + 1) * NAMES * types, types) + np.tile(np.arange(types), len(number))
        together = (lower * NAMES + upper) * types + layout.type_at
        rows = np.concatenate((2 * number, 2 * number + 1, 2 * NAMES + np.arange(types)))
        return np.concatenate((alone, together, [0])), -1 - rows

    def _minimise(self, program: Program) -> Optimum:
        """From what is left of the last basis; rows that are new begin with their slack."""
        names, rows = self._names, self._rows_by_name
        if not len(names.basic):
            self.session.forget()
            self.session.highs.setOptionValue("simplex_strategy", PRIMAL)
            optimum = self.session.minimise(program)
        else:
            self.session.highs.setOptionValue("simplex_strategy", DUAL)
            columns = np.flatnonzero(_among(self._columns_by_name, names.basic))
            slack = _among(rows, names.basic) | ~_among(rows, names.known)
            optimum = self.session.minimise_from(program, columns.tolist(), np.flatnonzero(slack).tolist())
        columns, slacks = self.session.basic()
        names.basic = np.sort(np.concatenate((self._columns_by_name[columns], rows[slacks])))
        names.known = np.sort(rows)
        return optimum

    def max_min(self, size: Array, demand: Array, most_rate: bool = False) -> Solution:
        """The highest t with a rate of ``demand * t`` for every job of a class; classes of size 0 count for nothing.

        ``most_rate``: of the shares that reach it, those with the most rate over demand in all.
        """
        present = (size > 0) & (demand > 0)
        self._check(present)
        wanted = np.where(present, demand, 0.0)
        most = self._most(size)
        program = self._program(size, wanted, np.zeros(self._columns), -1.0, np.zeros(len(size)), most)
        if most_rate:
            gain = self._gain_of_rate(size, demand)
            return self._both_at_once(size, wanted, program, gain) or self._one_by_one(size, wanted, program, gain)
        optimum = self._minimise(program)
        return self._level(size, wanted, program, optimum, optimum.duals)

    def _level(self, size: Array, wanted: Array, program: Program, optimum: Optimum, duals: Array) -> Solution:
        """The solution with the level of ``optimum``, bounded by ``duals`` of the level alone."""
        x, y = self._repaired(optimum, size)
        present = wanted > 0
        value = float((self.rate(x, y, size)[present] / wanted[present]).min())
        duals = duals / (float((duals[: len(size)] * wanted).sum()) or 1.0)
        bound = -program.lower_bound(duals, np.append(program.col_upper[:-1], 0.0))
        return self._solution(replace(optimum, duals=duals), x, y, value, bound)

    def _gain_of_rate(self, size: Array, demand: Array) -> Array:
        """Rate over demand that each column adds."""
        classes = self.classes
        per_pair = (classes.pair_rates / demand[classes.pairs][:, :, None]).sum(axis=1)
        return self._gain(size, classes.rates / demand[:, None], per_pair)

    def _both_at_once(self, size: Array, wanted: Array, program: Program, gain: Array) -> Solution | None:
        """The highest level and the most rate by one program in which the level counts more; none where that is not
        proven to be the highest.

        Where it is, no other shares of that level have more rate: they would be better in this program too.
        """
        cost = -np.append(gain / (LEVEL_WEIGHT * size.sum()), 1.0)
        optimum = self._minimise(replace(program, cost=cost))
        duals = self.session.inverse_row(self._columns)
        if duals is None:
            return None
        level = self._level(size, wanted, program, optimum, -duals)
        return level if level.gap <= PROVEN else None

    def _one_by_one(self, size: Array, wanted: Array, program: Program, gain: Array) -> Solution:
        """First the level, then of the shares that reach it those with the most rate over demand."""
        optimum = self._minimise(program)
        level = self._level(size, wanted, program, optimum, optimum.duals)
        try:
            optimum = self.session.go_on(program, -np.append(gain, 0.0), len(gain), level.value * (1.0 - ROOM))
        except InfeasibleError:  # by rounding only
            return level
        x, y = self._repaired(optimum, size)
        present = wanted > 0
        value = float((self.rate(x, y, size)[present] / wanted[present]).min())
        if value < level.value * (1.0 - 10 * ROOM):
            return level
        gap = relative_gap(value, level.bound)
        return replace(level, x=x, y=y, value=value, gap=gap, iterations=level.iterations + optimum.iterations)

    def max_sum(
        self, size: Array, worth: Array | None = None, pair_worth: Array | None = None, floors: Array | None = None
    ) -> Solution:
        """The largest total: ``worth`` (class, type) per job and ``pair_worth`` (pair, type) per pair, rates if None.

        ``floors`` are least rates per job of each class.
        """
        classes, most = self.classes, self._most(size)
        worth = classes.rates if worth is None else worth
        pair_worth = classes.pair_rates.sum(axis=1) if pair_worth is None else pair_worth
        gain = self._gain(size, worth, pair_worth)
        floors = np.zeros(len(size)) if floors is None else np.where(size > 0, floors, 0.0)
        program = self._program(size, np.zeros(len(size)), -gain, 0.0, floors, most)
        optimum = self._minimise(program)
        x, y = self._repaired(optimum, size)
        if (self.rate(x, y, size) < floors * (1.0 - 1e-9) - 1e-9).any():
            raise InfeasibleError("the floors are not met")
        value = dot(gain[: x.size], x.ravel()) + float((pair_worth * y).sum())
        bound = -program.lower_bound(optimum.duals, np.append(most, 0.0))
        return self._solution(optimum, x, y, value, bound)

    def rate(self, x: Array, y: Array, size: Array) -> Array:
        """Throughput of one job of each class, alone and in pairs."""
        made = self.classes.pair_rates * y[:, None, :]
        both = pair_sums(self.classes, made[:, 0].sum(axis=1), made[:, 1].sum(axis=1), size)
        return np.asarray((self.classes.rates * x).sum(axis=1) + both, np.float64)

    # -- the program ---------------------------------------------------------------------------------------------

    @property
    def _columns(self) -> int:
        return self._layout.n_classes * self._layout.n_types + len(self._layout.pair_at)

    def _check(self, present: Mask) -> None:
        usable = (self.classes.rates[:, self.classes.capacity > 0] > 0).any(axis=1)
        if not present.any():
            raise ValueError("no class has jobs")
        if (present & ~usable).any():
            rows = np.flatnonzero(present & ~usable).tolist()
            raise UnservableError(rows, "no type with GPUs gives these classes a positive rate")

    def _gain(self, size: Array, worth: Array, pair_worth: Array) -> Array:
        """What each column adds, of jobs alone and of pairs."""
        together = pair_worth[self._layout.pair_at, self._layout.type_at] * self._unit(size)
        return np.concatenate(((worth * size[:, None]).ravel(), together))

    def _unit(self, size: Array) -> Array:
        """By how much the time of a pair column is divided: it counts per job of the larger class, so that entries stay
        near 1 whatever the sizes."""
        first, second = self._members
        return np.maximum(np.maximum(size[first], size[second]), 1.0)

    def _most(self, size: Array) -> Array:
        """Upper bounds of the columns: no share exceeds 1, no pair can be made of jobs that are not there."""
        first, second = self._members
        lone = np.where(first == second, size[first] < 2, (size[first] < 1) | (size[second] < 1))
        alone = np.repeat((size > 0).astype(np.float64), self._layout.n_types)
        return np.concatenate((alone, np.where(lone, 0.0, 1.0)))

    def _program(self, size: Array, demand: Array, cost: Array, t_cost: float, floors: Array, most: Array) -> Program:
        classes, n = self.classes, len(size)
        lower = np.concatenate((floors, np.full(n + len(classes.capacity), -INFINITY)))
        upper = np.concatenate((np.full(n, INFINITY), np.ones(n), classes.capacity))
        value = np.concatenate((self._alone(size), self._together(size), -demand))
        layout, limits = self._layout, np.append(most, INFINITY if t_cost else 0.0)
        return Program(np.append(cost, t_cost), lower, upper, layout.start, layout.index, value, limits)

    def _alone(self, size: Array) -> Array:
        types = self._layout.n_types
        load = np.repeat(self.classes.gang * size, types)
        return np.stack((self.classes.rates.ravel(), np.ones(load.size), load), axis=1).ravel()

    def _together(self, size: Array) -> Array:
        layout, unit = self._layout, self._unit(size)
        first, second = self._members
        rate = self.classes.pair_rates[layout.pair_at, :, layout.type_at]
        same = first == second
        part_first, part_second = unit / np.maximum(size[first], 1.0), unit / np.maximum(size[second], 1.0)
        made = np.where(same, rate.sum(axis=1), rate[:, 0]) * part_first
        time = np.where(same, 2.0, 1.0) * part_first
        load = self.classes.gang[first] * unit
        entries = np.stack((made, time, load, rate[:, 1] * part_second, part_second), axis=1)
        kept = np.ones(entries.shape, dtype=bool)
        kept[same, 3:] = False
        return entries[kept]

    # -- the solution --------------------------------------------------------------------------------------------

    def _repaired(self, optimum: Optimum, size: Array) -> tuple[Array, Array]:
        """Feasible time alone and together."""
        classes, layout = self.classes, self._layout
        x = optimum.x[: classes.rates.size].reshape(classes.rates.shape)
        y = np.zeros((len(classes.pairs), layout.n_types))
        y[layout.pair_at, layout.type_at] = optimum.x[classes.rates.size : -1] * self._unit(size)
        return repair(classes, x, y, size)

    def _solution(self, optimum: Optimum, x: Array, y: Array, value: float, bound: float) -> Solution:
        n = len(self.classes.gang)
        duals, prices = np.maximum(optimum.duals[:n], 0.0), np.maximum(-optimum.duals[2 * n :], 0.0)
        gap = relative_gap(value, bound)
        return Solution(x, value, bound, gap, duals, prices, "classes+highs", y, iterations=optimum.iterations)
