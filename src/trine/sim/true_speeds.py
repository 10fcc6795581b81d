"""How fast jobs really run in a simulated world whose scheduler believes otherwise: model and traffic of the world."""

from __future__ import annotations

from trine.core.job import Job
from trine.perf.model import Neighbours, PerfModel, Speed
from trine.perf.traffic import Traffic


class TrueSpeeds:
    """Speeds by the performance model of the world; its book of flows is not that of the engine."""

    def __init__(self, perf: PerfModel, measured: bool = True) -> None:
        """``measured``: the engine knows the speed of running jobs, else only how far they are."""
        self.perf, self.measured = perf, measured
        self.traffic = Traffic.of(perf)
        self._gpus: dict[int, tuple[int, ...]] = {}

    def start(self, job_index: int, job: Job, gpus: tuple[int, ...]) -> None:
        """The job runs on ``gpus`` from now on."""
        self._gpus[job_index] = gpus
        if self.traffic is not None:
            self.traffic.join(job_index, job, gpus)

    def end(self, job_index: int) -> None:
        """The job has left its GPUs."""
        self._gpus.pop(job_index, None)
        if self.traffic is not None:
            self.traffic.leave(job_index)

    def settle(self) -> list[int]:
        """Share links anew; returns the jobs whose bandwidth is another now."""
        return [] if self.traffic is None else [changed.job_index for changed in self.traffic.settle()]

    def speed(self, job_index: int, job: Job, co_runner: Job | None) -> Speed:
        """Speed of a running job, next to the jobs on its GPUs and links."""
        bandwidth = None if self.traffic is None else self.traffic.bandwidth(job_index)
        return self.perf.speed(job, self._gpus[job_index], Neighbours(co_runner, bandwidth))
