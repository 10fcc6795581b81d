"""State and engine as users see them: the values of ``server.service``, made when asked for."""

from __future__ import annotations

from trine.core.reason import Reason, Why
from trine.engine.engine import Engine
from trine.engine.reasons import never_fits, shares
from trine.server.build import gpus_of
from trine.server.controller import Controller
from trine.server.live_job import LiveJob
from trine.server.service import (
    Explanation,
    GpuView,
    JobView,
    NodeView,
    PlacementView,
    ProgressView,
    ReasonView,
)

_ENDED = {"done": "ended well", "failed": "failed", "cancelled": "was cancelled"}
_ORDER = {"running": 0, "starting": 0, "stopping": 0, "waiting": 1, "held": 2}


def job_view(controller: Controller, job: LiveJob, position: int | None = None) -> JobView:
    """One job; ``position`` is its rank among those that wait, if it is known."""
    spec, state = job.spec, controller.state
    mate = state.beside(job)
    waiting = job.state == "waiting"
    if waiting and position is None:
        position = positions(controller).get(job.id)
    return JobView(
        job.id,
        spec.name,
        job.user,
        job.queue,
        job.state,
        spec.gpus.count,
        spec.model,
        spec.app_class,
        spec.priority,
        job.epoch,
        job.submitted_s,
        _reason_view(reason_of(controller, job)),
        position if waiting else None,
        placement_view(controller, job.gpus) if state.cluster and job.holds_gpus else (),
        _progress(job),
        job.started_s,
        job.finished_s,
        job.exit_code,
        job.preemptions,
        job.migrations,
        expected_end_s(job),
        mate.id if mate else None,
    )


def positions(controller: Controller) -> dict[str, int]:
    """Rank of every waiting job as of the last round, from 1; new arrivals stand at the end."""
    engine, live = controller.deciding, controller.state.live
    jobs = engine.table.jobs
    ranked = [jobs[slot].id for slot in engine.considered]
    seen = set(ranked)
    order = [*ranked, *(job_id for job_id in live if job_id not in seen)]
    waiting = [job_id for job_id in order if (job := live.get(job_id)) is not None and job.state == "waiting"]
    return {job_id: i for i, job_id in enumerate(waiting, start=1)}


def ordered(controller: Controller, jobs: list[LiveJob], limit: int) -> list[JobView]:
    """Jobs that hold GPUs first, then by rank, then held ones, then the ended ones, newest first."""
    ranks = positions(controller)
    key = {
        job.id: (_ORDER.get(job.state, 3), ranks.get(job.id, 0) if job.live else -(job.finished_s or 0)) for job in jobs
    }
    chosen = sorted(jobs, key=lambda job: key[job.id])[:limit]
    return [job_view(controller, job, ranks.get(job.id)) for job in chosen]


def reason_of(controller: Controller, job: LiveJob) -> Reason:
    """Why the job is in the state it is in."""
    if not job.live:
        last = job.story[-1].sentence if job.story else ""
        return Reason(Why.FINISHED, f"job {job.id} {_ENDED[job.state]}. {last}".rstrip())
    if job.state == "held":
        return Reason(
            Why.HELD, f"job {job.id} is held.", change=f"It stands in line again after: trine release {job.id}"
        )
    if job.state == "stopping":
        told = next((line for line in reversed(job.story) if line.what.startswith("told to")), None)
        return Reason(Why.PREEMPTED, f"job {job.id} saves its work and stops. {told.sentence if told else ''}".rstrip())
    if job.holds_gpus:
        started = next((line for line in reversed(job.story) if line.what == "started"), None)
        sentence = started.sentence if started else f"job {job.id} runs."
        return Reason(Why.PLACED, f"{sentence} {_company(controller, job)}".rstrip())
    return _why_waiting(controller.deciding, controller.slots[job.id])


def _company(controller: Controller, job: LiveJob) -> str:
    """With whom it shares its GPUs; empty if it has them to itself."""
    mate, engine = controller.state.beside(job), controller.deciding
    if mate is None:
        return ""
    one, other = (engine.table.jobs[controller.slots[member.id]] for member in (job, mate))
    return shares(engine, one, other, job.gpus)


def _why_waiting(engine: Engine, slot: int) -> Reason:
    """The engine's reason, unless the cluster became too small for the job after it was accepted."""
    if engine.table.types[slot]:
        return engine.explain(slot)
    job = engine.table.jobs[slot]
    return Reason(
        Why.TOO_LARGE,
        f"job {job.id} cannot run on the cluster as it is now: {never_fits(job, engine.perf)}.",
        {"needed": job.gpus},
        "It stands in line again when the daemon is started with such GPUs.",
    )


