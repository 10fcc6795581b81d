"""Linear programs by HiGHS: programs with pairs, the fallback of the interior point, and the reference in tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trine.policy.shares.solver.polytope import Array, Index, InfeasibleError, LevelProblem

INFINITY = float("inf")
_COLUMN_WISE, _MINIMISE = 1, 1


@dataclass(frozen=True)
class Program:
    """Minimise ``cost @ x`` between bounds on columns and rows; the matrix is stored by columns."""

    cost: Array
    row_lower: Array
    row_upper: Array
    start: NDArray[np.int32]
    index: NDArray[np.int32]
    value: Array
    col_upper: Array = field(default_factory=lambda: np.zeros(0))

    @staticmethod
    def of(cost: Array, entries: tuple[Any, Any, Any], row_lower: Array, row_upper: Array, **more: Any) -> Program:
        """From (row, column, value) triples in any order."""
        row, column, value = (np.concatenate([np.ravel(part) for part in parts]) for parts in entries)
        kept = value != 0.0
        row, column, value = row[kept], column[kept], value[kept]
        order = np.argsort(column, kind="stable")
        start = np.zeros(len(cost) + 1, dtype=np.int32)
        np.cumsum(np.bincount(column, minlength=len(cost)), out=start[1:])
        return Program(cost, row_lower, row_upper, start, row[order].astype(np.int32), value[order], **more)

    def lower_bound(self, duals: Array, upper: Array) -> float:
        """No minimum is below this, for any row ``duals`` and true upper bounds of the columns: weak duality.

        Duals that point to a side a row does not have count as zero.
        """
        pushes_up, pushes_down = np.maximum(duals, 0.0), np.minimum(duals, 0.0)
        pushes_up = np.where(np.isfinite(self.row_lower), pushes_up, 0.0)
        pushes_down = np.where(np.isfinite(self.row_upper), pushes_down, 0.0)
        rows = np.where(pushes_up > 0, pushes_up * np.where(pushes_up > 0, self.row_lower, 0.0), 0.0)
        rows += np.where(pushes_down < 0, pushes_down * np.where(pushes_down < 0, self.row_upper, 0.0), 0.0)
        column = np.repeat(np.arange(len(self.cost)), np.diff(self.start))
        used = (pushes_up + pushes_down)[self.index] * self.value
        reduced = self.cost - np.bincount(column, weights=used, minlength=len(self.cost))
        return float(rows.sum() + np.where(reduced < 0, reduced * upper, 0.0).sum())


@dataclass(frozen=True)
class Optimum:
    """``duals`` are per row: what the minimum gains per unit of the row's bound."""

    x: Array
    duals: Array
    value: float
    iterations: int


