"""State and engine as users see them: the values of ``server.interface``, made when asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

from trine.core.cluster import Tier
from trine.core.reason import Reason, Why
from trine.engine.engine import Engine
from trine.engine.explain import never_fits, shares
from trine.inputs.job_relations import parse_array, predecessor
from trine.server.build import gpus_of
from trine.server.controller import Controller
from trine.server.interface import (
    Explanation,
    GpuView,
    JobView,
    NodeView,
    PlacementView,
    ProgressView,
    ReasonView,
    SpeedView,
)
from trine.server.live_job import LiveJob
from trine.server.outcome import SHORTEST_LOSS_SHOWN_S, duration

_ENDED = {
    "done": "ended well",
    "failed": "failed",
    "cancelled": "was cancelled",
    "timed out": "was stopped at the end of its max_runtime",
}
_STOPS = ("stopping", "moving", "told to stop", "told to move")
"""Lines of a story that say why a job stops; the last two are those of older journals."""
_ALL_BANDWIDTH = 0.995
"""From this share on what others take of a job's links is not worth a sentence."""
_PLACE = {Tier.NODE: "inside one node", Tier.RACK: "across nodes of one rack", Tier.NETWORK: "across racks"}
_ORDER = {"running": 0, "starting": 0, "stopping": 0, "waiting": 1, "held": 2, "set aside": 2}


def job_view(controller: Controller, job: LiveJob, position: int | None = None) -> JobView:
    """One job; ``position`` is its rank among those that wait, if it is known."""
    spec, state = job.spec, controller.state
    co_runner = state.co_runner_of(job)
    waiting = job.state == "waiting" and not job.blocked
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
        reason_view(controller, job),
        position if waiting else None,
        placement_view(controller, job.gpus) if state.cluster and job.holds_gpus else (),
        _progress(job),
        job.started_s,
        job.finished_s,
        job.exit_code,
        job.preemptions,
        job.migrations,
        expected_end_s(job),
        co_runner.id if co_runner else None,
        spec.max_runtime,
        run_from_s(job),
        job.after,
        job.array_id,
        job.array_index,
        job.eligible_s,
    )


def positions(controller: Controller) -> dict[str, int]:
    """Rank of every waiting job as of the last round, from 1; new arrivals stand at the end."""
    engine, live = controller.deciding, controller.state.live
    jobs = engine.table.jobs
    ranked = [jobs[job_index].id for job_index in engine.considered]
    seen = set(ranked)
    order = [*ranked, *(job_id for job_id in live if job_id not in seen)]
    waiting = [job_id for job_id in order if _in_line(live.get(job_id))]
    return {job_id: i for i, job_id in enumerate(waiting, start=1)}


def _in_line(job: LiveJob | None) -> bool:
    return job is not None and job.state == "waiting" and not job.blocked


def ordered(controller: Controller, jobs: list[LiveJob], limit: int) -> list[JobView]:
    """Jobs that hold GPUs first, then by rank, then held ones, then the ended ones, newest first."""
    ranks = positions(controller)
    key = {
        job.id: (_ORDER.get(job.state, 3), ranks.get(job.id, math.inf) if job.live else -(job.finished_s or 0))
        for job in jobs
    }
    chosen = sorted(jobs, key=lambda job: key[job.id])[:limit]
    return [job_view(controller, job, ranks.get(job.id)) for job in chosen]


def reason_of(controller: Controller, job: LiveJob) -> Reason:
    """Why the job is in the state it is in."""
    if not job.live:
        last = job.story[-1].sentence if job.story else ""
        return Reason(Why.FINISHED, f"job {job.id} {_ENDED.get(job.state, f'is {job.state}')}. {last}".rstrip())
    if job.state == "held":
        last = job.story[-1].sentence if job.story else ""
        change = f"It waits for GPUs again after: trine release {job.id}"
        return Reason(Why.HELD, f"job {job.id} is held. {last}".rstrip(), change=change)
    if job.state == "set aside":
        change = f"It takes part in decisions again after: trine release {job.id}"
        return Reason(Why.SET_ASIDE, f"job {job.id} is set aside. {job.aside}", change=change)
    if job.state == "stopping":
        stop = next((line for line in reversed(job.story) if line.what in _STOPS), None)
        return Reason(Why.PREEMPTED, f"job {job.id} saves its work and stops. {stop.sentence if stop else ''}".rstrip())
    if job.holds_gpus:
        started = next((line for line in reversed(job.story) if line.what == "started"), None)
        sentence = started.sentence if started else f"job {job.id} runs."
        return Reason(Why.PLACED, f"{sentence} {_sharing(controller, job)}".rstrip())
    if job.not_before_s:
        last = job.story[-1].sentence if job.story else ""
        change = f"It may start from {_clock_time(job.not_before_s)} on, or at once after: trine release {job.id}"
        return Reason(Why.PAUSED, f"job {job.id} pauses. {last}".rstrip(), change=change)
    if job.blocked:
        return _why_blocked(controller, job)
    return _why_waiting(controller.deciding, controller.job_indices[job.id])


