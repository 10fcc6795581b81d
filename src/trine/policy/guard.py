"""The fair-share guard: what a job would have done with an equal share of the cluster, and a weight for jobs behind it.

The share is fluid: with M active jobs each gets 1/M of the GPUs of every type, at most as many as its gang asks for. It
is the reference of finish-time fairness (Themis, NSDI'20; Gavel, OSDI'20, section 4.2).

A job of unknown work may be at its end at any moment, so that the work it has done must keep up with its share. A job
whose work is known has, by its fair share, a time at which it would end: it may fall behind without harm as long as the
time until then exceeds what it needs, and is raised when that gets short, as before a deadline (least laxity).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trine.policy.view import Flags, Floats, Ints

_SLACK_S = 600.0
"""Work that a job may lack before it counts as behind, and time that it may be late: the share is fluid, and rounds are
not."""
_EARLY = 4.0
"""A job of known work that is behind is raised from the moment on at which it needs 1 / _EARLY of the time until its
fair end: it will not always run, nor always at full speed."""


def fair_speed(mean_speed: Floats, gangs: Ints, gpus: int) -> Floats:
    """Speed of each job with an equal share of ``gpus``; ``mean_speed``: of its whole gang, over all GPUs."""
    speed: Floats = mean_speed * np.minimum(1.0, gpus / (max(1, len(gangs)) * gangs))
    return speed


@dataclass
class FairShareGuard:
    """Work by fair share, in seconds on the best type of the job, by job index."""

    exponent: float = 1.0
    seen_s: float = field(default=-1.0, init=False)
    """Time up to which the shares are counted; below 0: not begun."""
    _owed_s: Floats = field(default_factory=lambda: np.zeros(1024), init=False, repr=False)

    def advance(self, now: float, job_indices: Ints, speed: Floats) -> None:
        """Add what equal shares would have done since the last call; ``speed``: of each job by ``fair_speed``."""
        self._make_room_for(int(job_indices[-1]) if len(job_indices) else 0)
        if 0 <= self.seen_s < now and len(job_indices):
            self._owed_s[job_indices] += speed * (now - self.seen_s)
        self.seen_s = now

    def _make_room_for(self, job_index: int) -> None:
        missing = max(job_index + 1, 2 * len(self._owed_s)) - len(self._owed_s)
        if job_index >= len(self._owed_s):
            self._owed_s = np.pad(self._owed_s, (0, missing))

    def weight(self, job_indices: Ints, done_s: Floats, left_s: Floats, known: Flags, speed: Floats) -> Floats:
        """1 for jobs that are not behind; ``left_s``: seconds of work left, ``known``: where that is no guess."""
        owed_s, work_s = self._owed_s[job_indices], done_s + left_s
        behind = owed_s / (done_s + _SLACK_S)
        until_s = np.maximum(0.0, work_s - owed_s) / np.maximum(speed, 1e-12)
        # Past its fair end a job is raised further by how often its share would have done all of it.
        late = _EARLY * left_s / (until_s + _SLACK_S) * np.maximum(1.0, owed_s / work_s)
        weight: Floats = np.maximum(1.0, np.where(known, np.minimum(behind, late), behind)) ** self.exponent
        return weight

    def owed(self, job_indices: Ints) -> Floats:
        """Seconds of work by fair share, for the record."""
        self._make_room_for(int(job_indices[-1]) if len(job_indices) else 0)
        return self._owed_s[job_indices]

    def resume(self, seen_s: float, owed_s: Mapping[int, float]) -> None:
        """Go on from what was on record."""
        self.seen_s = seen_s
        for job_index, seconds in owed_s.items():
            self._make_room_for(job_index)
            self._owed_s[job_index] = seconds