class HighsSession:
    """One HiGHS object that is kept: a program of the same rows and columns starts from the last basis."""

    def __init__(self, tolerance: float = 1e-9, **more: str | int) -> None:
        """``more``: options of HiGHS by name."""
        import highspy

        self._made_with = (tolerance, more)
        self._statuses = highspy.HighsModelStatus
        self.highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        options: dict[str, str | float] = {"output_flag": False, "threads": 1}
        options |= {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
        for name, value in (options | more).items():
            self.highs.setOptionValue(name, value)
        self._shape: tuple[int, int] = (0, 0)
        self._basis: Any = None

    def minimise_from(self, program: Program, columns: Sequence[int], rows: Sequence[int]) -> Optimum:
        """As ``minimise``, from the basis of these ``columns`` and ``rows``; it need not be complete."""
        import highspy

        self.load(program)
        status, basis = highspy.HighsBasisStatus, highspy.HighsBasis()
        of_column = [status.kLower] * len(program.cost)
        of_row = [status.kLower if below else status.kUpper for below in np.isfinite(program.row_lower).tolist()]
        for part, basic in ((of_column, columns), (of_row, rows)):
            for at in basic:
                part[at] = status.kBasic
        # Alien: HiGHS makes it a basis, with slacks in place of what is missing.
        basis.col_status, basis.row_status, basis.valid, basis.alien = of_column, of_row, True, True
        self.highs.setBasis(basis)
        self.highs.run()
        return self._read(program)

    def basic(self) -> tuple[Index, Index]:
        """Columns and rows of the last basis."""
        of_basis = self.highs.getBasicVariables()[1]
        return of_basis[of_basis >= 0], -1 - of_basis[of_basis < 0]

    def inverse_row(self, column: int) -> Array | None:
        """The row of the inverse of the last basis that gives ``column``; none where that is not basic."""
        place = np.flatnonzero(self.highs.getBasicVariables()[1] == column)
        return np.asarray(self.highs.getBasisInverseRow(int(place[0]))[1]) if len(place) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, as forecasts make them, begins without a basis: HiGHS itself cannot be copied."""
        tolerance, more = self._made_with
        return partial(HighsSession, tolerance, **more), ()

    def minimise(self, program: Program) -> Optimum:
        """The optimum; ``InfeasibleError`` where there is none."""
        self.load(program)
        shape = (len(program.cost), len(program.row_lower))
        if self._basis is not None and shape == self._shape:
            self.highs.setBasis(self._basis)
        self.highs.run()
        found = self._read(program)
        self._shape, self._basis = shape, self.highs.getBasis()
        return found

    def go_on(self, program: Program, cost: Array, column: int, value: float) -> Optimum:
        """From the optimum of ``program``, the one solved last: the same with other costs and one column held."""
        self.highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)
        self.highs.changeColBounds(column, value, value)
        self.highs.run()
        return self._read(program)

    def forget(self) -> None:
        """The next program has nothing to do with the last."""
        self._shape, self._basis = (0, 0), None

    def load(self, program: Program) -> None:
        """In place of whatever was there."""
        columns, rows = len(program.cost), len(program.row_lower)
        upper = program.col_upper if program.col_upper.size else np.full(columns, INFINITY)
        self.highs.clearModel()
        self.highs.passModel(
            columns, rows, len(program.value), _COLUMN_WISE, _MINIMISE, 0.0, program.cost, np.zeros(columns), upper,
            program.row_lower, program.row_upper, program.start[:-1], program.index, program.value,
            np.zeros(columns, np.int32),
        )  # fmt: skip

    @property
    def optimal(self) -> bool:
        """The last run ended at an optimum."""
        return bool(self.highs.getModelStatus() == self._statuses.kOptimal)

    def _read(self, program: Program) -> Optimum:
        if not self.optimal:
            status = self.highs.getModelStatus()
            raise InfeasibleError(f"HiGHS: {self.highs.modelStatusToString(status).lower()}")
        solution, info = self.highs.getSolution(), self.highs.getInfo()
        duals = np.array(solution.row_dual) if solution.dual_valid else np.zeros(len(program.row_lower))
        steps = max(0, info.simplex_iteration_count) + max(0, info.ipm_iteration_count)
        return Optimum(np.array(solution.col_value), duals, float(info.objective_function_value), steps)


def minimise(program: Program, tolerance: float = 1e-9) -> Optimum:
    """One program, from scratch."""
    return HighsSession(tolerance).minimise(program)


def rate_program(problem: LevelProblem) -> Program:
    """The problem without its pairs: columns x row by row, then t; rows of rate, time and capacity."""
    n, types = problem.rates.shape
    job, type_index = np.repeat(np.arange(n), types), np.tile(np.arange(types), n)
    column, last = np.arange(n * types), np.full(n, n * types)
    entries = (
        (job, np.arange(n), n + job, 2 * n + type_index),
        (column, last, column, column),
        (problem.rates, -problem.demand, np.ones(n * types), problem.gang[job]),
    )
    cost = np.zeros(n * types + 1)
    cost[-1] = -1.0
    lower = np.concatenate((problem.floor, np.full(n + types, -INFINITY)))
    return Program.of(cost, entries, lower, np.concatenate((np.full(n, INFINITY), np.ones(n), problem.capacity)))


def solve_rates(problem: LevelProblem) -> tuple[Array, Array, Array, int]:
    """The same by simplex: shares, duals of the rate rows, prices, iterations."""
    found = minimise(rate_program(problem))
    n = problem.n_jobs
    return found.x[:-1].reshape(problem.rates.shape), found.duals[:n], -found.duals[2 * n :], found.iterations
