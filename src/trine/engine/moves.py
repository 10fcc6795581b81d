"""Is it worth moving a running job? Only if it gains more time over its remaining work than the move costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from trine.core.costs import StopCosts
from trine.engine.table import JobTable
from trine.perf.model import Speed


@dataclass(frozen=True)
class Moves:
    """Weighs speeds that the performance model predicts against what a stop costs."""

    speed_at: Callable[[int, tuple[int, ...]], Speed]
    """Speed of a job on other GPUs, with the traffic of this moment."""
    costs: StopCosts

    def quote(self, job_index: int, gpus: tuple[int, ...]) -> float:
        """Steps/s that the job would make on ``gpus``."""
        return self.speed_at(job_index, gpus).steps_per_s

    def steps_left(self, table: JobTable, job_index: int, now: float) -> float:
        """Extrapolated from the last report at the present rate."""
        worked_s = max(0.0, now - float(table.work_from_s[job_index]))
        return float(table.steps[job_index]) - float(table.done[job_index]) - worked_s * float(table.rate[job_index])

    def cost_s(self, table: JobTable, job_index: int) -> float:
        """Seconds that a move costs the job.

        Half an interval of checkpoints on average. What is lost at this very moment would make a move pay now, not pay
        a round later and pay again after the next checkpoint: staying must stay right while nothing else changes.
        """
        job = table.jobs[job_index]
        return self.costs.migration(job) + self.costs.interval(job) / 2

    def pays(self, table: JobTable, job_index: int, now: float, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
        """Predicted end after the move is earlier than the end without it."""
        before, after = self.quote(job_index, old), self.quote(job_index, new)
        if after <= before:
            return False
        left = self.steps_left(table, job_index, now)
        return left / before - left / after > self.cost_s(table, job_index)

    def gain_s(
        self, table: JobTable, job_index: int, now: float, before: float, after: float, horizon_s: float = math.inf
    ) -> float:
        """Seconds saved over the remaining work, ``horizon_s`` seconds of it at most, at ``after`` steps/s instead of
        ``before``; what the move costs is not subtracted."""
        remaining_s = self.steps_left(table, job_index, now) / before
        return min(remaining_s, horizon_s) * (1.0 - before / after)
