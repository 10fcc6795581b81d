"""Which running jobs slow each other: a second job on the same GPUs, other gangs on the same links.

The engine enters a job when it takes its GPUs and removes it when it releases them. ``settle`` then returns the jobs
whose speed changed, with what their neighbours left to them before and after: another effect of jobs on each other is
a change here and in ``PerfModel.speed``, and nowhere else. Jobs are job indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trine.core.job import Job
from trine.perf.model import Neighbours, PerfModel, Speed
from trine.perf.traffic import Traffic


class Affected(NamedTuple):
    """A job whose neighbours came or left."""

    job_index: int
    before: Neighbours
    after: Neighbours


class Neighbourhood:
    """The jobs that run, as far as they can slow each other. All answers are as of the last ``settle``."""

    def __init__(self, perf: PerfModel, jobs: Sequence[Job]) -> None:
        """``jobs`` by job index; it may grow."""
        self._perf, self._jobs = perf, jobs
        self.traffic = Traffic.of(perf)
        """Flows over shared links; ``None`` where the performance model knows no links."""
        self._co_runners: dict[int, int] = {}
        """Jobs on the same GPUs, both ways."""
        self._settled: dict[int, Job] = {}
        """The co-runner of each job as of the last ``settle``; a job that is not in it was alone."""
        self._touched: dict[int, None] = {}
        """Jobs whose co-runner came or left since the last ``settle``."""
        self.unsettled = False
        """Jobs came or left since the last ``settle`` that others feel; looked at in every round."""
        self.matters = self.traffic is not None
        """Running jobs slow each other here; where they do not, none need be entered. Looked at in every start."""

    def use_model(self, perf: PerfModel) -> None:
        """Speeds follow another model of the same cluster from now on."""
        self._perf = perf
        if self.traffic is not None:
            self.traffic.use_model(perf)

    def _note_change(self) -> None:
        self.unsettled = bool(self._touched) or (self.traffic is not None and self.traffic.unsettled)
        self.matters = self.traffic is not None or bool(self._co_runners or self._touched)

    def join(self, job_index: int, gpus: tuple[int, ...], co_runner: int = -1) -> None:
        """The job takes its GPUs, next to ``co_runner`` if that holds them too. Until ``settle`` it counts as alone."""
        if self.traffic is not None:
            self.traffic.join(job_index, self._jobs[job_index], gpus)
        if co_runner >= 0:
            self._co_runners |= {job_index: co_runner, co_runner: job_index}
            self._touched |= {job_index: None, co_runner: None}
        self._note_change()

    def leave(self, job_index: int) -> None:
        """The job releases its GPUs; one that was not entered changes nothing."""
        if self.traffic is not None:
            self.traffic.leave(job_index)
        self._settled.pop(job_index, None)
        self._touched.pop(job_index, None)
        other = self._co_runners.pop(job_index, -1)
        if other >= 0:
            del self._co_runners[other]
            self._touched[other] = None
        self._note_change()

    def of(self, job_index: int) -> Neighbours:
        """What the neighbours of a running job leave to it."""
        bandwidth = None if self.traffic is None else self.traffic.bandwidth(job_index)
        return Neighbours(self._settled.get(job_index), bandwidth)

    def quote(self, job_index: int, gpus: tuple[int, ...], least: float = 0.0) -> Speed:
        """How fast the job would be alone on ``gpus``, next to what sends over the same links now.

        Exact where it is at least ``least`` steps/s; see ``Traffic.quote``.
        """
        job = self._jobs[job_index]
        return self._perf.speed(job, gpus) if self.traffic is None else self.traffic.quote(job, gpus, job_index, least)

    def settle(self) -> list[Affected]:
        """The jobs whose neighbours are others now, by job index: once per moment, so that the order in which jobs
        came and left in it does not show."""
        before = {job_index: self.of(job_index) for job_index in self._touched}
        for job_index in self._touched:
            other = self._co_runners.get(job_index, -1)
            if other < 0:
                self._settled.pop(job_index, None)
            else:
                self._settled[job_index] = self._jobs[other]
        self._touched.clear()
        for job_index, bandwidth, _ in () if self.traffic is None else self.traffic.settle():
            before.setdefault(job_index, self.of(job_index)._replace(bandwidth=bandwidth))
        self._note_change()
        return [Affected(job_index, before[job_index], self.of(job_index)) for job_index in sorted(before)]
