"""Finish-time fairness (Themis): no job ends much later than on an isolated share of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.core.sums import dot
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
from trine.policy.shares.program import lowest_slowdown, polytope_of
from trine.policy.view import Floats


@dataclass
class FinishTimeFairness(SharePolicy):
    """Minimise over X the largest rho_m = (t_m + L_m / thr(m, X)) / (t_iso_m + L_m / T_iso(m)).

    t_iso is the time the work done so far would have taken on the isolated share: from the problem, and while the same
    memory is passed, with the steps done since the last call added. Weights do not enter. Not ``aware``, every type
    counts as fast as the reference type.
    """

    name: ClassVar[str] = "finish-time-fairness"
    title: ClassVar[str] = "the largest slowdown against an isolated share is as small as can be"
    paper: ClassVar[str] = "Themis (NSDI'20); Gavel (OSDI'20), section 4.2"
    objective: ClassVar[str] = "largest finish time relative to an isolated share"

    aware: bool = aware_param()
    space_sharing: bool | None = sharing_param()
    reference_type: str = param(REFERENCE_TYPE, REFERENCE_DOC)

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        steps = problem.needs(problem.steps_left, "steps_left", self.name)
        rates = self._rates(problem)
        isolated_rate = (rates * problem.isolated_share).sum(axis=1)
        isolated_s = _isolated_s(problem, memory, isolated_rate)
        if not steps.any():
            return allocation(problem, problem.isolated_share, exact(0.0))
        polytope = polytope_of(problem, rates, self.aware and shares_space(problem, self.space_sharing))
        ideal_s = np.where(steps > 0, isolated_s + steps / isolated_rate, 1.0)
        ids = problem.ids if self.aware else ()
        found = lowest_slowdown(polytope, steps, problem.elapsed_s, ideal_s, memory, ids)
        # Prices are those of the level that rho leaves; times its slope by rho they are what rho gains.
        spare_s = np.maximum(found.value * ideal_s - problem.elapsed_s, 1e-12)
        slope = dot(found.duals, steps * ideal_s / spare_s**2)
        return of_solution(problem, found, price_scale=1.0 / slope if slope > 0 else 0.0)

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        if not self.aware:
            return super().explain(problem, found)
        ideal_s = problem.isolated_s + problem.steps_left / problem.isolated_rate
        left_s = np.divide(problem.steps_left, found.effective, out=np.zeros(len(problem)), where=found.effective > 0)
        rho = np.divide(problem.elapsed_s + left_s, ideal_s, out=np.zeros(len(problem)), where=ideal_s > 0)
        return by_level(problem, found, rho, "rho", lower_is_better=True)

    def _rates(self, problem: Problem) -> Floats:
        return problem.rates if self.aware else reference_rates(problem, self.reference_type)


def _isolated_s(problem: Problem, memory: Memory, rate: Floats) -> Floats:
    """Isolated seconds of the work done so far; remembers them for the next call."""
    total = problem.isolated_s.copy()
    for i, job in enumerate(problem.ids) if memory.isolated else ():
        if job in memory.isolated:
            steps_then, total_then, rate_then = memory.isolated[job]
            total[i] = total_then + max(0.0, steps_then - problem.steps_left[i]) / rate_then
    columns = (problem.steps_left.tolist(), total.tolist(), rate.tolist())
    memory.isolated = dict(zip(problem.ids, zip(*columns, strict=True), strict=True))
    return total
