"""Packed placement: the fewest racks, the fewest nodes, the least fragments; blind to chips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trine.core.cluster import Tier
from trine.core.reason import Reason
from trine.placement.base import Ask, Placement, exceeds, no_room, too_few
from trine.placement.free_index import FreePool


@dataclass
class Packed(Placement):
    """Best fit: the node with the fewest free GPUs that still holds the whole gang, else the emptiest nodes in turn.

    A gang that no node holds goes to one rack if one has room: the one where it needs the fewest nodes, then the
    tightest. Else it takes the emptiest racks whole and what is left of it goes to one rack by the same rule.
    With ``packed-sticky`` it stands for Tiresias-like, without for Gandiva-like consolidation.
    """

    name: ClassVar[str] = "packed"
    title: ClassVar[str] = "fewest racks and nodes, best fit"
    paper: ClassVar[str] = "PAL (SC'24), baselines Packed-Sticky and Packed-Non-Sticky"
    by_room_alone: ClassVar[bool] = True

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        count = ask.job.gpus
        for free in range(count, pool.largest_node + 1):
            nodes = pool.nodes_with[free]
            if nodes:
                return pool.lowest((nodes & -nodes).bit_length() - 1, count)
        if pool.total < count:
            return too_few(ask.job, pool)
        if ask.widest <= Tier.NODE:
            return no_room(ask, pool)
        if len(pool.rack_nodes) == 1:
            return spread(count, pool)
        rack = _best_rack(count, pool, pool.rack_nodes)
        if rack:
            return spread(count, pool, rack)
        return no_room(ask, pool) if ask.widest <= Tier.RACK else _over_racks(count, pool)


def place_within(placement: Placement, ask: Ask, pool: FreePool) -> list[int] | Reason:
    """What the placement chooses; packed in its stead where it takes no notice of the bound (files of users may)."""
    found = placement.place(ask, pool)
    if isinstance(found, Reason) or (isinstance(found, list) and not exceeds(ask, found, pool)):
        return found
    return Packed().place(ask, pool)


def spread(count: int, pool: FreePool, within: int = -1) -> list[int]:
    """``count`` GPUs from the nodes with most free ones, lowest ids first; ``within`` a bit mask of nodes."""
    chosen: list[int] = []
    for node in pool.nodes_by_most_free(within):
        missing = count - len(chosen)
        if not missing:
            break
        chosen += pool.lowest(node, min(missing, pool.free_on[node].bit_count()))
    return chosen


def _over_racks(count: int, pool: FreePool) -> list[int]:
    """As few racks as can be: the emptiest ones whole, the last one by best fit."""
    chosen: list[int] = []
    racks = sorted(pool.rack_nodes, key=lambda rack: -pool.free_in(rack))
    while len(chosen) < count:
        missing = count - len(chosen)
        last = _best_rack(missing, pool, racks)
        chosen += spread(missing, pool, last or racks[0])
        racks = racks[1:]
    return chosen


def _best_rack(count: int, pool: FreePool, racks: list[int]) -> int:
    """The rack (a mask of nodes) that holds the gang on the fewest nodes, then with the least left over; 0: none."""
    best, best_key = 0, (count + 1, 0)
    for rack in racks:
        free = pool.free_in(rack)
        if free >= count:
            key = (_nodes_needed(count, pool, rack), free)
            if key < best_key:
                best, best_key = rack, key
    return best


def _nodes_needed(count: int, pool: FreePool, rack: int) -> int:
    """How many nodes of the rack ``spread`` takes."""
    needed = 0
    for free in range(pool.largest_node, 0, -1):
        used = min((pool.nodes_with[free] & rack).bit_count(), -(-count // free))
        needed, count = needed + used, count - used * free
        if count <= 0:
            break
    return needed
