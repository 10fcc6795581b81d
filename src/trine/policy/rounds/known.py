"""What stays with a job from round to round, as columns by job number: speeds, weight, deadline."""

from __future__ import annotations

import numpy as np

from trine.policy.view import Flags, Floats, Ints, View


class Known:
    """Filled as jobs arrive; speeds follow what the engine learns of them."""

    def __init__(self, types: int) -> None:
        self._rates: Floats = np.zeros((64, types))
        self._weight: Floats = np.ones(64)
        self._deadline_s: Floats = np.full(64, np.inf)
        self._seen: Flags = np.zeros(64, np.bool_)
        self._revision = -1

    def learn(self, view: View) -> None:
        """Take note of new jobs and of changed speeds."""
        top = int(view.slots[-1]) + 1 if len(view) else 0
        while top > len(self._rates):
            self._double()
        if view.revision != self._revision:  # some speed is another: look at all again
            self._revision = view.revision
            self._seen[:] = False
        for slot in view.slots[~self._seen[view.slots]].tolist():
            job, (_, suits, step_s) = view.job_of(slot), view.of(slot)
            self._rates[slot] = [1.0 / s if j in suits else 0.0 for j, s in enumerate(step_s)]
            self._weight[slot] = job.weight
            self._deadline_s[slot] = np.inf if job.deadline_s is None else job.deadline_s
            self._seen[slot] = True

    def rates(self, slots: Ints) -> Floats:
        """(jobs, types): steps per second on median GPUs of each type; 0 where a job cannot run."""
        return self._rates[slots]

    def weight(self, slots: Ints) -> Floats:
        return self._weight[slots]

    def deadline_s(self, slots: Ints) -> Floats:
        """Absolute time; infinite without a deadline."""
        return self._deadline_s[slots]

    def _double(self) -> None:
        self._rates = np.concatenate((self._rates, np.zeros_like(self._rates)))
        self._seen = np.concatenate((self._seen, np.zeros_like(self._seen)))
        self._weight = np.concatenate((self._weight, np.ones_like(self._weight)))
        self._deadline_s = np.concatenate((self._deadline_s, np.full_like(self._deadline_s, np.inf)))
