"""The highest common level, and what that leaves over to the jobs that gain most: a vertex, by the simplex method.

Where many shares reach the level, the interior point answers with the middle of them: every job on every type for a
part of the time. A vertex gives most jobs a single type, so that fewer change types between rounds, and no time is
left that would have helped a job. Meant for a few hundred rows.

The program is kept in HiGHS from problem to problem, in blocks of one row: rows that stay cost nothing, rows that come
take over the block of one that left, and the last basis is the start of the next run.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from trine.core.sums import dot
from trine.policy.shares.solver.highs import INFINITY, HighsSession, Program
from trine.policy.shares.solver.polytope import Array, LevelProblem, Solution, relative_gap, repair
from trine.policy.shares.solver.presolve import solve_closed

LEFTOVER = 1e-2 / 32
"""What a job's use of time that is left over counts next to the level: so little that the level comes first, which the
proof of every answer shows."""
PROVEN = 1e-7
"""An answer with a larger gap is not given."""
FIRST_BLOCKS = 32
NEAR_ONE = 100.0
"""Levels within this factor of 1 are not scaled, so that rows stay as they are from problem to problem."""


class LexicographicVertex:
    """Solves similar problems one after the other."""

    def __init__(self) -> None:
        self._session = HighsSession(presolve="off", solver="simplex")
        self._highs: Any = self._session.highs
        self._capacity: list[float] = []
        self._blocks = 0
        self._place: dict[Hashable, int] = {}
        """Block of each row."""
        self._rows: dict[Hashable, list[float]] = {}
        """Its rates, for a demand of 1; worth and gang are the same as long as these are."""
        self._empty: list[int] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, as forecasts make them, begins anew: what is kept here is kept in HiGHS, too."""
        return LexicographicVertex, ()

    def solve(self, problem: LevelProblem, worth: Array, keys: Sequence[Hashable]) -> Solution | None:
        """Shares of the highest level that, among those, make the largest sum of ``worth * share``, worth being
        somewhere near 1.

        ``keys`` name the rows from one problem to the next. ``None`` if no proof was found. All types have GPUs, all
        rows a rate and a demand, no row a floor.
        """
        closed = solve_closed(problem)
        if closed is not None:
            return closed
        rates, unit = _scaled(problem)
        self._follow(problem, rates, worth, keys)
        self._highs.run()
        if not self._session.optimal:
            self._capacity = []
            return None
        return self._read(problem, unit, keys)

    # -- the program ---------------------------------------------------------------------------------------------

    def _follow(self, problem: LevelProblem, rates: Array, worth: Array, keys: Sequence[Hashable]) -> None:
        """Bring the blocks up to date."""
        capacity = problem.capacity.tolist()
        if capacity != self._capacity or not len(keys) <= self._blocks <= max(FIRST_BLOCKS, 3 * len(keys)):
            self._build(capacity, max(FIRST_BLOCKS, len(keys) + len(keys) // 4))
        present = set(keys)
        for key in [key for key in self._place if key not in present]:  # in order: which block is free decides ties
            self._close(self._place.pop(key))
            del self._rows[key]
        known = self._rows
        for at, (key, row) in enumerate(zip(keys, rates.tolist(), strict=True)):
            if known.get(key) != row:
                if key not in self._place:
                    self._place[key] = self._empty.pop()
                self._open(self._place[key], row, worth[at].tolist(), float(problem.gang[at]))
                known[key] = row

    def _build(self, capacity: list[float], blocks: int) -> None:
        """Empty blocks: shares fixed at 0, rows without bounds. The level is the first column."""
        types = len(capacity)
        block, type_index = np.repeat(np.arange(blocks), types), np.tile(np.arange(types), blocks)
        column, rate = 1 + np.arange(blocks * types), types + 2 * block
        entries = (
            (types + 2 * np.arange(blocks), rate, rate + 1, type_index),
            (np.zeros(blocks, np.int64), column, column, column),
            (np.full(blocks, -1.0), np.ones(blocks * types), np.ones(blocks * types), np.ones(blocks * types)),
        )
        lower = np.full(types + 2 * blocks, -INFINITY)
        upper = np.concatenate((capacity, np.tile([INFINITY, 1.0], blocks)))
        most = np.zeros(1 + blocks * types)
        most[0] = INFINITY
        cost = np.zeros(len(most))
        cost[0] = -1.0
        self._session.load(Program.of(cost, entries, lower, upper, col_upper=most))
        self._capacity, self._blocks, self._place, self._rows = capacity, blocks, {}, {}
        self._empty = list(range(blocks))[::-1]

    def _close(self, block: int) -> None:
        """Shares of the block are held at 0 and its row is free, so that its coefficients do not matter."""
        highs, types = self._highs, len(self._capacity)
        first, row = 1 + block * types, types + 2 * block
        for column in range(first, first + types):
            highs.changeColBounds(column, 0.0, 0.0)
        highs.changeRowBounds(row, -INFINITY, INFINITY)
        self._empty.append(block)

    def _open(self, block: int, rates: list[float], worth: list[float], gang: float) -> None:
        highs, types = self._highs, len(self._capacity)
        first, row = 1 + block * types, types + 2 * block
        for type_index in range(types):
            highs.changeColBounds(first + type_index, 0.0, INFINITY)
            highs.changeColCost(first + type_index, -LEFTOVER * worth[type_index])
            highs.changeCoeff(row, first + type_index, rates[type_index])
            highs.changeCoeff(type_index, first + type_index, gang)
        highs.changeRowBounds(row, 0.0, INFINITY)

    # -- the answer ----------------------------------------------------------------------------------------------

    def _read(self, problem: LevelProblem, unit: float, keys: Sequence[Hashable]) -> Solution | None:
        highs, types, rates, gang = self._highs, problem.n_types, problem.rates, problem.gang[:, None]
        # Duals of the level alone: without what is left over, the same basis is optimal for it.
        basic = highs.getBasicVariables()[1].tolist()
        if 0 not in basic:
            return None
        blocks = np.array([self._place[key] for key in keys])
        y = highs.getBasisInverseRow(basic.index(0))[1]
        duals, prices = np.maximum(-y[types::2][blocks], 0.0) / problem.demand, np.maximum(y[:types] * unit, 0.0)
        duals /= dot(duals, problem.demand) or 1.0
        x = np.array(highs.getSolution().col_value)[1:].reshape(-1, types)[blocks]
        x, _ = repair(problem, x)
        value = float(np.minimum.reduce(np.add.reduce(rates * x, axis=1) / problem.demand))
        profit = np.maximum.reduce(duals[:, None] * rates - gang * prices, axis=1)
        bound = float(np.add.reduce(np.maximum(profit, 0.0))) + dot(problem.capacity, prices)
        gap = relative_gap(value, bound)
        return Solution(x, value, bound, gap, duals, prices, "highs") if gap <= PROVEN else None


def _scaled(problem: LevelProblem) -> tuple[Array, float]:
    """Rates for a demand of 1, in units of a level, so that the program's numbers stay near 1; and that unit."""
    rates = problem.rates / problem.demand[:, None]
    level = float(np.minimum.reduce(np.maximum.reduce(rates, axis=1)))
    return (rates, 1.0) if 1.0 / NEAR_ONE < level < NEAR_ONE else (rates / level, level)