def explanation(controller: Controller, job: LiveJob) -> Explanation:
    """The reason in sentences: what holds, what would change it, and for a running job what is expected."""
    reason = reason_of(controller, job)
    sentences = [reason.sentence]
    if reason.change:
        sentences.append(reason.change)
    if job.state == "waiting" and job.preemptions:
        sentences.append(f"It was preempted {_times(job.preemptions)} and resumes from step {job.safe:g}.")
    if job.holds_gpus:
        sentences += _speed(controller, job)
    out = sorted(controller.state.nodes)
    if job.state == "waiting" and out:
        sentences.append(f"Out of service: {', '.join(out)}.")
    return Explanation(job_view(controller, job), tuple(sentences), tuple(job.story))


def _speed(controller: Controller, job: LiveJob) -> list[str]:
    engine = controller.deciding
    speed = engine.speed(controller.slots[job.id])
    parts = []
    if speed.sharing != 1.0:
        parts.append(f"next to another job {speed.sharing:.2f}x as long as alone")
    if speed.chip != 1.0:
        parts.append(f"its slowest GPU counts {speed.chip:.2f}x the median for its class")
    if speed.network != 1.0:
        parts.append(f"spanning a {speed.tier.label} costs {speed.network:.2f}x")
    said = [f"Expected speed there: {', '.join(parts)}."] if parts else []
    if job.rate:
        said.append(f"It runs at {job.rate:.4g} steps/s.")
    return said


def expected_end_s(job: LiveJob) -> float | None:
    """When a running job ends at its present pace, if it has told its pace and its length."""
    total = job.total or job.spec.steps
    if job.state != "running" or not total or job.rate <= 0:
        return None
    return job.heard_s + max(total - job.done, 0.0) / job.rate


def placement_view(controller: Controller, gpus: tuple[int, ...]) -> tuple[PlacementView, ...]:
    """GPU ids as indices on their nodes."""
    cluster = controller.state.cluster
    assert cluster is not None
    nodes: dict[int, list[int]] = {}
    for gpu in gpus:
        node = cluster.node_of[gpu]
        nodes.setdefault(node, []).append(gpu - cluster.first_gpu[node])
    return tuple(PlacementView(cluster.nodes[n].name, tuple(found)) for n, found in nodes.items())


def node_views(controller: Controller) -> list[NodeView]:
    """All nodes with their GPUs, who holds them, scores by class and flags."""
    cluster, state = controller.state.cluster, controller.state
    assert cluster is not None
    holders: dict[int, list[str]] = {}
    for job in state.holders():
        for gpu in job.gpus:
            holders.setdefault(gpu, []).append(job.id)
    table = controller.deciding.perf.variability
    flags = drift_flags(controller)
    views = []
    for i, node in enumerate(cluster.nodes):
        gpus = tuple(
            GpuView(
                gpu - cluster.first_gpu[i],
                node.gpu_type,
                next(iter(holders.get(gpu, ())), None),
                {name: round(table.slowdown(name)[gpu], 4) for name in table.classes},
                tuple(flags.get(gpu, ())),
                next(iter(holders.get(gpu, ())[1:]), None),
            )
            for gpu in gpus_of(cluster, node.name)
        )
        out = state.nodes.get(node.name)
        views.append(NodeView(node.name, out.state if out else "up", node.rack, gpus, out.reason if out else ""))  # type: ignore[arg-type]
    return views


def drift_flags(controller: Controller) -> dict[int, list[str]]:
    """What is remarkable about GPUs, in sentences, by GPU id."""
    cluster, learnt = controller.state.cluster, controller.state.observations
    flags: dict[int, list[str]] = {}
    if cluster is None or learnt is None:
        return flags
    for drift in learnt.drifts():
        node = cluster.node_of[drift.gpu]
        name = f"{cluster.nodes[node].name}:{drift.gpu - cluster.first_gpu[node]}"
        flags.setdefault(drift.gpu, []).append(drift.sentence(name))
    return flags


def _progress(job: LiveJob) -> ProgressView | None:
    total = job.total or job.spec.steps
    if not job.heard_s and not job.done:
        return None
    return ProgressView(job.done, total, job.rate, job.heard_s)


def _reason_view(reason: Reason) -> ReasonView:
    return ReasonView(reason.code.value, reason.sentence, reason.change, dict(reason.counts))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
