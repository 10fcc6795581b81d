"""Random placement: a uniform sample of the free GPUs, the floor that any placement should beat."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from trine.core.compat import Compat
from trine.core.job import Job
from trine.core.reason import Reason
from trine.perf.model import PerfModel
from trine.placement.base import Placement, too_few
from trine.placement.free import FreePool


@dataclass
class Random(Placement):
    """Any free GPUs, with equal chance for each."""

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "uniform sample of the free GPUs"
    paper: ClassVar[str] = "PAL (SC'24), baselines Random-Sticky and Random-Non-Sticky"
    repeatable: ClassVar[bool] = False

    def prepare(self, perf: PerfModel, rng: random.Random, compat: Compat) -> None:  # noqa: ARG002
        self._rng = rng

    def place(self, job: Job, pool: FreePool) -> list[int] | Reason:
        if pool.total < job.gpus:
            return too_few(job, pool)
        return sorted(self._rng.sample(pool.gpus(), job.gpus))
