"""What shares would give if GPUs could be divided without rounds: every job makes its effective throughput all the
time. Shows what rounds cost (or gain: they hand out what the shares leave idle). No GPUs are assigned here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.prices import HOUR_S
from trine.engine.engine import Engine
from trine.engine.table import JobTable
from trine.policy.rounds.share_rounds import ShareRounds
from trine.policy.view import Floats, View
from trine.sim.recorder import Life, Recorder

DONE = 1e-9
"""A job with this part of its steps left has finished."""


def flow(
    engine: Engine, jobs: Iterator[Job], tracked: int, recorder: Recorder, progress: Callable[[int], None] | None
) -> tuple[float, int]:
    """Runs until ``tracked`` jobs have finished; returns when that was and how often shares were computed."""
    if not isinstance(engine.policy, ShareRounds):
        raise InputError(
            "--set", f"ideal with the policy {engine.policy.name}", "a policy that computes shares", "ideal"
        )
    if engine.policy.estimates is not None:
        raise InputError(
            "--set", "references with ideal", "one of the two: only what runs in rounds is observed", "ideal"
        )
    fluid = _Fluid(engine, engine.policy, recorder)
    coming = next(jobs, None)
    fluid.now = coming.submit_s if coming else 0.0
    while tracked:
        while coming is not None and coming.submit_s <= fluid.now:
            fluid.add(coming)
            coming = next(jobs, None)
        fluid.share()
        ended = fluid.advance(coming.submit_s if coming else math.inf)
        tracked -= ended
        if progress and ended:
            progress(ended)
    return fluid.now, fluid.solved


class _Fluid:
    """The jobs present, and how fast each flows."""

    def __init__(self, engine: Engine, policy: ShareRounds, recorder: Recorder) -> None:
        self.engine, self.policy, self.recorder = engine, policy, recorder
        self.table = JobTable()
        self.active: list[int] = []
        self.now = 0.0
        self.solved = 0
        cluster = engine.cluster
        self.capacity = list(cluster.gpus_by_type.values())

    def add(self, job: Job) -> None:
        perf = self.engine.perf
        slot = self.table.add(job, perf.ideal_s(job), perf.types_for(job), perf.step_s_by_type(job))
        self.recorder.lives.append(Life(job, float(self.table.ideal_s[slot])))
        self.active.append(slot)

    def share(self) -> None:
        """Compute the shares for the jobs present."""
        self.rate: Floats = np.zeros(0)
        if self.active:
            slots = np.array(self.active, np.int64)
            view = View(self.now, slots, self.table, self.capacity, self.capacity, self.engine.compat)
            self.rate, self.part = self.policy.fluid(view)
            self.solved += 1

    def advance(self, until_s: float) -> int:
        """On to the next arrival, completion or change of prices; returns how many tracked jobs ended."""
        slots = np.array(self.active, np.int64)
        left = self.table.steps[slots] - self.table.done[slots]
        lasts = np.divide(left, self.rate, out=np.full(len(slots), np.inf), where=self.rate > 0)
        until_s = min(until_s, self.policy.wakes_s if self.active else math.inf)
        wait_s = min(float(lasts.min(initial=np.inf)), until_s - self.now)
        if wait_s == math.inf:
            raise InputError("sim", "jobs that get no share although nothing else happens", "another policy", "ideal")
        self.table.done[slots] += self.rate * wait_s
        self._book(slots.tolist(), wait_s)
        self.now += wait_s
        over = self.table.steps[slots] - self.table.done[slots] <= DONE * self.table.steps[slots]
        return sum(self._finish(slot) for slot in slots[over].tolist())

    def _prices_per_s(self, wait_s: float) -> Floats:
        """Per GPU and second by type, on average over the next ``wait_s`` seconds."""
        prices, types = self.engine.cluster.prices, self.engine.cluster.types
        return np.array([prices.mean(t, self.now, self.now + wait_s) or 0.0 for t in types]) / HOUR_S

    def _book(self, slots: list[int], wait_s: float) -> None:
        prices = self._prices_per_s(wait_s)
        for slot, rate, part in zip(slots, self.rate.tolist(), self.part if slots else (), strict=True):
            life = self.recorder.lives[slot]
            if rate > 0 and life.start_s < 0:
                life.start_s = self.now
            held_s = float(part.sum()) * wait_s
            life.held_s += held_s
            self.recorder.busy_gpu_s += held_s * life.job.gpus
            cost = float(part @ prices) * wait_s * life.job.gpus
            life.cost += cost
            self.recorder.cost += cost

    def _finish(self, slot: int) -> bool:
        life = self.recorder.lives[slot]
        life.finish_s, life.done = self.now, life.job.steps
        self.active.remove(slot)
        return life.job.tracked
