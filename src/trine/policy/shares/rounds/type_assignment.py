"""Which jobs have GPUs of which type, kept from round to round as plain dictionaries: a round costs what changes in it.

Used by the deficit rule and by FIFO rounds. Which GPUs a job gets is decided by the engine and the placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import filterfalse

from trine.policy.view import View


class TypeAssignment:
    """Jobs by job index, in order of arrival; types by index."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, tuple[int, ...], tuple[float, ...]]] = {}
        """GPUs, types that suit (fastest first) and seconds per step by type, of the jobs present."""
        self.type_of: dict[int, int] = {}
        """The type a job has GPUs of."""
        self.co_runners: dict[int, int] = {}
        """Jobs on the same GPUs, both ways."""
        self.capacity: list[int] = []
        self.free: list[int] = []
        """GPUs by type that no job has."""
        self.revision = 0
        """Of the speeds known here."""
        self._in_step = False
        """The jobs here are those of the last round."""

    def follow(self, view: View) -> tuple[set[int], list[int]]:
        """Forget jobs that left, take note of new ones; returns both."""
        if view.news is not None and self._in_step:
            return self._follow_news(view, *view.news)
        self._in_step = True
        job_indices: list[int] = view.job_indices.tolist()
        jobs, before = self.jobs, len(self.jobs)
        only_arrivals = len(job_indices) >= before and job_indices[:before] == list(jobs)
        gone: set[int] = set() if only_arrivals else jobs.keys() - job_indices
        for job_index in gone:
            self.release(job_index)
            del jobs[job_index]
        missing = len(job_indices) - len(jobs)
        if not missing:
            return gone, []
        new = job_indices[-missing:]
        if not jobs.keys().isdisjoint(new):  # a job that was held is back: restore the order of arrival
            new = [job_index for job_index in job_indices if job_index not in jobs]
            self.jobs = {
                job_index: jobs[job_index] if job_index in jobs else view.of(job_index) for job_index in job_indices
            }
            return gone, new
        for job_index in new:
            jobs[job_index] = view.of(job_index)
        return gone, new

    def _follow_news(self, view: View, came: list[int], left: list[int]) -> tuple[set[int], list[int]]:
        """As ``follow``, from what the engine says has changed."""
        jobs = self.jobs
        gone = jobs.keys() & left if left else set()
        for job_index in gone:
            self.release(job_index)
            del jobs[job_index]
        new = [job_index for job_index in came if job_index not in left] if left and came else came
        for job_index in new:
            jobs[job_index] = view.of(job_index)
        return gone, new

    def update_speeds(self, view: View) -> None:
        """Read the speeds again if any of them changed."""
        if view.revision != self.revision:
            self.revision = view.revision
            self.jobs = {job_index: view.of(job_index) for job_index in self.jobs}

    def clear(self, capacity: list[int]) -> None:
        """No job has GPUs; ``capacity`` GPUs by type are free."""
        self.type_of, self.co_runners = {}, {}
        self.capacity, self.free = capacity, list(capacity)

    def assign(self, job_index: int, type_index: int, co_runner: int = -1) -> None:
        """GPUs of this type for a job, or for a pair on the same GPUs."""
        self.type_of[job_index] = type_index
        self.free[type_index] -= self.jobs[job_index][0]
        if co_runner >= 0:
            self.type_of[co_runner] = type_index
            self.co_runners[job_index], self.co_runners[co_runner] = co_runner, job_index

    def release(self, job_index: int) -> None:
        """The job has no GPUs any more; a co-runner keeps them."""
        type_index = self.type_of.pop(job_index, None)
        if type_index is None:
            return
        co_runner = self.co_runners.pop(job_index, None)
        if co_runner is None:
            self.free[type_index] += self.jobs[job_index][0]
        else:
            del self.co_runners[co_runner]

    def fill(self, strict: bool) -> list[int]:
        """Jobs without GPUs, in order of arrival, get free ones of the fastest type with room; returns those jobs.

        ``strict``: the first gang without room on any type ends it. A job that has room only where it cannot run is
        passed over in any case: later jobs take nothing from it that it could use.
        """
        jobs, type_of, free = self.jobs, self.type_of, self.free
        assigned: list[int] = []
        if len(type_of) == len(jobs):
            return assigned
        most = max(free)  # an upper bound of the free GPUs of any type, so that most gangs are refused by one look
        # Jobs are kept in order of arrival, and most rounds end at the first that waits: nothing is sorted for them.
        for job_index in filterfalse(type_of.__contains__, jobs):
            gang, suits, _ = jobs[job_index]
            if gang <= most:
                for type_index in suits:
                    if free[type_index] >= gang:
                        type_of[job_index] = type_index
                        free[type_index] -= gang
                        assigned.append(job_index)
                        break
                else:
                    most = max(free)
            if gang > most and (strict or not max(free)):
                break
        return assigned

    @property
    def all_on_fastest(self) -> bool:
        """Every job has GPUs of the type on which it is fastest."""
        jobs, type_of = self.jobs, self.type_of
        return len(type_of) == len(jobs) and [jobs[job_index][1][0] for job_index in type_of] == list(type_of.values())

    def upgrade(self, order: Iterable[int], before: Mapping[int, int]) -> list[int]:
        """Single jobs move to free GPUs on which they are faster, types in ``order``; returns those that do.

        Jobs that were there ``before`` go first, then those that gain most.
        """
        type_of, free, jobs = self.type_of, self.free, self.jobs
        moved: list[int] = []
        slow = [
            job_index
            for job_index, now in type_of.items()
            if now != jobs[job_index][1][0] and job_index not in self.co_runners
        ]
        for to in order:
            if not slow or free[to] <= 0:
                continue
            gains = [
                (before.get(job_index) != to, step_s[to] / step_s[type_of[job_index]], job_index)
                for job_index in slow
                if (step_s := jobs[job_index][2])[to] < step_s[type_of[job_index]] and to in jobs[job_index][1]
            ]
            gains.sort()
            for _, _, job_index in gains:
                gang = jobs[job_index][0]
                if gang <= free[to]:
                    free[type_of[job_index]] += gang
                    free[to] -= gang
                    type_of[job_index] = to
                    moved.append(job_index)
        return moved
