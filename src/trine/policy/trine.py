"""The trine policy: one index for type, chip and place. Jobs are weighed by 1 / remaining time, GPU types have prices.

``remaining`` estimates the work left where no job states it, ``prices`` finds the type on which each job is served best,
``guard`` keeps jobs from falling behind a fair share. Which GPUs of a type, by chip and network, is the placement's part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trine.core.params import param
from trine.core.reason import Why
from trine.policy.base import FinishedJob, MakeRoom, Policy, Relocation, Selection
from trine.policy.guard import FairShareGuard
from trine.policy.prices import TypePrices, assign_types
from trine.policy.remaining import WorkDistribution
from trine.policy.view import Flags, Floats, Ints, View

_FIT_EVERY = 20
"""Rounds between two fits of the distribution of work: it changes slowly."""
_HOLDS_S = (60.0, 3600.0)
"""For how long a choice of type is expected to hold, at least and at most: a restart is weighed against it."""
_LEAST_LEFT_S = 1.0
_LATE = 8.0
"""Most that a deadline raises the weight of a job."""


@dataclass
class Trine(Policy):
    """Maximises the sum of weight x speed over all jobs, round by round: weight = remaining time ** -alpha x guard.

    ``alpha`` is the objective: 1 for mean completion time, 0 for throughput, -1 for the makespan of a batch (longest
    first). Running jobs keep their GPUs unless another job is worth more there by a margin and by what a stop costs.
    Use it with ``--placement trine``.
    """

    name: ClassVar[str] = "trine"
    title: ClassVar[str] = "weights by remaining time, prices for GPU types, a guard for fair shares"
    paper: ClassVar[str] = "this project (docs/trine.md)"

    alpha: float = param(
        1.0, "objective: 1 mean completion time, 0 throughput, -1 makespan of a batch", minimum=-2, maximum=2
    )
    guard: float = param(1.0, "exponent of the fair-share guard; 0 = none", minimum=0, maximum=8)
    durations: str = param(
        "known",
        "remaining work as jobs state it (learned for those that do not), or learned for all from jobs that ended",
        ("known", "learned"),
    )
    hysteresis: float = param(0.2, "a running job counts as this much faster where it runs", minimum=0, maximum=10)
    make_room: bool = param(True, "narrow jobs are stopped where a wider one would otherwise be split or slow")
    relocate: bool = param(True, "running jobs move to better GPUs if that gains twice what the move costs")
    use_prices: bool = param(True, "prices decide which job gets which type; false: each takes its fastest with room")
    _work: WorkDistribution = field(default_factory=WorkDistribution, init=False, repr=False)
    _prices: TypePrices = field(default_factory=TypePrices, init=False, repr=False)
    _guard: FairShareGuard = field(init=False, repr=False)
    _rounds: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._guard = FairShareGuard(self.guard)

    def finished(self, ended: FinishedJob) -> None:
        self._work.add(ended.work_s)

    def rank(self, view: View) -> Selection:
        speed = view.speed_by_type
        mean_speed = speed @ (view.capacity / max(1, int(view.capacity.sum())))
        left_s = self._left_s(view)
        weight = self._weights(view, left_s, mean_speed)
        value = weight[:, None] * self._effective_speed(view, speed, left_s, mean_speed)
        price = self._prices.update(value, view.gpus, view.capacity) if self.use_prices else np.zeros(value.shape[1])
        types = assign_types(value, view.gpus, view.capacity, price)
        return self._selection(view, types, weight, left_s)

    # -- what a unit of speed is worth -----------------------------------------------------------------------------

    def _unknown(self, view: View) -> Flags:
        return np.ones(len(view), dtype=np.bool_) if self.durations == "learned" else view.open_ended

    def _left_s(self, view: View) -> Floats:
        """Seconds of work left on the best type."""
        unknown = self._unknown(view)
        left_s = np.maximum(view.remaining_s, _LEAST_LEFT_S)
        if not unknown.any():
            return left_s
        if self._rounds % _FIT_EVERY == 0:
            self._work.fit(view.done_s)
        self._rounds += 1
        return np.where(unknown, self._work.left_s(view.done_s), left_s)

    def _weights(self, view: View, left_s: Floats, mean_speed: Floats) -> Floats:
        """Weight of the job (its own, its priority, its deadline) x urgency x guard."""
        self._guard.advance(view.now, view.job_indices, mean_speed, view.gpus, int(view.capacity.sum()))
        total_s = np.where(self._unknown(view), np.inf, view.ideal_s)
        weight = view.weight * left_s**-self.alpha * self._guard.weight(view.job_indices, view.done_s, total_s)
        if view.prioritised:
            weight = weight * 2.0 ** np.clip(view.priority, -60.0, 60.0)
        if view.has_deadlines:
            # The closer the slack before the deadline comes to the work left, the more the job is worth; a job that is
            # late in any case is worth no more than others, or it would take GPUs from jobs that can still be on time.
            slack = (view.deadline_s - view.now) / left_s
            weight = weight * np.where(slack >= 1.0, np.clip(_LATE / slack, 1.0, _LATE), 1.0)
        return weight

    def _effective_speed(self, view: View, speed: Floats, left_s: Floats, mean_speed: Floats) -> Floats:
        """Speed by type as it counts in a bid: as measured and a little more where the job runs, elsewhere less what a
        restart takes of the time for which the choice is expected to hold."""
        found = speed.copy()
        running = np.flatnonzero(view.assigned & (view.speed > 0))
        if len(running):
            holds_s = np.clip(left_s[running] / np.maximum(mean_speed[running], 1e-9), *_HOLDS_S)
            found[running] /= 1.0 + (view.restart_s[running] / holds_s)[:, None]
            found[running, view.type_index[running]] = view.speed[running] * (1.0 + self.hysteresis)
        return found

    def _selection(self, view: View, types: Ints, weight: Floats, left_s: Floats) -> Selection:
        job_indices = view.job_indices
        chosen = np.flatnonzero(types >= 0)
        by_worth = job_indices[np.argsort(-weight / view.gpus, kind="stable")]
        indices: list[int] = job_indices.tolist()
        return Selection(
            dict(zip(job_indices[chosen].tolist(), types[chosen].tolist(), strict=True)),
            worth=dict(zip(indices, weight.tolist(), strict=True)),
            left_s=dict(zip(indices, left_s.tolist(), strict=True)),
            spare=by_worth.tolist(),
            make_room=MakeRoom() if self.make_room else None,
            relocation=_RELOCATION if self.relocate else None,
            held_back=Why.OUTBID,
        )

    # -- across restarts -------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        owed = self._guard.owed(view.job_indices)
        return {
            "work": self._work.ended,
            "prices": self._prices.by_type.tolist(),
            "rounds": self._rounds,
            "seen_s": self._guard.seen_s,
            "owed": {view.name(i): s for i, s in zip(view.job_indices.tolist(), owed.tolist(), strict=True)},
        }

    def restore(self, kept: dict[str, Any], view: View, stale: bool) -> None:  # noqa: ARG002 - work stays work
        self._work.ended = kept["work"]
        self._work.fit(view.done_s)
        self._prices.by_type = np.array(kept["prices"], dtype=np.float64)
        self._rounds = int(kept["rounds"])
        known = {view.name(i): i for i in view.job_indices.tolist()}
        owed = {known[name]: float(s) for name, s in kept["owed"].items() if name in known}
        self._guard.resume(float(kept["seen_s"]), owed)


_RELOCATION = Relocation(slower_than=1 / 0.93, horizon_s=7200.0, quantum_s=720.0)
"""Jobs below 93 % of their best speed are looked at; they count gains over two hours at most."""
