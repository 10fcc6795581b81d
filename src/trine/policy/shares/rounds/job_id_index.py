"""Job ids for what a share policy keeps, so that it can be written down and read by a policy in another process.

Job indices differ between two engines, ids do not. A unit is named by the id of its job, a pair by both: ``7+12``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from trine.policy.shares.base import Memory
from trine.policy.view import View

JOIN = "+"
GONE = 1 << 40
"""Job indices from here on stand for jobs that are gone."""
UNIT, GOT = "unit/", "got/"
"""What a unit is due, and what it got; apart, because most rounds change only the second."""


class JobIdIndex:
    """Ids to job indices of the present engine.

    Jobs that are gone get indices that no job ever has: the next round sees that they left, and closes their accounts
    as it does for any job that leaves.
    """

    def __init__(self, view: View) -> None:
        self._known = {view.name(job_index): job_index for job_index in range(view.beyond)}
        self._next = GONE

    def __contains__(self, job_id: str) -> bool:
        return self._known.get(job_id, GONE) < GONE

    def __getitem__(self, job_id: str) -> int:
        if job_id not in self._known:
            self._known[job_id] = self._next
            self._next += 1
        return self._known[job_id]

    def members(self, unit: str) -> tuple[int, int]:
        """Job indices of a unit; the second is -1 for a single job."""
        one, _, other = unit.partition(JOIN)
        return self[one], self[other] if other else -1


def unit_names(members: Sequence[Sequence[int]], view: View) -> list[str]:
    """Of units, each with the job indices of its members; the second is -1 for a single job."""
    name = {
        job_index: view.name(job_index)
        for job_index in {job_index for pair in members for job_index in pair}
        if job_index >= 0
    }
    return [name[one] if other < 0 else f"{name[one]}{JOIN}{name[other]}" for one, other in members]


def memory_state(memory: Memory, view: View) -> dict[str, Any]:
    """What the policy itself remembers, without starting points of solvers: those only save time."""
    found: dict[str, Any] = {
        "held": {view.name(int(job)): gpu_type for job, gpu_type in memory.held.items()},
        "partners": {view.name(int(job)): view.name(int(co_runner)) for job, co_runner in memory.co_runners.items()},
        "isolated": {view.name(int(job)): list(known) for job, known in memory.isolated.items()},
    }
    drawn = memory.rng.getstate()
    if drawn != random.Random(memory.seed).getstate():
        found["random"] = [drawn[0], list(drawn[1]), drawn[2]]
    return {key: value for key, value in found.items() if value}


def restore_memory(memory: Memory, kept: Mapping[str, Any], ids: JobIdIndex) -> None:
    """Go on from what ``memory_state`` gave; of jobs that are gone policies remember nothing."""
    held, co_runners, isolated = (kept.get(name, {}) for name in ("held", "partners", "isolated"))
    memory.held = {str(ids[job]): gpu_type for job, gpu_type in held.items() if job in ids}
    pairs = {job: co_runner for job, co_runner in co_runners.items() if job in ids and co_runner in ids}
    memory.co_runners = {str(ids[job]): str(ids[co_runner]) for job, co_runner in pairs.items()}
    memory.isolated = {str(ids[job]): tuple(known) for job, known in isolated.items() if job in ids}
    if "random" in kept:
        version, inside, spare = kept["random"]
        memory.rng.setstate((version, tuple(inside), spare))
