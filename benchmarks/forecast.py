"""How long a forecast takes: 1,000 jobs wait on 1,024 GPUs, lengths unknown, arrivals as of late."""

from __future__ import annotations

import time
from dataclasses import replace

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import resolve
from trine.forecast.draws import Futures
from trine.forecast.present import Present, of_engine
from trine.inputs.cluster import load_cluster
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.sim.scenario import make_world
from trine.trace.generate import generate

WAITING = 1_000
DRAWS = 100
_TIMED = 10
"""Draws that are measured; they differ little."""


def busy_cluster(policy: str) -> Present:
    """The moment at which so many jobs wait, after some hours of overload."""
    settings = resolve(policy, "packed-sticky", {"event_driven": True, "round_s": 1_800.0})
    cluster = load_cluster("128x8")
    perf = performance_model(settings.run, cluster, VariabilityTable.of_cluster(cluster), ThroughputTable())
    engine = make_engine(settings, perf, "0/placement")
    jobs = [replace(job, open_ended=True) for job in generate("philly", jobs=6_000, seed=1, gpus=1_024, load=3.0)]
    world = make_world(settings, engine, iter(jobs), len(jobs), keep_segments=False)
    now_s = world.now = jobs[0].submit_s
    while engine.waiting_count < WAITING:
        now_s += 600.0
        world.advance(now_s)
    return of_engine(engine, now_s, settings.run)


def processor_s(policy: str) -> tuple[float, str]:
    """Of ``DRAWS`` draws, extrapolated from a few, and what was drawn."""
    present = busy_cluster(policy)
    started_s = time.process_time()
    futures = Futures(present, 0)
    ready_s = time.process_time()
    for number in range(_TIMED):
        futures.draw(number)
    drawn_s = time.process_time() - ready_s
    waiting = int((~futures.started).sum())
    return (
        ready_s - started_s + drawn_s * DRAWS / _TIMED,
        f"{waiting:,} wait, {len(futures.job_indices) - waiting:,} run",
    )
