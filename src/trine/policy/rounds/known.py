"""What stays with a job from round to round, as columns by job number: speeds, weight, deadline."""

from __future__ import annotations

import numpy as np

from trine.policy.view import Floats, Ints, View


class Known:
    """Filled as jobs arrive; speeds follow what the engine learns of them."""

    def __init__(self, types: int) -> None:
        self._rates: Floats = np.zeros((64, types))
        self._weight: Floats = np.ones(64)
        self._deadline_s: Floats = np.full(64, np.inf)
        self._step_s: dict[int, tuple[float, ...]] = {}

    def learn(self, view: View) -> None:
        """Take note of new jobs and of changed speeds."""
        top = int(view.slots[-1]) + 1 if len(view) else 0
        while top > len(self._rates):
            self._double()
        step_s = view.step_s()
        known = self._step_s
        changed = [(at, slot) for at, slot in enumerate(view.slots.tolist()) if known.get(slot) is not step_s[at]]
        for at, slot in changed:
            job, own = view.job(at), step_s[at]
            possible = view.pools_of(at)
            self._rates[slot] = [1.0 / s if j in possible else 0.0 for j, s in enumerate(own)]
            self._weight[slot] = job.weight
            self._deadline_s[slot] = np.inf if job.deadline_s is None else job.deadline_s
            known[slot] = own
        if len(known) > 2 * len(view) + 64:
            self._step_s = {slot: known[slot] for slot in view.slots.tolist()}

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
        self._weight = np.concatenate((self._weight, np.ones_like(self._weight)))
        self._deadline_s = np.concatenate((self._deadline_s, np.full_like(self._deadline_s, np.inf)))
