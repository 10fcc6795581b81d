"""Jobs that will come: hours of the last days, drawn and put together anew (a block bootstrap).

Whole hours keep what single draws would lose: bursts, sweeps of many equal jobs, the hours of the day.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter

import numpy as np
from scipy.special import ndtr, ndtri

from trine.core.job import Job
from trine.forecast.length_correlation import LevelDraw
from trine.forecast.work_history import KnownJob, NewJobs, WorkDraw
from trine.policy.view import Floats

_DAY_S = 86_400.0
_BLOCK_S = 3_600.0
_BLOCKS_OF_A_DAY = 24
_WINDOW_S = 7 * _DAY_S
"""What lies further back says little of the days to come."""

_BLOCK_OF_CHANCES = 1_024
_LOWEST, _HIGHEST = 1e-300, 1.0 - 1e-16
Arrival = tuple[float, int, float]
"""When a job comes, the number of the job of late that it is like, and the steps that it really takes."""

_REST = [each.name for each in fields(Job)][2:]
_VALUES, _TRACKED, _ARRAY = attrgetter(*_REST), _REST.index("tracked"), _REST.index("array")


class RecentArrivals:
    """The submissions of the last days before ``now_s``, to draw from."""

    def __init__(self, known: Sequence[KnownJob], now_s: float) -> None:
        recent = [each for each in known if now_s - _WINDOW_S <= each.job.submit_s < now_s]
        self._jobs = sorted(recent, key=lambda each: each.job.submit_s)
        self._submits_s = [each.job.submit_s for each in self._jobs]
        self._again = NewJobs(self._jobs)
        work_s = [each.job.ideal_s or each.work_s or 1.0 for each in self._jobs]
        self._exact_steps: Floats = np.array([each.job.steps for each in self._jobs])
        self._step_rate: Floats = self._exact_steps / np.array(work_s)
        """Steps in a second of work."""
        self._exact = np.array([each.exact for each in self._jobs], dtype=np.bool_)
        self._now_s = now_s
        first_s = self._submits_s[0] if self._jobs else now_s
        # Before the first submission there may have been no cluster; a few minutes of history are no rate. An hour
        # before it: blocks that begin later would never have that job, and where it is the only one, never any.
        self._from_s = min(first_s, now_s) - _BLOCK_S

    def draw(
        self, rng: np.random.Generator, work: WorkDraw, most: int, level: LevelDraw | None = None
    ) -> Iterator[tuple[Job, float]]:
        """Jobs in order of submission with the steps they really take; at most ``most``."""
        days = itertools.chain.from_iterable(self.draw_days(rng, work, most, level))
        for number, (submit_s, like, steps) in enumerate(days, 1):
            values = list(_VALUES(self._jobs[like].job))
            values[_TRACKED], values[_ARRAY] = False, ""  # it belongs to no array that is there
            yield Job(f"arrival-{number}", submit_s, *values), steps

    def draw_days(
        self, rng: np.random.Generator, work: WorkDraw, most: int, level: LevelDraw | None = None
    ) -> Iterator[list[Arrival]]:
        """The same as jobs of the past that come again, a day at a time: lengths are drawn for many at once."""
        number, begin_s = 0, self._now_s
        chances: Iterator[float] = _chances(np.random.default_rng(int(rng.integers(2**63))), level)
        while self._jobs and number < most:
            submits_s: list[float] = []
            likes: list[int] = []
            for _ in range(_BLOCKS_OF_A_DAY):
                shift_s = begin_s - self._block_from(rng, begin_s)
                first, end = self._between(begin_s - shift_s, begin_s - shift_s + _BLOCK_S)
                submits_s += [submit_s + shift_s for submit_s in self._submits_s[first:end]]
                likes += range(first, end)
                begin_s += _BLOCK_S
                if number + len(likes) >= most:
                    break
            number += len(likes)
            yield list(zip(submits_s, likes, self._steps(likes, chances, work), strict=True))

    def job(self, like: int) -> Job:
        """The job of the past that one to come is like."""
        return self._jobs[like].job

    def _steps(self, likes: list[int], chances: Iterator[float], work: WorkDraw) -> list[float]:
        """The steps that jobs to come really take."""
        some = np.array(likes, dtype=np.int64)
        drawn = self._step_rate[some] * work.new_jobs_s(self._again, some, np.fromiter(chances, np.float64, len(likes)))
        steps: list[float] = np.where(self._exact[some], self._exact_steps[some], drawn).tolist()
        return steps

    def _block_from(self, rng: np.random.Generator, begin_s: float) -> float:
        """Where a block for the time from ``begin_s`` on begins: at the same time of another day, if there is one."""
        latest = int(np.ceil((begin_s + _BLOCK_S - self._now_s) / _DAY_S))
        earliest = int((begin_s - self._from_s) // _DAY_S)
        if earliest > latest:
            return begin_s - _DAY_S * float(rng.integers(latest, earliest + 1))
        span_s = self._now_s - self._from_s - _BLOCK_S
        return self._from_s + span_s * rng.random()

    def _between(self, from_s: float, to_s: float) -> tuple[int, int]:
        return bisect_left(self._submits_s, from_s), bisect_left(self._submits_s, to_s)


def _chances(rng: np.random.Generator, level: LevelDraw | None) -> Iterator[float]:
    """Numbers above 0 and up to 1, drawn for many jobs at a time: which part of its set each does not outlive."""
    levels = None if level is None else level.to_come()
    while True:
        chances: Floats = 1.0 - rng.random(_BLOCK_OF_CHANCES)
        if level is not None and levels is not None:
            common = np.fromiter(levels, np.float64, _BLOCK_OF_CHANCES)
            chances = np.maximum(ndtr(level.own * ndtri(np.minimum(chances, _HIGHEST)) - common), _LOWEST)
        yield from chances.tolist()
