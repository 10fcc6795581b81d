"""PAL: chip variability and locality together, by walking the L x V matrix in ascending product."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from trine.core.cluster import Tier
from trine.core.job import Job
from trine.core.reason import Reason
from trine.perf.model import PerfModel
from trine.placement.base import Ask, no_room, too_few
from trine.placement.free_index import FreePool
from trine.placement.pm_first import PmFirst
from trine.placement.scored import ScoredPool


class _Walk(NamedTuple):
    """The entries of the L x V matrix in the order in which they are tried."""

    ranks: dict[Tier, list[int]]
    """By tier and bin: rank of the entry in the walk."""
    first_apart: int
    """Rank of the first entry beyond a single node."""


@dataclass
class Pal(PmFirst):
    """The GPUs that minimise tier penalty x worst PM score, over all tiers (node, rack, network) and all free GPUs.

    Every entry of the matrix is a tier and a score bin; the first entry, in ascending product, that holds the gang
    wins. Inside it gangs span as few nodes as possible. As published (quirk ``pal_multi_node``) gangs that leave a
    node are placed by score alone.
    """

    name: ClassVar[str] = "pal"
    title: ClassVar[str] = "smallest tier penalty x worst chip score (L x V matrix)"
    paper: ClassVar[str] = "PAL (SC'24), L x V matrix"
    _walks: dict[tuple[str, str, tuple[float, ...]], _Walk] = field(default_factory=dict, init=False, repr=False)

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:
        super().prepare(perf, rng)
        self._walks = {}
        self._type_index = {gpu_type: index for index, gpu_type in enumerate(perf.cluster.types)}

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        job = ask.job
        count = job.gpus
        if pool.total < count:
            return too_few(job, pool)
        scored = self.scored(job, pool)
        if ask.widest < Tier.NETWORK and count > 1:
            return self.choose_within(ask, scored) or no_room(ask, pool)
        if count == 1 or (self.spans_nodes_by_score and count > pool.largest_node):
            return scored.by_score(count)
        tier, b = self._first_entry(count, scored, self._walk(scored, job))
        if tier is Tier.NODE:
            found = scored.on_one_node(count, b)
        elif self.spans_nodes_by_score:
            found = scored.by_score(count)
        else:
            found = scored.in_one_rack(count, b) if tier is Tier.RACK else scored.anywhere(count, b)
        return found or too_few(job, pool)

    def choose_within(self, ask: Ask, scored: ScoredPool) -> list[int] | None:
        """The walk over the tiers that the bound allows."""
        count, ranks = ask.job.gpus, self._walk(scored, ask.job).ranks
        lowest = {Tier.NODE: scored.node_bin_for(count)}
        if ask.widest >= Tier.RACK:
            lowest[Tier.RACK] = scored.rack_bin_for(count)
        entries = [(ranks[tier][b], tier, b) for tier, b in lowest.items() if b >= 0]
        if not entries:
            return None
        _, tier, b = min(entries)
        return scored.on_one_node(count, b) if tier is Tier.NODE else scored.in_one_rack(count, b)

    def _first_entry(self, count: int, scored: ScoredPool, walk: _Walk) -> tuple[Tier, int]:
        """Where the walk ends: in every tier the lowest bin that holds the gang comes first, so only those compete."""
        on_node = scored.node_bin_for(count)
        if on_node >= 0 and walk.ranks[Tier.NODE][on_node] < walk.first_apart:
            return Tier.NODE, on_node
        anywhere = scored.worst_bin_for(count)
        in_rack = scored.rack_bin_for(count) if Tier.NETWORK in walk.ranks else anywhere
        lowest = {Tier.NODE: on_node, Tier.RACK: in_rack, Tier.NETWORK: anywhere}
        _, tier, b = min([(ranks[lowest[t]], t, lowest[t]) for t, ranks in walk.ranks.items() if lowest[t] >= 0])
        return tier, b

    def _walk(self, scored: ScoredPool, job: Job) -> _Walk:
        """Tiers and bins by ascending product; the nearer tier and the better bin first among equals."""
        gpu_type = scored.pool.gpu_type
        by_model: tuple[float, ...] = ()
        if self._perf.network is not None:
            by_model = self._perf.tier_slowdowns(job, self._type_index[gpu_type])
        key = (gpu_type, job.app_class, by_model)
        known = self._walks.get(key)
        if known is None:
            penalty = by_model or self._perf.tier_slowdowns(job)
            several_racks = len(scored.racks) > 1 and not self.spans_nodes_by_score
            tiers = (Tier.NODE, Tier.RACK, Tier.NETWORK) if several_racks else (Tier.NODE, Tier.RACK)
            entries = sorted([(penalty[t] * score, t, b) for t in tiers for b, score in enumerate(scored.bins.scores)])
            ranks = {t: [rank for rank, entry in enumerate(entries) if entry[1] is t] for t in tiers}
            known = self._walks[key] = _Walk(ranks, min(ranks[t][0] for t in tiers[1:]))
        return known
