"""Hand-made views: what a policy would see of jobs whose state is written down in one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trine.core.compat import Compat
from trine.core.job import Job
from trine.engine.table import JobTable
from trine.policy.base import Policy
from trine.policy.view import View


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


def view(now: float, jobs: Sequence[Seen], free: int = 0, capacity: int = 0, compat: Compat | None = None) -> View:
    """One GPU type."""
    table = JobTable()
    for job in jobs:
        slot = table.add(Job(job.id, job.submit_s, job.gpus, job.ideal_s, priority=job.priority), job.ideal_s, 1)
        table.attained_s[slot] = table.done[slot] = job.ran_s
        table.idle_from_s[slot] = job.submit_s if job.idle_since_s is None else job.idle_since_s
        if job.running_since_s is not None:
            table.running[slot] = True
            table.pool[slot] = 0
            table.rate[slot] = job.rate
            table.run_from_s[slot] = table.work_from_s[slot] = job.running_since_s
    slots = np.arange(len(jobs), dtype=np.int64)
    return View(now, slots, table, np.array([free]), np.array([capacity]), compat or Compat())


def order(policy: Policy, now: float, jobs: Sequence[Seen], compat: Compat | None = None) -> str:
    """Ids in order of rank, as one word."""
    return "".join(jobs[i].id for i in policy.rank(view(now, jobs, compat=compat)).order.tolist())
