"""The starvation rule of Tiresias: a job that has waited long, against what it ever ran, counts as new again."""

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
    _forgiven_gpu_s: Floats = field(default_factory=lambda: np.zeros(0))

    def service_gpu_s(self, view: View) -> Floats:
        """Attained GPU-seconds that count, once the jobs that starve were promoted."""
        self._grow(view)
        ran = view.attained_gpu_s - self._forgiven_gpu_s[view.job_indices]
        if self.after <= 0:
            return ran
        starving = (ran > 0) & ~view.assigned & (view.idle_s * view.gpus >= self.after * ran)
        self._forgiven_gpu_s[view.job_indices[starving]] = view.attained_gpu_s[starving]
        return np.where(starving, 0.0, ran)

    def _grow(self, view: View) -> None:
        needed = int(view.job_indices.max(initial=-1)) + 1
        if needed > len(self._forgiven_gpu_s):
            self._forgiven_gpu_s = np.pad(self._forgiven_gpu_s, (0, needed))

    def state(self, view: View) -> dict[str, Any]:
        """Service that does not count, by job id."""
        self._grow(view)
        forgiven = self._forgiven_gpu_s[view.job_indices]
        some = np.flatnonzero(forgiven).tolist()
        return {view.name(int(view.job_indices[i])): float(forgiven[i]) for i in some}

    def restore(self, kept: dict[str, Any], view: View) -> None:
        self._grow(view)
        for job_index in view.job_indices.tolist():
            self._forgiven_gpu_s[job_index] = kept.get(view.name(job_index), 0.0)
