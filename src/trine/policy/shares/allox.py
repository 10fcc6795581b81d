"""AlloX: minimum average completion time by matching jobs to places in the queues of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.errors import InputError
from trine.core.params import param
from trine.policy.shares.allocation import Allocation, allocation, exact, whole_shares
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.problem import WHERE, Problem
from trine.policy.view import Floats, Ints

NEVER = 1e-10
"""Steps per second taken where a job cannot run, so that the matching avoids it."""
LARGEST_MATRIX = 2_000_000
"""Above this many entries, queue places that no optimum uses are left out of the matching."""


@dataclass
class AlloX(SharePolicy):
    """Jobs that hold a GPU keep it. The others, oldest first, are matched to the k-th last place in a GPU's queue at
    cost k L_m / T[m, type] + t_m, which sums to the total completion time; the first in each queue runs.

    One GPU per job only. The objective reported is the number of jobs that run.
    """

    name: ClassVar[str] = "allox"
    title: ClassVar[str] = "minimum average completion time by matching"
    paper: ClassVar[str] = "AlloX (EuroSys'20), section 4; Gavel (OSDI'20), section 7"
    objective: ClassVar[str] = "jobs that run"
    single_gpu_only: ClassVar[bool] = True

    alpha: float = param(1.0, "part of the waiting jobs that is matched, oldest first", minimum=0)

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        self._check(problem)
        chosen = _held(problem, memory)
        free = problem.capacity - np.bincount(chosen[chosen >= 0], minlength=len(problem.types))
        waiting = self._waiting(problem, chosen, int(free.sum()))
        if len(waiting) and free.any():
            _match(problem, waiting, free.astype(np.int64), chosen)
        memory.held = {problem.ids[i]: problem.types[chosen[i]] for i in np.flatnonzero(chosen >= 0)}
        return allocation(problem, whole_shares(problem, chosen), exact(float((chosen >= 0).sum())))

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        return [
            f"first in the queue of a {problem.columns[int(row.argmax())]}" if row.any() else "behind others in a queue"
            for row in found.shares
        ]

    def _check(self, problem: Problem) -> None:
        problem.needs(problem.steps_left, "steps_left", self.name)
        if (problem.gang > 1).any():
            job = int(np.argmax(problem.gang > 1))
            found = f"job {problem.ids[job]} has gpus {problem.gang[job]}"
            raise InputError(WHERE, found, "jobs of one GPU: allox knows no gangs", "gpus")

    def _waiting(self, problem: Problem, chosen: Ints, free: int) -> Ints:
        """Jobs to match, oldest first."""
        waiting = np.flatnonzero(chosen < 0)
        waiting = waiting[np.lexsort((problem.arrival[waiting], -problem.elapsed_s[waiting]))]
        return waiting[: max(int(self.alpha * len(problem)), free)]


def _held(problem: Problem, memory: Memory) -> Ints:
    """Types that jobs still hold, as far as there are GPUs for them; -1 for none."""
    chosen = np.full(len(problem), -1, np.int64)
    left = problem.capacity.copy()
    at = {name: j for j, name in enumerate(problem.types)}
    for job in np.argsort(problem.arrival).tolist():
        j = at.get(memory.held.get(problem.ids[job], ""), -1)
        if j >= 0 and left[j] > 0 and problem.rates[job, j] > 0:
            chosen[job] = j
            left[j] -= 1
    return chosen


def _match(problem: Problem, waiting: Ints, free: Ints, chosen: Ints) -> None:
    """Adds the jobs that run first in each queue to ``chosen``."""
    from scipy.optimize import linear_sum_assignment

    type_index, place, worker = _places(problem, free, len(waiting))
    alone_s = problem.steps_left[waiting, None] / np.maximum(problem.rates[waiting], NEVER)
    cost: Floats = alone_s[:, type_index] * place + problem.elapsed_s[waiting, None]
    rows, cols = linear_sum_assignment(cost)
    first: dict[int, tuple[int, int]] = {}
    for row, col in zip(rows.tolist(), cols.tolist(), strict=True):
        queue = int(worker[col])
        if place[col] > first.get(queue, (0, 0))[0]:
            first[queue] = (int(place[col]), row)
    type_of = dict(zip(worker.tolist(), type_index.tolist(), strict=True))
    for queue, (_, row) in first.items():
        if problem.rates[waiting[row], type_of[queue]] > 0:
            chosen[waiting[row]] = type_of[queue]


def _places(problem: Problem, free: Ints, jobs: int) -> tuple[Ints, Ints, Ints]:
    """Type, place from the end of the queue and worker of each column of the matching.

    Types by name and places slowest, as published: which of several equal matchings is found depends on the order.
    """
    by_name = np.array(sorted(range(len(problem.types)), key=lambda j: problem.types[j]), np.int64)
    free_gpus = np.repeat(by_name, free[by_name])
    count = len(free_gpus)
    type_index = np.tile(free_gpus, jobs)
    place = np.repeat(np.arange(1, jobs + 1), count)
    worker = np.tile(np.arange(count), jobs)
    if jobs * jobs * count > LARGEST_MATRIX:
        # GPUs of a type are alike, so an optimum fills place k of all of them before place k + 1 of any.
        used = place <= -(-jobs // free[type_index])
        type_index, place, worker = type_index[used], place[used], worker[used]
    return type_index, place, worker
