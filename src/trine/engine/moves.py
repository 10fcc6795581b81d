"""Is it worth moving a running job? Only if it gains more time over its remaining work than the move costs."""

from __future__ import annotations

from dataclasses import dataclass

from trine.core.costs import StopCosts
from trine.engine.table import JobTable
from trine.perf.model import PerfModel


@dataclass(frozen=True)
class Moves:
    """Weighs speeds that the performance model predicts against what a stop costs."""

    perf: PerfModel
    costs: StopCosts

    def pays(self, table: JobTable, slot: int, now: float, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
        """Predicted end after the move is earlier than the end without it."""
        job = table.jobs[slot]
        before, after = self.perf.speed(job, old).steps_per_s, self.perf.speed(job, new).steps_per_s
        if after <= before:
            return False
        worked_s = max(0.0, now - float(table.work_from_s[slot]))
        left = float(table.steps[slot]) - float(table.done[slot]) - worked_s * float(table.rate[slot])
        # Half an interval on average. What is lost at this very moment would make a move pay now, not pay a round
        # later and pay again after the next checkpoint: staying must stay right while nothing else changes.
        cost_s = self.costs.migration(job) + self.costs.interval(job) / 2
        return left / before - left / after > cost_s
