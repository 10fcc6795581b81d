"""The starvation rule of Tiresias: a job that has waited long, against what it ever ran, counts as new again. And the
order in which jobs came into their queues, for the rules that go by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.policy.view import Floats, View


@dataclass
class Promotion:
    """Keeps, by job index, the GPU-seconds of service that no longer count."""

    after: float
    """Waiting time over run time since the last promotion from which on a job is promoted; 0 = never."""
    adds_up: bool = False
    """All waiting since the last promotion counts; otherwise only that since the job last ran."""
    _forgiven_gpu_s: Floats = field(default_factory=lambda: np.zeros(0))
    _forgiven_wait_s: Floats = field(default_factory=lambda: np.zeros(0))
    """Waiting up to the last promotion, where waiting adds up."""

    def service_gpu_s(self, view: View) -> Floats:
        """Attained GPU-seconds that count, once the jobs that starve were promoted."""
        self._grow(view)
        ran = view.attained_gpu_s - self._forgiven_gpu_s[view.job_indices]
        if self.after <= 0:
            return ran
        waited_s = self._waited_s(view)
        starving = (ran > 0) & ~view.assigned & (waited_s * view.gpus >= self.after * ran)
        promoted = view.job_indices[starving]
        self._forgiven_gpu_s[promoted] = view.attained_gpu_s[starving]
        self._forgiven_wait_s[promoted] += waited_s[starving]
        return np.where(starving, 0.0, ran)

    def _waited_s(self, view: View) -> Floats:
        if not self.adds_up:
            return view.idle_s
        return view.now - view.submit_s - view.attained_s - self._forgiven_wait_s[view.job_indices]

    def _grow(self, view: View) -> None:
        needed = int(view.job_indices.max(initial=-1)) + 1
        if needed > len(self._forgiven_gpu_s):
            self._forgiven_gpu_s = np.pad(self._forgiven_gpu_s, (0, needed))
            self._forgiven_wait_s = np.pad(self._forgiven_wait_s, (0, needed))

    def state(self, view: View) -> dict[str, Any]:
        """Service that does not count, by job id; with the waiting that does not, where that adds up."""
        self._grow(view)
        names = [view.name(job_index) for job_index in view.job_indices.tolist()]
        served = zip(names, self._forgiven_gpu_s[view.job_indices].tolist(), strict=True)
        found: dict[str, Any] = {name: forgiven for name, forgiven in served if forgiven}
        if self.adds_up:
            waited = zip(names, self._forgiven_wait_s[view.job_indices].tolist(), strict=True)
            found |= {name: [found[name], wait_s] for name, wait_s in waited if name in found}
        return found

    def restore(self, kept: dict[str, Any], view: View) -> None:
        self._grow(view)
        for job_index in view.job_indices.tolist():
            known = kept.get(view.name(job_index), 0.0)
            served, waited_s = known if isinstance(known, list) else (known, 0.0)
            self._forgiven_gpu_s[job_index], self._forgiven_wait_s[job_index] = served, waited_s


@dataclass
class QueueEntries:
    """Numbers jobs, by job index, in the order in which they came into the queue they are in."""

    _queue: Floats = field(default_factory=lambda: np.zeros(0))
    _number: Floats = field(default_factory=lambda: np.zeros(0))
    _next: float = 0.0

    def numbers(self, view: View, queue: Floats) -> Floats:
        """Jobs that are in another queue than at the last look have come last, the oldest of them first."""
        needed = int(view.job_indices.max(initial=-1)) + 1
        if needed > len(self._queue):
            more = (0, needed)
            self._queue = np.pad(self._queue, more, constant_values=-1.0)
            self._number = np.pad(self._number, more)
        came = view.job_indices[self._queue[view.job_indices] != queue]
        self._number[came] = self._next + np.arange(len(came))
        self._next += len(came)
        self._queue[view.job_indices] = queue
        return self._number[view.job_indices]

    def state(self, view: View) -> dict[str, list[float]]:
        """Queue and number by job id."""
        known = [job_index for job_index in view.job_indices.tolist() if job_index < len(self._queue)]
        return {view.name(at): [float(self._queue[at]), float(self._number[at])] for at in known}

    def restore(self, kept: dict[str, list[float]], view: View) -> None:
        self.numbers(view, np.full(len(view), -1.0))
        for job_index in view.job_indices.tolist():
            if view.name(job_index) in kept:
                self._queue[job_index], self._number[job_index] = kept[view.name(job_index)]
        self._next = max((number for _, number in kept.values()), default=-1.0) + 1
