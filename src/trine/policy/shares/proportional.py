"""Proportional share: time on each GPU type in proportion to how many GPUs it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.policy.shares.allocation import Allocation, Note, allocation, exact
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.problem import Problem


@dataclass
class Proportional(SharePolicy):
    """Every job spends N_j / N of its time on type j. More jobs than GPUs can carry scale all of them down alike.

    Gavel normalises throughputs by this share. The objective reported is the share of time each job gets.
    """

    name: ClassVar[str] = "proportional"
    title: ClassVar[str] = "time on each GPU type in proportion to its GPUs"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.1"
    objective: ClassVar[str] = "share of time of every job"
    aware = False

    def compute(self, problem: Problem, memory: Memory) -> Allocation:  # noqa: ARG002
        gpus, wanted = problem.capacity.sum(), max(float(problem.gang.sum()), 1.0)
        scale = min(1.0, gpus / wanted)
        x = np.tile(problem.capacity / gpus * scale, (len(problem), 1))
        note = Note(-1, f"the jobs want {wanted:g} GPUs and there are {gpus:g}: every share is scaled by {scale:.3g}")
        return allocation(problem, x, exact(scale), notes=(note,) if scale < 1 else ())

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        return [f"{found.objective:.3g} of its time, spread like the GPUs over the types"] * len(problem)
