"""Finish-time fairness: completion times with an equal, fluid share of the cluster, to which real ones are compared.

Every active job gets 1/n of the GPUs of each type, at most as many as its gang asks for, in the best place and on
median chips. What others do under a policy does not matter here: the reference is the same for all policies (as rho in
Themis, NSDI'20, and in Gavel, OSDI'20, section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from trine.core.job import Job
from trine.perf.model import PerfModel


def fair_completion_s(jobs: Sequence[Job], perf: PerfModel) -> dict[str, float]:
    """Seconds from submission to finish by job id, with an equal share of the cluster; in order of submission.

    A job of g GPUs advances at min(1, N / (n g)) of its speed on the mean GPU, n being the active jobs and N the GPUs.
    All jobs of the same gang size advance alike, so that each size has one clock of its own (virtual time), and a job
    ends when the clock of its size has advanced by its work: the next end of a size is at the top of its heap.
    """
    gpus = perf.cluster.gpu_count
    clocks: dict[int, float] = {}
    heaps: dict[int, list[tuple[float, int]]] = {}
    found: dict[str, float] = {}
    now, active, coming = 0.0, 0, 0
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].submit_s)
    while coming < len(order) or active:
        speed = {g: min(1.0, gpus / (active * g)) for g, heap in heaps.items() if heap} if active else {}
        ends = [((heaps[g][0][0] - clocks[g]) / rate, g) for g, rate in speed.items()]
        arrival_s = jobs[order[coming]].submit_s - now if coming < len(order) else float("inf")
        step_s, size = min(ends, default=(float("inf"), 0))
        if arrival_s <= step_s:
            step_s, size = max(0.0, arrival_s), 0
        now += step_s
        for g, rate in speed.items():
            clocks[g] += step_s * rate
        if size:
            clocks[size], ended = heappop(heaps[size])  # exactly there, whatever the sum of the steps is
            found[jobs[ended].id] = now - jobs[ended].submit_s
            active -= 1
        else:
            job = jobs[order[coming]]
            heappush(
                heaps.setdefault(job.gpus, []), (clocks.setdefault(job.gpus, 0.0) + _work_s(job, perf), order[coming])
            )
            coming, active = coming + 1, active + 1
    return found


def _work_s(job: Job, perf: PerfModel) -> float:
    """Seconds of the whole job on the mean of all GPUs of the cluster, each at the speed of its type."""
    step_s, by_type = perf.step_s_by_type(job), perf.cluster.gpus_by_type
    types = [(index, by_type[perf.cluster.types[index]]) for index in perf.types_for(job)]
    steps_per_s = sum(count / step_s[index] for index, count in types) / perf.cluster.gpu_count
    return job.steps / steps_per_s
