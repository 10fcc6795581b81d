"""Space sharing by classes: time alone per job, and time of a class with another as one total per pair of classes.

Equal jobs may be treated equally without loss, so the program grows with the kinds of jobs, not with the jobs. One
``PairSolver`` is kept between rounds: HiGHS then starts from its last basis. Splitting class time to jobs is in
concrete.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trine.policy.shares.solver.certificate import program_bound, relative_gap
from trine.policy.shares.solver.form import Array, Index, InfeasibleError, UnservableError
from trine.policy.shares.solver.highs import INFINITY, Optimum, Program, Session

ROOM = 1e-8
"""Part of a level that is given up so that rounding cannot make it impossible."""


PRIMAL = 4
"""The primal simplex method: all shares 0 is a start, and for so few rows presolving takes longer than it saves."""


@dataclass(frozen=True)
class SharingClasses:
    """Kinds of jobs and the pairs of kinds that may share GPUs.

    ``rates`` (class, type) is the rate of one job alone; ``pair`` (pair, 2) holds class numbers, first <= second, of
    equal gang; ``pair_rates`` (pair, type, 2) what the two make while they share.
    """

    rates: Array
    gang: Array
    capacity: Array
    pair: Index
    pair_rates: Array

    def __post_init__(self) -> None:
        first, second = self.pair.T if len(self.pair) else (self.pair, self.pair)
        if (first > second).any() or (self.gang[first] != self.gang[second]).any():
            raise ValueError("pairs must be ordered and join classes of equal gang")


@dataclass(frozen=True)
class SharedAnswer:
    """``x`` (class, type) is time alone of each member, ``shared`` (pair, type) total time of all such pairs."""

    x: Array
    shared: Array
    rate: Array
    value: float
    bound: float
    gap: float
    duals: Array
    prices: Array
    solver: str = "classes+highs"
    iterations: int = 0


@dataclass(frozen=True)
class _Layout:
    """Where the entries of the matrix are; the same for all class sizes. Pairs that make nothing have no column."""

    n_classes: int
    n_types: int
    live: Index
    pair_at: Index
    type_at: Index
    start: NDArray[np.int32]
    index: NDArray[np.int32]

    @staticmethod
    def of(kinds: SharingClasses) -> _Layout:
        n, types = kinds.rates.shape
        live = np.flatnonzero((kinds.pair_rates > 0).any(axis=2).ravel())
        pair_at, type_at = np.divmod(live, types)
        first, second = kinds.pair[pair_at].T if len(live) else (live, live)
        alone = np.stack(np.broadcast_arrays(*_single_rows(n, types)), axis=1)
        # A class with itself uses its two rows once each: the other two entries are left out.
        together = np.stack((first, n + first, 2 * n + type_at, second, n + second), axis=1)
        kept = np.ones(together.shape, dtype=bool)
        kept[first == second, 3:] = False
        index = np.concatenate((alone.ravel(), together[kept], np.arange(n)))
        widths = np.concatenate((np.full(n * types, 3), kept.sum(axis=1), [n]))
        start = np.concatenate(([0], np.cumsum(widths)))
        return _Layout(n, types, live, pair_at, type_at, start.astype(np.int32), index.astype(np.int32))


def _single_rows(n: int, types: int) -> tuple[Index, Index, Index]:
    job, kind = np.repeat(np.arange(n), types), np.tile(np.arange(types), n)
    return job, n + job, 2 * n + kind


class PairSolver:
    """Solves for changing class sizes and demands; the kinds of jobs stay."""

    def __init__(self, kinds: SharingClasses, session: Session | None = None) -> None:
        """``session``: that of a solver for other kinds, which is no longer used."""
        self.kinds = kinds
        self._layout = _Layout.of(kinds)
        pair = kinds.pair[self._layout.pair_at]
        self._members = (pair[:, 0], pair[:, 1])
        if session is not None:
            session.forget()
        self.session = session or Session(presolve="off", solver="simplex", simplex_strategy=PRIMAL)

    def max_min(self, size: Array, demand: Array, richest: bool = False) -> SharedAnswer:
        """The highest t with a rate of ``demand * t`` for every job of a class; classes of size 0 count for nothing.

        ``richest``: of the shares that reach it, those with the most rate over demand in all.
        """
        present = (size > 0) & (demand > 0)
        self._check(present)
        wanted = np.where(present, demand, 0.0)
        most = self._most(size)
        program = self._program(size, wanted, np.zeros(self._columns), -1.0, np.zeros(len(size)), most)
        optimum = self.session.minimise(program)
        x, shared, rate = self._repaired(optimum, size)
        value = float((rate[present] / demand[present]).min())
        total = float((optimum.duals[: len(size)] * wanted).sum())
        optimum = Optimum(optimum.x, optimum.duals / (total or 1.0), optimum.value, optimum.iterations)
        bound = -program_bound(program, optimum.duals, np.append(most, 0.0))
        level = self._answer(optimum, x, shared, rate, value, bound)
        return self._richest(size, demand, program, level) if richest else level

    def _richest(self, size: Array, demand: Array, program: Program, level: SharedAnswer) -> SharedAnswer:
        """Of the shares that reach ``level``, the answer to ``program``, those with the most rate over demand."""
        kinds = self.kinds
        per_pair = (kinds.pair_rates / demand[kinds.pair][:, None, :]).sum(axis=2)
        gain = self._gain(size, kinds.rates / demand[:, None], per_pair)
        try:
            optimum = self.session.go_on(program, -np.append(gain, 0.0), len(gain), level.value * (1.0 - ROOM))
        except InfeasibleError:  # by rounding only
            return level
        x, shared, rate = self._repaired(optimum, size)
        present = size > 0
        value = float((rate[present] / demand[present]).min())
        if value < level.value * (1.0 - 10 * ROOM):
            return level
        gap = relative_gap(value, level.bound)
        more = level.iterations + optimum.iterations
        return replace(level, x=x, shared=shared, rate=rate, value=value, gap=gap, iterations=more)

    def _gain(self, size: Array, worth: Array, pair_worth: Array) -> Array:
        """What each column adds, of jobs alone and of pairs."""
        together = pair_worth[self._layout.pair_at, self._layout.type_at] * self._unit(size)
        return np.concatenate(((worth * size[:, None]).ravel(), together))

    def max_sum(
        self, size: Array, worth: Array | None = None, pair_worth: Array | None = None, floors: Array | None = None
    ) -> SharedAnswer:
        """The largest total: ``worth`` (class, type) per job and ``pair_worth`` (pair, type) per pair, rates if None.

        ``floors`` are least rates per job of each class.
        """
        kinds, most = self.kinds, self._most(size)
        worth = kinds.rates if worth is None else worth
        pair_worth = kinds.pair_rates.sum(axis=2) if pair_worth is None else pair_worth
        gain = self._gain(size, worth, pair_worth)
        floors = np.zeros(len(size)) if floors is None else np.where(size > 0, floors, 0.0)
        program = self._program(size, np.zeros(len(size)), -gain, 0.0, floors, most)
        optimum = self.session.minimise(program)
        x, shared, rate = self._repaired(optimum, size)
        if (rate < floors * (1.0 - 1e-9) - 1e-9).any():
            raise InfeasibleError("the floors are not met")
        value = float(gain[: x.size] @ x.ravel() + (pair_worth * shared).sum())
        bound = -program_bound(program, optimum.duals, np.append(most, 0.0))
        return self._answer(optimum, x, shared, rate, value, bound)

    @property
    def _columns(self) -> int:
        return self._layout.n_classes * self._layout.n_types + len(self._layout.live)

    def _check(self, present: NDArray[np.bool_]) -> None:
        usable = (self.kinds.rates[:, self.kinds.capacity > 0] > 0).any(axis=1)
        if not present.any():
            raise ValueError("no class has jobs")
        if (present & ~usable).any():
            rows = np.flatnonzero(present & ~usable).tolist()
            raise UnservableError(rows, "no type with GPUs gives these classes a positive rate")

    def _unit(self, size: Array) -> Array:
        """Pair columns count time per job of the larger class, so that entries stay near 1 whatever the sizes."""
        first, second = self._members
        return np.maximum(np.maximum(size[first], size[second]), 1.0)

    def _most(self, size: Array) -> Array:
        """Upper bounds of the columns: no share exceeds 1, no pair can be made of jobs that are not there."""
        first, second = self._members
        lone = np.where(first == second, size[first] < 2, (size[first] < 1) | (size[second] < 1))
        alone = np.repeat((size > 0).astype(np.float64), self._layout.n_types)
        return np.concatenate((alone, np.where(lone, 0.0, 1.0)))

    def _program(self, size: Array, demand: Array, cost: Array, t_cost: float, floors: Array, most: Array) -> Program:
        kinds, n = self.kinds, len(size)
        lower = np.concatenate((floors, np.full(n + len(kinds.capacity), -INFINITY)))
        upper = np.concatenate((np.full(n, INFINITY), np.ones(n), kinds.capacity))
        value = np.concatenate((self._alone(size), self._together(size), -demand))
        layout, limits = self._layout, np.append(most, INFINITY if t_cost else 0.0)
        return Program(np.append(cost, t_cost), lower, upper, layout.start, layout.index, value, limits)

    def _alone(self, size: Array) -> Array:
        types = self._layout.n_types
        load = np.repeat(self.kinds.gang * size, types)
        return np.stack((self.kinds.rates.ravel(), np.ones(load.size), load), axis=1).ravel()

    def _together(self, size: Array) -> Array:
        layout, unit = self._layout, self._unit(size)
        first, second = self._members
        rate = self.kinds.pair_rates[layout.pair_at, layout.type_at]
        same = first == second
        part_first, part_second = unit / np.maximum(size[first], 1.0), unit / np.maximum(size[second], 1.0)
        made = np.where(same, rate.sum(axis=1), rate[:, 0]) * part_first
        time = np.where(same, 2.0, 1.0) * part_first
        load = self.kinds.gang[first] * unit
        entries = np.stack((made, time, load, rate[:, 1] * part_second, part_second), axis=1)
        kept = np.ones(entries.shape, dtype=bool)
        kept[same, 3:] = False
        return entries[kept]

    def _repaired(self, optimum: Optimum, size: Array) -> tuple[Array, Array, Array]:
        """Feasible time alone and together, and the rate each job has from both."""
        kinds, layout = self.kinds, self._layout
        x = np.maximum(optimum.x[: layout.n_classes * layout.n_types].reshape(kinds.rates.shape), 0.0)
        shared = np.zeros(kinds.pair_rates.shape[:2])
        together = optimum.x[layout.n_classes * layout.n_types : -1] * self._unit(size)
        shared[layout.pair_at, layout.type_at] = np.maximum(together, 0.0)
        return fit(kinds, size, x, shared)

    def _answer(
        self, optimum: Optimum, x: Array, shared: Array, rate: Array, value: float, bound: float
    ) -> SharedAnswer:
        n = len(self.kinds.gang)
        duals, prices = np.maximum(optimum.duals[:n], 0.0), np.maximum(-optimum.duals[2 * n :], 0.0)
        gap = relative_gap(value, bound)
        return SharedAnswer(x, shared, rate, value, bound, gap, duals, prices, iterations=optimum.iterations)


def fit(kinds: SharingClasses, size: Array, x: Array, shared: Array) -> tuple[Array, Array, Array]:
    """Shrink types over capacity, then classes over time; and the rate of one job of each class."""
    first, second = kinds.pair[:, 0], kinds.pair[:, 1]
    used = (kinds.gang * size) @ x + kinds.gang[first] @ shared
    shrink = np.where(used > kinds.capacity, kinds.capacity / np.where(used > 0, used, 1.0), 1.0)
    x, shared = x * shrink, shared * shrink
    jobs, n = np.maximum(size, 1.0), len(size)
    per_pair = shared.sum(axis=1)
    busy = x.sum(axis=1) + (_by(first, per_pair, n) + _by(second, per_pair, n)) / jobs
    row = 1.0 / np.maximum(busy, 1.0)
    x, shared = x * row[:, None], shared * np.minimum(row[first], row[second])[:, None]
    made = kinds.pair_rates * shared[:, :, None]
    both = _by(first, made[:, :, 0].sum(axis=1), n) + _by(second, made[:, :, 1].sum(axis=1), n)
    return x, shared, (kinds.rates * x).sum(axis=1) + both / jobs


def _by(index: Index, values: Array, n: int) -> Array:
    return np.bincount(index, weights=values, minlength=n).astype(np.float64)
