"""Jobs that will come: hours of the last days, drawn and put together anew (a block bootstrap).

Whole hours keep what single draws would lose: bursts, sweeps of many equal jobs, the hours of the day.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter

import numpy as np

from trine.core.job import Job
from trine.forecast.work_history import Key, KnownJob, WorkDraw, group_of

_DAY_S = 86_400.0
_BLOCK_S = 3_600.0
_WINDOW_S = 7 * _DAY_S
"""What lies further back says little of the days to come."""

_REST = [each.name for each in fields(Job)][2:]
_VALUES, _TRACKED = attrgetter(*_REST), _REST.index("tracked")


class RecentArrivals:
    """The submissions of the last days before ``now_s``, to draw from."""

    def __init__(self, known: Sequence[KnownJob], now_s: float) -> None:
        recent = [each for each in known if now_s - _WINDOW_S <= each.job.submit_s <= now_s]
        self._jobs = sorted(recent, key=lambda each: each.job.submit_s)
        self._submits_s = [each.job.submit_s for each in self._jobs]
        self._alike = [group_of(each) for each in self._jobs]
        self._now_s = now_s
        first_s = self._submits_s[0] if self._jobs else now_s
        # Before the first submission there may have been no cluster; a few minutes of history are no rate.
        self._from_s = min(first_s, now_s - _BLOCK_S)

    def draw(self, rng: np.random.Generator, work: WorkDraw, most: int) -> Iterator[tuple[Job, float]]:
        """Jobs in order of submission with the steps they really take; at most ``most``."""
        for number, (like, submit_s, steps) in enumerate(self.draw_like(rng, work, most), 1):
            values = list(_VALUES(like))
            values[_TRACKED] = False
            yield Job(f"arrival-{number}", submit_s, *values), steps

    def draw_like(self, rng: np.random.Generator, work: WorkDraw, most: int) -> Iterator[tuple[Job, float, float]]:
        """The same as jobs of the past that come again: such a job, when it comes, and the steps it really takes."""
        number, begin_s = 0, self._now_s
        while self._jobs and number < most:
            shift_s = begin_s - self._block_from(rng, begin_s)
            first, end = self._between(begin_s - shift_s, begin_s - shift_s + _BLOCK_S)
            for at in range(first, end):
                number += 1
                each = self._jobs[at]
                yield each.job, each.job.submit_s + shift_s, self._steps(each, self._alike[at], work)
            begin_s += _BLOCK_S

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

    @staticmethod
    def _steps(each: KnownJob, alike: Key, work: WorkDraw) -> float:
        job = each.job
        if each.exact:
            return job.steps
        return job.steps * work.new_job_s(each, alike) / (job.ideal_s or each.work_s or 1.0)
