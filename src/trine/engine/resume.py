"""Puts jobs that already have a past into a new engine: after a restart, or when the model of the cluster changed."""

from __future__ import annotations

from dataclasses import dataclass

from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.events import Held, Submitted
from trine.engine.sharing import beside
from trine.engine.table import State
from trine.engine.upsets import run_at


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
    partner: int = -1
    """Number of the job, put back before, whose processes hold the same GPUs; -1: none does."""


def resume(engine: Engine, now: float, job: Job, past: Past) -> int:
    """Submit ``job`` and bring it to where it was; returns its number.

    Starts that waited for others to let go are not resumed: the next round decides them again.
    """
    slot, table = _enter(engine, now, job), engine.table
    table.epoch[slot] = past.epoch
    engine.reported.add(slot)
    table.done[slot] = min(past.done, table.steps[slot])
    table.attained_s[slot] = past.attained_s
    table.idle_from_s[slot] = past.idle_from_s
    if past.gpus:
        _put_back(engine, slot, past)
    if past.held:
        engine.handle(Held(now, slot))
    return slot


def _enter(engine: Engine, now: float, job: Job) -> int:
    """A number for the job. One that the cluster, as it is now, can never run keeps its place but is not offered."""
    perf = engine.perf
    if perf.types_for(job):
        engine.handle(Submitted(now, job))
    else:
        class_rank = perf.variability.rank_of(job.app_class)
        engine.table.add(job, perf.ideal_s(job), (), perf.step_s_by_type(job), class_rank)
    return len(engine.table) - 1


def _put_back(engine: Engine, slot: int, past: Past) -> None:
    table, other = engine.table, past.partner
    engine.handover.take(slot, past.gpus, other)
    table.state[slot] = past.state
    table.run_from_s[slot] = past.run_from_s
    table.pool[slot] = engine.free.type_of(past.gpus)
    if engine.traffic is not None:
        engine.traffic.join(slot, table.jobs[slot], past.gpus)
    if past.state is State.RUNNING:
        table.rate[slot] = engine.perf.speed(table.jobs[slot], past.gpus, beside(engine, slot)).steps_per_s
        table.work_from_s[slot] = past.work_from_s
        if engine.traffic is not None:
            engine.resumed[slot] = past.rate
        elif past.rate > 0:
            run_at(engine, slot, past.rate)
    if other >= 0 and table.state[other] is State.RUNNING and engine.traffic is None:
        _was_not_alone(engine, other, table.jobs[slot])
    if past.state is not State.STOPPING:
        engine.assigned[slot] = past.gpus
        if other in engine.assigned:
            engine.partners |= {slot: other, other: slot}
        else:
            engine.free.take(past.gpus)
        table.running[slot] = True


def rate_resumed(engine: Engine) -> None:
    """All jobs are back: only now is it known which of them share links, and so what their observed rates mean."""
    if engine.traffic is None:
        return
    engine.traffic.settle()
    for slot, observed in engine.resumed.items():
        engine.table.rate[slot] = engine.speed(slot).steps_per_s
        if observed > 0:
            run_at(engine, slot, observed)
    engine.resumed.clear()


def _was_not_alone(engine: Engine, slot: int, partner: Job) -> None:
    """The job was put back before its partner: the speed it has, or was seen to have, is that of two on the GPUs."""
    table, job, gpus = engine.table, engine.table.jobs[slot], engine.handover.holding[slot]
    alone, shared = engine.perf.speed(job, gpus).steps_per_s, engine.perf.speed(job, gpus, partner).steps_per_s
    if table.rate[slot] == alone:
        table.rate[slot] = shared
    elif table.rate[slot] > 0:
        table.ideal_s[slot] *= shared / alone
        table.step_s[slot] = tuple(s * shared / alone for s in table.step_s[slot])
