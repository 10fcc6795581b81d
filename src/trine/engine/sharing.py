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


def may_share(planner: Planner, job_index: int, co_runner: int, pool: int) -> bool:
    """Both run on the type ``pool``, also together, ask for no different shapes and are of one circle."""
    one, other = planner.table.jobs[job_index], planner.table.jobs[co_runner]
    if not planner.space_sharing or one.sharing_domain != other.sharing_domain:
        return False
    if one.shape is not None and other.shape is not None and one.shape != other.shape:
        return False
    known = pool in planner.table.types[job_index] and pool in planner.table.types[co_runner]
    return known and (planner.perf is None or planner.perf.can_share(one, other, pool))


def suits_shape(planner: Planner, job_index: int, gpus: Gpus) -> bool:
    """GPUs that somebody else chose have the shape the job asks for."""
    shape = planner.table.jobs[job_index].shape
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
    return not any(pool.cordoned.get(pool.node_of[gpu], 0) & pool.bit_of[gpu] for gpu in gpus)


# -- who comes and goes ------------------------------------------------------------------------------------------


def adopt(engine: Engine, plan: Plan) -> list[int]:
    """The pairs of the plan are the pairs now; returns starts that wait on, but now next to somebody else."""
    if plan.co_runners is None or plan.co_runners == engine.co_runners:
        return []
    before, new = dict(engine.co_runners), {job_index for job_index, _ in plan.starts}
    engine.co_runners.clear()
    engine.co_runners.update(plan.co_runners)
    waiting = [job_index for job_index in engine.assigned if job_index not in new and engine.ownership.waits(job_index)]
    return [job_index for job_index in waiting if before.get(job_index, -1) != engine.co_runners.get(job_index, -1)]


def drop(engine: Engine, job_index: int) -> bool:
    """The job has its GPUs no longer; they are free unless its partner goes on there. False if it had none."""
    gpus = engine.assigned.pop(job_index, None)
    if gpus is None:
        return False
    co_runner = engine.co_runners.pop(job_index, -1)
    if co_runner < 0:
        engine.free.give(gpus)
        return True
    del engine.co_runners[co_runner]
    if engine.ownership.waits(co_runner):  # then it waits for this one too, should it still be there
        engine.ownership.cancel(co_runner)
        engine.ownership.claim(co_runner, engine.assigned[co_runner])
    return True


def claim_again(engine: Engine, now: float, job_indices: list[int]) -> list[Decision]:
    """Starts that wait and got another partner wait for others now, or for nobody."""
    for job_index in job_indices:
        engine.ownership.cancel(job_index)
    ready = [s for s in job_indices if engine.ownership.claim(s, engine.assigned[s], engine.co_runners.get(s, -1))]
    return [engine.start(now, job_index) for job_index in ready]


# -- how fast, then? ---------------------------------------------------------------------------------------------


def co_runner_of(engine: Engine, job_index: int) -> Job | None:
    """The job whose processes hold the same GPUs now."""
    other = engine.ownership.co_runner_of(job_index)
    return None if other < 0 else engine.table.jobs[other]


def co_runner_changed(engine: Engine, now: float, job_index: int, before: Job | None, after: Job | None) -> None:
    """The job on the same GPUs came or left."""
    if job_index < 0 or engine.table.state[job_index] is not State.RUNNING:
        return
    job, gpus = engine.table.jobs[job_index], engine.ownership.holding[job_index]
    bandwidth = None if engine.traffic is None else engine.traffic.bandwidth(job_index)
    speed = engine.perf.speed
    _rerate(engine, now, job_index, speed(job, gpus, before, bandwidth), speed(job, gpus, after, bandwidth))


def bandwidth_changed(engine: Engine, now: float, changed: Changed) -> None:
    """Others came to the links of a running job, or left."""
    job_index = changed.job_index
    job, gpus, co_runner = (
        engine.table.jobs[job_index],
        engine.ownership.holding[job_index],
        co_runner_of(engine, job_index),
    )
    speed = engine.perf.speed
    _rerate(
        engine, now, job_index, speed(job, gpus, co_runner, changed.before), speed(job, gpus, co_runner, changed.after)
    )


def _rerate(engine: Engine, now: float, job_index: int, before: Speed, after: Speed) -> None:
    """From now on a running job is faster or slower by what the model says.

    What was observed of its own speed stays; the work done so far, extrapolated, is the same before and after.
    """
    table, factor = engine.table, after.steps_per_s / before.steps_per_s
    worked_s = max(0.0, now - float(table.work_from_s[job_index]))
    table.rate[job_index] *= factor
    table.work_from_s[job_index] += worked_s - worked_s / factor
    engine.rerated[job_index] = None