_TO_END = {"ok": "to end well", "any": "to end", "failed": "to fail"}
_NAMED = 5
"""So many of the jobs that a job waits for are named."""


def _why_blocked(controller: Controller, job: LiveJob) -> Reason:
    """For which other jobs it waits; that they run, or wait themselves, says how long it may take."""
    if not job.after:
        most, change = parse_array(job.spec.array).most_at_once, "It stands in line when one of them has ended."
        turn = f"of array {job.array_id} at most {most} are under way at once"
        return Reason(Why.DEPENDENCY, f"job {job.id} waits for its turn: {turn}.", change=change)
    live, first = controller.state.live, [predecessor(term) for term in job.after[:_NAMED]]
    named = [f"job {t.job} ({live[t.job].state}) {_TO_END[t.condition]}" for t in first if t.job in live]
    more = f" and {len(job.after) - _NAMED} more" if len(job.after) > _NAMED else ""
    change = "It stands in line when they have; if one of them ends otherwise, it is cancelled."
    return Reason(Why.DEPENDENCY, f"job {job.id} waits for {', '.join(named)}{more}.", {"jobs": len(job.after)}, change)


def _sharing(controller: Controller, job: LiveJob) -> str:
    """With which job it shares its GPUs, and what others leave of its links; empty if it has both to itself."""
    co_runner, engine = controller.state.co_runner_of(job), controller.deciding
    sentences = []
    if co_runner is not None:
        one, other = (engine.table.jobs[controller.job_indices[member.id]] for member in (job, co_runner))
        sentences.append(shares(engine, one, other, job.gpus))
    left = 1.0 if engine.traffic is None else engine.traffic.link_share(controller.job_indices[job.id])
    if left < _ALL_BANDWIDTH:
        sentences.append(f"Its links are shared: {left:.2g} of the bandwidth it has alone.")
    return " ".join(sentences)


def _why_waiting(engine: Engine, job_index: int) -> Reason:
    """The engine's reason, unless the cluster became too small for the job after it was accepted."""
    if engine.table.types[job_index]:
        return engine.explain(job_index)
    job = engine.table.jobs[job_index]
    return Reason(
        Why.TOO_LARGE,
        f"job {job.id} cannot run on the cluster as it is now: {never_fits(job, engine.perf)}.",
        {"needed": job.gpus},
        "It stands in line again when nodes with such GPUs join, or the daemon is started with them.",
    )


def explanation(controller: Controller, job: LiveJob) -> Explanation:
    """The reason in sentences: what holds, what would change it, and for a running job what is expected."""
    reason = reason_of(controller, job)
    sentences = [reason.sentence]
    if reason.change:
        sentences.append(reason.change)
    if job.state == "held" and job.blocked:
        sentences.append(_why_blocked(controller, job).sentence)
    if job.state == "waiting" and job.preemptions:
        goes_on = f"resumes from step {job.safe:g}" if job.safe else "starts from the beginning"
        sentences.append(f"It was preempted {_times(job.preemptions)} and {goes_on}.")
    if job.lost_s >= SHORTEST_LOSS_SHOWN_S:
        sentences.append(f"{duration(job.lost_s)} of its work was lost{_to_do_again(job)}.")
    if job.protected_s and job.live:
        start = "This start" if job.holds_gpus else "Its next start"
        sentences.append(f"{start} runs {duration(job.protected_s)} before it may be stopped for others.")
    if job.holds_gpus:
        sentences += _speed(controller, job)
    out = _out_of_service(controller)
    if job.state == "waiting" and out:
        sentences.append(f"Out of service: {', '.join(out)}.")
    return Explanation(job_view(controller, job), tuple(sentences), tuple(job.story))


def _out_of_service(controller: Controller) -> list[str]:
    """Nodes, and GPUs of nodes, on which nothing starts: ``node0``, ``node1:3``, ``node1:4 (held by others)``."""
    names: list[str] = []
    for name, node in sorted(controller.state.nodes.items()):
        whole = node.drained or node.down
        if whole:
            names.append(name)
            continue
        names += [f"{name}:{index}" for index in sorted(node.gpus)]
        names += [f"{name}:{index} ({why})" for index, why in sorted(node.withheld.items()) if index not in node.gpus]
    return names


