"""Adds up runs of jobs, many at once: GPU-seconds by type and tier, and where the time of each job's work went.

A run may have millions of parts, so that adding each to every total would show in the time a simulation takes. Sums are
taken in the order of the parts: how many are added at once does not change a bit of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trine.core.cluster import Cluster, Tier
from trine.core.sums import Floats

Ints = NDArray[np.int64]
RUN_PART = 11
"""Numbers that describe a part of a run at one speed: job index, ideal seconds and steps of the whole job, first GPU,
GPU-seconds for which GPUs were busy, steps that were kept, and steps/s, chip, network, sharing and tier of the speed.
They are kept one after the other in one list: the garbage collector would look at a tuple per part again and again."""


class WorkParts(NamedTuple):
    """Seconds of work of a job that was kept, and the parts of it, as in ``JobTime``; the rest is due to sharing."""

    work_s: float
    ideal_s: float
    type_s: float
    chip_s: float
    network_s: float


class RunTotals:
    """Totals of the parts added so far."""

    def __init__(self, cluster: Cluster) -> None:
        self.busy_gpu_s = 0.0
        self.busy_by_type: dict[str, float] = {}
        """The same by GPU type, as far as a type was used."""
        self.held_by_tier = [0.0] * len(Tier)
        """The same by tier."""
        self._types = cluster.types
        self._type_of = np.array([cluster.types.index(cluster.type_of(gpu)) for gpu in range(cluster.gpu_count)])
        self._work = np.zeros((len(WorkParts._fields), 0))
        """By job index, a row per field of ``WorkParts``."""

    def add(self, numbers: Sequence[float]) -> None:
        """Count parts of runs, ``RUN_PART`` numbers each, on top of those before them."""
        if not numbers:
            return
        columns = np.array(numbers, np.float64).reshape(-1, RUN_PART).T
        jobs, ideal_s, job_steps, gpus, busy_gpu_s, steps, rate, chip, network, sharing, tier = columns
        self._add_busy(busy_gpu_s, gpus, tier)
        work_s, ideal_s = np.maximum(steps, 0.0) / rate, np.maximum(steps, 0.0) * ideal_s / job_steps
        self._add_work(jobs.astype(np.int64), work_s, ideal_s, sharing, *_factors(chip, network))

    def work_parts(self, jobs: int) -> Iterator[WorkParts | None]:
        """Of the first ``jobs`` jobs, in order; ``None``: no work of the job was kept."""
        self._make_room(jobs)
        for work_s, *parts_s in zip(*self._work[:, :jobs].tolist(), strict=True):
            yield WorkParts(work_s, *parts_s) if work_s else None

    def _add_busy(self, busy_gpu_s: Floats, gpus: Floats, tiers: Floats) -> None:
        self.busy_gpu_s = _add_up(self.busy_gpu_s, busy_gpu_s)
        types = self._type_of[gpus.astype(np.int64)]
        for type_index in np.unique(types).tolist():
            name, of_type = self._types[type_index], busy_gpu_s[types == type_index]
            self.busy_by_type[name] = _add_up(self.busy_by_type.get(name, 0.0), of_type)
        for tier in Tier:
            self.held_by_tier[tier] = _add_up(self.held_by_tier[tier], busy_gpu_s[tiers == tier])

    def _add_work(
        self, jobs: Ints, work_s: Floats, ideal_s: Floats, sharing: Floats, chip: Floats, network: Floats
    ) -> None:
        """Split the seconds of work: each factor on top of those before it."""
        self._make_room(int(jobs.max()) + 1)
        on_type_s = work_s / (chip * network * sharing)
        parts = (work_s, ideal_s, on_type_s - ideal_s, on_type_s * (chip - 1.0), on_type_s * chip * (network - 1.0))
        for total, part in zip(self._work, parts, strict=True):
            np.add.at(total, jobs, part)

    def _make_room(self, jobs: int) -> None:
        """For so many jobs; twice as many as now at least, so that growing costs little."""
        there = self._work.shape[1]
        if jobs > there:
            self._work = np.pad(self._work, ((0, 0), (0, max(jobs, 2 * there) - there)))


def _factors(chip: Floats, network: Floats) -> tuple[Floats, Floats]:
    """Slowdowns by chip and network that add to each other.

    Next to a slow chip a network factor below 1 means that communication hides it: what is left is the chip's.
    """
    hidden = (network < 1.0) & (chip > 1.0)
    if not hidden.any():
        return chip, network
    both = chip * network
    left = np.maximum(1.0, both)
    return np.where(hidden, left, chip), np.where(hidden, both / left, network)


def _add_up(total: float, values: Floats) -> float:
    """The sum in the order of the values; numpy's ``sum`` adds in another one."""
    return float(np.add.accumulate(np.concatenate(((total,), values)))[-1])
