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
from trine.perf.model import Speed

RunPart = tuple[int, float, float, Speed, int, float, float]
"""Part of a run at one speed: job index, ideal seconds and steps of the whole job, speed, first GPU, GPU-seconds for
which GPUs were busy, steps that were kept."""


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
        self._cluster = cluster
        self._only_type = cluster.types[0] if len(cluster.types) == 1 else ""
        self._work = np.zeros((len(WorkParts._fields), 0))
        """By job index, a row per field of ``WorkParts``."""

    def add(self, parts: Sequence[RunPart]) -> None:
        """Count ``parts`` on top of those before them."""
        if not parts:
            return
        jobs, ideal_s, job_steps, speeds, gpus, busy_gpu_s, steps = zip(*parts, strict=True)
        self._add_busy(np.array(busy_gpu_s), gpus, speeds)
        self._add_work(np.array(jobs), np.maximum(steps, 0.0), np.array(ideal_s), np.array(job_steps), speeds)

    def work_parts(self, jobs: int) -> Iterator[WorkParts | None]:
        """Of the first ``jobs`` jobs, in order; ``None``: no work of the job was kept."""
        self._make_room(jobs)
        for work_s, *parts_s in zip(*self._work[:, :jobs].tolist(), strict=True):
            yield WorkParts(work_s, *parts_s) if work_s else None

    def _add_busy(self, busy_gpu_s: Floats, gpus: Sequence[int], speeds: Sequence[Speed]) -> None:
        self.busy_gpu_s = _add_up(self.busy_gpu_s, busy_gpu_s)
        types = np.array([self._only_type] if self._only_type else [self._cluster.type_of(gpu) for gpu in gpus])
        for gpu_type in dict.fromkeys(types.tolist()):
            of_type = busy_gpu_s if self._only_type else busy_gpu_s[types == gpu_type]
            self.busy_by_type[gpu_type] = _add_up(self.busy_by_type.get(gpu_type, 0.0), of_type)
        tiers = np.array([speed.tier for speed in speeds])
        for tier in Tier:
            self.held_by_tier[tier] = _add_up(self.held_by_tier[tier], busy_gpu_s[tiers == tier])

    def _add_work(
        self, jobs: NDArray[np.int64], steps: Floats, ideal_s: Floats, job_steps: Floats, speeds: Sequence[Speed]
    ) -> None:
        """Split the seconds that ``steps`` took: each factor on top of those before it."""
        self._make_room(int(jobs.max()) + 1)
        rate, chip, network, _, sharing, _ = np.array(speeds).T
        chip, network = _factors(chip, network)
        work_s, ideal_s = steps / rate, steps * ideal_s / job_steps
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
