"""On how many nodes a trace is replayed for predictions: as many as make its jobs wait as long as real ones did.

A trace tells when jobs came and how long they took, not on how many GPUs. With about as many as its jobs keep busy on
average, bursts pile up into one queue that lasts for weeks or for the whole trace, which no cluster had, and whose
moments are one trial and not many. What is recorded of the cluster that a trace is of is how long its jobs waited.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from trine.assembly.settings import resolve
from trine.core.job import Job
from trine.forecast.replay import waits
from trine.inputs.cluster import load_cluster


def fewest_nodes(jobs: Sequence[Job], figures: Mapping[str, Any]) -> int:
    """The fewest nodes on which mean wait over mean length is not above what is recorded; counted upwards from those
    that hold the largest job and the work of the trace."""
    rule = figures["recorded_waits"]
    gpus, most = int(rule["gpus_per_node"]), rule["mean_wait_s"] / rule["mean_run_s"]
    least = math.ceil(max(busy_gpus(jobs), *(job.gpus for job in jobs)) / gpus)
    return next(nodes for nodes in count(least) if wait_per_run(jobs, f"{nodes}x{gpus}", figures) <= most)


def busy_gpus(jobs: Sequence[Job]) -> float:
    """How many the jobs keep busy on average, from the first submission to the last."""
    return sum(job.gpus * (job.ideal_s or job.steps) for job in jobs) / (jobs[-1].submit_s - jobs[0].submit_s)


def wait_per_run(jobs: Sequence[Job], shape: str, figures: Mapping[str, Any]) -> float:
    """Mean wait over mean length of the jobs on such a cluster, under the policy of the rule."""
    settings = resolve(figures["recorded_waits"]["policy"], figures["placement"], without_rounds(figures))
    return waits(jobs, load_cluster(shape), settings, seed=0).per_run


def without_rounds(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Settings: decide at every event, as rounds make no difference where nothing is stopped."""
    return {"event_driven": True, "round_s": figures["look_again_s"]}


def moments_of(queues: Sequence[tuple[float, float]], from_s: float, to_s: float, times: int) -> list[float]:
    """So many moments between two times, spread evenly over the time during which jobs wait."""
    cut = [(max(begin_s, from_s), min(end_s, to_s)) for begin_s, end_s in queues]
    cut = [(begin_s, end_s) for begin_s, end_s in cut if end_s > begin_s]
    total_s, found, before_s = sum(end_s - begin_s for begin_s, end_s in cut), list[float](), 0.0
    for begin_s, end_s in cut:
        while len(found) < times and (at_s := (len(found) + 0.5) / times * total_s - before_s) < end_s - begin_s:
            found.append(begin_s + at_s)
        before_s += end_s - begin_s
    return found


def queue_at(queues: Sequence[tuple[float, float]], at_s: float) -> int | None:
    """Position of the queue in which jobs wait at a time; ``None``: none does."""
    last = bisect_right(queues, at_s, key=lambda queue: queue[0]) - 1
    return last if last >= 0 and at_s < queues[last][1] else None
