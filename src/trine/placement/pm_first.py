"""PM-First: the best chips for the job's class, wherever they are."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from trine.core.cluster import Tier
from trine.core.job import Job
from trine.core.reason import Reason
from trine.perf.bins import Bins, pm_bins
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement, no_room, too_few
from trine.placement.free_index import FreePool
from trine.placement.scored import ScoredPool

ScoreBins = Callable[[Sequence[float]], Bins]
"""PM scores from the slowdowns of GPUs of one type for one class: how many bins there are, and the score of each."""


@dataclass
class PmFirst(Placement):
    """Free GPUs in order of their PM score for the job's class; among equals, nodes that the gang fills best.

    Gangs larger than a node take, among the GPUs that are no worse than the worst one they need, as few nodes as
    possible. Jobs at the head of the queue that fit together choose in order of their sensitivity.
    """

    name: ClassVar[str] = "pm-first"
    title: ClassVar[str] = "best chips for the job's class first, blind to locality"
    paper: ClassVar[str] = "PAL (SC'24), PM-First"
    by_class: ClassVar[bool] = True
    reads_chips: ClassVar[bool] = True
    weighs_moves: ClassVar[bool] = True
    score_bins: ScoreBins = field(default_factory=lambda: pm_bins, init=False, repr=False)
    spans_nodes_by_score: bool = field(default=False, init=False, repr=False)
    """Gangs that leave a node take the best chips on however many nodes, instead of as few nodes as possible."""
    _scored: dict[tuple[str, str], ScoredPool] = field(default_factory=dict, init=False, repr=False)

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:  # noqa: ARG002
        self._perf = perf
        self._scored = {}

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        job = ask.job
        if pool.total < job.gpus:
            return too_few(job, pool)
        scored = self.scored(job, pool)
        if ask.widest < Tier.NETWORK and job.gpus > 1:
            return self.choose_within(ask, scored) or no_room(ask, pool)
        if job.gpus <= pool.largest_node or self.spans_nodes_by_score:
            return scored.by_score(job.gpus)
        return scored.anywhere(job.gpus, scored.worst_bin_for(job.gpus)) or too_few(job, pool)

    def choose_within(self, ask: Ask, scored: ScoredPool) -> list[int] | None:
        """The node or rack, whichever is the bound, where the worst of the gang's chips is best."""
        count = ask.job.gpus
        if ask.widest >= Tier.RACK:
            return scored.in_one_rack(count, b) if (b := scored.rack_bin_for(count)) >= 0 else None
        return scored.on_one_node(count, b) if (b := scored.node_bin_for(count)) >= 0 else None

    def scored(self, job: Job, pool: FreePool) -> ScoredPool:
        """The index for the job's class, made when the class is first met."""
        key = (pool.gpu_type, self._perf.variability.class_of(job.app_class))
        found = self._scored.get(key)
        if found is None or found.pool is not pool:
            found = self._scored[key] = ScoredPool(pool, self._bins(key[1], pool))
        found.refresh()
        return found

    def _bins(self, app_class: str, pool: FreePool) -> Bins:
        """Bins over the GPUs of the pool, spread over all GPU ids."""
        slowdowns = self._perf.variability.slowdown(app_class)
        cluster = pool.cluster
        mine = [g for g in range(cluster.gpu_count) if cluster.type_of(g) == pool.gpu_type]
        found = self.score_bins([slowdowns[g] for g in mine])
        bin_of, outlier = [0] * cluster.gpu_count, [False] * cluster.gpu_count
        for i, g in enumerate(mine):
            bin_of[g], outlier[g] = found.bin_of[i], found.outlier[i]
        return Bins(tuple(bin_of), found.scores, tuple(outlier))

    def explain(self, job: Job, gpus: tuple[int, ...], pool: FreePool) -> str:
        if not self._perf.variability.classes:
            return ""  # nothing is known of the chips
        scored = self.scored(job, pool)
        worst = max(scored.bins.bin_of[g] for g in gpus)
        name = self._perf.variability.class_of(job.app_class)
        sentence = f"Slowest chip for class {name or 'unknown'}: score {scored.bins.scores[worst]:.3f}"
        aside = pool.total - scored.free_up_to(worst)
        if not aside:
            return f"{sentence}."
        slowest = max(s for s, free in zip(scored.bins.scores, scored.free_in_bin, strict=True) if free)
        return f"{sentence}; {aside} slower free GPU{'s' if aside > 1 else ''} (up to {slowest:.3f}) left aside."
