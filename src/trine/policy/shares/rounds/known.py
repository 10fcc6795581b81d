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
        top = int(view.job_indices[-1]) + 1 if len(view) else 0
        while top > len(self._rates):
            self._double()
        capacity = view.gpus_by_type
        if view.revision != self._revision or capacity != self._capacity:  # look at all again
            self._revision, self._capacity = view.revision, list(capacity)
            self._seen[:] = False
        for job_index in view.job_indices[~self._seen[view.job_indices]].tolist():
            job, (gang, suits, step_s) = view.job_of(job_index), view.of(job_index)
            rates = [1.0 / s if j in suits else 0.0 for j, s in enumerate(step_s)]
            room = [rates[j] if gang <= capacity[j] else 0.0 for j in self._by_name]
            self._rates[job_index], self._named[job_index], self._able[job_index] = rates, room, any(room)
            self._weight[job_index] = job.weight
            self._deadline_s[job_index] = np.inf if job.deadline_s is None else job.deadline_s
            self._seen[job_index] = True

    def rates(self, job_indices: Ints) -> Floats:
        """(jobs, types): steps per second on median GPUs of each type; 0 where a job cannot run."""
        return self._rates[job_indices]

    def named(self, job_indices: Ints) -> Floats:
        """As ``rates``, types by name; 0 also where the cluster has too few GPUs now."""
        return self._named[job_indices]

    def names(self, job_indices: tuple[int, ...]) -> tuple[str, ...]:
        """Job numbers as texts."""
        names = self._names
        if len(names) > 2 * len(job_indices) + MANY:
            names.clear()
        return tuple([names.get(job_index) or names.setdefault(job_index, str(job_index)) for job_index in job_indices])

    def able(self, job_indices: Ints) -> Flags:
        """Jobs that run on a type of which the cluster has enough GPUs now."""
        return self._able[job_indices]

    def weight(self, job_indices: Ints) -> Floats:
        return self._weight[job_indices]

    def deadline_s(self, job_indices: Ints) -> Floats:
        """Absolute time; infinite without a deadline."""
        return self._deadline_s[job_indices]

    def _double(self) -> None:
        self._rates = np.concatenate((self._rates, np.zeros_like(self._rates)))
        self._named = np.concatenate((self._named, np.zeros_like(self._named)))
        self._seen = np.concatenate((self._seen, np.zeros_like(self._seen)))
        self._able = np.concatenate((self._able, np.zeros_like(self._able)))
        self._weight = np.concatenate((self._weight, np.ones_like(self._weight)))
        self._deadline_s = np.concatenate((self._deadline_s, np.full_like(self._deadline_s, np.inf)))
