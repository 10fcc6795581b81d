"""The engine's jobs: a table with one column per property, so that ranking thousands of jobs is a few array operations,
and the active jobs among them.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

import numpy as np

from trine.core.job import Job
from trine.policy.view import Flags, Floats, Ints

_START_CAPACITY = 1024


class State(IntEnum):
    """A job is in exactly one of these."""

    WAITING = 0
    STARTING = 1
    """GPUs are assigned; the job that held them, or the job's own old run, has not left them yet."""
    RUNNING = 2
    STOPPING = 3
    """A stop was ordered; the job still holds its GPUs."""
    FINISHED = 4


class JobTable:
    """All jobs ever submitted, by job index. Satisfies ``policy.view.JobColumns``."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.state: list[State] = []
        self.types: list[tuple[int, ...]] = []
        """Indices of the GPU types that can hold the job, best first."""
        self.step_s: list[tuple[float, ...]] = []
        """Seconds per step by GPU type."""
        self.epoch: list[int] = []
        """Number of starts so far: a lease is bound to its epoch."""
        self.submit_s: Floats = np.zeros(_START_CAPACITY)
        self.gpus: Ints = np.zeros(_START_CAPACITY, dtype=np.int64)
        self.priority: Floats = np.zeros(_START_CAPACITY)
        self.ideal_s: Floats = np.zeros(_START_CAPACITY)
        self.steps: Floats = np.zeros(_START_CAPACITY)
        self.done: Floats = np.zeros(_START_CAPACITY)
        self.rate: Floats = np.zeros(_START_CAPACITY)
        self.work_from_s: Floats = np.zeros(_START_CAPACITY)
        self.attained_s: Floats = np.zeros(_START_CAPACITY)
        self.run_from_s: Floats = np.zeros(_START_CAPACITY)
        self.idle_from_s: Floats = np.zeros(_START_CAPACITY)
        self.assigned: Flags = np.zeros(_START_CAPACITY, dtype=np.bool_)
        """GPUs are assigned to the job (whether or not it holds them yet)."""
        self.finished: Flags = np.zeros(_START_CAPACITY, dtype=np.bool_)
        self.open_ended: Flags = np.zeros(_START_CAPACITY, dtype=np.bool_)
        """How long the job takes was neither stated nor reported."""
        self.type_index: Ints = np.full(_START_CAPACITY, -1, dtype=np.int64)
        self.min_run_s: dict[int, float] = {}
        """Seconds that a start runs before it may be stopped or moved for others, for jobs that have such a time."""
        self.class_rank: list[int] = []
        """0 for the application class that suffers most from slow chips."""
        self.revision = 0
        """Grows when the speeds of jobs present turn out to be others."""
        self.prioritised = False
        """Some job has a priority other than 0."""

    def __len__(self) -> int:
        return len(self.jobs)

    def add(
        self, job: Job, ideal_s: float, types: tuple[int, ...], step_s: tuple[float, ...], class_rank: int = 0
    ) -> int:
        """A new waiting job; returns its index."""
        job_index = len(self.jobs)
        if job_index == len(self.gpus):
            self._double()
        self.jobs.append(job)
        self.state.append(State.WAITING)
        self.epoch.append(0)
        self.submit_s[job_index] = job.submit_s
        self.idle_from_s[job_index] = job.submit_s
        self.gpus[job_index] = job.gpus
        self.priority[job_index] = job.priority
        self.ideal_s[job_index] = ideal_s
        self.steps[job_index] = job.steps
        self.open_ended[job_index] = job.open_ended
        self.types.append(types)
        self.class_rank.append(class_rank)
        self.prioritised = self.prioritised or job.priority != 0
        self.step_s.append(step_s)
        if job.min_run_s > 0:
            self.min_run_s[job_index] = job.min_run_s
        return job_index

    def set_length(self, job_index: int, steps: float) -> None:
        """The job turned out to have so many steps; what one of them takes stays as it is."""
        self.ideal_s[job_index] *= steps / self.steps[job_index]
        self.steps[job_index] = steps

    def set_priority(self, job_index: int, priority: float) -> None:
        """The job goes before others by this number from now on."""
        self.jobs[job_index] = replace(self.jobs[job_index], priority=priority)
        self.priority[job_index] = priority
        self.prioritised = self.prioritised or priority != 0

    def _double(self) -> None:
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                fill = -1 if name == "type_index" else 0
                setattr(self, name, np.concatenate((column, np.full_like(column, fill))))


News = tuple[list[int], list[int]]
"""Indices of the jobs that came, and of those that left."""


class ActiveJobs:
    """Jobs that wait or run, in order of arrival. Counts at once; the array is made again only when it is read."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._job_indices: Ints = np.zeros(0, dtype=np.int64)
        self._came: list[int] = []
        self._ended = False
        """Some of ``_job_indices`` have finished."""
        self.count = 0
        """As ``len``, which costs a call."""
        self._away: set[int] = set()
        """Jobs that were taken out."""
        self._news: News | None = None

    def __len__(self) -> int:
        return self.count

    def job_indices(self) -> Ints:
        """Ascending; the same object as long as no job comes or leaves."""
        if self._came:
            self._job_indices = np.concatenate((self._job_indices, np.array(self._came, dtype=np.int64)))
            self._came.clear()
        if self._ended:
            self._job_indices = self._job_indices[~self._table.finished[self._job_indices]]
            self._ended = False
        return self._job_indices

    def arrive(self, job_index: int) -> None:
        """The latest job."""
        self._came.append(job_index)
        self.count += 1
        if self._news is not None:
            self._news[0].append(job_index)

    def end(self, job_index: int) -> None:
        """The job is over, by the table too; one that was taken out is not counted any more."""
        if job_index in self._away:
            self._away.remove(job_index)
            return
        self._ended = True
        self.count -= 1
        if self._news is not None:
            self._news[1].append(job_index)

    def take_out(self, job_index: int) -> None:
        """Until ``put_back`` or ``end``."""
        job_indices = self.job_indices()
        self._job_indices, self._news = job_indices[job_indices != job_index], None
        self.count = len(self._job_indices)
        self._away.add(job_index)

    def put_back(self, job_index: int) -> None:
        """To the place it had."""
        job_indices = self.job_indices()
        at = int(np.searchsorted(job_indices, job_index))
        if at == len(job_indices) or job_indices[at] != job_index:
            self._job_indices = np.insert(job_indices, at, job_index)
        self._news, self.count = None, len(self._job_indices)
        self._away.discard(job_index)

    def news(self) -> News | None:
        """What happened since this was asked last; ``None`` if a job was taken out or put back."""
        found, self._news = self._news, ([], [])
        return found