def _speed(controller: Controller, job: LiveJob) -> list[str]:
    engine = controller.deciding
    speed = engine.speed(controller.job_indices[job.id])
    parts = []
    if speed.sharing != 1.0:
        parts.append(f"next to another job {speed.sharing:.2f}x as long as alone")
    if speed.chip != 1.0:
        parts.append(f"its slowest GPU counts {speed.chip:.2f}x the median for its class")
    if speed.network != 1.0:
        alone = engine.traffic is None or engine.traffic.link_share(controller.job_indices[job.id]) >= _ALL_BANDWIDTH
        cause = f"spanning a {speed.tier.label} costs" if alone else "its place and the jobs on its links cost"
        parts.append(f"{cause} {speed.network:.2f}x")
    said = [f"Expected speed there: {', '.join(parts)}."] if parts else []
    if engine.perf.network is not None and speed.tier in _PLACE:
        said.append(
            f"Expected use of its time: {1 - speed.exposed:.0%} compute, {speed.exposed:.0%} communication "
            f"{_PLACE[speed.tier]} that compute does not hide."
        )
    if job.rate:
        said.append(f"It runs at {job.rate:.4g} steps/s.")
    return said


def speed_view(controller: Controller, job: LiveJob, saved: tuple[float, float] | None) -> SpeedView:
    """``saved``: step of its last checkpoint and when, if the present start reported one."""
    step, at_s = saved or (job.safe or None, None)
    kept = SpeedView(checkpoint_step=step, checkpoint_s=at_s, attained_s=job.attained_s, lost_s=job.lost_s)
    if not job.holds_gpus or job.id not in controller.job_indices:
        return kept
    engine, spec = controller.deciding, job.spec
    speed, gpu_type = engine.speed(controller.job_indices[job.id]), engine.cluster.type_of(job.gpus[0])
    # Without a measured throughput, or with work that is counted in seconds, the engine's unit is not the job's step.
    measured = engine.perf.throughputs.rate(spec.model, spec.gpus.count, gpu_type) is not None
    expected = speed.steps_per_s if measured and (job.total or spec.steps) else None
    return replace(kept, expected_steps_per_s=expected, chip=speed.chip, network=speed.network, sharing=speed.sharing)


def run_from_s(job: LiveJob) -> float | None:
    """Since when the present attempt holds its GPUs. The stop of a job begins a new account, so its story is asked."""
    if not job.holds_gpus or job.state != "stopping":
        return job.run_from_s if job.holds_gpus else None
    return next((line.at_s for line in reversed(job.story) if line.what in ("running", "started")), job.run_from_s)


def expected_end_s(job: LiveJob) -> float | None:
    """When a running job ends at its present pace, if it has reported its pace and its length."""
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
        nodes.setdefault(node, []).append(cluster.index_of(gpu))
    return tuple(PlacementView(cluster.nodes[n].name, tuple(found)) for n, found in nodes.items())


def node_views(controller: Controller) -> list[NodeView]:
    """All nodes with their GPUs, the jobs that hold them, scores by class and flags."""
    cluster, state = controller.state.cluster, controller.state
    assert cluster is not None
    holders: dict[int, list[str]] = {}
    for job in state.holders():
        for gpu in job.gpus:
            holders.setdefault(gpu, []).append(job.id)
    table = controller.deciding.perf.variability
    flags = drift_flags(controller)
    views = []
    for node in cluster.nodes:
        out = state.nodes.get(node.name)
        drained, withheld = (out.gpus, out.withheld) if out else ({}, {})
        gpus = tuple(
            GpuView(
                cluster.index_of(gpu),
                node.gpu_type,
                next(iter(holders.get(gpu, ())), None),
                {name: round(table.slowdown(name)[gpu], 4) for name in table.classes},
                tuple(flags.get(gpu, ())),
                next(iter(holders.get(gpu, ())[1:]), None),
                cluster.index_of(gpu) in drained,
                (withheld | drained).get(cluster.index_of(gpu), ""),
                cluster.index_of(gpu) in withheld,
            )
            for gpu in gpus_of(cluster, node.name)
        )
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
        name = f"{cluster.nodes[node].name}:{cluster.index_of(drift.gpu)}"
        flags.setdefault(drift.gpu, []).append(drift.sentence(name))
    return flags


def _progress(job: LiveJob) -> ProgressView | None:
    total = job.total or job.spec.steps
    if not job.heard_s and not job.done:
        return None
    return ProgressView(job.done, total, job.rate, job.heard_s)


def reason_view(controller: Controller, job: LiveJob) -> ReasonView:
    """Why the job is in the state it is in."""
    reason = reason_of(controller, job)
    return ReasonView(reason.code.value, reason.sentence, reason.change, dict(reason.counts))


def _clock_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _to_do_again(job: LiveJob) -> str:
    """What follows from work that was lost; nothing where no start will make up for it."""
    return " and done again, or has to be" if job.live or job.state == "done" else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
