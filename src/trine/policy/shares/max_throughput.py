"""Max throughput: the sum of all throughputs is as large as can be, even where that starves jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.shares.allocation import Allocation, by_prices, of_solution, with_notes
from trine.policy.shares.base import Memory, SharePolicy, shares_space, sharing_param
from trine.policy.shares.problem import Problem
from trine.policy.shares.program import best_sum, has_deadlines, polytope_of, sum_by_class
from trine.policy.shares.solver.linear import Worth


@dataclass
class MaxThroughput(SharePolicy):
    """Maximise over X the sum of thr(m, X), with thr(m, X) >= L_m / D_m for jobs with a deadline D_m that can be met.

    Deadlines that cannot be met are reported job by job; the others hold.
    """

    name: ClassVar[str] = "max-throughput"
    title: ClassVar[str] = "the sum of throughputs is as large as can be"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.2"
    takes_classes: ClassVar[bool] = True
    objective: ClassVar[str] = "steps per second of all jobs together"

    space_sharing: bool | None = sharing_param()
    slo: bool = param(True, "jobs with a deadline get at least the throughput that meets it")

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        sharing = shares_space(problem, self.space_sharing)
        if sharing and problem.class_pairs is not None and not (self.slo and has_deadlines(problem)):
            return sum_by_class(problem, problem.class_pairs, np.ones(len(problem.types)), memory)
        problem = problem.listed() if sharing else problem
        polytope = polytope_of(problem, problem.rates, sharing)
        worth = Worth(np.ones(len(problem)), np.ones(len(problem.types)))
        found, notes = best_sum(problem, polytope, worth, memory, self.slo)
        return of_solution(problem, found, notes=notes)

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        return with_notes(found, by_prices(problem, found))
