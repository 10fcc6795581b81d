"""Hand-made views: what a policy would see of jobs whose state is written down in one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trine.core.job import Job
from trine.policy.base import Policy, Ranking
from trine.policy.view import RemainingTime, View, remaining_by_work


@dataclass(frozen=True)
class Seen:
    """A job as a policy sees it; one step is one second on reference GPUs, ``rate`` 1 while it runs."""

    id: str
    ideal_s: float = 1000.0
    gpus: int = 1
    submit_s: float = 0.0
    priority: float = 0.0
    ran_s: float = 0.0
    """Wall seconds held in earlier runs, all of them work."""
    running_since_s: float | None = None
    idle_since_s: float | None = None
    rate: float = 1.0


class Columns:
    """What ``JobColumns`` asks for, filled from the lines."""

    def __init__(self, jobs: Sequence[Seen]) -> None:
        self.jobs = [Job(j.id, j.submit_s, j.gpus, j.ideal_s) for j in jobs]
        self.submit_s = np.array([j.submit_s for j in jobs], dtype=np.float64)
        self.gpus = np.array([j.gpus for j in jobs], dtype=np.int64)
        self.priority = np.array([j.priority for j in jobs], dtype=np.float64)
        self.ideal_s = np.array([j.ideal_s for j in jobs], dtype=np.float64)
        self.steps = self.ideal_s.copy()
        self.attained_s = np.array([j.ran_s for j in jobs], dtype=np.float64)
        self.done = self.attained_s.copy()
        self.assigned = np.array([j.running_since_s is not None for j in jobs], dtype=np.bool_)
        self.rate = np.array([j.rate for j in jobs], dtype=np.float64) * self.assigned
        self.run_from_s = np.array([j.running_since_s or 0.0 for j in jobs], dtype=np.float64)
        self.work_from_s = self.run_from_s.copy()
        self.idle_from_s = np.array([j.submit_s if j.idle_since_s is None else j.idle_since_s for j in jobs])
        self.type_index = np.where(self.assigned, 0, -1)
        self.types: list[tuple[int, ...]] = [(0,) for _ in jobs]
        self.step_s: list[tuple[float, ...]] = [(1.0,) for _ in jobs]
        self.revision = 0
        self.open_ended = np.zeros(len(jobs), dtype=np.bool_)


def view(now: float, jobs: Sequence[Seen], remaining_time: RemainingTime = remaining_by_work) -> View:
    """One GPU type, all of it in use."""
    job_indices, none_free, sixteen = np.arange(len(jobs), dtype=np.int64), np.array([0]), np.array([16])
    return View(now, job_indices, Columns(jobs), none_free, sixteen, remaining_time=remaining_time)


def order(policy: Policy, now: float, jobs: Sequence[Seen], remaining_time: RemainingTime = remaining_by_work) -> str:
    """Ids in order of rank, as one word."""
    ranking = policy.rank(view(now, jobs, remaining_time))
    assert isinstance(ranking, Ranking)
    return "".join(jobs[i].id for i in ranking.order.tolist())
