"""Always consolidate: a gang takes the fewest nodes that an empty cluster would give it, or waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from trine.core.cluster import Tier
from trine.core.job import Job
from trine.core.params import param
from trine.core.reason import Reason, Why
from trine.placement.base import Ask, has_room, no_room
from trine.placement.free_index import FreePool, bits
from trine.placement.packed import Packed


class Extent(NamedTuple):
    """How far the GPUs of a gang are spread."""

    tier: Tier
    nodes: int


@dataclass
class Consolidate(Packed):
    """As ``packed``, but a gang that would get more nodes or racks than it has to waits until it gets the fewest.

    What the fewest are is found on the same GPUs, were all of them free. With ``max_wait_s`` the wait has an end.
    """

    name: ClassVar[str] = "consolidate"
    title: ClassVar[str] = "the fewest nodes or none: waits for them"
    paper: ClassVar[str] = "Tiresias (NSDI'19), section 3.3, for all jobs"

    max_wait_s: float = param(2_592_000.0, "seconds after which a job takes what there is", minimum=0)
    _fewest: dict[tuple[str, int, tuple[tuple[int, int], ...]], Extent | None] = field(
        default_factory=dict, init=False, repr=False
    )

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        count = ask.job.gpus
        if count == 1 or ask.relocating or ask.waited_s >= self.max_wait_s or pool.total < count:
            return super().place(ask, pool)
        fewest = self._fewest_for(count, pool)
        if fewest is None or ask.widest < fewest.tier:
            return super().place(ask, pool)
        found = super().place(ask.within(fewest.tier), pool)
        if isinstance(found, list) and extent(found, pool) <= fewest:
            return found
        return self._wait(ask, fewest, pool) if has_room(count, ask.widest, pool) else no_room(ask, pool)

    def _fewest_for(self, gpus: int, pool: FreePool) -> Extent | None:
        """What a gang of ``gpus`` gets if all GPUs in service are free; ``None``: there are too few of them."""
        key = pool.gpu_type, gpus, tuple(sorted(pool.cordoned.items()))
        if key not in self._fewest:
            found = super().place(Ask(_gang(gpus)), _emptied(pool))
            self._fewest[key] = None if isinstance(found, Reason) else extent(found, pool)
        return self._fewest[key]

    def _wait(self, ask: Ask, fewest: Extent, pool: FreePool) -> Reason:
        within = f" of one {fewest.tier.label}" if fewest.tier is Tier.RACK else ""
        wanted = "1 node" if fewest.nodes == 1 else f"{fewest.nodes} nodes{within}"
        return Reason(
            Why.WAITS,
            f"job {ask.job.id} waits for its {ask.job.gpus} GPUs on {wanted}; "
            f"the {pool.total} that are free are further apart.",
            {"needed": ask.job.gpus, "free": pool.total, "fewest_nodes": fewest.nodes},
            f"It takes what there is after {self.max_wait_s:.0f} s of waiting.",
            ask.idle_from_s + self.max_wait_s,
        )


def extent(gpus: list[int], pool: FreePool) -> Extent:
    """Tier and number of nodes of a gang."""
    nodes = {pool.node_of[gpu] for gpu in gpus}
    return Extent(pool.cluster.tier_of_nodes(nodes), len(nodes))


def _gang(gpus: int) -> Job:
    return Job("", 0.0, gpus, 1.0)


def _emptied(pool: FreePool) -> FreePool:
    """The same GPUs, those in service all free."""
    empty = FreePool(pool.cluster, pool.gpu_type)
    for node, mask in pool.cordoned.items():
        for i in bits(mask):
            empty.cordon(pool.first_gpu[node] + i)
    return empty
