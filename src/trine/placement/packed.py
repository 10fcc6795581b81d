"""Packed placement: the fewest nodes, the least fragments, blind to chips and racks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trine.core.job import Job
from trine.core.reason import Reason
from trine.placement.base import Placement, too_few
from trine.placement.free import FreePool


@dataclass
class Packed(Placement):
    """Best fit: the node with the fewest free GPUs that still holds the whole gang, else the emptiest nodes in turn.

    With ``packed-sticky`` it stands for Tiresias-like, without for Gandiva-like consolidation.
    """

    name: ClassVar[str] = "packed"
    title: ClassVar[str] = "fewest nodes, best fit"
    paper: ClassVar[str] = "PAL (SC'24), baselines Packed-Sticky and Packed-Non-Sticky"

    def place(self, job: Job, pool: FreePool) -> list[int] | Reason:
        for count in range(job.gpus, pool.largest_node + 1):
            nodes = pool.nodes_with[count]
            if nodes:
                return pool.lowest((nodes & -nodes).bit_length() - 1, job.gpus)
        if pool.total < job.gpus:
            return too_few(job, pool)
        return spread(job.gpus, pool)


def spread(count: int, pool: FreePool) -> list[int]:
    """``count`` GPUs from the nodes with most free ones, lowest ids first."""
    chosen: list[int] = []
    for node in pool.nodes_by_most_free():
        missing = count - len(chosen)
        if not missing:
            break
        chosen += pool.lowest(node, min(missing, pool.free_on[node].bit_count()))
    return chosen
