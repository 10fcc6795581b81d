"""Random placement: a uniform sample of the free GPUs, the floor that any placement should beat."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from trine.core.cluster import Tier
from trine.core.reason import Reason
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement, no_room, too_few
from trine.placement.free_index import FreePool, bits


@dataclass
class Random(Placement):
    """Any free GPUs, with equal chance for each; within a node or a rack if they must be, each with room alike."""

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "uniform sample of the free GPUs"
    paper: ClassVar[str] = "PAL (SC'24), baselines Random-Sticky and Random-Non-Sticky"
    repeatable: ClassVar[bool] = False
    relocates: ClassVar[bool] = False  # type: ignore[misc]  # no instance differs

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:  # noqa: ARG002
        self._rng = rng

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        count = ask.job.gpus
        if pool.total < count:
            return too_few(ask.job, pool)
        if ask.widest == Tier.NETWORK or count == 1:
            return sorted(self._rng.sample(pool.gpus(), count))
        units = [1 << node for node in bits(pool.nodes_having(count))]
        if ask.widest >= Tier.RACK:
            units = [rack for rack in pool.rack_nodes if pool.free_in(rack) >= count]
        return sorted(self._rng.sample(pool.gpus(self._rng.choice(units)), count)) if units else no_room(ask, pool)
