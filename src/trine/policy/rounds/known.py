"""What stays with a job from round to round, as columns by job number: speeds, weight, deadline."""

from __future__ import annotations

import numpy as np

from trine.policy.view import Flags, Floats, Ints, View

MANY = 10_000
"""Names of jobs that are kept at least."""


class Known:
    """Filled as jobs arrive; speeds follow what the engine learns of them."""

    def __init__(self, types: int, by_name: Ints | None = None) -> None:
        self._by_name: list[int] = list(range(types)) if by_name is None else by_name.tolist()
        self._names: dict[int, str] = {}
        self._rates: Floats = np.zeros((64, types))
        self._named: Floats = np.zeros((64, types))
        self._weight: Floats = np.ones(64)
        self._deadline_s: Floats = np.full(64, np.inf)
        self._seen: Flags = np.zeros(64, np.bool_)
        self._able: Flags = np.zeros(64, np.bool_)
        self._revision = -1
        self._capacity: list[int] = []

    def learn(self, view: View) -> None:
        """Take note of new jobs and of changed speeds."""
        top = int(view.slots[-1]) + 1 if len(view) else 0
        while top > len(self._rates):
            self._double()
        capacity = view.gpus_by_type
        if view.revision != self._revision or capacity != self._capacity:  # look at all again
            self._revision, self._capacity = view.revision, list(capacity)
            self._seen[:] = False
        for slot in view.slots[~self._seen[view.slots]].tolist():
            job, (gang, suits, step_s) = view.job_of(slot), view.of(slot)
            rates = [1.0 / s if j in suits else 0.0 for j, s in enumerate(step_s)]
            room = [rates[j] if gang <= capacity[j] else 0.0 for j in self._by_name]
            self._rates[slot], self._named[slot], self._able[slot] = rates, room, any(room)
            self._weight[slot] = job.weight
            self._deadline_s[slot] = np.inf if job.deadline_s is None else job.deadline_s
            self._seen[slot] = True

    def rates(self, slots: Ints) -> Floats:
        """(jobs, types): steps per second on median GPUs of each type; 0 where a job cannot run."""
        return self._rates[slots]

    def named(self, slots: Ints) -> Floats:
        """As ``rates``, types by name; 0 also where the cluster has too few GPUs now."""
        return self._named[slots]

    def names(self, slots: tuple[int, ...]) -> tuple[str, ...]:
        """Job numbers as texts."""
        names = self._names
        if len(names) > 2 * len(slots) + MANY:
            names.clear()
        return tuple([names.get(slot) or names.setdefault(slot, str(slot)) for slot in slots])

    def able(self, slots: Ints) -> Flags:
        """Jobs that run on a type of which the cluster has enough GPUs now."""
        return self._able[slots]

    def weight(self, slots: Ints) -> Floats:
        return self._weight[slots]

    def deadline_s(self, slots: Ints) -> Floats:
        """Absolute time; infinite without a deadline."""
        return self._deadline_s[slots]

    def _double(self) -> None:
        self._rates = np.concatenate((self._rates, np.zeros_like(self._rates)))
        self._named = np.concatenate((self._named, np.zeros_like(self._named)))
        self._seen = np.concatenate((self._seen, np.zeros_like(self._seen)))
        self._able = np.concatenate((self._able, np.zeros_like(self._able)))
        self._weight = np.concatenate((self._weight, np.ones_like(self._weight)))
        self._deadline_s = np.concatenate((self._deadline_s, np.full_like(self._deadline_s, np.inf)))
