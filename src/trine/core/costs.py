"""What stopping a job costs: restoring, moving, the work since its last checkpoint. A job's own figures come first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trine.core.job import Job


@dataclass(frozen=True, slots=True)
class StopCosts:
    """The run's figures, in seconds, for jobs that do not state their own."""

    restore_s: float = 0.0
    migration_s: float | None = None
    """``None``: a move costs what a restore costs."""
    checkpoint_every_s: float = 0.0
    """0: a checkpoint is taken at the stop itself, nothing is lost."""
    by_model: Callable[[Job], float] | None = None
    """Seconds from a start on new GPUs to the first step, by what the job trains; in place of ``restore_s``."""

    def restore(self, job: Job) -> float:
        """Seconds before work goes on after a preemption."""
        if job.restore_s is not None:
            return job.restore_s
        return self.restore_s if self.by_model is None else self.by_model(job)

    def migration(self, job: Job) -> float:
        """Seconds before work goes on after a move."""
        migration_s = self.migration_s if job.migration_s is None else job.migration_s
        return self.restore(job) if migration_s is None else migration_s

    def interval(self, job: Job) -> float:
        """Seconds of work between checkpoints, 0 if one is taken at the stop."""
        return self.checkpoint_every_s if job.checkpoint_every_s is None else job.checkpoint_every_s

    def lost(self, job: Job, worked_s: float) -> float:
        """Seconds of work since the last checkpoint, after ``worked_s`` seconds of it."""
        every_s = self.interval(job)
        return worked_s % every_s if every_s > 0 else 0.0
