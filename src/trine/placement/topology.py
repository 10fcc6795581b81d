"""Honours the shape a user asked for (so many nodes, no further apart than ...), whatever placement is in use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trine.core.cluster import Cluster, Tier
from trine.core.job import Job, Shape
from trine.core.reason import Reason, Why
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement, has_room
from trine.placement.free_index import FreePool, bits
from trine.placement.packed import Packed, place_within


def shaped(placement: Placement, ask: Ask, pool: FreePool) -> list[int] | Reason:
    """GPUs that have the shape the job asks for, by the placement's own choice; else the reason to wait."""
    shape = ask.job.shape
    assert shape is not None
    bounded = ask.within(_widest(shape, ask.now))
    if shape.nodes is not None:
        found = _spread(ask.job, shape.nodes, bounded.widest, pool)
    else:
        found = place_within(placement, bounded, pool)
    if isinstance(found, Reason) and found.code is Why.TOPOLOGY and gives_way(shape, ask.now):
        return _for_the_time_being(found, ask, pool)
    return found


def _for_the_time_being(refusal: Reason, ask: Ask, pool: FreePool) -> Reason:
    """What is only preferred ends by itself: the job waits by choice if it could have the GPUs without it."""
    job, shape = ask.job, ask.job.shape
    assert shape is not None
    wider = shape.required or Tier.NETWORK
    if shape.nodes is None:
        offered = has_room(job.gpus, wider, pool)
    else:
        offered = isinstance(_spread(job, shape.nodes, wider, pool), list)
    code = Why.WAITS if offered else Why.TOPOLOGY
    after_s = shape.prefer_until_s - job.submit_s
    change = f"It takes GPUs anywhere within the {wider.label} {after_s:.0f} s after its submission."
    return replace(refusal, code=code, change=change, wakes_s=shape.prefer_until_s)


def never_has_shape(job: Job, perf: PerfModel) -> str:
    """Why no part of the cluster, were it empty, has the shape the job asks for; empty if one does."""
    shape = job.shape
    if shape is None:
        return ""
    if shape.nodes is not None and job.gpus % shape.nodes:
        return f"{job.gpus} GPUs cannot be spread evenly over {shape.nodes} nodes"
    pools = [FreePool(perf.cluster, perf.cluster.types[index]) for index in perf.types_for(job)]
    # Only what is required for ever counts: a preference gives way.
    ask = Ask(replace(job, shape=Shape(shape.nodes, shape.required)))
    if any(isinstance(shaped(Packed(), ask, pool), list) for pool in pools if pool.total >= job.gpus):
        return ""
    what = f"over {shape.nodes} nodes" if shape.nodes else f"within one {(shape.required or Tier.NETWORK).label}"
    return f"the cluster cannot hold {job.gpus} GPUs of one type {what}"


def _spread(job: Job, nodes: int, widest: Tier, pool: FreePool) -> list[int] | Reason:
    """Equally many GPUs on exactly ``nodes`` nodes, in one rack if one has room (or if that is a must)."""
    each = job.gpus // nodes
    able = [n for count in range(each, pool.largest_node + 1) for n in bits(pool.nodes_with[count])]
    racks = [found for found in _by_rack(pool.cluster, able).values() if len(found) >= nodes]
    if racks:
        able = min(racks, key=len)
    elif widest <= Tier.RACK and nodes > 1:
        able = []
    if len(able) >= nodes and each * nodes == job.gpus and (nodes == 1 or widest > Tier.NODE):
        return sorted(gpu for node in able[:nodes] for gpu in pool.lowest(node, each))
    return Reason(
        Why.TOPOLOGY,
        f"job {job.id} wants {each} GPUs on each of {nodes} nodes; {len(able)} nodes have them free.",
        {"needed": job.gpus, "free": pool.total},
        f"It can start when {each} GPUs are free on {nodes} nodes.",
    )


def _by_rack(cluster: Cluster, nodes: Iterable[int]) -> dict[int, list[int]]:
    racks: dict[int, list[int]] = {}
    for node in nodes:
        racks.setdefault(cluster.rack_of[node], []).append(node)
    return racks


def _widest(shape: Shape, now: float) -> Tier:
    """What is required also bounds what is preferred; nothing is closer together than the GPUs of a node."""
    return max(Tier.NODE, min(shape.widest(now), Tier.NETWORK if shape.required is None else shape.required))


def gives_way(shape: Shape | None, now: float) -> bool:
    """A preference that a job insists on now, but not for ever."""
    return shape is not None and shape.preferred is not None and now < shape.prefer_until_s < float("inf")
