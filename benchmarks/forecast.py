"""How long a forecast takes: 1,000 jobs wait on 1,024 GPUs, lengths unknown, arrivals as of late."""

from __future__ import annotations

import time
from dataclasses import replace

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import resolve
from trine.forecast.draws import Futures
from trine.forecast.present import Present, of_engine
from trine.forecast.work_history import KnownJob
from trine.inputs.cluster import load_cluster
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.sim.recorder import Recorder
from trine.sim.world import World
from trine.trace.generate import generate

WAITING = 1_000
DRAWS = 100
_TIMED = 10
"""Draws that are measured; they differ little."""
_LOAD, _ENDED = 3.0, 4_000


def busy_cluster(policy: str) -> Present:
    """The moment at which so many jobs wait, after some hours of overload in which none ended; others did before."""
    settings = resolve(policy, "packed-sticky", {"event_driven": True, "round_s": 1_800.0})
    cluster = load_cluster("128x8")
    perf = performance_model(settings.run, cluster, VariabilityTable.of_cluster(cluster), ThroughputTable())
    engine = make_engine(settings, perf, "0/placement")
    jobs = [replace(job, open_ended=True) for job in generate("philly", jobs=3_000, seed=1, gpus=1_024, load=_LOAD)]
    recorder = Recorder(cluster, keep_segments=False)
    world = World(engine, iter(jobs), len(jobs), settings.run, recorder, true_steps=lambda job: 1e6 * job.steps)
    now_s = world.now = jobs[0].submit_s
    while engine.waiting_count < WAITING:
        now_s += 600.0
        world.advance(now_s)
    present = of_engine(engine, now_s, settings.run)
    return replace(present, known=[*_ended_before(jobs[0].submit_s), *present.known])


def _ended_before(first_s: float) -> list[KnownJob]:
    """Jobs of the days before, all of them over."""
    past = generate("philly", jobs=_ENDED, seed=2, gpus=1_024, load=_LOAD)
    shift_s = first_s - past[-1].submit_s
    moved = [replace(job, id=f"past-{job.id}", submit_s=job.submit_s + shift_s, open_ended=True) for job in past]
    return [KnownJob(job, job.ideal_s or job.steps, ended=True) for job in moved]


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
