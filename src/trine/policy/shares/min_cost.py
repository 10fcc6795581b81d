"""Min cost: as much throughput per price as can be, with deadlines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.errors import InputError
from trine.core.params import param
from trine.policy.shares.allocation import Allocation, by_prices, of_solution, with_notes
from trine.policy.shares.base import Memory, SharePolicy, shares_space, sharing_param
from trine.policy.shares.problem import WHERE, Problem
from trine.policy.shares.program import best_ratio, best_sum, has_deadlines, polytope_of, sum_by_class
from trine.policy.shares.solver.linear import Worth
from trine.policy.view import Floats


@dataclass
class MinCost(SharePolicy):
    """``normalised``: maximise the sum over jobs and types of T[m, j] X[m, j] / c_j. ``ratio``: maximise the sum of
    thr(m, X) over the price of all GPUs held, sum of c_j s_m X[m, j]. Either with thr(m, X) >= L_m / D_m for jobs with
    a deadline D_m that can be met; those that cannot are reported job by job and the others hold.

    The ratio alone is largest when only the cheapest steps are made: jobs without deadline may get nothing.
    """

    name: ClassVar[str] = "min-cost"
    title: ClassVar[str] = "as much throughput per price as can be, deadlines kept"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.2"
    takes_classes: ClassVar[bool] = True
    objective: ClassVar[str] = "steps per second over the price per hour of their GPUs"
    uses_prices: ClassVar[bool] = True

    form: str = param(
        "normalised", "each throughput over the price of its type, or all over all", choices=("normalised", "ratio")
    )
    space_sharing: bool | None = sharing_param()
    slo: bool = param(True, "jobs with a deadline get at least the throughput that meets it")

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        prices = self._prices(problem)
        sharing = shares_space(problem, self.space_sharing)
        if sharing and problem.class_pairs is not None and self.form == "normalised" and not has_deadlines(problem):
            return sum_by_class(problem, problem.class_pairs, 1.0 / prices, memory)
        problem = problem.listed() if sharing else problem
        polytope = polytope_of(problem, problem.rates, sharing)
        if self.form == "ratio":
            found, notes = best_ratio(problem, polytope, prices, memory, self.slo)
        else:
            found, notes = best_sum(problem, polytope, Worth(np.ones(len(problem)), 1.0 / prices), memory, self.slo)
        return of_solution(problem, found, notes=notes)

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        return with_notes(found, by_prices(problem, found))

    def _prices(self, problem: Problem) -> Floats:
        """Per GPU and hour; types without GPUs need none."""
        missing = ~(problem.prices > 0) & (problem.capacity > 0)
        if missing.any():
            name = problem.types[int(np.argmax(missing))]
            raise InputError(WHERE, f"no price above 0 for {name}", "a price for every GPU type", "prices")
        return np.where(problem.capacity > 0, problem.prices, 1.0)
