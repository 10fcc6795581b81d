"""Cost of one placement under realistic churn: a cluster kept nine tenths full, jobs leaving and coming at random."""

from __future__ import annotations

import random
import time

from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.core.plugins import find
from trine.core.reason import Reason
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.base import Ask, Placement
from trine.placement.free_index import FreePool

SIZES, WEIGHTS = (1, 2, 4, 8, 16, 32), (0.55, 0.12, 0.13, 0.14, 0.04, 0.02)
CLASSES = "ABCD"
FILL = 0.9


def microseconds(
    placement_name: str, nodes: int, gpus_per_node: int = 8, nodes_per_rack: int = 0, rounds: int = 4000
) -> float:
    """Processor time of a placement, microseconds: catching up with all releases since, choosing, marking the GPUs."""
    rng = random.Random(1)
    cluster = Cluster.uniform(nodes, gpus_per_node, nodes_per_rack=nodes_per_rack)
    placement = find("trine.placement", Placement, "placement", placement_name, "benchmark")()
    perf = PerfModel(cluster, _variability(cluster, rng), LocalityPenalty(1.0, 1.5, 1.5 if not nodes_per_rack else 2.0))
    placement.prepare(perf, rng)
    pool = FreePool(cluster, "gpu")
    jobs = [
        Job(str(i), 0.0, size, 1.0, app_class=rng.choice(CLASSES))
        for i, size in enumerate(rng.choices(SIZES, WEIGHTS, k=rounds * 4))
    ]
    running = _fill(pool, placement, jobs, rng)
    for job in jobs[:8]:
        placement.place(Ask(job), pool)  # every class has its index before the clock runs
    spent = 0.0
    for job in jobs[:rounds]:
        while pool.total < max(job.gpus, (1 - FILL) * cluster.gpu_count):
            pool.give(running.pop(rng.randrange(len(running))))
        ask = Ask(job)  # the engine reuses one
        started = time.process_time_ns()
        found = placement.place(ask, pool)
        assert not isinstance(found, Reason)
        pool.take(found)
        spent += time.process_time_ns() - started
        running.append(found)
    return spent / rounds / 1000


def _variability(cluster: Cluster, rng: random.Random) -> VariabilityTable:
    """Chips spread by 2 percent, one in forty slow, differently for every class."""

    def slowdown() -> float:
        return rng.gauss(1.0, 0.02) * (rng.uniform(1.5, 2.2) if rng.random() < 0.025 else 1.0)

    return VariabilityTable(cluster.gpu_count, {c: [slowdown() for _ in range(cluster.gpu_count)] for c in CLASSES})


def _fill(pool: FreePool, placement: Placement, jobs: list[Job], rng: random.Random) -> list[list[int]]:
    running: list[list[int]] = []
    while pool.total > (1 - FILL) * pool.capacity:
        found = placement.place(Ask(rng.choice(jobs)), pool)
        if not isinstance(found, Reason):
            pool.take(found)
            running.append(found)
    return running
