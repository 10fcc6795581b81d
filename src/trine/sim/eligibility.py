"""Which simulated jobs have to wait for others to end; a job is eligible when all of them have.

How a predecessor ended makes no difference here: simulated jobs do not fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trine.core.job import Job


@dataclass(frozen=True)
class LimitedArray:
    """An array of which only some elements may be under way at once: as one ends, the next has its turn."""

    elements: frozenset[str]
    """Ids of those that have not ended."""
    waiting: tuple[int, ...]
    """Job indices of those that wait for their turn, in order."""


class Turns:
    """Of an array whose elements arrive one by one: how many more may be under way, and which wait for that."""

    def __init__(self, most_at_once: int) -> None:
        self.free = most_at_once
        self.waiting: deque[int] = deque()


@dataclass(frozen=True)
class Dependents:
    """Jobs that are present and wait for others to end, where a world goes on from the middle."""

    after: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Job index: ids of present jobs that have to end first."""
    arrays: Sequence[LimitedArray] = ()

    @property
    def job_indices(self) -> set[int]:
        return {*self.after, *(job_index for array in self.arrays for job_index in array.waiting)}


class Eligibility:
    """Who waits for whom, by job number and job id."""

    def __init__(self) -> None:
        self.used = False
        """Some job waits for others, or did: until then nothing has to be kept."""
        self._present: set[str] = set()
        """Ids of jobs that were submitted and have not ended."""
        self._left: dict[int, int] = {}
        """How many jobs a job still waits for."""
        self._dependents: dict[str, list[int]] = {}
        self._turns: dict[str, deque[int]] = {}
        """By id of an element of an array: those that wait for their turn, the same for all its elements."""
        self._limits: dict[str, Turns] = {}
        """By what the jobs of an array that has arrived say of it."""

    def resume(self, dependents: Dependents, present: Iterable[Job]) -> None:
        """Go on from the middle, where these jobs are present and some of them wait for others."""
        self.begin(present)
        for job_index, job_ids in dependents.after.items():
            self._wait_for(job_index, job_ids)
        for array in dependents.arrays:
            waiting = deque(array.waiting)
            self._turns.update(dict.fromkeys(array.elements, waiting))
            for job_index in waiting:
                self._left[job_index] = self._left.get(job_index, 0) + 1

    def _wait_for(self, job_index: int, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._dependents.setdefault(job_id, []).append(job_index)
            self._left[job_index] = self._left.get(job_index, 0) + 1

    def begin(self, present: Iterable[Job]) -> None:
        """The first job with predecessors arrives, while these are present; each that comes or ends is noted now."""
        self.used = True
        self._present.update(job.id for job in present)

    def submitted(self, job_index: int, job: Job) -> bool:
        """A job arrives; whether it has to wait for others."""
        unfinished = self._present.intersection(job.after) if job.after else ()
        self._present.add(job.id)
        self._wait_for(job_index, unfinished)
        in_turn = not job.array or self._takes_turn(job_index, job)
        return bool(unfinished) or not in_turn

    def _takes_turn(self, job_index: int, job: Job) -> bool:
        """Whether it may be under way at once; if not, it waits until another of its array ends."""
        turns = self._limits.setdefault(job.array, Turns(int(job.array.rpartition("%")[2])))
        self._turns[job.id] = turns.waiting
        if turns.free:
            turns.free -= 1
            return True
        turns.waiting.append(job_index)
        self._left[job_index] = self._left.get(job_index, 0) + 1
        return False

    def ended(self, job: Job) -> list[int]:
        """Jobs that waited for this one last, in order of arrival."""
        self._present.discard(job.id)
        eligible, fewer = [], self._dependents.pop(job.id, [])
        if self._turns.get(job.id):
            fewer.append(self._turns[job.id].popleft())
        elif job.array in self._limits:
            self._limits[job.array].free += 1  # for elements that are still to arrive
        for job_index in fewer:
            self._left[job_index] -= 1
            if not self._left[job_index]:
                del self._left[job_index]
                eligible.append(job_index)
        return eligible
