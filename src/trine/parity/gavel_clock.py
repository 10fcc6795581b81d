"""Time as it passes in Gavel's simulator (``scheduler/scheduler.py`` of the published code), for comparisons per job.

A round has no fixed end: every running job makes whole steps for at most ``round_s`` seconds, its slice, and the round
ends with the last slice. The next round begins there, off the grid that the world otherwise keeps to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from trine.core.job import Job
from trine.parity.flags import Compat
from trine.perf.model import PerfModel, Speed

LAST_FAILURE = 5
"""A job whose slices fail so many times in a row is given up."""


def slice_clock(compat: Compat, perf: PerfModel, round_s: float) -> SliceClock | None:
    """The clock that the flags ask for; ``None``: rounds on the grid."""
    if not compat.round_ends_early:
        return None
    return SliceClock(perf, round_s, charge_gap=compat.charge_gap, remainder_failure=compat.remainder_failure)


def pair_cost_part(compat: Compat) -> float:
    """Part of the price of shared GPUs that each of the two jobs on them pays: a half, or all of it."""
    return 1.0 if compat.pair_cost_twice else 0.5


class RunningJob(NamedTuple):
    """A job that has GPUs when a round begins."""

    job_index: int
    job: Job
    done: float
    """Steps before this round."""
    gpus: tuple[int, ...]
    speed: Speed


@dataclass(slots=True)
class Slice:
    """What a job does in a round."""

    job_index: int
    steps: float
    end_s: float
    failed: bool
    shared: bool = False
    charged_s: float = 0.0
    """Seconds that the policy counts for it."""


class SliceClock:
    """The slices of the present round.

    ``charge_gap``: a slice is charged from the end of the last one of the round before, idle time included.
    ``remainder_failure``: a gang with fewer steps left than GPUs fails its slice.
    """

    def __init__(self, perf: PerfModel, round_s: float, *, charge_gap: bool, remainder_failure: bool) -> None:
        self._perf, self._round_s = perf, round_s
        self._charge_gap, self._remainder_failure = charge_gap, remainder_failure
        self._slices: list[Slice] = []
        self._start_s = 0.0
        self._last_end_s = 0.0
        self._failures: dict[int, int] = {}

    @property
    def end_s(self) -> float:
        """When the round ends; infinite if nothing runs."""
        return max((s.end_s for s in self._slices), default=math.inf)

    def begin(self, now: float, running: Iterable[RunningJob], co_runners: dict[int, int]) -> None:
        """Every job that has GPUs gets its slice; the two jobs of a pair end theirs together, or fail together."""
        made = {known.job_index: self._slice(now, known) for known in running}
        for job_index, co_runner in co_runners.items():
            if job_index in made and co_runner in made:
                made[job_index].end_s = max(made[job_index].end_s, made[co_runner].end_s)
                made[job_index].failed = made[job_index].failed or made[co_runner].failed
                made[job_index].shared = True
        self._slices = list(made.values())
        self._start_s = self._last_end_s if self._charge_gap else now

    def end(self) -> list[Slice]:
        """The slices of the round that is over, with the time charged for each."""
        done, self._slices = self._slices, []
        for s in done:
            s.charged_s = 0.0 if s.failed else s.end_s - self._start_s
            if not s.shared:  # slices of pairs count neither as failures nor as successes
                self._failures[s.job_index] = self._failures.get(s.job_index, 0) + 1 if s.failed else 0
        if done:
            self._last_end_s = max(s.end_s for s in done)
        return done

    def gives_up(self, job_index: int) -> bool:
        """The job has failed so often in a row that it is not tried again."""
        return self._failures.get(job_index, 0) >= LAST_FAILURE

    def _slice(self, now: float, known: RunningJob) -> Slice:
        job = known.job
        rate = self._rate(known)
        steps = min(math.floor(rate * self._round_s), job.steps - known.done)
        # The published code gives every rank but the last an equal part of the whole steps: with fewer steps than
        # ranks these parts are empty, and the slice counts as failed.
        failed = self._remainder_failure and job.gpus > 1 and steps // job.gpus <= 0
        return Slice(known.job_index, steps, now + steps / rate, failed)

    def _rate(self, known: RunningJob) -> float:
        """Steps per second: the table's own number where nothing slows the job down.

        The speed is the inverse of a step's time, hence the inverse of an inverse: rounded down it may be a step less.
        """
        job, speed = known.job, known.speed
        if speed.chip == speed.network == 1.0:
            rate = self._perf.throughputs.rate(job.model, job.gpus, self._perf.cluster.type_of(known.gpus[0]))
            if rate is not None and math.isclose(rate, speed.steps_per_s, rel_tol=1e-9):
                return rate
        return speed.steps_per_s
