"""Max-min fairness (least attained service, heterogeneity-aware): the smallest normalised throughput is as
large as can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trine.policy.shares.allocation import Allocation, by_level, of_solution
from trine.policy.shares.base import Memory, SharePolicy, aware_param, equal_rates, shares_space, sharing_param
from trine.policy.shares.problem import Problem, proportional
from trine.policy.shares.program import highest_level, level_by_class, polytope_of
from trine.policy.view import Floats


@dataclass
class MaxMinFairness(SharePolicy):
    """Maximise over X the smallest s_m thr(m, X) / (w_m Tn_m), where Tn_m is the throughput on a proportional share.

    A job of weight 5 is held to 5 times the normalised throughput. Not ``aware``, time counts instead of throughput.
    """

    name: ClassVar[str] = "max-min-fairness"
    title: ClassVar[str] = "the smallest normalised throughput is as large as can be"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.1"
    objective: ClassVar[str] = "smallest normalised throughput"
    takes_classes: ClassVar[bool] = True
    timeless: ClassVar[bool] = True

    aware: bool = aware_param()
    space_sharing: bool | None = sharing_param()

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        rates = problem.rates if self.aware else equal_rates(problem)
        demand, sharing = self._demand(problem, rates), self.aware and shares_space(problem, self.space_sharing)
        if sharing and problem.class_pairs is not None:
            return level_by_class(problem, problem.class_pairs, demand, memory)
        ids = problem.ids if self.aware else ()
        return of_solution(problem, highest_level(polytope_of(problem, rates, sharing), demand, memory, ids))

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        rates = problem.rates if self.aware else equal_rates(problem)
        reached = found.effective if self.aware else found.shares.sum(axis=1)
        return by_level(problem, found, reached / self._demand(problem, rates), "fair level")

    def _demand(self, problem: Problem, rates: Floats) -> Floats:
        """Steps per second that count as 1."""
        return problem.weight * proportional(rates, problem.capacity) / problem.gang
