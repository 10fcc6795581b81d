"""Honours the shape a user asked for (so many nodes, no further apart than ...), whatever placement is in use."""

from __future__ import annotations

from collections.abc import Iterable

from trine.core.cluster import Cluster, Tier
from trine.core.job import Job, Shape
from trine.core.reason import Reason, Why
from trine.perf.model import PerfModel
from trine.placement.free import FreePool, bits


def shaped(job: Job, shape: Shape, pool: FreePool, chosen: list[int] | Reason, now: float) -> list[int] | Reason:
    """What the placement chose if it has the shape, else GPUs that do, else the reason to wait."""
    widest = _widest(shape, now)
    if shape.nodes is not None:
        return _spread(job, shape.nodes, widest, pool)
    if isinstance(chosen, list) and pool.cluster.tier(chosen) <= widest:
        return chosen
    found = _on_one_node(job.gpus, pool) if widest <= Tier.NODE else _in_one_rack(job.gpus, pool)
    if found is not None:
        return found
    return Reason(
        Why.TOPOLOGY,
        f"job {job.id} wants its {job.gpus} GPUs within one {Tier(max(widest, Tier.NODE)).label}, and none has room.",
        {"needed": job.gpus, "free": pool.total},
        _what_would_help(shape, now),
    )


def never_has_shape(job: Job, perf: PerfModel) -> str:
    """Why no part of the cluster, were it empty, has the shape the job asks for; empty if one does."""
    shape = job.shape
    if shape is None:
        return ""
    if shape.nodes is not None and job.gpus % shape.nodes:
        return f"{job.gpus} GPUs cannot be spread evenly over {shape.nodes} nodes"
    pools = [FreePool(perf.cluster, perf.cluster.types[index]) for index in perf.types_for(job)]
    # Only what is required for ever counts: a preference gives way.
    required = Shape(shape.nodes, shape.required)
    if any(isinstance(shaped(job, required, pool, _anywhere(pool, job), 0.0), list) for pool in pools):
        return ""
    what = f"over {shape.nodes} nodes" if shape.nodes else f"within one {(shape.required or Tier.NETWORK).label}"
    return f"the cluster cannot hold {job.gpus} GPUs of one type {what}"


def _anywhere(pool: FreePool, job: Job) -> list[int] | Reason:
    gpus = pool.gpus()[: job.gpus]
    return gpus if len(gpus) == job.gpus else Reason(Why.NO_FREE_GPUS, "")


def _on_one_node(gpus: int, pool: FreePool) -> list[int] | None:
    """On the fullest node that still has room."""
    for count in range(gpus, pool.largest_node + 1):
        for node in bits(pool.nodes_with[count]):
            return pool.lowest(node, gpus)
    return None


def _in_one_rack(gpus: int, pool: FreePool) -> list[int] | None:
    """In the fullest rack that still has room, on as few of its nodes as possible."""
    racks = _by_rack(pool.cluster, pool.nodes_by_most_free())
    rooms = {rack: sum(pool.free_on[n].bit_count() for n in nodes) for rack, nodes in racks.items()}
    fitting = [rack for rack, room in rooms.items() if room >= gpus]
    if not fitting:
        return None
    chosen: list[int] = []
    for node in racks[min(fitting, key=lambda rack: (rooms[rack], rack))]:
        chosen += pool.lowest(node, gpus - len(chosen))
        if len(chosen) == gpus:
            break
    return sorted(chosen)


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
    """What is required also bounds what is preferred."""
    return min(shape.widest(now), Tier.NETWORK if shape.required is None else shape.required)


def gives_way(shape: Shape | None, now: float) -> bool:
    """A preference that a job insists on now, but not for ever."""
    return shape is not None and shape.preferred is not None and now < shape.prefer_until_s < float("inf")


def _what_would_help(shape: Shape, now: float) -> str:
    if gives_way(shape, now):
        wider = (shape.required or Tier.NETWORK).label
        return f"It takes GPUs anywhere within the {wider} in {shape.prefer_until_s - now:.0f} s."
    return "It starts when enough GPUs are free close together."
