"""Jobs on the same GPUs or links: which may, what a job that comes or goes does to the speed of the others.

Functions over the engine and its planner; the book of who shares with whom is ``engine.partners``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trine.core.cluster import Tier
from trine.core.job import Job
from trine.engine.events import Decision
from trine.engine.table import State

if TYPE_CHECKING:
    from trine.engine.engine import Engine
    from trine.engine.plan import Gpus, Plan, Planner
    from trine.perf.model import Speed
    from trine.perf.traffic import Changed


# -- may they? ---------------------------------------------------------------------------------------------------


def may_share(planner: Planner, slot: int, mate: int, pool: int) -> bool:
    """Both run on the type ``pool``, also together, ask for no different shapes and are of one circle."""
    one, other = planner.table.jobs[slot], planner.table.jobs[mate]
    if not planner.space_sharing or one.circle != other.circle:
        return False
    if one.shape is not None and other.shape is not None and one.shape != other.shape:
        return False
    known = pool in planner.table.types[slot] and pool in planner.table.types[mate]
    return known and (planner.perf is None or planner.perf.can_share(one, other, pool))


def suits_shape(planner: Planner, slot: int, gpus: Gpus) -> bool:
    """GPUs that somebody else chose have the shape the job asks for."""
    shape = planner.table.jobs[slot].shape
    if shape is None:
        return True
    cluster = planner.free.pools[0].cluster
    by_node = Counter(cluster.node_of[gpu] for gpu in gpus)
    if shape.nodes is not None and (len(by_node) != shape.nodes or len(set(by_node.values())) != 1):
        return False
    widest = min(shape.widest(planner.now), Tier.NETWORK if shape.required is None else shape.required)
    return cluster.tier(gpus) <= max(widest, Tier.NODE)


def in_service(planner: Planner, gpus: Gpus) -> bool:
    """None of the GPUs is withheld: something new may start there."""
    pool = planner.free.pools[planner.free.type_of(gpus)]
    return not any(pool.withheld.get(pool.node_of[gpu], 0) & pool.bit_of[gpu] for gpu in gpus)


# -- who comes and goes ------------------------------------------------------------------------------------------


def adopt(engine: Engine, plan: Plan) -> list[int]:
    """The pairs of the plan are the pairs now; returns starts that wait on, but now next to somebody else."""
    if plan.partners is None or plan.partners == engine.partners:
        return []
    before, new = dict(engine.partners), {slot for slot, _ in plan.starts}
    engine.partners.clear()
    engine.partners.update(plan.partners)
    waiting = [slot for slot in engine.assigned if slot not in new and engine.handover.waits(slot)]
    return [slot for slot in waiting if before.get(slot, -1) != engine.partners.get(slot, -1)]


def drop(engine: Engine, slot: int) -> bool:
    """The job has its GPUs no longer; they are free unless its partner goes on there. False if it had none."""
    gpus = engine.assigned.pop(slot, None)
    if gpus is None:
        return False
    mate = engine.partners.pop(slot, -1)
    if mate < 0:
        engine.free.give(gpus)
        return True
    del engine.partners[mate]
    if engine.handover.waits(mate):  # then it waits for this one too, should it still be there
        engine.handover.cancel(mate)
        engine.handover.claim(mate, engine.assigned[mate])
    return True


def claim_again(engine: Engine, now: float, slots: list[int]) -> list[Decision]:
    """Starts that wait and got another partner wait for others now, or for nobody."""
    for slot in slots:
        engine.handover.cancel(slot)
    ready = [s for s in slots if engine.handover.claim(s, engine.assigned[s], engine.partners.get(s, -1))]
    return [engine.start(now, slot) for slot in ready]


# -- how fast, then? ---------------------------------------------------------------------------------------------


def beside(engine: Engine, slot: int) -> Job | None:
    """The job whose processes hold the same GPUs now."""
    other = engine.handover.beside(slot)
    return None if other < 0 else engine.table.jobs[other]


def partner_changed(engine: Engine, now: float, slot: int, before: Job | None, after: Job | None) -> None:
    """The job on the same GPUs came or left."""
    if slot < 0 or engine.table.state[slot] is not State.RUNNING:
        return
    job, gpus = engine.table.jobs[slot], engine.handover.holding[slot]
    bandwidth = None if engine.traffic is None else engine.traffic.bandwidth(slot)
    speed = engine.perf.speed
    _rerate(engine, now, slot, speed(job, gpus, before, bandwidth), speed(job, gpus, after, bandwidth))


def bandwidth_changed(engine: Engine, now: float, changed: Changed) -> None:
    """Others came to the links of a running job, or left."""
    slot = changed.job_index
    job, gpus, partner = engine.table.jobs[slot], engine.handover.holding[slot], beside(engine, slot)
    speed = engine.perf.speed
    _rerate(engine, now, slot, speed(job, gpus, partner, changed.before), speed(job, gpus, partner, changed.after))


def _rerate(engine: Engine, now: float, slot: int, before: Speed, after: Speed) -> None:
    """From now on a running job is faster or slower by what the model says.

    What was observed of its own speed stays; the work done so far, extrapolated, is the same before and after.
    """
    table, factor = engine.table, after.steps_per_s / before.steps_per_s
    worked_s = max(0.0, now - float(table.work_from_s[slot]))
    table.rate[slot] *= factor
    table.work_from_s[slot] += worked_s - worked_s / factor
    engine.rerated[slot] = None
