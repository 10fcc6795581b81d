"""What shares would give if GPUs could be divided without rounds: every job makes its effective throughput all the
time. Shows what rounds cost (or gain: they hand out what the shares leave idle). No GPUs are assigned here.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator

import numpy as np

from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.prices import HOUR_S
from trine.core.sums import dot
from trine.engine.engine import Engine
from trine.engine.job_table import JobTable
from trine.policy.shares.rounds.mechanism import ShareRounds
from trine.policy.view import Floats, View
from trine.sim.eligibility import Eligibility
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
        self.eligibility = Eligibility()
        self.now = 0.0
        self.solved = 0
        cluster = engine.cluster
        self.capacity = list(cluster.gpus_by_type.values())

    def add(self, job: Job) -> None:
        perf = self.engine.perf
        job_index = self.table.add(job, perf.ideal_s(job), perf.types_for(job), perf.step_s_by_type(job))
        self.recorder.lives.append(Life(job, float(self.table.ideal_s[job_index]), job_index, job.steps))
        if not self.eligibility.submitted(job_index, job):
            self.active.append(job_index)

    def share(self) -> None:
        """Compute the shares for the jobs present."""
        self.rate: Floats = np.zeros(0)
        if self.active:
            job_indices = np.array(self.active, np.int64)
            engine, capacity = self.engine, self.capacity
            rule = engine.remaining_time
            view = View(self.now, job_indices, self.table, capacity, capacity, remaining_time=rule)
            self.rate, self.part = self.policy.fluid(view)
            self.solved += 1

    def advance(self, until_s: float) -> int:
        """On to the next arrival, completion or change of prices; returns how many tracked jobs ended."""
        job_indices = np.array(self.active, np.int64)
        left = self.table.steps[job_indices] - self.table.done[job_indices]
        lasts = np.divide(left, self.rate, out=np.full(len(job_indices), np.inf), where=self.rate > 0)
        until_s = min(until_s, self.policy.wakes_s if self.active else math.inf)
        wait_s = min(float(lasts.min(initial=np.inf)), until_s - self.now)
        if wait_s == math.inf:
            raise InputError("sim", "jobs that get no share although nothing else happens", "another policy", "ideal")
        self.table.done[job_indices] += self.rate * wait_s
        self._book(job_indices.tolist(), wait_s)
        self.now += wait_s
        over = self.table.steps[job_indices] - self.table.done[job_indices] <= DONE * self.table.steps[job_indices]
        return sum(self._finish(job_index) for job_index in job_indices[over].tolist())

    def _prices_per_s(self, wait_s: float) -> Floats:
        """Per GPU and second by type, on average over the next ``wait_s`` seconds."""
        prices, types = self.engine.cluster.prices, self.engine.cluster.types
        return np.array([prices.mean(t, self.now, self.now + wait_s) or 0.0 for t in types]) / HOUR_S

    def _book(self, job_indices: list[int], wait_s: float) -> None:
        prices = self._prices_per_s(wait_s)
        for job_index, rate, part in zip(
            job_indices, self.rate.tolist(), self.part if job_indices else (), strict=True
        ):
            life = self.recorder.lives[job_index]
            if rate > 0 and life.start_s < 0:
                life.start_s = self.now
            held_s = float(part.sum()) * wait_s
            life.held_s += held_s
            self.recorder.totals.busy_gpu_s += held_s * life.job.gpus
            self._book_types(part * (wait_s * life.job.gpus))
            self.recorder.cost += dot(part, prices) * wait_s * life.job.gpus

    def _book_types(self, gpu_s: Floats) -> None:
        """GPU-seconds by type index."""
        busy = self.recorder.totals.busy_by_type
        for gpu_type, held in zip(self.engine.cluster.types, gpu_s.tolist(), strict=True):
            busy[gpu_type] = busy.get(gpu_type, 0.0) + held

    def _finish(self, job_index: int) -> bool:
        life = self.recorder.lives[job_index]
        life.finish_s, life.done = self.now, life.job.steps
        self.active.remove(job_index)
        for eligible in self.eligibility.ended(life.job):
            self.recorder.lives[eligible].eligible_s = self.now
            bisect.insort(self.active, eligible)
        return life.job.tracked
