"""The trine policy: one index for type, chip and place. Jobs are weighed by 1 / remaining time, GPU types have prices.

``remaining`` says how much work is left where nothing else does, ``prices`` which type each job is best served on,
``guard`` keeps jobs from falling behind a fair share. Where the GPUs are, chips and links, is the placement's part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trine.core.params import param
from trine.perf.model import PerfModel
from trine.policy.base import MakeRoom, Policy, Relocation, Selection
from trine.policy.guard import FairShareGuard
from trine.policy.prices import TypePrices, assign_types
from trine.policy.remaining import WorkDistribution
from trine.policy.view import Floats, View

_FIT_EVERY = 20
"""Rounds between two fits of the distribution of work: it changes slowly."""


@dataclass
class Trine(Policy):
    """Each round maximises the sum of weight x speed over all jobs: weight = remaining time ** -alpha, times the guard.

    ``alpha`` is the objective: 1 for mean completion time, 0 for throughput, -1 for the makespan of a batch (longest
    first). Running jobs keep their GPUs unless another job is worth more there by a margin and by what a stop costs.
    """

    name: ClassVar[str] = "trine"
    title: ClassVar[str] = "weights by remaining time, prices for GPU types, a guard for fair shares"

    alpha: float = param(1.0, "objective: 1 mean completion time, 0 throughput, -1 makespan", minimum=-2, maximum=2)
    guard: float = param(1.0, "exponent of the fair-share guard; 0 = none", minimum=0, maximum=8)
    durations: str = param(
        "known", "remaining work as stated by the job, or learned from the jobs that ended", ("known", "learned")
    )
    hysteresis: float = param(0.2, "a running job counts as so much faster where it is", minimum=0, maximum=10)
    make_room: bool = param(True, "narrow jobs are stopped where a gang would otherwise be split")
    relocate: bool = param(True, "running jobs move to better GPUs if that pays twice what the move costs")
    _perf: PerfModel | None = field(default=None, init=False, repr=False)
    _work: WorkDistribution = field(default_factory=WorkDistribution, init=False, repr=False)
    _prices: TypePrices = field(default_factory=TypePrices, init=False, repr=False)
    _guard: FairShareGuard = field(init=False, repr=False)
    _rounds: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._guard = FairShareGuard(self.guard)

    def prepare(self, perf: PerfModel) -> None:
        self._perf = perf

    def finished_work(self, work_s: float) -> None:
        self._work.add(work_s)

    def rank(self, view: View) -> Selection:
        speed = view.speed_by_type()
        mean_speed = speed @ (view.capacity / max(1, view.capacity.sum()))
        self._guard.advance(view.now, view.job_indices, mean_speed, view.gpus, int(view.capacity.sum()))
        left_s = self._left_s(view)
        total_s = np.where(self._unknown(view), np.inf, view.ideal_s)
        weight = left_s**-self.alpha * self._guard.weight(view.job_indices, view.done_s, total_s)
        value = weight[:, None] * self._effective_speed(view, speed, left_s / np.maximum(mean_speed, 1e-9))
        price = self._prices.update(value, view.gpus, view.capacity)
        types = assign_types(value, view.gpus, view.capacity, price)
        return self._selection(view, types, weight, left_s)

    def _unknown(self, view: View) -> Any:
        return np.ones(len(view), dtype=np.bool_) if self.durations == "learned" else view.open_ended

    def _left_s(self, view: View) -> Floats:
        """Seconds of work left on the best type."""
        unknown = self._unknown(view)
        left_s = np.maximum(view.remaining_s, 1.0)
        if unknown.any():
            if self._rounds % _FIT_EVERY == 0:
                self._work.fit(view.done_s)
            self._rounds += 1
            left_s = np.where(unknown, self._work.left_s(view.done_s), left_s)
        return left_s

    def _effective_speed(self, view: View, speed: Floats, left_s: Floats) -> Floats:
        """Speed by type as it counts in a bid: as measured and a little more where the job runs, elsewhere less what a
        restart takes of the time that the choice is expected to hold."""
        found = speed.copy()
        running = np.flatnonzero(view.assigned & (view.speed > 0))
        held = np.clip(left_s[running], 60.0, 3600.0)
        found[running] /= 1.0 + (view.restart_s[running] / held)[:, None]
        found[running, view.type_index[running]] = view.speed[running] * (1.0 + self.hysteresis)
        return found

    def _selection(self, view: View, types: Any, weight: Floats, left_s: Floats) -> Selection:
        job_indices = view.job_indices
        chosen = np.flatnonzero(types >= 0)
        order = np.argsort(-weight / view.gpus, kind="stable")
        indices: list[int] = job_indices.tolist()
        return Selection(
            dict(zip(job_indices[chosen].tolist(), types[chosen].tolist(), strict=True)),
            worth=dict(zip(indices, weight.tolist(), strict=True)),
            left_s=dict(zip(indices, left_s.tolist(), strict=True)),
            spare=job_indices[order].tolist(),
            make_room=MakeRoom() if self.make_room else None,
            relocation=Relocation(slower_than=1 / 0.93, horizon_s=7200.0, quantum_s=720.0) if self.relocate else None,
        )
