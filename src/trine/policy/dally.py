"""Dally: least attained service in log2 queues, and preemption that knows how much each job suffers from the network.

Only the abstract of the paper is public. Known from it: delay scheduling for consolidation, network-sensitive
preemption, timers that tune themselves. The score, the queues and every default below are a design of this project.
The waiting is in the placement: ``--placement delay``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trine.core.params import param
from trine.perf.model import PerfModel
from trine.policy.base import Policy, Ranking, Relocation
from trine.policy.las import log2_queues
from trine.policy.promotion import Promotion
from trine.policy.view import Floats, View

_LEVELS_PER_PRIORITY = 1000.0
"""More than there are queues: 64 doublings of an hour are longer than any job."""


@dataclass
class Dally(Policy):
    """Queue = floor(log2(1 + score / 3600)), score = attained service / sensitivity ** beta; lower queues go first.

    A job may stop jobs of higher queues only: those of the highest queue first, in it those that suffer least from
    being placed badly, then those that started last. With a sticky placement, running jobs that sit badly move when
    that pays. Sensitivity is the time of a step in the worst tier a job could get over that in the best one.
    """

    name: ClassVar[str] = "dally"
    title: ClassVar[str] = "log2 queues of attained service, network-sensitive preemption and relocation"
    paper: ClassVar[str] = "Dally (arXiv 2401.16492), abstract; details by trine"

    service: str = param(
        "attained",
        "what counts: GPU-seconds held, or those the work done takes in the best place",
        ("attained", "work"),
    )
    beta: float = param(0.0, "the score is divided by sensitivity to this power", minimum=-10, maximum=10)
    tie: str = param(
        "arrival", "what goes first inside a queue: the oldest, or the most sensitive", ("arrival", "sensitivity")
    )
    victims: str = param(
        "sensitivity",
        "which job of a queue is stopped first: the least sensitive, or the youngest",
        ("sensitivity", "age"),
    )
    quantum_s: float = param(1200.0, "seconds that a run lasts before it may be stopped or moved for others", minimum=0)
    gap: float = param(1.0, "queues by which a job must be ahead of those it stops", minimum=1)
    stop_for_better: bool = param(True, "a job that waits for GPUs close together may stop others for them")
    promote_after: float = param(
        8.0, "waiting time over run time at which a job returns to the first queue; 0 = never", minimum=0
    )
    relocate: bool = param(True, "running jobs move to better GPUs if that pays twice what the move costs")
    _perf: PerfModel | None = field(default=None, init=False, repr=False)
    _promotion: Promotion = field(init=False, repr=False)
    _sensitivity: Floats = field(default_factory=lambda: np.zeros(0), init=False, repr=False)
    """By job index; 0 = not looked up yet."""

    def __post_init__(self) -> None:
        self._promotion = Promotion(self.promote_after)

    def prepare(self, perf: PerfModel) -> None:
        self._perf = perf

    def rank(self, view: View) -> Ranking:
        sensitivity = self._sensitivities(view)
        queue = self._queues(view, sensitivity)
        level = queue + _LEVELS_PER_PRIORITY * _ranks_below(view)
        tie = -sensitivity if self.tie == "sensitivity" else np.zeros(len(view))
        order = np.lexsort((view.submit_s, tie, level))
        first = sensitivity if self.victims == "sensitivity" else np.zeros(len(view))
        victims = np.empty(len(view))
        victims[np.lexsort((view.run_s, first, -level))] = np.arange(len(view))
        return Ranking(
            order,
            level=level[order],
            gap=self.gap,
            victim_order=victims[order],
            quantum_s=np.full(len(view), self.quantum_s),
            stops_for_better=self.stop_for_better,
            stop_reason="which has had less service",
            relocation=Relocation(quantum_s=self.quantum_s) if self.relocate else None,
        )

    def _queues(self, view: View, sensitivity: Floats) -> Floats:
        service = self._promotion.service_gpu_s(view)
        if self.service == "work":
            attained = np.maximum(view.attained_gpu_s, 1e-9)
            service = service / attained * view.gpus * (view.ideal_s - view.remaining_s)
        return log2_queues(np.maximum(service, 0.0) / sensitivity**self.beta)

    def _sensitivities(self, view: View) -> Floats:
        """From the performance model, looked up once for each job."""
        job_indices = view.job_indices
        known = len(self._sensitivity)
        if len(job_indices) and job_indices[-1] >= known:
            self._sensitivity = np.pad(self._sensitivity, (0, max(1024, int(job_indices[-1]) + 1 - known)))
        found = self._sensitivity[job_indices]
        for job_index in job_indices[found == 0].tolist():
            self._sensitivity[job_index] = self._perf.sensitivity(view.job_of(job_index)) if self._perf else 1.0
        return self._sensitivity[job_indices]

    def state(self, view: View) -> dict[str, Any]:
        return self._promotion.state(view)

    def restore(self, kept: dict[str, Any], view: View, stale: bool) -> None:  # noqa: ARG002 - service stays service
        self._promotion.restore(kept, view)


def _ranks_below(view: View) -> Floats:
    """How many different priorities are above that of each job."""
    if not view.prioritised:
        return np.zeros(len(view))
    _, rank = np.unique(-view.priority, return_inverse=True)
    return rank.astype(np.float64)
