"""What a policy sees: the active jobs as aligned columns, read-only, at one moment."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trine.core.cached import cached_property
from trine.core.costs import StopCosts
from trine.core.errors import nearest
from trine.core.job import Job

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class JobColumns(Protocol):
    """The engine's job table, as far as a policy may read it. One entry per job ever seen, by job index."""

    jobs: list[Job]
    submit_s: Floats
    gpus: Ints
    priority: Floats
    ideal_s: Floats
    steps: Floats
    done: Floats
    """Steps at the last report or start."""
    rate: Floats
    """Steps per second since then; 0 for jobs that do not run."""
    work_from_s: Floats
    """When work goes on from ``done``: a start has to restore its checkpoint first."""
    attained_s: Floats
    """Seconds that GPUs were held, up to ``run_from_s``."""
    run_from_s: Floats
    idle_from_s: Floats
    assigned: Flags
    open_ended: Flags
    type_index: Ints
    types: list[tuple[int, ...]]
    step_s: list[tuple[float, ...]]
    revision: int


class View:
    """The active jobs, those that wait or run, in order of arrival, at one moment.

    A column has one value per job, aligned with ``job_indices``. Columns are made when they are first read, and must
    not be written to. Times are seconds on the clock of the run, durations are seconds, GPUs are counted. The best type
    is the GPU type on which the job is fastest, of those that can hold it; median GPUs are chips of median speed inside
    one node.
    """

    news: tuple[list[int], list[int]] | None = None
    """Indices of the jobs that came and of those that left since the last round; ``None``: not known."""
    within_quotas: Callable[[list[int]], Flags] | None = None
    """Which of these job indices, served in this order, exceed no quota; ``None``: there are no quotas."""
    over_quota: set[int] | None = None
    """Indices of jobs that a policy left out because of a quota; see ``allowed``."""
    costs = StopCosts()
    """What stopping and moving a job costs."""

    def __init__(
        self,
        now: float,
        job_indices: Ints | Callable[[], Ints],
        columns: JobColumns,
        free: Sequence[int] | Ints | Callable[[], Sequence[int]],
        capacity: Sequence[int] | Ints,
        prioritised: bool = True,
        all_run: bool = False,
        remaining_time: RemainingTime | None = None,
        costs: StopCosts | None = None,
    ) -> None:
        self.now = now
        """The time of this round, seconds."""
        self._job_indices = job_indices
        self._remaining_time = remaining_time or remaining_by_work
        self.prioritised = prioritised
        """False promises that all priorities are 0."""
        self.all_run = all_run
        """True promises that no job waits."""
        if costs is not None:
            self.costs = costs
        self._columns = columns
        self._free = free
        self.gpus_by_type: list[int] = capacity if isinstance(capacity, list) else list(map(int, capacity))
        """GPUs in service by GPU type, free or not, as plain numbers."""

    def of(self, job_index: int) -> tuple[int, tuple[int, ...], tuple[float, ...]]:
        """GPUs, types that can hold it (fastest first) and seconds per step by type, of a job by its index."""
        columns = self._columns
        return int(columns.gpus[job_index]), columns.types[job_index], columns.step_s[job_index]

    @cached_property
    def job_indices(self) -> Ints:
        """Indices in the engine's table, ascending; the same object from round to round while the jobs are the same."""
        return self._job_indices() if callable(self._job_indices) else self._job_indices

    def __len__(self) -> int:
        return len(self.job_indices)

    @cached_property
    def free(self) -> Ints:
        """Free GPUs by GPU type, in the order of ``gpus_by_type``."""
        return np.array(self._free() if callable(self._free) else self._free, dtype=np.int64)

    @cached_property
    def capacity(self) -> Ints:
        """GPUs in service by GPU type, free or not; ``gpus_by_type`` as a column."""
        return np.array(self.gpus_by_type, dtype=np.int64)

    def job(self, position: int) -> Job:
        """The job at this position of the view; for what has no column (user, group, model, deadline ...)."""
        return self._columns.jobs[int(self.job_indices[position])]

    @property
    def revision(self) -> int:
        """A number that grows when jobs turn out to be faster or slower than was thought."""
        return self._columns.revision

    def restart_cost(self, job: Job) -> float:
        """Seconds that a move costs a job."""
        return self.costs.migration(job)

    def job_of(self, job_index: int) -> Job:
        """The job with this index."""
        return self._columns.jobs[job_index]

    def name(self, job_index: int) -> str:
        """Id of the job with this index, active or not."""
        return self._columns.jobs[job_index].id

    @property
    def beyond(self) -> int:
        """The first index that no job has yet."""
        return len(self._columns.jobs)

    def step_s(self) -> list[tuple[float, ...]]:
        """Seconds per step on median GPUs of each type, for each job; infinity where it cannot run."""
        known = self._columns.step_s
        return [known[job_index] for job_index in self.job_indices.tolist()]

    @cached_property
    def submit_s(self) -> Floats:
        """When the job was submitted, seconds."""
        return self._columns.submit_s[self.job_indices]

    @cached_property
    def gpus(self) -> Ints:
        """GPUs that the job needs, all at once (its gang)."""
        return self._columns.gpus[self.job_indices]

    @cached_property
    def priority(self) -> Floats:
        """The user's priority; larger goes first, 0 by default. ``KeyPolicy`` puts it before its own key."""
        return self._columns.priority[self.job_indices]

    @cached_property
    def ideal_s(self) -> Floats:
        """Run time of the whole job on median GPUs of the best type, seconds."""
        return self._columns.ideal_s[self.job_indices]

    @cached_property
    def assigned(self) -> Flags:
        """The job has GPUs, or gets them as soon as the jobs on them have left; the others wait."""
        return self._columns.assigned[self.job_indices]

    @cached_property
    def open_ended(self) -> Flags:
        """How long the job takes was neither stated nor reported: its remaining time is a guess."""
        return self._columns.open_ended[self.job_indices]

    def allowed(self, order: Ints) -> Ints:
        """``order`` without the waiting jobs that would exceed a quota, for policies that count on which jobs start."""
        if self.within_quotas is None:
            return order
        kept = self.within_quotas(self.job_indices[order].tolist())
        self.over_quota = (self.over_quota or set()) | set(self.job_indices[order[~kept]].tolist())
        return order[kept]

    @cached_property
    def type_index(self) -> Ints:
        """Index of the type of the GPUs that the job has, in the order of ``gpus_by_type``; -1 if it has none."""
        return self._columns.type_index[self.job_indices]

    def types_of(self, position: int) -> tuple[int, ...]:
        """Indices of the GPU types that can hold the job at ``position``, fastest first."""
        return self._columns.types[int(self.job_indices[position])]

    def remaining_on(self, position: int, type_index: int) -> float:
        """Seconds of work left of the job at ``position`` on median GPUs of this type."""
        step_s = self._columns.step_s[int(self.job_indices[position])]
        return float(self.remaining_s[position]) * step_s[type_index] / step_s[self.types_of(position)[0]]

    @cached_property
    def attained_s(self) -> Floats:
        """Seconds for which the job has held GPUs, in all its runs: the attained service of LAS."""
        before = self._columns.attained_s[self.job_indices]
        since = self.now - self._columns.run_from_s[self.job_indices]
        return np.where(self.assigned, before + since, before)

    @cached_property
    def run_s(self) -> Floats:
        """Seconds that the present run has lasted; 0 while the job waits."""
        return np.where(self.assigned, self.now - self._columns.run_from_s[self.job_indices], 0.0)

    @cached_property
    def attained_gpu_s(self) -> Floats:
        """GPU-seconds held: the two-dimensional attained service of Tiresias."""
        return self.attained_s * self.gpus

    @cached_property
    def done(self) -> Floats:
        """Steps done, extrapolated from the last report at the present rate, which is 0 for jobs that hold no GPUs.

        Never more than ``steps``."""
        return np.minimum(self._worked, self._columns.steps[self.job_indices])

    @cached_property
    def _worked(self) -> Floats:
        """As ``done``, however many ``steps`` there are."""
        c = self._columns
        since = np.maximum(self.now - c.work_from_s[self.job_indices], 0.0)
        return c.done[self.job_indices] + since * c.rate[self.job_indices]

    @cached_property
    def done_s(self) -> Floats:
        """Work done, in seconds on median GPUs of the best type; known also where the duration is not.

        That of ``open_ended`` jobs may exceed ``ideal_s``, which is a guess."""
        c = self._columns
        steps = np.where(self.open_ended, self._worked, self.done)
        return steps * (self.ideal_s / c.steps[self.job_indices])

    @cached_property
    def speed(self) -> Floats:
        """Speed of running jobs, as last reported or expected, over that on median GPUs of the best type; else 0."""
        c = self._columns
        return c.rate[self.job_indices] * (self.ideal_s / c.steps[self.job_indices])

    @cached_property
    def steps(self) -> Floats:
        """All steps of the job, done or not."""
        return self._columns.steps[self.job_indices]

    @cached_property
    def steps_left(self) -> Floats:
        """Steps that are not done yet."""
        return self.steps - self.done

    @cached_property
    def remaining_s(self) -> Floats:
        """Seconds of work left on median GPUs of the best type; a guess for ``open_ended`` jobs."""
        return self._remaining_time(self)

    @cached_property
    def ends_s(self) -> Floats:
        """When a job that has GPUs will end if it stays where it is, seconds (a guess until it runs); else infinity."""
        c = self._columns
        left = c.steps[self.job_indices] - self.done
        rate = c.rate[self.job_indices]
        ready = np.maximum(self.now, c.work_from_s[self.job_indices])
        known = self.assigned & (rate > 0)
        guess = np.where(self.assigned, self.now + self.remaining_s, np.inf)
        return np.where(known, ready + left / np.where(known, rate, 1.0), guess)

    @cached_property
    def idle_s(self) -> Floats:
        """Seconds since the job last held GPUs (or was submitted); 0 while it runs."""
        return np.where(self.assigned, 0.0, self.now - self._columns.idle_from_s[self.job_indices])

    def __getattr__(self, name: str) -> Any:
        """Names of earlier versions, which policy files of users may still read."""
        new = _RENAMED.get(name)
        if new is None:
            raise AttributeError(f"a view of the jobs has no {name!r}{nearest(name, dir(self))}")
        warnings.warn(f"view.{name} is called view.{new} now", FutureWarning, stacklevel=2)
        return getattr(self, new)


RemainingTime = Callable[[View], Floats]
"""Seconds of work left on median GPUs of the best type, for each job of a view."""


def remaining_by_work(view: View) -> Floats:
    """The part of the steps that is not done, of the run time on median GPUs of the best type."""
    return view.ideal_s * (1.0 - view.done / view.steps)


_RENAMED = {"slots": "job_indices", "running": "assigned", "pool": "type_index", "pools_of": "types_of"}
