"""Shortest job first: the job that can end soonest runs on its fastest type, then the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.policy.shares.allocation import Allocation, allocation, exact, take_fastest, whole_shares
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.problem import Problem
from trine.policy.view import Floats


@dataclass
class ShortestJobFirst(SharePolicy):
    """Minimise over X the smallest L_m / thr(m, X): the job that needs least time on its fastest type gets it whole.

    The objective leaves open what the others get. Here they follow in order of the time they need, each on the fastest
    type that still has room for its gang; ties in order of arrival.
    """

    name: ClassVar[str] = "shortest-job-first"
    title: ClassVar[str] = "the job that can end soonest first, on its fastest type"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.2"
    objective: ClassVar[str] = "seconds until the first job can end"

    def compute(self, problem: Problem, memory: Memory) -> Allocation:  # noqa: ARG002
        need_s = self._need_s(problem)
        order = np.lexsort((problem.arrival, need_s))
        x = whole_shares(problem, take_fastest(problem, order, strict=False))
        return allocation(problem, x, exact(float(need_s.min())))

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        need_s = self._need_s(problem)
        rank = np.argsort(np.lexsort((problem.arrival, need_s)))
        runs = found.shares.sum(axis=1) > 0
        return [
            f"number {r + 1} by time left ({s:.6g} s at its fastest)" + ("" if ran else ": no room left for its gang")
            for r, s, ran in zip(rank, need_s, runs, strict=True)
        ]

    def _need_s(self, problem: Problem) -> Floats:
        steps = problem.needs(problem.steps_left, "steps_left", self.name)
        return np.asarray(steps / problem.rates.max(axis=1), np.float64)
