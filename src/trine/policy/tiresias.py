"""Tiresias: discretised two-dimensional least attained service, in queues with demotion and promotion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.base import KeyPolicy
from trine.policy.view import Floats, View


@dataclass
class Tiresias(KeyPolicy):
    """Jobs sink to the next queue at each limit of GPU-seconds; inside a queue, running first, then order of arrival.

    Queues instead of the raw attained service keep jobs of similar age from preempting each other all the time. A job
    that has waited ``promote_after`` times as long as it ever ran counts as new again, so that nobody starves.
    """

    name: ClassVar[str] = "tiresias"
    title: ClassVar[str] = "discretised 2D-LAS: queues by attained GPU-seconds"
    paper: ClassVar[str] = "Tiresias (NSDI'19), section 4"

    queue_limits_gpu_s: tuple[float, ...] = param(
        (3250.0,), "attained GPU-seconds at which a job sinks one queue", minimum=0
    )
    promote_after: float = param(
        8.0, "waiting time over run time at which a job returns to the first queue; 0 = never", minimum=0
    )
    _forgiven_gpu_s: Floats = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def key(self, view: View) -> tuple[Floats, ...]:
        self._promote(view)
        service = view.attained_gpu_s - self._forgiven_gpu_s[view.slots]
        queue = np.searchsorted(np.sort(self.queue_limits_gpu_s), service, side="right").astype(np.float64)
        return queue, (~view.running).astype(np.float64), view.submit_s

    def _promote(self, view: View) -> None:
        """Forgive the service of jobs that starve; what they ran before no longer counts."""
        self._grow(view)
        if self.promote_after <= 0:
            return
        ran = view.attained_gpu_s - self._forgiven_gpu_s[view.slots]
        starving = (ran > 0) & ~view.running & (view.idle_s * view.gpus >= self.promote_after * ran)
        self._forgiven_gpu_s[view.slots[starving]] = view.attained_gpu_s[starving]

    def _grow(self, view: View) -> None:
        needed = int(view.slots.max(initial=-1)) + 1
        if needed > len(self._forgiven_gpu_s):
            self._forgiven_gpu_s = np.pad(self._forgiven_gpu_s, (0, needed))
