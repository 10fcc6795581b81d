"""FIFO that knows speeds, as rounds use it: whole GPUs in order of arrival, kept from round to round.

``PassingFifo`` computes the shares; ``FifoRounds`` gives the same choice without arrays or programs, for a fraction of
the time (a test compares the two).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trine.policy.base import Selection
from trine.policy.shares.allocation import Allocation, allocation, exact, whole_shares
from trine.policy.shares.base import Memory, PolicyVariant, SharePolicy
from trine.policy.shares.fifo import FifoShares
from trine.policy.shares.problem import Problem
from trine.policy.shares.rounds.type_assignment import TypeAssignment
from trine.policy.view import View


@dataclass
class PassingFifo(PolicyVariant):
    """A job that has room only on types it cannot run on is passed over: later jobs take nothing it could use."""

    def compute(self, problem: Problem, memory: Memory) -> Allocation:  # noqa: ARG002
        free: list[float] = problem.capacity.tolist()
        chosen = np.full(len(problem), -1, np.int64)
        gang: list[int] = problem.gang.tolist()
        rates = problem.throughput.tolist()
        for job in np.argsort(problem.arrival, kind="stable").tolist():
            room = [j for j, gpus in enumerate(free) if gpus >= gang[job]]
            if not room:
                break
            best = max(room, key=rates[job].__getitem__)
            if rates[job][best] > 0:
                chosen[job] = best
                free[best] -= gang[job]
        return allocation(problem, whole_shares(problem, chosen), exact(float((chosen >= 0).sum())))


def for_rounds(policy: SharePolicy) -> SharePolicy:
    """The policy as rounds use it: FIFO with speeds looks past a job that cannot use the GPUs left."""
    if isinstance(policy, FifoShares) and policy.form == "greedy" and policy.aware and policy.space_sharing is not True:
        return PassingFifo(policy)
    return policy


class FifoRounds:
    """Each job takes the fastest type with room; the first gang without room ends it.

    Between resets jobs keep their types, and jobs without GPUs take what is free. At a reset all choose again.
    """

    whole = True
    foresees = True
    stuck = False
    change_s = math.inf

    def __init__(self) -> None:
        self._assignment = TypeAssignment()
        self._gone: set[int] = set()
        self._newest = -1
        self._anew = False

    def repeats(self, now: float) -> bool:  # noqa: ARG002 - nothing changes with time
        return True

    def ran(self, job_index: int, seconds: float) -> None:
        """What a job received does not count."""

    def advance(self, view: View, same_jobs: bool, moved: bool) -> bool:  # noqa: ARG002
        """Take note of jobs that came and left; whether those that stayed might choose otherwise now.

        A new job chooses last, and a job that has the type best for it would choose the same again.
        """
        assignment = self._assignment
        gone, new = assignment.follow(view)
        self._gone, back = gone, False
        if new:
            back = new[0] < self._newest  # a job that was held, with its old place in the order
            self._newest = max(self._newest, *new)
        return assignment.revision != view.revision or ((back or bool(gone)) and not assignment.all_on_fastest)

    def reset(self, view: View, last_s: float, shares: Callable[[], object]) -> None:  # noqa: ARG002
        """All jobs choose again; no program is needed for that."""
        self._anew = True

    def choose(self, view: View, again: bool) -> Selection:  # noqa: ARG002
        """After a reset all jobs choose; otherwise those with GPUs keep them and the others take what is left."""
        anew, self._anew = self._anew, False
        assignment, before = self._assignment, self._assignment.type_of
        if not anew and view.gpus_by_type == assignment.capacity:
            filled = assignment.fill(strict=True)
            return Selection(dict(assignment.type_of), changed=self._gone.union(filled))
        assignment.update_speeds(view)
        assignment.clear(view.gpus_by_type)
        assignment.fill(strict=True)
        others = {job_index for job_index, _ in before.items() ^ assignment.type_of.items()}
        return Selection(dict(assignment.type_of), changed=others | self._gone)

    # -- on record -----------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        """Type, as an index, that each job has GPUs of, by id; -1 for those without."""
        type_of = self._assignment.type_of
        jobs = self._assignment.jobs if len(view) else ()
        return {"line": {view.name(job_index): type_of.get(job_index, -1) for job_index in jobs}}

    def restore(self, kept: dict[str, Any], capacity: list[int], view: View) -> tuple[Selection | None, bool]:
        """Go on from what ``state`` gave, on ``capacity`` GPUs by type; jobs that are gone have released theirs.

        Returns the selection that runs, if no job came or left since.
        """
        assignment, types = self._assignment, kept["line"]
        assignment.jobs = {job_index: view.of(job_index) for job_index in view.job_indices.tolist()}
        self._newest = max(assignment.jobs, default=-1)
        assignment.clear(list(capacity))
        for job_index in assignment.jobs:
            type_index = types.get(view.name(job_index), -1)
            if type_index >= 0:
                assignment.assign(job_index, type_index)
        if types.keys() != {view.name(job_index) for job_index in assignment.jobs}:
            return None, False
        self._anew = False
        return self.choose(view, False), False
