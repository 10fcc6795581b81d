"""The sentences behind decisions and waits. Reasons of waiting jobs are made when asked for, not every round."""

from __future__ import annotations

from dataclasses import replace

from trine.core.cluster import UNNAMED_TYPE
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.engine.engine_state import EngineState
from trine.engine.events import Decision, Start, Stop
from trine.engine.job_table import State
from trine.perf.model import PerfModel

_MOST_NAMED = 4
"""At most so many of the jobs that were chosen instead are named."""


def of_decision(engine: EngineState, decision: Decision) -> Reason:
    """The sentence behind a start or a stop."""
    job = engine.table.jobs[decision.job_index]
    if isinstance(decision, Start):
        return _start(engine, decision.job_index, decision.epoch, decision.gpus, decision.co_runner)
    if decision.why is Why.CANCELLED:
        return Reason(Why.CANCELLED, f"job {job.id} is cancelled.")
    if decision.why is Why.HELD:
        return Reason(Why.HELD, f"job {job.id} is held.")
    reason = _stop(engine, job, decision)
    if decision.trade is None:
        return reason
    sentence = f"{reason.sentence} {decision.trade.sentence}".rstrip()
    return replace(reason, sentence=sentence, counts=reason.counts | decision.trade.figures())


def _stop(engine: EngineState, job: Job, stop: Stop) -> Reason:
    """The sentence behind a stop or move, without what it was weighed by."""
    if stop.for_job >= 0:
        return _stopped_for(engine, job, stop)
    if stop.moves and stop.gain_s > 0:
        gain = f"it is expected to end {stop.gain_s:.0f} s earlier there"
        return Reason(Why.MOVED, f"job {job.id} moves to better GPUs: {gain}.", {"gain_s": stop.gain_s})
    if stop.moves:
        return Reason(Why.MOVED, f"job {job.id} moves to other GPUs.")
    if engine.last_round.selected:
        why = "" if stop.trade is not None else engine.policy.explain(stop.job_index)
        pauses = f"job {job.id} pauses: in this round {_its_gpus(job)} for other jobs."
        return Reason(Why.PREEMPTED, f"{pauses} {why}".rstrip())
    return Reason(Why.PREEMPTED, f"job {job.id} is preempted: jobs that rank before it need its {_gpus(job.gpus)}.")


def _stopped_for(engine: EngineState, job: Job, stop: Stop) -> Reason:
    """The sentence behind a stop that makes room for a job known by name."""
    why = "" if engine.last_round.selected else engine.last_round.stop_reason
    other = f"job {engine.table.jobs[stop.for_job].id}" + (f", {why}" if why else "")
    if stop.moves:
        return Reason(Why.MOVED, f"job {job.id} moves to other GPUs to make room for {other}.")
    if engine.last_round.selected:
        return Reason(Why.PREEMPTED, f"job {job.id} pauses: {_its_gpus(job)} for {other}.", {"gpus": job.gpus})
    return Reason(Why.PREEMPTED, f"job {job.id} is stopped for {other}.", {"gpus": job.gpus})


def _start(engine: EngineState, job_index: int, epoch: int, gpus: tuple[int, ...], co_runner: int) -> Reason:
    cluster, job = engine.cluster, engine.table.jobs[job_index]
    nodes = len({cluster.node_of[g] for g in gpus})
    where = f"{nodes} nodes" if nodes > 1 else f"node {cluster.nodes[cluster.node_of[gpus[0]]].name}"
    count = f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}"
    verb, code = ("starts", Why.PLACED) if epoch == 1 else ("resumes", Why.RESUMED)
    why = engine.placement.explain(job, gpus, engine.free.pools[engine.free.type_of(gpus)])
    why = f"{why} {engine.policy.explain_start(job_index, engine.free.type_of(gpus))}".strip()
    sentence = f"job {job.id} {verb} on {count} on {where}. {why}".rstrip()
    counts: dict[str, float] = {"gpus": len(gpus), "nodes": nodes}
    if co_runner < 0:
        return Reason(code, sentence, counts)
    other = engine.table.jobs[co_runner]
    gain = engine.perf.gain(job, other, gpus)
    return Reason(code, f"{sentence} {shares(engine, job, other, gpus)}", counts | {"gain": gain})


def shares(engine: EngineState, job: Job, other: Job, gpus: tuple[int, ...]) -> str:
    """Which job shares the GPUs of a job, and how much work the two do together."""
    gain = engine.perf.gain(job, other, gpus)
    return f"It shares its {'GPUs' if len(gpus) > 1 else 'GPU'} with job {other.id}: together {gain:.2g}x of one alone."


def never_fits(job: Job, perf: PerfModel) -> str:
    """Why no GPU type of the cluster can ever hold the job."""
    cluster = perf.cluster
    pools = ", ".join(_of_type(count, gpu_type) for gpu_type, count in cluster.gpus_by_type.items())
    if job.gpu_types and not {t.lower() for t in job.gpu_types} & {t.lower() for t in cluster.types}:
        return f"it asks for GPU type {' or '.join(job.gpu_types)}, the cluster has {', '.join(cluster.types)}"
    if all(count < job.gpus for count in cluster.gpus_by_type.values()):
        return f"it asks for {_gpus(job.gpus)}, the cluster has {pools}"
    if job.step_s is None:
        return f"the speed of model {job.model!r} on {_gpus(job.gpus)} of {', '.join(cluster.types)} is not known"
    return f"no type of the cluster ({pools}) can hold its {_gpus(job.gpus)} of model {job.model!r}"


