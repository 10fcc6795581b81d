"""Cost of a round of the trine policy where types, chips and places differ: jobs come as fast as others end."""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
from collections import deque
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import resolve
from trine.engine.engine import Engine
from trine.engine.events import Decision, Finished, Start, Started, Stopped, Submitted, Tick
from trine.perf.variability import VariabilityTable
from trine.sim.worlds.generate import WorldSpec, generate_world
from trine.sim.worlds.load import LoadedWorld, load_world

FIRST, ROUNDS = 10, 30
"""Rounds that are not measured, and those that are."""


@dataclass(frozen=True)
class TrineRounds:
    """Processor milliseconds of the engine's decision and of sharing the links anew after it."""

    first_ms: float
    """The round that places all jobs on the empty cluster."""
    median_ms: float
    slowest_ms: float
    changes: float
    """Starts and stops per measured round."""
    waiting: int
    """Jobs without GPUs at the end."""
    digest: str
    """Of all decisions: the same for the same schedule."""


def settled_rounds(gpus: int, jobs: int, durations: str = "learned") -> TrineRounds:
    """``jobs`` of them are active all the time, on ``gpus`` GPUs of three types in racks of 32, nodes of 4."""
    world = _world(gpus, jobs)
    engine = _engine(world, durations)
    coming = _Arrivals(world, jobs)
    digest = hashlib.sha256()
    spent_ms: list[float] = []
    changes = 0
    round_s = float(world.settings["round_s"])
    for number in range(FIRST + ROUNDS):
        now = number * round_s
        coming.replace_ended(engine, now)
        before_ns = time.process_time_ns()
        decisions = engine.handle(Tick(now))
        decided_ns = time.process_time_ns() - before_ns
        digest.update(repr([(type(d).__name__, d.job_index, getattr(d, "gpus", ())) for d in decisions]).encode())
        changed = _carry_out(engine, now, decisions)
        before_ns = time.process_time_ns()
        engine.settle_speeds(now)
        engine.rerated.clear()
        spent_ms.append((decided_ns + time.process_time_ns() - before_ns) / 1e6)
        changes += changed if number >= FIRST else 0
    settled = sorted(spent_ms[FIRST:])
    return TrineRounds(
        spent_ms[0],
        statistics.median(settled),
        settled[-1],
        changes / ROUNDS,
        engine.waiting_count,
        digest.hexdigest()[:12],
    )


def _world(gpus: int, jobs: int) -> LoadedWorld:
    """Jobs as in the worlds with all three differences; enough of them for all that end."""
    with tempfile.TemporaryDirectory() as folder:
        generate_world(Path(folder), WorldSpec("TVN", jobs=3 * jobs, racks=gpus // 32))
        return load_world(folder)


def _engine(world: LoadedWorld, durations: str) -> Engine:
    settings = resolve("trine", "trine", world.settings | {"durations": durations})
    chips = VariabilityTable.of_cluster(world.cluster)
    perf = performance_model(settings.run, world.cluster, chips, world.throughputs, world.traffic)
    return make_engine(settings, perf, "0/placement")


class _Arrivals:
    """Submits jobs so that the same number is active in every round."""

    def __init__(self, world: LoadedWorld, active: int) -> None:
        self._jobs = iter(world.jobs)
        self._active = active
        self._ids = count()

    def replace_ended(self, engine: Engine, now: float) -> None:
        """Jobs that have done their work end, and as many others come."""
        view = engine.view(now)
        for job_index in view.job_indices[np.flatnonzero(view.done >= view.steps)].tolist():
            engine.handle(Finished(now, job_index))
        while len(engine.active_jobs) < self._active:
            engine.handle(Submitted(now, replace(next(self._jobs), id=str(next(self._ids)), submit_s=now)))


def _carry_out(engine: Engine, now: float, decisions: list[Decision]) -> int:
    """At once, as decided and at the speed that was expected; returns the number of starts and stops."""
    todo, changes, view = deque(decisions), 0, engine.view(now)
    done = dict(zip(view.job_indices.tolist(), view.done.tolist(), strict=True))
    while todo:
        decision, changes = todo.popleft(), changes + 1
        job_index = decision.job_index
        if isinstance(decision, Start):
            rate = engine.speed(job_index).steps_per_s
            todo.extend(engine.handle(Started(now, job_index, rate, now)))
        else:
            todo.extend(engine.handle(Stopped(now, job_index, done[job_index])))
    return changes
