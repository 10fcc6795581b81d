"""How long a forecast takes: 1,000 jobs wait on 1,024 GPUs, lengths unknown, arrivals as of late.

The cluster has run for two months at a load of 0.9 before jobs come three times as fast as it can serve them. So those
that run are as old as jobs found running at any moment are (a stationary renewal process: the longer a job, the more
likely it is found, at any age), and jobs go on to end while the queue grows. A queue behind
hundreds of jobs of which none ends would not be one of the cluster in the history: lengths are learned from jobs that
run on, too, and would be drawn long.

Drawn lengths are independent, so nothing recurs (``forecast.recurrence``); with ``sweeps`` nineteen of twenty jobs take
as long as the one before of their user. With ``limits`` all jobs state one, as in the replays that score predictions.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import resolve
from trine.core.job import Job
from trine.forecast.draws import Futures
from trine.forecast.present import Present, of_engine, stated
from trine.forecast.replay import with_limits
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
_GPUS = 1_024
_USUAL_LOAD, _USUAL_JOBS = 0.9, 80_000
"""Before the queue: two months, longer than nearly every job."""
_SURGE_LOAD, _SURGE_JOBS = 3.0, 6_000
_ENDED = 4_000
"""Jobs that ended before, the last ones by submission: about as many as a daemon knows of three days."""

_ALIKE, _DEVIATION = 0.95, 0.02
"""Part of the jobs that repeat the one before of their user, and the deviation of their logarithms."""


def busy_cluster(policy: str, *, sweeps: bool = False, limits: bool = False) -> Present:
    """The moment at which so many jobs wait, after some hours of overload; ``limits``: all jobs state one."""
    settings = resolve(policy, "packed-sticky", {"event_driven": True, "round_s": 1_800.0})
    cluster = load_cluster("128x8")
    perf = performance_model(settings.run, cluster, VariabilityTable.of_cluster(cluster), ThroughputTable())
    engine = make_engine(settings, perf, "0/placement")
    usual = _jobs(_USUAL_JOBS, 2, _USUAL_LOAD, "usual", 0.0, sweeps)
    now_s = usual[-1].submit_s
    # Those that are over by then took no GPUs from the others at this load, or few: they are history and not simulated.
    over = [job for job in usual if job.submit_s + job.steps <= now_s][-_ENDED:]
    still = [job for job in usual if job.submit_s + job.steps > now_s]
    ended, _ = _stated(over, limits)
    jobs, lengths = _stated([*still, *_jobs(_SURGE_JOBS, 1, _SURGE_LOAD, "surge", now_s, sweeps)], limits)
    steps_of = lambda job: lengths[job.id]  # noqa: E731 - one line
    recorder = Recorder(cluster, keep_segments=False)
    world = World(engine, iter(jobs), len(jobs), settings.run, recorder, true_steps=steps_of)
    world.now = jobs[0].submit_s
    while engine.waiting_count < WAITING:
        now_s += 600.0
        world.advance(now_s)
    present = of_engine(engine, now_s, settings.run, _limit if limits else stated)
    history = [
        KnownJob(job, before.steps, ended=True, limit_s=job.steps if limits else math.inf)
        for job, before in zip(ended, over, strict=True)
    ]
    return replace(present, known=[*history, *present.known])


def _jobs(count: int, seed: int, load: float, name: str, from_s: float, sweeps: bool) -> list[Job]:
    """Jobs whose submissions begin at ``from_s``; ``load`` as in ``trace.generate``."""
    drawn = generate("philly", jobs=count, seed=seed, gpus=_GPUS, load=load)
    if sweeps:
        drawn = _in_sweeps(drawn, seed)
    return [replace(job, id=f"{name}-{job.id}", submit_s=from_s + job.submit_s) for job in drawn]


def _stated(jobs: list[Job], limits: bool) -> tuple[list[Job], dict[str, float]]:
    """The jobs as they are submitted, with a limit or of unknown length, and what they really take, in steps."""
    if limits:
        return with_limits(jobs, 0)
    return [replace(job, open_ended=True) for job in jobs], {job.id: job.steps for job in jobs}


def _limit(job: Job) -> tuple[bool, float]:
    """The steps that a job states are a limit."""
    return False, job.steps


def _in_sweeps(jobs: list[Job], seed: int) -> list[Job]:
    """The same jobs, and as much work; most take as long as the one before of their user, but for a few hundredths."""
    rng, found, last = np.random.default_rng(seed), list[Job](), dict[str, float]()
    alike = rng.random(len(jobs)) < _ALIKE
    for job, again, deviation in zip(
        jobs, alike.tolist(), rng.normal(0.0, _DEVIATION, len(jobs)).tolist(), strict=True
    ):
        steps = last[job.user] * math.exp(deviation) if again and job.user in last else job.steps
        last[job.user] = steps
        found.append(replace(job, steps=steps))
    as_much = sum(job.gpus * job.steps for job in jobs) / sum(job.gpus * job.steps for job in found)
    return [replace(job, steps=as_much * job.steps) for job in found]


def processor_s(policy: str, *, sweeps: bool = False, limits: bool = False) -> tuple[float, str]:
    """Of ``DRAWS`` draws, extrapolated from a few, and what was drawn."""
    present = busy_cluster(policy, sweeps=sweeps, limits=limits)
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
