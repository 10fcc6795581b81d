"""PAL: chip variability and locality together, by walking the L x V matrix in ascending product."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar

from trine.core.cluster import Tier
from trine.core.compat import Compat
from trine.core.job import Job
from trine.core.reason import Reason
from trine.perf.model import PerfModel
from trine.placement.base import too_few
from trine.placement.free import FreePool
from trine.placement.pm_first import PmFirst
from trine.placement.scored import ScoredPool


@dataclass
class Pal(PmFirst):
    """The GPUs that minimise tier penalty x worst PM score, over all tiers (node, rack, network) and all free GPUs.

    Every entry of the matrix is a tier and a score bin; the first entry, in ascending product, that holds the gang
    wins. Inside it gangs span as few nodes as possible. With ``compat.pal_multi_node`` gangs that leave a node are
    placed by score alone, as published.
    """

    name: ClassVar[str] = "pal"
    title: ClassVar[str] = "smallest tier penalty x worst chip score (L x V matrix)"
    paper: ClassVar[str] = "PAL (SC'24), L x V matrix"
    _matrix: dict[tuple[str, str], list[tuple[Tier, int]]] = field(default_factory=dict, init=False, repr=False)

    def prepare(self, perf: PerfModel, rng: random.Random, compat: Compat) -> None:
        super().prepare(perf, rng, compat)
        self._matrix = {}

    def place(self, job: Job, pool: FreePool) -> list[int] | Reason:
        if pool.total < job.gpus:
            return too_few(job, pool)
        scored = self.scored(job, pool)
        if job.gpus == 1:
            return scored.by_score(1)
        if self._compat.pal_multi_node and job.gpus > pool.largest_node:
            return scored.by_score(job.gpus)
        for tier, b in self._entries(scored, job.app_class):
            found = self._at(tier, b, job.gpus, scored)
            if found:
                return found
        return too_few(job, pool)

    def _at(self, tier: Tier, b: int, count: int, scored: ScoredPool) -> list[int] | None:
        """GPUs inside one unit of ``tier``, none worse than bin ``b``."""
        if tier is Tier.NODE:
            return scored.on_one_node(count, b)
        if self._compat.pal_multi_node:
            return scored.by_score(count) if scored.free_up_to(b) >= count else None
        return scored.in_one_rack(count, b) if tier is Tier.RACK else scored.anywhere(count, b)

    def _entries(self, scored: ScoredPool, app_class: str) -> list[tuple[Tier, int]]:
        """Tiers and bins by ascending product; the nearer tier and the better bin first among equals."""
        key = (scored.pool.gpu_type, app_class)
        if key not in self._matrix:
            penalty = self._perf.penalty.by_tier(app_class)
            several_racks = len(scored.racks) > 1 and not self._compat.pal_multi_node
            tiers = (Tier.NODE, Tier.RACK, Tier.NETWORK) if several_racks else (Tier.NODE, Tier.RACK)
            entries = [(penalty[t] * score, t, b) for t in tiers for b, score in enumerate(scored.bins.scores)]
            self._matrix[key] = [(t, b) for _, t, b in sorted(entries)]
        return self._matrix[key]
