"""Isolated share: every job gets an equal part of each GPU type, whatever its speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trine.policy.shares.allocation import Allocation, allocation, exact
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.problem import Problem


@dataclass
class Isolated(SharePolicy):
    """With M jobs, a job of gang s spends N_j / (M s) of its time on type j; rows above 1 are scaled down to 1.

    The objective reported is the smallest share of time any job gets.
    """

    name: ClassVar[str] = "isolated"
    title: ClassVar[str] = "an equal part of every GPU type for each job"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.1"
    objective: ClassVar[str] = "smallest share of time"
    aware = False

    def compute(self, problem: Problem, memory: Memory) -> Allocation:  # noqa: ARG002
        x = problem.isolated_share
        return allocation(problem, x, exact(float(x.sum(axis=1).min())))

    def explain(self, problem: Problem, found: Allocation) -> list[str]:  # noqa: ARG002
        return [
            f"one of {len(problem)} equal parts of every type, divided by its {gang} GPU{'s' if gang > 1 else ''}"
            for gang in problem.gang
        ]
