"""The fair-share guard: what every job would have done with an equal share of the cluster, and a weight for those behind.

The share is fluid: with M active jobs each gets 1/M of the GPUs of every type, at most as many as its gang asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trine.policy.view import Floats, Ints

_SLACK_S = 600.0
"""Work that a job may lack before it counts as behind: a share is fluid, and rounds are not."""


@dataclass
class FairShareGuard:
    """Work by fair share in seconds on the best type, kept for each active job by job index."""

    exponent: float = 1.0
    _owed_s: Floats = field(default_factory=lambda: np.zeros(1024), init=False, repr=False)
    _seen_s: float = field(default=-1.0, init=False, repr=False)

    def advance(self, now: float, job_indices: Ints, mean_speed: Floats, gangs: Ints, gpus: int) -> None:
        """Add what an equal share would have done since the last call; ``mean_speed`` is over all GPUs."""
        if len(job_indices) and job_indices[-1] >= len(self._owed_s):
            grown = max(2 * len(self._owed_s), int(job_indices[-1]) + 1)
            self._owed_s = np.pad(self._owed_s, (0, grown - len(self._owed_s)))
        if 0 <= self._seen_s < now and len(job_indices):
            part = np.minimum(1.0, gpus / (len(job_indices) * gangs))
            self._owed_s[job_indices] += mean_speed * part * (now - self._seen_s)
        self._seen_s = now

    def weight(self, job_indices: Ints, done_s: Floats, work_s: Floats) -> Floats:
        """1 for jobs that are not behind; ``work_s``: all the work of the job where that is known, else infinity."""
        owed = np.minimum(self._owed_s[job_indices], work_s)
        behind: Floats = np.maximum(1.0, owed / (done_s + _SLACK_S)) ** self.exponent
        return behind

    def state(self, names: dict[int, str]) -> dict[str, float]:
        """Work owed by job id."""
        return {name: float(self._owed_s[index]) for index, name in names.items()}
