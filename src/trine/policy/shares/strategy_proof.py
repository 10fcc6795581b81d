"""Strategy-proof fairness: the largest product of throughputs, minus what each job costs the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.sums import dot
from trine.policy.shares.allocation import Allocation, Certificate, allocation
from trine.policy.shares.base import Memory, SharePolicy, aware_param, equal_rates
from trine.policy.shares.problem import Problem, proportional
from trine.policy.shares.solver import presolve
from trine.policy.shares.solver.nash import solve_nash
from trine.policy.shares.solver.polytope import Solution
from trine.policy.view import Floats, Ints


@dataclass
class StrategyProof(SharePolicy):
    """Maximise over X the geometric mean of s_m thr(m, X) / (w_m Tn_m). Job i then keeps the part f_i of its share, the
    product over all other jobs k of thr_k with i over thr_k without i, so that no job gains by stating wrong speeds.

    The objective reported is the geometric mean before the discount. One program for all, and one without a job of each
    class: equal jobs count as one.
    """

    name: ClassVar[str] = "strategy-proof"
    title: ClassVar[str] = "largest product of throughputs, minus what each job costs the others"
    paper: ClassVar[str] = "Cole, Gkatzelis, Goel (EC'13), as in Gavel's public code"
    objective: ClassVar[str] = "geometric mean of normalised throughputs before the discount"

    aware: bool = aware_param()

    def compute(self, problem: Problem, memory: Memory) -> Allocation:  # noqa: ARG002
        rates = problem.rates if self.aware else equal_rates(problem)
        classes = _EqualJobs.of(rates, problem)
        best = classes.best(classes.size)
        kept = classes.discounts(best)[classes.member_of]
        demand = problem.weight * proportional(rates, problem.capacity) / problem.gang
        mean = float(np.exp(np.log(classes.rate(best)[classes.member_of] / demand).mean()))
        certificate = Certificate(mean, mean * (1 + best.gap), best.solver, max(best.gap, 0.0), best.prices)
        return allocation(problem, best.x[classes.member_of] * kept[:, None], certificate)

    def explain(self, problem: Problem, found: Allocation) -> list[str]:  # noqa: ARG002
        time = found.shares.sum(axis=1)
        return [f"runs {t:.0%} of the time: what its presence costs the others is taken off its share" for t in time]


@dataclass(frozen=True)
class _EqualJobs:
    """Equal jobs as one row that counts as often as there are of them."""

    rates: Floats
    gang: Floats
    capacity: Floats
    size: Floats
    member_of: Ints

    @classmethod
    def of(cls, rates: Floats, problem: Problem) -> _EqualJobs:
        gang = problem.gang.astype(np.float64)
        found = presolve.equal_rows((rates, gang))
        assert found is not None
        first = found.first
        return cls(rates[first], gang[first], problem.capacity, found.size.astype(np.float64), found.member_of)

    def best(self, size: Floats) -> Solution:
        """The largest product for ``size`` jobs of each class."""
        return solve_nash(self.rates, size, self.gang * size, self.capacity, classes=False)

    def rate(self, found: Solution) -> Floats:
        return np.asarray((self.rates * found.x).sum(axis=1))

    def discounts(self, whole: Solution) -> Floats:
        """For a job of each class, the part of their throughput that its presence leaves all others, multiplied up."""
        with_it = np.log(self.rate(whole))
        result = np.ones(len(self.size))
        for i in range(len(self.size)):
            others = self.size.copy()
            others[i] -= 1
            left = others > 0
            if left.any():
                rest = _EqualJobs(self.rates[left], self.gang[left], self.capacity, others[left], self.member_of)
                without = np.log(rest.rate(rest.best(rest.size)))
                result[i] = np.exp(dot(rest.size, with_it[left] - without))
        return np.minimum(result, 1.0)
