"""The least average JCT that any scheduler could have, to say how far from optimal a policy is.

A linear program over jobs, GPU types and slots of time in which more is allowed than in any cluster: GPUs of a type are
one pool without nodes, gangs sit in the best place on the best chips, stops and moves are free, and all is known in
advance. Its minimum is below the average JCT of every schedule in which no two jobs share a GPU. Nothing is scheduled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.policy.shares.solver.highs import HighsSession, Program
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
    """On median chips, over that on the best type; 0 where a job cannot run."""
    best_chips: Floats
    """Slowdown of the slowest of the best chips of the type, at most 1."""
    pool: Floats
    """GPUs of each type, in median chips."""
    widths: tuple[float, ...] = (1.0,)
    """Gangs may be so many times as wide; the columns are the types at the first width, then at the second ..."""

    @property
    def gpus(self) -> Floats:
        """Of each gang by column."""
        found: Floats = self.gangs[:, None] * np.repeat(self.widths, len(self.pool))
        return found

    @property
    def pool_of(self) -> Ints:
        """The type of each column."""
        return np.tile(np.arange(len(self.pool)), len(self.widths))

    @property
    def top_speed(self) -> Floats:
        """On the best chips."""
        return self.speed / self.best_chips

    @property
    def least_run_s(self) -> Floats:
        """Run time on the best chips of the best type."""
        found: Floats = self.work_s / self.top_speed.max(axis=1)
        return found


def pooled_jobs(jobs: Sequence[Job], perf: PerfModel) -> PooledJobs:
    """What the bound needs to know of jobs that the cluster can hold."""
    cluster, n = perf.cluster, len(jobs)
    type_of = np.array([cluster.types.index(cluster.nodes[node].gpu_type) for node in cluster.node_of])
    slowdown = {c: np.array(perf.variability.slowdown(c)) for c in sorted({job.app_class for job in jobs})}
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


def elastic(jobs: PooledJobs, efficiency: float) -> PooledJobs:
    """The same jobs where each may run on half or twice its GPUs, too, from one moment to the next.

    Twice as many GPUs are 2 x ``efficiency`` times as fast, half as many 1 / (2 x efficiency) times. Chips of the gang
    count as for its own width.
    """
    faster, widths = 2.0 * efficiency, (1.0, 0.5, 2.0)
    able = [np.ones_like(jobs.speed), (jobs.gangs % 2 == 0)[:, None], jobs.gangs[:, None] * 2 <= jobs.pool]
    speed = [jobs.speed * can * by for can, by in zip(able, (1.0, 1.0 / faster, faster), strict=True)]
    return replace(jobs, speed=np.hstack(speed), best_chips=np.tile(jobs.best_chips, 3), widths=widths)


def least_mean_jct_s(jobs: PooledJobs, slot_s: float) -> float:
    """A lower bound on the average JCT, seconds; the shorter the slots, the closer (and the larger the program).

    Any prices of GPUs give a valid bound (``_SlotProgram.bound_s``), so that neither the accuracy of the solver nor the
    slots that are left out of the program matter.
    """
    program = _SlotProgram(jobs, slot_s)
    return float((program.bound_s(program.prices()) - jobs.arrival_s.sum()) / len(jobs.arrival_s))


# -- when a job ends, given when and where its work is done ----------------------------------------------------------


@dataclass(frozen=True)
class _EndCuts:
    """Lower bounds on the end of a job, linear in the time it spends on each type; row: job, column: type c.

    A job that ends at C does its work on average at M. If it is done at speed S(u), u seconds before the end, then
    C - M = integral of u S(u) / work, which is least where the fastest type comes last. That is convex in the times d_t
    by type; its tangent where all work is done on type c is  sum of min(1, top_t / top_c) d_t - work / (2 top_c).
    M is counted from the beginning of slots, so that the mean time since then is added.
    """

    weight: Floats
    """(job, c, t): min(1, top_t / top_c), times the chips: per second on median chips; 0 where c cannot be used."""
    constant_s: Floats
    """-infinity where c cannot be used."""
    fastest_s: Floats
    """The cut of the best type alone: half the least run time, and the exact time since the beginning of slots."""

    @classmethod
    def of(cls, jobs: PooledJobs, slot_s: float) -> _EndCuts:
        top, work_s = jobs.top_speed, jobs.work_s
        usable = top > 0
        level = np.where(usable, top, 1.0)
        weight = np.minimum(1.0, top[:, None, :] / level[:, :, None]) * jobs.best_chips[:, None, :] * usable[:, :, None]
        # A run of d seconds lies slot/2 - slot^2/(8 d) after the beginnings of its slots, on average and at least; as
        # much is lost once more in the slot of the arrival, which is shorter. d: work on a type over its top speed.
        lost_s = (top.sum(axis=1) + top.max(axis=1)) * slot_s**2 / (8.0 * work_s)
        since_s = np.maximum(0.0, slot_s / 2.0 - lost_s)
        constant_s = np.where(usable, since_s[:, None] - work_s[:, None] / (2.0 * level), -np.inf)
        return cls(weight, constant_s, _after_mean_s(jobs, slot_s))


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


# -- the program -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prices:
    """Dual solution: what the sum of all ends gains per unit of each bound."""

    work: Floats
    """Seconds per second of work of each job."""
    pool: Floats
    """Per GPU-second, by slot and type."""
    cuts: Floats
    """Share of each cut in the end of a job, (job, c); the rest is that of the best type alone."""


class _SlotProgram:
    """Minimise the sum of ends. Columns: hours of a job in a slot on a type (on median chips), then what its end is
    above the cut of its best type. Rows: work, pools, own time in each slot, cuts."""

    def __init__(self, jobs: PooledJobs, slot_s: float) -> None:
        self._jobs, self._slot_s, self._cuts = jobs, slot_s, _EndCuts.of(jobs, slot_s)
        self._first = np.floor(jobs.arrival_s / slot_s).astype(np.int64)
        slowest = np.where(jobs.speed > 0, jobs.speed, np.inf).min(axis=1)
        # One after the other on the smallest pool, all jobs have ended by then.
        end_s = jobs.arrival_s.max() + (jobs.gpus.max(axis=1) * jobs.work_s / slowest).sum() / jobs.pool.min()
        self._count = int(np.ceil(end_s / slot_s)) + 1

    def prices(self) -> _Prices:
        """Of the program with the slots that matter; with more of them where a job does not end in those."""
        window = _FIRST_WINDOW
        while True:
            try:
                return self._solved(window)
            except InfeasibleError:
                if window * _LEAST_WINDOW_S > 2 * self._count * self._slot_s:
                    raise
                window *= 2.0

    def _solved(self, window: float) -> _Prices:
        session = HighsSession(1e-6, solver="ipm", run_crossover="off")
        duals = session.minimise(self._program(window)).duals
        n, types = self._jobs.speed.shape
        pools = len(self._jobs.pool)
        work, pool, cuts = duals[:n], duals[n : n + self._count * pools], duals[-n * types :]
        shares = np.maximum(0.0, cuts.reshape(n, types))
        shares = shares / np.maximum(1.0, shares.sum(axis=1))[:, None]
        return _Prices(work, np.maximum(0.0, -pool.reshape(self._count, pools)), shares)

    def _program(self, window: float) -> Program:
        jobs, slot_s, cuts = self._jobs, self._slot_s, self._cuts
        n, types = jobs.speed.shape
        pair_job, pair_slot = self._pairs(window)
        begin_s = np.maximum(pair_slot * slot_s, jobs.arrival_s[pair_job])
        job, t = np.repeat(pair_job, types), np.tile(np.arange(types), len(pair_job))
        speed, column = jobs.speed[job, t], np.arange(len(job))
        pools = len(jobs.pool)
        own_row = n + self._count * pools
        cut_row = own_row + len(pair_job)
        cut_job, above = np.repeat(np.arange(n), types), len(column) + np.arange(n)
        rows = [job, n + np.repeat(pair_slot, types) * pools + jobs.pool_of[t], own_row + column // types]
        values = [speed, jobs.gpus[job, t], jobs.best_chips[job, t]]
        rows += [cut_row + job * types + c for c in range(types)] + [cut_row + np.arange(n * types)]
        values += [-cuts.weight[job, c, t] for c in range(types)] + [np.ones(n * types)]
        columns = [column] * (3 + types) + [above[cut_job]]
        work_h, own_h = jobs.work_s / _HOUR_S, ((pair_slot + 1) * slot_s - begin_s) / _HOUR_S
        pool_h = np.tile(jobs.pool * slot_s / _HOUR_S, self._count)
        least_h = ((cuts.constant_s - cuts.fastest_s[:, None]) / _HOUR_S).ravel()
        no_limit = np.full(len(pool_h) + len(own_h), np.inf)
        return Program.of(
            np.concatenate([speed * np.repeat(begin_s, types) / jobs.work_s[job], np.ones(n)]),
            (rows, columns, values),
            np.concatenate([work_h, -no_limit, least_h]),
            np.concatenate([work_h, pool_h, own_h, np.full(n * types, np.inf)]),
            col_upper=np.concatenate([np.where(speed > 0, np.inf, 0.0), np.full(n, np.inf)]),
        )

    def _pairs(self, window: float) -> tuple[Ints, Ints]:
        """Job and slot, of all slots in the window of each job."""
        jobs = self._jobs
        length = np.ceil(window * (jobs.least_run_s + _LEAST_WINDOW_S) / self._slot_s).astype(np.int64) + 1
        length = np.minimum(length, self._count - self._first)
        pair_job = np.repeat(np.arange(len(length)), length)
        return pair_job, np.arange(length.sum()) - np.repeat(np.cumsum(length) - length - self._first, length)

    def bound_s(self, prices: _Prices) -> float:
        """The dual function over all slots, for any prices: no sum of ends is below it (weak duality).

        Each job does its work where that gains most at these prices, whatever the others do.
        """
        jobs, slot_s, cuts = self._jobs, self._slot_s, self._cuts
        above_s = np.where(prices.cuts > 0, cuts.constant_s - cuts.fastest_s[:, None], 0.0)
        ends_s = cuts.fastest_s + (prices.cuts * above_s).sum(axis=1)
        per_s = (prices.cuts[:, :, None] * cuts.weight).sum(axis=1)
        # After that a job gains nothing from running, even on GPUs that cost nothing.
        slots = max(self._count, int(np.ceil((prices.work * jobs.work_s).max() / slot_s)) + 1)
        price = np.vstack([prices.pool, np.zeros((slots - self._count, len(jobs.pool)))])
        gpus, price = jobs.gpus, price[:, jobs.pool_of]
        total = float(ends_s.sum() + (prices.work * jobs.work_s).sum() - (prices.pool * jobs.pool).sum() * slot_s)
        for i, first in enumerate(self._first.tolist()):
            begin_s = np.maximum(np.arange(first, slots) * slot_s, jobs.arrival_s[i])
            own_s = np.arange(first + 1, slots + 1) * slot_s - begin_s
            worth = (prices.work[i] - begin_s / jobs.work_s[i])[:, None] * jobs.speed[i] - per_s[i]
            gain = (worth - gpus[i] * price[first:]) / jobs.best_chips[i]
            total -= float((own_s * np.maximum(0.0, gain.max(axis=1))).sum())
        return total