def of_job(engine: EngineState, job_index: int) -> Reason:
    """Why a job waits or runs where it does."""
    job, state = engine.table.jobs[job_index], engine.table.state[job_index]
    if state is State.FINISHED:
        return Reason(Why.FINISHED, f"job {job.id} has finished.")
    if job_index in engine.assigned:
        if engine.ownership.waits(job_index):
            return Reason(
                Why.STARTING, f"job {job.id} has its GPUs assigned and waits until their holders release them."
            )
        epoch, gpus = engine.table.epoch[job_index], engine.assigned[job_index]
        return _start(engine, job_index, epoch, gpus, engine.co_runners.get(job_index, -1))
    return _why_waiting(engine, job_index, job)


def _over_quota(engine: EngineState, job: Job) -> Reason:
    group, user = engine.quotas.by_group.get(job.group), engine.quotas.by_user.get(job.user)
    limits = [f"queue {job.group} may hold {group} GPUs" if group is not None else ""]
    limits += [f"user {job.user} may hold {user}" if user is not None else ""]
    too_small = any(limit is not None and limit < job.gpus for limit in (group, user))
    raised = "It is larger than the quota and starts only when an administrator raises that."
    return Reason(
        Why.QUOTA,
        f"job {job.id} needs {_gpus(job.gpus)} and would exceed a quota: {' and '.join(filter(None, limits))} at once.",
        {"needed": job.gpus},
        raised if too_small else "It starts when jobs of the same queue or user end.",
    )


def _not_selected(engine: EngineState, job_index: int, job: Job, counts: dict[str, float]) -> Reason:
    selected = len(engine.considered)
    others = f"{selected} other job{'s' if selected != 1 else ''}"
    if 0 < selected <= _MOST_NAMED:
        names = [engine.table.jobs[i].id for i in engine.considered]
        others += f" ({', '.join(names)})"
    why = engine.policy.explain(job_index)
    return Reason(
        Why.NO_FREE_GPUS if engine.last_round.held_back is Why.NOT_DECIDED else engine.last_round.held_back,
        f"job {job.id} waits for its turn: the policy chose {others} for this round. {why}".rstrip(),
        counts | {"selected": selected},
        "It runs in a round for which the policy chooses it.",
    )


def _why_waiting(engine: EngineState, job_index: int, job: Job) -> Reason:
    if job_index in engine.last_round.refusals:
        return engine.last_round.refusals[job_index]
    if job_index in engine.last_round.over_quota:
        return _over_quota(engine, job)
    if job_index >= engine.last_round.jobs:
        return Reason(Why.NOT_DECIDED, f"job {job.id} waits for the next round.", change="It is ranked then.")
    free = {pool.gpu_type: pool.total for pool in engine.free.pools}
    counts: dict[str, float] = {"needed": job.gpus, **{f"free_{t}": n for t, n in free.items()}}
    idle = ", ".join(_of_type(n, t) for t, n in free.items())
    rank = engine.rank_of(job_index)
    room = any(engine.free.pools[t].total >= job.gpus for t in engine.perf.types_for(job))
    if rank is None and engine.last_round.selected:
        return _not_selected(engine, job_index, job, counts)
    if rank is None and engine.last_round.held_back is Why.RESERVED and room:
        hint = (
            " It states no duration; one with max_runtime may use such gaps."
            if engine.table.open_ended[job_index]
            else ""
        )
        return Reason(
            Why.RESERVED,
            f"job {job.id} waits: starting it now could delay the reservation of the first job in line.",
            counts,
            f"It starts when it reaches the head of the queue, or when it would end before the reservation.{hint}",
        )
    if engine.last_round.blocked_by >= 0 and engine.last_round.blocked_by != job_index:
        head = engine.table.jobs[engine.last_round.blocked_by]
        return Reason(
            Why.HEAD_OF_LINE,
            f"job {job.id} waits behind job {head.id}, which needs {head.gpus} GPUs; {idle} free.",
            counts,
            f"No job overtakes another under this policy: job {head.id} must start first.",
        )
    ahead = len(engine.considered) if rank is None else rank
    return Reason(
        Why.NO_FREE_GPUS,
        f"job {job.id} needs {_gpus(job.gpus)} at once, {idle} free, {_jobs(ahead)} before it.",
        counts | {"ahead": ahead},
        "It starts when enough GPUs of one type are free and no job before it wants them.",
    )


def _its_gpus(job: Job) -> str:
    return "its GPU is" if job.gpus == 1 else f"its {job.gpus} GPUs are"


def _of_type(count: int, gpu_type: str) -> str:
    """``4 v100``; GPUs whose type has no name of its own are just GPUs."""
    return _gpus(count) if gpu_type == UNNAMED_TYPE else f"{count} {gpu_type}"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _jobs(count: int) -> str:
    return "1 job ranks" if count == 1 else f"{count} jobs rank"
