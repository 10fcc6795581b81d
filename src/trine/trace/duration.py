"""How long jobs run: a published duration curve, tied to job size by where the GPU time is known to go.

Published figures give the durations of all jobs together, and how GPU time divides among job sizes. Both are kept: a
job of size group g draws a rank from a normal law shifted by ``shifts[g]``; the ranks of all groups together are
uniform, so the duration curve holds exactly, and the shifts are solved so that each group gets its GPU time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from trine.core.sums import rows_times
from trine.trace.workload import Cdf, Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SHIFT_MAX = 6.0
_STEPS = 400
_DAMPING = 0.4
_TOLERANCE = 1e-3
_GRID = np.arange(-9.0 - _SHIFT_MAX, 9.0 + _SHIFT_MAX, 0.01)


def quantile_s(curve: Cdf, rank: Floats) -> Floats:
    """The duration in seconds at each rank in [0, 1]: linear in log time between the points of the curve."""
    seconds: Floats = np.exp(np.interp(rank, curve.cdf, np.log(curve.x)))
    return seconds


@dataclass(frozen=True, slots=True)
class DurationModel:
    """Draws durations given sizes."""

    curve: Cdf
    bounds: tuple[float, ...]
    """Largest size of each group, GPUs."""
    jobs: Floats
    """Fraction of jobs in each group."""
    shifts: Floats

    def durations_s(self, gpus: Ints, uniform: Floats) -> Floats:
        """Whole seconds, at least 1, for jobs of these sizes, from one uniform number per job."""
        group = np.searchsorted(self.bounds, gpus)
        seconds = quantile_s(self.curve, _rank(self.shifts[group] + ndtri(uniform), self.jobs, self.shifts))
        # Rounding up keeps the curve exact at whole seconds; the small term forgives exp(log(x)) > x.
        whole: Floats = np.maximum(1.0, np.ceil(seconds - 1e-9 * seconds))
        return whole

    def group_means_s(self) -> Floats:
        """Mean duration of each size group, before rounding to whole seconds."""
        return _group_means_s(self.curve, self.jobs, self.shifts)


def fit_durations(workload: Workload) -> DurationModel:
    """Solve the shifts. A group whose GPU time is out of reach of the curve gets the largest shift allowed."""
    jobs, gpus_per_job = _groups(workload)
    wanted = _wanted_means_s(workload, jobs, gpus_per_job)
    shifts = np.zeros(len(jobs))
    for _ in range(_STEPS):
        error = np.log(wanted / _group_means_s(workload.durations, jobs, shifts))
        if np.max(np.abs(error)) < _TOLERANCE:
            break
        shifts = np.clip(shifts + _DAMPING * error, -_SHIFT_MAX, _SHIFT_MAX)
        shifts -= np.sum(jobs * shifts)
    return DurationModel(workload.durations, workload.gpu_time.x, jobs, shifts)


def _groups(workload: Workload) -> tuple[Floats, Floats]:
    """Per size group: the fraction of jobs and the mean GPUs of a job."""
    sizes, mass = np.array(workload.sizes.x), np.array(workload.sizes.mass)
    group = np.searchsorted(workload.gpu_time.x, sizes)
    jobs: Floats = np.bincount(group, weights=mass).astype(np.float64)
    return jobs, np.bincount(group, weights=mass * sizes) / jobs


def _wanted_means_s(workload: Workload, jobs: Floats, gpus_per_job: Floats) -> Floats:
    """Mean duration of each group that yields the published GPU time, under the mean of the whole curve."""
    relative = np.array(workload.gpu_time.mass) / (jobs * gpus_per_job)
    mean = _group_means_s(workload.durations, np.ones(1), np.zeros(1))[0]
    wanted: Floats = relative * (mean / np.sum(jobs * relative))
    return wanted


def _rank(z: Floats, jobs: Floats, shifts: Floats) -> Floats:
    """Rank of ``z`` among all jobs: the mixture's own distribution function, so ranks are uniform."""
    rank: Floats = np.sum([share * ndtr(z - shift) for share, shift in zip(jobs, shifts, strict=True)], axis=0)
    return np.minimum(rank, 1.0)


def _group_means_s(curve: Cdf, jobs: Floats, shifts: Floats) -> Floats:
    seconds = quantile_s(curve, _rank(_GRID, jobs, shifts))
    density = np.exp(-0.5 * (_GRID[None, :] - shifts[:, None]) ** 2)
    means: Floats = rows_times(density, seconds) / density.sum(axis=1)
    return means
