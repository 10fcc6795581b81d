"""The baseline people would try first: leave the slow GPUs alone and pack the rest."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.perf.bins import outliers
from trine.perf.model import PerfModel
from trine.placement.packed import Packed


@dataclass
class ExcludeOutliers(Packed):
    """Packed placement that never uses GPUs which are flagged slow for any class.

    Slow is what an operator would pull from service: an outlier (three standard deviations above the mean) that is at
    least ``slower_than`` times slower than the median. The excluded GPUs count as missing: a job that needs them can
    never run.
    """

    name: ClassVar[str] = "exclude-outliers"
    title: ClassVar[str] = "packed, without the GPUs flagged slow"
    paper: ClassVar[str] = ""
    reads_chips: ClassVar[bool] = True

    slower_than: float = param(1.1, "outliers below this slowdown stay in service", minimum=1)

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:  # noqa: ARG002
        self._perf = perf

    def excluded(self) -> frozenset[int]:
        table = self._perf.variability
        found: set[int] = set()
        for app_class in table.classes:
            values = np.asarray(table.slowdown(app_class))
            found.update(np.flatnonzero(outliers(values) & (values >= self.slower_than)).tolist())
        return frozenset(found)
