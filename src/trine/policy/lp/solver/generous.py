"""The highest common level, and what that leaves over to the jobs that gain most: a vertex, by the simplex method.

Where many shares reach the level, the interior point answers with the middle of them: every job on every type for a
part of the time. A vertex gives most jobs a single type, so that fewer have to take turns, and no time is left that
would have helped anybody. Meant for a few hundred rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trine.policy.lp.solver.certificate import certify
from trine.policy.lp.solver.closed import solve_closed
from trine.policy.lp.solver.form import Array, Certified, RateProblem
from trine.policy.lp.solver.highs import INFINITY

LEFTOVER = 1e-2
"""What all that is left over counts at most, next to the level: small enough for the level to come first."""
PROVEN = 1e-9
"""The level may miss its bound by so much, relatively, before it is fixed in a program of its own."""


class Generous:
    """One HiGHS object that is kept from problem to problem: rows that stay start from where they were."""

    def __init__(self) -> None:
        import highspy

        self._highspy: Any = highspy
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        options = {"output_flag": False, "threads": 1, "presolve": "off", "solver": "simplex"}
        tolerances = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
        for name, value in (options | tolerances).items():
            self._highs.setOptionValue(name, value)
        status = highspy.HighsBasisStatus
        self._basic, self._lower, self._upper = status.kBasic, status.kLower, status.kUpper
        self._place: dict[Hashable, int] = {}
        self._columns: list[Any] = []
        self._rows: list[Any] = []

    def solve(self, problem: RateProblem, worth: Array, keys: Sequence[Hashable]) -> Certified | None:
        """Shares of the highest level that, among those, make the largest sum of ``worth * share``.

        ``keys`` name the rows from one problem to the next. ``None`` if no proof was found. All types have GPUs, all
        rows a rate and a demand, no row a floor.
        """
        closed = solve_closed(problem)
        if closed is not None:
            return closed
        n, types = problem.rates.shape
        self._pass(problem, -LEFTOVER / float(worth.max() * n) * worth)
        if self._place:
            self._highs.setBasis(self._basis(problem, keys))
        found = self._run(problem)
        if found is not None:
            basis = self._highs.getBasis()
            self._place = {key: at for at, key in enumerate(keys)}
            self._columns, self._rows = basis.col_status, basis.row_status
        return found

    def _pass(self, problem: RateProblem, cost: Array) -> None:
        n, types = problem.rates.shape
        layout = _layout(n, types)
        value = np.empty(n * types * 3 + n)
        entries = value[: n * types * 3].reshape(n, types, 3)
        entries[:, :, 0] = problem.rates
        entries[:, :, 1] = 1.0
        entries[:, :, 2] = problem.gang[:, None]
        value[n * types * 3 :] = -problem.demand
        upper = layout.row_upper.copy()
        upper[2 * n :] = problem.capacity
        self._highs.passModel(
            n * types + 1, 2 * n + types, len(value), 1, 1, 0.0, np.append(cost, -1.0), layout.col_lower,
            layout.col_upper, layout.row_lower, upper, layout.start, layout.index, value, layout.integrality,
        )  # fmt: skip

    def _basis(self, problem: RateProblem, keys: Sequence[Hashable]) -> Any:
        """The last basis for rows that stay; a new row begins on its fastest type all the time."""
        types, before = problem.n_types, len(self._place)
        basic, lower = self._basic, self._lower
        columns: list[Any] = []
        rates: list[Any] = []
        times: list[Any] = []
        fastest: list[int] = problem.rates.argmax(axis=1).tolist()
        for at, key in enumerate(keys):
            place = self._place.get(key)
            if place is None:
                columns += [basic if j == fastest[at] else lower for j in range(types)]
                rates.append(basic)
                times.append(self._upper)
            else:
                columns += self._columns[place * types : (place + 1) * types]
                rates.append(self._rows[place])
                times.append(self._rows[before + place])
        basis = self._highspy.HighsBasis()
        basis.col_status = [*columns, self._columns[-1]]
        basis.row_status = rates + times + self._rows[2 * before :]
        basis.valid = basis.alien = True
        return basis

    def _run(self, problem: RateProblem) -> Certified | None:
        highs, (n, types) = self._highs, problem.rates.shape
        highs.run()
        if highs.getModelStatus() != self._highspy.HighsModelStatus.kOptimal:
            return None
        x = np.array(highs.getSolution().col_value[: n * types]).reshape(n, types)
        # The duals of the level alone: without what is left over, the same basis is optimal for it.
        variables = highs.getBasicVariables()[1]
        (level,) = np.flatnonzero(variables == n * types)
        y = highs.getBasisInverseRow(int(level))[1]
        found = certify(problem, x, -y[:n], y[2 * n :], "highs", highs.getInfo().simplex_iteration_count)
        return found


class _Layout:
    """What only depends on the numbers of rows and types."""

    def __init__(self, n: int, types: int) -> None:
        job, kind = np.repeat(np.arange(n), types), np.tile(np.arange(types), n)
        single = np.stack((job, n + job, 2 * n + kind), axis=1).ravel()
        self.index: NDArray[np.int32] = np.concatenate((single, np.arange(n))).astype(np.int32)
        self.start: NDArray[np.int32] = (np.arange(n * types + 1) * 3).astype(np.int32)
        self.col_lower = np.zeros(n * types + 1)
        self.col_upper = np.full(n * types + 1, INFINITY)
        self.row_lower = np.concatenate((np.zeros(n), np.full(n + types, -INFINITY)))
        self.row_upper = np.concatenate((np.full(n, INFINITY), np.ones(n + types)))
        self.integrality: NDArray[np.int32] = np.zeros(n * types + 1, np.int32)


@lru_cache(maxsize=256)
def _layout(n: int, types: int) -> _Layout:
    return _Layout(n, types)
