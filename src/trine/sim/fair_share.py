"""Finish-time fairness: completion times with an equal, fluid share of the cluster, to which real ones are compared.

Every active job gets 1/n of the GPUs of each type, at most as many as its gang asks for, in the best place and on
median chips. What others do under a policy does not matter here: the reference is the same for all policies (as rho in
Themis, NSDI'20, and in Gavel, OSDI'20, section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from trine.core.job import Job
from trine.perf.model import PerfModel


def fair_completion_s(jobs: Sequence[Job], perf: PerfModel) -> dict[str, float]:
    """Seconds from submission to finish by job id, with an equal share of the cluster.

    A job of g GPUs advances at min(1, N / (n g)) of its speed on the mean GPU, n being the active jobs and N the GPUs.
    All jobs of the same gang size advance alike, so that each size has one clock of its own (virtual time), and a job
    ends when the clock of its size has advanced by its work: the next end of a size is at the top of its heap.
    """
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].submit_s)
    works = _WorkTimes(perf)
    sizes = {gpus: at for at, gpus in enumerate(sorted({job.gpus for job in jobs}))}
    full = [perf.cluster.gpu_count / gpus for gpus in sizes]
    """So many active jobs run at full speed, by size."""
    clocks, heaps = [0.0] * len(sizes), [list[tuple[float, int]]() for _ in sizes]
    found = [0.0] * len(jobs)
    now, active = 0.0, 0
    for index in [*order, -1]:  # after the last arrival, until all have ended
        until_s = jobs[index].submit_s if index >= 0 else inf
        while active:
            step_s, first = until_s - now, -1
            for at, heap in enumerate(heaps):
                if heap:
                    left_s = heap[0][0] - clocks[at]
                    left_s = left_s * active / full[at] if active > full[at] else left_s
                    if left_s < step_s:
                        step_s, first = left_s, at
            for at, most in enumerate(full):
                clocks[at] += step_s * most / active if active > most else step_s
            now += step_s
            if first < 0:
                break
            clocks[first], ended = heappop(heaps[first])  # exactly there, whatever the sum of the steps is
            found[ended] = now - jobs[ended].submit_s
            active -= 1
        if index >= 0:
            now, at = until_s, sizes[jobs[index].gpus]
            heappush(heaps[at], (clocks[at] + works.of(jobs[index]), index))
            active += 1
    return {job.id: seconds for job, seconds in zip(jobs, found, strict=True)}


class _WorkTimes:
    """Seconds of whole jobs on the mean of all GPUs of the cluster, each at the speed of its type."""

    def __init__(self, perf: PerfModel) -> None:
        self._perf = perf
        self._steps_per_s: dict[tuple[str, int, float | None, tuple[str, ...]], float] = {}

    def of(self, job: Job) -> float:
        key = (job.model, job.gpus, job.step_s, job.gpu_types)
        known = self._steps_per_s.get(key)
        if known is None:
            known = self._steps_per_s[key] = self._mean_rate(job)
        return job.steps / known

    def _mean_rate(self, job: Job) -> float:
        step_s, cluster = self._perf.step_s_by_type(job), self._perf.cluster
        counts = [(index, cluster.gpus_by_type[cluster.types[index]]) for index in self._perf.types_for(job)]
        return sum(count / step_s[index] for index, count in counts) / cluster.gpu_count
