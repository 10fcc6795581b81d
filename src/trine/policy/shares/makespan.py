"""Makespan: all jobs present end as early as possible, at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.shares.allocation import Allocation, allocation, by_level, exact, of_solution
from trine.policy.shares.base import (
    REFERENCE_DOC,
    REFERENCE_TYPE,
    Memory,
    SharePolicy,
    aware_param,
    reference_rates,
    shares_space,
    sharing_param,
)
from trine.policy.shares.problem import Problem
from trine.policy.shares.program import highest_level, polytope_of


@dataclass
class Makespan(SharePolicy):
    """Minimise T such that thr(m, X) >= L_m / T for every job, exactly: maximise 1/T, one linear program.

    Not ``aware``, every type counts as fast as the reference type.
    """

    name: ClassVar[str] = "makespan"
    title: ClassVar[str] = "all jobs end as early as possible"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.2"
    objective: ClassVar[str] = "seconds until all jobs can end"
    jobs_stay: ClassVar[bool] = False

    aware: bool = aware_param()
    space_sharing: bool | None = sharing_param()
    reference_type: str = param(REFERENCE_TYPE, REFERENCE_DOC)

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        steps = problem.needs(problem.steps_left, "steps_left", self.name)
        if not steps.any():
            return allocation(problem, problem.isolated_share, exact(0.0))
        rates = problem.rates if self.aware else reference_rates(problem, self.reference_type)
        polytope = polytope_of(problem, rates, self.aware and shares_space(problem, self.space_sharing))
        found = highest_level(polytope, steps, memory, problem.ids if self.aware else ())
        seconds = 1.0 / found.value
        return of_solution(problem, found, seconds, 1.0 / found.bound, price_scale=seconds**2)

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        if not self.aware:
            return super().explain(problem, found)
        ends_s = np.divide(problem.steps_left, found.effective, out=np.zeros(len(problem)), where=found.effective > 0)
        return by_level(problem, found, ends_s, "seconds to its end", lower_is_better=True)
