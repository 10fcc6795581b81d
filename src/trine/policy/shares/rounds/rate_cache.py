"""What stays with a job from round to round, as columns by job index: speeds, weight, deadline.

A round looks at the jobs that are new to it; only a change of speeds or of the cluster makes it look at all again.
"""

from __future__ import annotations

import numpy as np

from trine.policy.view import Flags, Floats, Ints, View

KEPT_IDS = 10_000
"""Texts of job indices that are kept at least."""


class JobRateCache:
    """Filled as jobs arrive; speeds follow what the engine learns of them."""

    def __init__(self, types: int, types_by_name: Ints | None = None) -> None:
        self._types_by_name: list[int] = list(range(types)) if types_by_name is None else types_by_name.tolist()
        self._ids: dict[int, str] = {}
        self._rates: Floats = np.zeros((64, types))
        self._rates_by_name: Floats = np.zeros((64, types))
        self._weight: Floats = np.ones(64)
        self._deadline_s: Floats = np.full(64, np.inf)
        self._known: Flags = np.zeros(64, np.bool_)
        self._able: Flags = np.zeros(64, np.bool_)
        self._revision = -1
        self._capacity: list[int] = []

    def learn(self, view: View) -> None:
        """Take note of new jobs and of changed speeds."""
        top = int(view.job_indices[-1]) + 1 if len(view) else 0
        while top > len(self._rates):
            self._double()
        capacity = view.gpus_by_type
        if view.revision != self._revision or capacity != self._capacity:
            self._revision, self._capacity = view.revision, list(capacity)
            self._known[:] = False
        for job_index in view.job_indices[~self._known[view.job_indices]].tolist():
            job, (gang, suits, step_s) = view.job_of(job_index), view.of(job_index)
            rates = [1.0 / s if j in suits else 0.0 for j, s in enumerate(step_s)]
            with_room = [rates[j] if gang <= capacity[j] else 0.0 for j in self._types_by_name]
            self._rates[job_index], self._rates_by_name[job_index] = rates, with_room
            self._able[job_index] = any(with_room)
            self._weight[job_index] = job.weight
            self._deadline_s[job_index] = np.inf if job.deadline_s is None else job.deadline_s
            self._known[job_index] = True

    def rates(self, job_indices: Ints) -> Floats:
        """(jobs, types): steps per second on median GPUs of each type; 0 where a job cannot run."""
        return self._rates[job_indices]

    def rates_by_name(self, job_indices: Ints) -> Floats:
        """As ``rates``, types in order of name; 0 also where the cluster has too few GPUs now."""
        return self._rates_by_name[job_indices]

    def ids(self, job_indices: tuple[int, ...]) -> tuple[str, ...]:
        """Job indices as texts."""
        ids = self._ids
        if len(ids) > 2 * len(job_indices) + KEPT_IDS:
            ids.clear()
        return tuple([ids.get(job_index) or ids.setdefault(job_index, str(job_index)) for job_index in job_indices])

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
        self._rates_by_name = np.concatenate((self._rates_by_name, np.zeros_like(self._rates_by_name)))
        self._known = np.concatenate((self._known, np.zeros_like(self._known)))
        self._able = np.concatenate((self._able, np.zeros_like(self._able)))
        self._weight = np.concatenate((self._weight, np.ones_like(self._weight)))
        self._deadline_s = np.concatenate((self._deadline_s, np.full_like(self._deadline_s, np.inf)))
