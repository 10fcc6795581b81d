"""The least average JCT that any scheduler could have, to say how far from optimal a policy is.

A linear program over jobs, GPU types and slots of time in which more is allowed than in any cluster: GPUs of a type are
one pool without nodes, gangs sit in the best place on the best chips, stops and moves are free, and all is known in
advance. Its minimum is below the average JCT of every schedule in which no two jobs share a GPU. Nothing here schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.policy.shares.solver.highs import HighsSession, Optimum, Program
from trine.policy.shares.solver.polytope import InfeasibleError
from trine.policy.view import Floats, Ints

_HOUR_S = 3600.0
_FIRST_WINDOW = 8.0
"""Columns are made for so many times the run time of a job after its arrival; all other slots are priced afterwards."""
_LEAST_WINDOW_S = 6 * _HOUR_S


@dataclass(frozen=True)
class PooledJobs:
    """Jobs on pools of GPUs, by job (row) and GPU type (column).

    A gang on chips of slowdowns v runs at no more than the mean of max(1, 1/v) of its speed on median chips, so that a
    pool is worth the sum of that over its GPUs; a single gang is never faster than on the best chips for its class.
    """

    arrival_s: Floats
    work_s: Floats
    """On median chips of the best type, in the best place."""
    gangs: Ints
    speed: Floats
    """Over that on the best type; 0 where a job cannot run."""
    best_chips: Floats
    """Slowdown of the slowest of the best chips of the type, at most 1."""
    pool: Floats
    """GPUs of each type, in median chips."""

    @property
    def least_run_s(self) -> Floats:
        """Run time on the best chips of the best type."""
        found: Floats = self.work_s / (self.speed / self.best_chips).max(axis=1)
        return found


def pooled_jobs(jobs: Sequence[Job], perf: PerfModel) -> PooledJobs:
    """What the bound needs to know of jobs that the cluster can hold."""
    cluster, n = perf.cluster, len(jobs)
    type_of = np.array([cluster.types.index(cluster.nodes[node].gpu_type) for node in cluster.node_of])
    slowdown = {c: np.array(perf.variability.slowdown(c)) for c in {job.app_class for job in jobs}}
    gain = np.max([np.maximum(1.0, 1.0 / v) for v in slowdown.values()], axis=0)
    work_s = np.array([perf.ideal_s(job) for job in jobs])
    speed, best_chips = np.zeros((n, len(cluster.types))), np.ones((n, len(cluster.types)))
    for i, job in enumerate(jobs):
        step_s = perf.step_s_by_type(job)
        for t in perf.types_for(job):
            speed[i, t] = work_s[i] / (job.steps * step_s[t])
            best_chips[i, t] = min(1.0, np.sort(slowdown[job.app_class][type_of == t])[job.gpus - 1])
    return PooledJobs(
        np.array([job.submit_s for job in jobs]),
        work_s,
        np.array([job.gpus for job in jobs]),
        speed,
        best_chips,
        np.array([gain[type_of == t].sum() for t in range(len(cluster.types))]),
    )


def least_mean_jct_s(jobs: PooledJobs, slot_s: float) -> float:
    """A lower bound on the average JCT, seconds; the shorter the slots, the closer (and the larger the program).

    The program minimises the sum over jobs of the mean beginning of the slots in which their work is done. A job ends
    later than that by what ``_after_mean_s`` says at least. Any prices of GPUs give a valid bound, so that neither the
    accuracy of the solver nor the slots that are left out of the program matter.
    """
    slots = _Slots(jobs, slot_s)
    mean_begin_s = slots.bound_s(*slots.prices())
    return float((mean_begin_s + (_after_mean_s(jobs, slot_s) - jobs.arrival_s).sum()) / len(jobs.arrival_s))


def _after_mean_s(jobs: PooledJobs, slot_s: float) -> Floats:
    """Seconds by which a job ends, at least, after the mean beginning of the slots in which its work is done.

    They are fewest where it runs at full speed without a break up to its end, from its arrival or from the beginning of
    a slot on: half its run time, and the mean time since the beginning of a slot.
    """
    run_s = jobs.least_run_s
    first_s = slot_s - jobs.arrival_s % slot_s
    since_arrival = np.minimum(run_s, first_s) ** 2 + _squares(np.maximum(0.0, run_s - first_s), slot_s)
    found: Floats = run_s / 2.0 + np.minimum(since_arrival, _squares(run_s, slot_s)) / (2.0 * run_s)
    return found


def _squares(run_s: Floats, slot_s: float) -> Floats:
    """Sum of the squares of the times in each slot, for a run that begins with one."""
    whole = np.floor(run_s / slot_s)
    found: Floats = whole * slot_s**2 + (run_s - whole * slot_s) ** 2
    return found


class _Slots:
    """The program, in hours: columns are seconds of a job in a slot on a type; rows are work, pools and own time."""

    def __init__(self, jobs: PooledJobs, slot_s: float) -> None:
        self._jobs, self._slot_s = jobs, slot_s
        self._first = np.floor(jobs.arrival_s / slot_s).astype(np.int64)
        slowest = np.where(jobs.speed > 0, jobs.speed, np.inf).min(axis=1)
        # One after the other on the smallest pool, all jobs have ended by then.
        end_s = jobs.arrival_s.max() + (jobs.gangs * jobs.work_s / slowest).sum() / jobs.pool.min()
        self._count = int(np.ceil(end_s / slot_s)) + 1

    def prices(self) -> tuple[Floats, Floats]:
        """What the minimum gains per hour of work of each job, and per GPU-hour by slot and type."""
        n, (types,), window = len(self._jobs.work_s), self._jobs.pool.shape, _FIRST_WINDOW
        while True:
            try:
                found = self._solved(window)
                break
            except InfeasibleError:
                if window * _LEAST_WINDOW_S > 2 * self._count * self._slot_s:
                    raise
                window *= 2.0
        pools = found.duals[n : n + self._count * types].reshape(self._count, types)
        return found.duals[:n], np.maximum(0.0, -pools)

    def _solved(self, window: float) -> Optimum:
        session = HighsSession(1e-6, solver="ipm", run_crossover="off")
        return session.minimise(self._program(window))

    def _program(self, window: float) -> Program:
        jobs, slot_s, (types,) = self._jobs, self._slot_s, self._jobs.pool.shape
        n = len(jobs.work_s)
        length = np.ceil(window * (jobs.least_run_s + _LEAST_WINDOW_S) / slot_s).astype(np.int64) + 1
        length = np.minimum(length, self._count - self._first)
        pair_job = np.repeat(np.arange(n), length)
        pair_slot = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length - self._first, length)
        begin_s = np.maximum(pair_slot * slot_s, jobs.arrival_s[pair_job])
        job, t = np.repeat(pair_job, types), np.tile(np.arange(types), len(pair_job))
        speed, column = jobs.speed[job, t], np.arange(len(job))
        rows = [job, n + np.repeat(pair_slot, types) * types + t, n + self._count * types + column // types]
        values = [speed, jobs.gangs[job].astype(np.float64), jobs.best_chips[job, t]]
        work_h, own_h = jobs.work_s / _HOUR_S, ((pair_slot + 1) * slot_s - begin_s) / _HOUR_S
        pool_h = np.tile(jobs.pool * slot_s / _HOUR_S, self._count)
        return Program.of(
            speed * np.repeat(begin_s, types) / jobs.work_s[job],
            (rows, [column] * 3, values),
            np.concatenate([work_h, np.full(len(pool_h) + len(own_h), -np.inf)]),
            np.concatenate([work_h, pool_h, own_h]),
            col_upper=np.where(speed > 0, np.inf, 0.0),
        )

    def bound_s(self, work_price: Floats, pool_price: Floats) -> float:
        """The dual function over all slots, for any prices: no sum of mean beginnings is below it (weak duality).

        Each job does its work where that gains most at these prices, whatever the others do.
        """
        jobs, slot_s = self._jobs, self._slot_s
        # After its price a job gains nothing from running, even on GPUs that cost nothing.
        slots = max(self._count, int(np.ceil((work_price * jobs.work_s).max() / slot_s)) + 1)
        price = np.vstack([pool_price, np.zeros((slots - self._count, len(jobs.pool)))])
        total = float((work_price * jobs.work_s).sum() - (pool_price * jobs.pool).sum() * slot_s)
        for i, first in enumerate(self._first.tolist()):
            begin_s = np.maximum(np.arange(first, slots) * slot_s, jobs.arrival_s[i])
            own_s = np.arange(first + 1, slots + 1) * slot_s - begin_s
            gain = (work_price[i] - begin_s / jobs.work_s[i])[:, None] * jobs.speed[i] - jobs.gangs[i] * price[first:]
            total -= float((own_s * np.maximum(0.0, (gain / jobs.best_chips[i]).max(axis=1))).sum())
        return total
