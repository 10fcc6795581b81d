"""Puts jobs that already have a past into a new engine: after a restart, or when the model of the cluster changed."""

from __future__ import annotations

from dataclasses import dataclass

from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.events import Held, Submitted
from trine.engine.job_table import State


@dataclass(frozen=True, slots=True)
class Past:
    """What a job went through before. Times in seconds on the engine's clock."""

    epoch: int = 0
    done: float = 0.0
    attained_s: float = 0.0
    idle_from_s: float = 0.0
    run_from_s: float = 0.0
    gpus: tuple[int, ...] = ()
    """GPUs its processes hold or are about to; empty if there are none."""
    state: State = State.WAITING
    """``STARTING``, ``RUNNING`` or ``STOPPING`` with GPUs, else ``WAITING``."""
    held: bool = False
    rate: float = 0.0
    work_from_s: float = 0.0
    co_runner: int = -1
    """Index of the job, put back before, whose processes hold the same GPUs; -1: none does."""


def resume(engine: Engine, now: float, job: Job, past: Past) -> int:
    """Submit ``job`` and bring it to where it was; returns its index.

    Starts that waited for other jobs to leave are not resumed: the next round decides them again.
    """
    job_index, table = enter(engine, now, job), engine.table
    table.epoch[job_index] = past.epoch
    engine.reported.add(job_index)
    table.done[job_index] = min(past.done, table.steps[job_index])
    table.attained_s[job_index] = past.attained_s
    table.idle_from_s[job_index] = past.idle_from_s
    if past.gpus:
        _put_back(engine, job_index, past)
    if past.held:
        engine.handle(Held(now, job_index))
    return job_index


def enter(engine: Engine, now: float, job: Job) -> int:
    """Submit the job; returns its index. One that the cluster, as it is now, can never run is known, but not offered to
    the policy."""
    perf = engine.perf
    if perf.types_for(job):
        engine.handle(Submitted(now, job))
    else:
        class_rank = perf.variability.rank_of(job.app_class)
        engine.table.add(job, perf.ideal_s(job), (), perf.step_s_by_type(job), class_rank)
    return len(engine.table) - 1


def _put_back(engine: Engine, job_index: int, past: Past) -> None:
    table, other = engine.table, past.co_runner
    engine.ownership.take(job_index, past.gpus, other)
    table.state[job_index] = past.state
    table.run_from_s[job_index] = past.run_from_s
    table.type_index[job_index] = engine.free.type_of(past.gpus)
    engine.neighbours.join(job_index, past.gpus, other)
    if past.state is State.RUNNING:
        table.work_from_s[job_index] = past.work_from_s
        engine.resumed[job_index] = past.rate
    if past.state is not State.STOPPING:
        engine.assigned[job_index] = past.gpus
        if other in engine.assigned:
            engine.co_runners |= {job_index: other, other: job_index}
        else:
            engine.free.take(past.gpus)
        table.assigned[job_index] = True


def rate_resumed(engine: Engine) -> None:
    """All jobs are back: only now is it known which of them slow each other, and so what their observed rates mean."""
    engine.neighbours.settle()
    for job_index, observed in engine.resumed.items():
        engine.table.rate[job_index] = engine.speed(job_index).steps_per_s
        if observed > 0:
            engine.run_at(job_index, observed)
    engine.resumed.clear()
