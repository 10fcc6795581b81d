"""Rounds as in Gavel's simulator: each running job makes whole steps for at most one round, and the last one to stop
ends the round. For comparisons per job only (``compat.round_ends_early``); the usual world keeps to a grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from trine.core.compat import Compat
from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.sim.recorder import Life, Run

LAST_FAILURE = 5
"""So many slices in a row without a step end a job."""


@dataclass(slots=True)
class Slice:
    """What a job does in a round."""

    job_index: int
    steps: float
    end_s: float
    failed: bool
    shared: bool = False
    seconds: float = 0.0
    """Time charged for it."""


class Slices:
    """The slices of the present round."""

    def __init__(self, perf: PerfModel, compat: Compat, round_s: float) -> None:
        self._perf, self._compat, self._round_s = perf, compat, round_s
        self._running: list[Slice] = []
        self._start_s = 0.0
        self._last_end_s = 0.0
        self.failures: dict[int, int] = {}

    @property
    def end_s(self) -> float:
        """When the round ends; infinite if nothing runs."""
        return max((s.end_s for s in self._running), default=math.inf)

    def begin(self, now: float, lives: Iterable[tuple[int, Life]], co_runners: dict[int, int]) -> None:
        """Every job that has GPUs gets its slice; the two jobs of a pair end theirs together, or fail together."""
        made = {
            job_index: self._slice(now, job_index, life, life.run) for job_index, life in lives if life.run is not None
        }
        for job_index, co_runner in co_runners.items():
            if job_index in made and co_runner in made:
                made[job_index].end_s = max(made[job_index].end_s, made[co_runner].end_s)
                made[job_index].failed = made[job_index].failed or made[co_runner].failed
                made[job_index].shared = True
        self._running = list(made.values())
        self._start_s = self._last_end_s if self._compat.charge_gap else now

    def end(self) -> list[Slice]:
        """The slices of the round that is over, with the time charged for each."""
        done, self._running = self._running, []
        for s in done:
            s.seconds = 0.0 if s.failed else s.end_s - self._start_s
            if not s.shared:  # what fails or succeeds in a pair counts for neither
                self.failures[s.job_index] = self.failures.get(s.job_index, 0) + 1 if s.failed else 0
        if done:
            self._last_end_s = max(s.end_s for s in done)
        return done

    def _slice(self, now: float, job_index: int, life: Life, run: Run) -> Slice:
        rate = self._rate(life.job, run)
        steps = min(math.floor(rate * self._round_s), life.job.steps - life.done)
        # Every rank but the last gets an equal part of whole steps: too few leave some rank without any.
        failed = self._compat.remainder_failure and life.job.gpus > 1 and steps // life.job.gpus <= 0
        return Slice(job_index, steps, now + steps / rate, failed)

    def _rate(self, job: Job, run: Run) -> float:
        """The table's own number where nothing slows the job down: its inverse of an inverse may be a step less."""
        if run.speed.chip == run.speed.network == 1.0:
            known = self._perf.throughputs.rate(job.model, job.gpus, self._perf.cluster.type_of(run.gpus[0]))
            if known is not None and math.isclose(known, run.speed.steps_per_s, rel_tol=1e-9):
                return known
        return run.speed.steps_per_s
