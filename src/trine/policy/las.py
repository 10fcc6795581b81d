"""Least attained service: one-dimensional in seconds run, or in queues of GPU-seconds that double."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.base import KeyPolicy
from trine.policy.view import Floats, View


@dataclass
class Las(KeyPolicy):
    """The job that has run the fewest seconds goes first; needs no knowledge of durations.

    By the second, a job that runs for one round has had more service than an equal one that waits: the two stop each
    other round after round. ``quantum_s`` counts service in whole quanta instead: among equals the running job goes on,
    so that each keeps its GPUs for a quantum at least. With ``queues=log2`` it is the queue floor(log2(1 +
    GPU-hours)) that counts, and in it the order of arrival.
    """

    name: ClassVar[str] = "las"
    title: ClassVar[str] = "least attained service (seconds run)"
    paper: ClassVar[str] = "PAL (SC'24), scheduling policies"

    queues: str = param(
        "none",
        "by the second, or in queues of attained GPU-hours, each twice as long as the one before",
        ("none", "log2"),
    )

    quantum_s: float = param(
        0.0,
        "service counts in quanta of so many seconds, running jobs first among equals; 0 = exactly",
        minimum=0,
    )

    def key(self, view: View) -> Floats | tuple[Floats, ...]:
        if self.queues == "none":
            return self._quanta(view) if self.quantum_s > 0 else view.attained_s
        return log2_queues(view.attained_gpu_s), view.submit_s

    def _quanta(self, view: View) -> tuple[Floats, ...]:
        served = np.floor(view.attained_s / self.quantum_s + 1e-9)  # a quantum that is over but for rounding is over
        return served, (~view.assigned).astype(np.float64), view.submit_s


def log2_queues(service_gpu_s: Floats) -> Floats:
    """floor(log2(1 + GPU-hours)): 0 below one GPU-hour, 1 below three, 2 below seven."""
    queue: Floats = np.floor(np.log2(1.0 + service_gpu_s / 3600.0))
    return queue
