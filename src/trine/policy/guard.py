"""The fair-share guard: what a job would have done with an equal share of the cluster, and a weight for jobs behind it.

The share is fluid: with M active jobs each gets 1/M of the GPUs of every type, at most as many as its gang asks for. It
is the reference of finish-time fairness (Themis, NSDI'20; Gavel, OSDI'20, section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trine.policy.view import Floats, Ints

_SLACK_S = 600.0
"""Work that a job may lack before it counts as behind: the share is fluid, and rounds are not."""


@dataclass
class FairShareGuard:
    """Work by fair share, in seconds on the best type of the job, by job index."""

    exponent: float = 1.0
    seen_s: float = field(default=-1.0, init=False)
    """Time up to which the shares are counted; below 0: not begun."""
    _owed_s: Floats = field(default_factory=lambda: np.zeros(1024), init=False, repr=False)

    def advance(self, now: float, job_indices: Ints, mean_speed: Floats, gangs: Ints, gpus: int) -> None:
        """Add what equal shares would have done since the last call; ``mean_speed``: of each job, over all GPUs."""
        self._make_room_for(int(job_indices[-1]) if len(job_indices) else 0)
        if 0 <= self.seen_s < now and len(job_indices):
            part = np.minimum(1.0, gpus / (len(job_indices) * gangs))
            self._owed_s[job_indices] += mean_speed * part * (now - self.seen_s)
        self.seen_s = now

    def _make_room_for(self, job_index: int) -> None:
        missing = max(job_index + 1, 2 * len(self._owed_s)) - len(self._owed_s)
        if job_index >= len(self._owed_s):
            self._owed_s = np.pad(self._owed_s, (0, missing))

    def weight(self, job_indices: Ints, done_s: Floats, work_s: Floats) -> Floats:
        """1 for jobs that are not behind; ``work_s``: all the work of the job where that is known, else infinity."""
        owed = np.minimum(self._owed_s[job_indices], work_s)
        behind: Floats = np.maximum(1.0, owed / (done_s + _SLACK_S)) ** self.exponent
        return behind

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
