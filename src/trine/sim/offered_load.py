"""Offered load: the part of all GPU time that the jobs need as they arrive, served as sparingly as possible.

Above 1 no scheduler keeps up: the queue grows for as long as jobs arrive, and averages over a window of jobs say as
much about the window as about the policy. Where GPU types differ this is a linear program: every job does its work on
the types that suit it, so that the busiest type has as little to do as possible (the static planning problem of
queueing theory, Harrison and Lopez 1999).
"""

from __future__ import annotations

import numpy as np

from trine.policy.shares.solver.highs import HighsSession, Program
from trine.sim.jct_bound import PooledJobs


def offered_load(jobs: PooledJobs) -> float:
    """Least utilization of the busiest GPU type if all work is done within the span of the arrivals; 0 without a span.

    Gangs count by their GPUs alone, on the best chips in the best place: the true load is no lower.
    """
    span_s = float(jobs.arrival_s.max(initial=0.0) - jobs.arrival_s.min(initial=np.inf)) if len(jobs.work_s) else 0.0
    if span_s <= 0:
        return 0.0
    # Jobs that are alike in speed by type are one class; what they need in GPU-hours adds up.
    speeds, at = np.unique(jobs.speed, axis=0, return_inverse=True)
    work_h = np.bincount(at.ravel(), weights=jobs.gangs * jobs.work_s, minlength=len(speeds)) / 3600.0
    classes, types = speeds.shape
    row, column = np.repeat(np.arange(classes), types), np.arange(classes * types)
    load = classes * types  # the last column
    program = Program.of(
        np.concatenate([np.zeros(load), np.ones(1)]),
        (
            [row, classes + jobs.pool_of[column % types], classes + np.arange(types)],
            [column, column, np.full(types, load)],
            [speeds.ravel(), np.ones(load), -jobs.pool * span_s / 3600.0],
        ),
        np.concatenate([work_h, np.full(types, -np.inf)]),
        np.concatenate([work_h, np.zeros(types)]),
        col_upper=np.concatenate([np.where(speeds.ravel() > 0, np.inf, 0.0), np.full(1, np.inf)]),
    )
    return float(HighsSession().minimise(program).value)
