"""The daemon's state as the forecaster needs it: its engine, built as after a restart, and what is known of lengths."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from trine.core.job import Job
from trine.engine.engine import Engine
from trine.forecast.present import Present, settle_transitions, work_done_s
from trine.forecast.work_history import KnownJob
from trine.inputs.job_relations import Predecessor, predecessor
from trine.policy.base import FinishedJob
from trine.server.build import UNKNOWN_DURATION_S, Model, build_engine, settings_of
from trine.server.live_job import LiveJob
from trine.server.predictions import EndedJob, ForecastRequest
from trine.server.snapshot import from_snapshot
from trine.server.state import LiveState
from trine.sim.eligibility import Dependents, LimitedArray

Change = Callable[[LiveState, Model], Model]
"""Changes the state, and gives the model that goes with it."""


def live_state(request: ForecastRequest) -> LiveState:
    """The state of the request, anew, with what running jobs said since it was put on record."""
    state = from_snapshot(json.loads(request.live))
    for heard in request.heard:
        if (job := state.live.get(heard.job)) is not None and job.epoch == heard.epoch:
            job.hear(heard)
    return state


def live_present(
    request: ForecastRequest,
    state: LiveState,
    model: Model,
    exact: Collection[str] = (),
    unchanged: Present | None = None,
) -> Present:
    """The cluster at the moment of the request, if ``state`` is what it is; the limits of ``exact`` are lengths.

    ``unchanged``: the present that changes led away from. They change nothing of what is known of lengths, such as how
    long a job ran that lost its GPUs by them, so that both draw the same.
    """
    now_s = request.now_s
    past = [_past(job) for job in request.ended]
    done = [
        FinishedJob(each.job, job.attained_s * job.gpus, job.attained_s)
        for job, each in zip(request.ended, past, strict=True)
        if job.done
    ]
    engine, job_indices = build_engine(state, model, now_s, ended=done)
    settle_transitions(engine, now_s)
    settings = replace(settings_of(state).run, round_s=state.round_s, fill=True)
    known = list(_live(engine, now_s, state.live.values(), job_indices, exact))
    dependents = _dependents(state, engine, job_indices)
    if unchanged is None:
        return Present(now_s, engine, settings, [*past, *known], dependents)
    new = [each for each in known if each.job.id not in unchanged.by_id]
    added = frozenset(each.job.id for each in new)
    return Present(now_s, engine, settings, [*unchanged.known, *new], dependents, added)


def _dependents(state: LiveState, engine: Engine, job_indices: Mapping[str, int]) -> Dependents:
    """Jobs that wait for others, if all of those will end, and well, as every job does in a forecast."""
    ending = {engine.table.jobs[i].id for i in (*engine.active_jobs.job_indices().tolist(), *engine.assigned)}
    after = {job.id: tuple(map(predecessor, job.after)) for job in state.live.values() if _only_blocked(job)}
    while more := {job_id for job_id in after.keys() - ending if _can_follow(after[job_id], ending)}:
        ending |= more
    found = [state.live[job_id] for job_id in after if job_id in ending]
    ids = {job_indices[job.id]: tuple(dict.fromkeys(term.job for term in after[job.id])) for job in found if job.after}
    arrays: dict[str, list[int]] = {}
    for job in found:
        if not job.in_turn:
            arrays.setdefault(job.array_id, []).append(job_indices[job.id])
    elements = [(job.array_id, job.id) for job in state.live.values() if job.array_id in arrays]
    limited = [
        LimitedArray(frozenset(job_id for of, job_id in elements if of == array), tuple(waiting))
        for array, waiting in arrays.items()
    ]
    return Dependents(ids, limited)


def _only_blocked(job: LiveJob) -> bool:
    """It waits for others to end, and for nothing else that would keep it out of decisions."""
    return job.state == "waiting" and job.blocked and not (job.requested_action or job.not_before_s or job.aside)


def _can_follow(terms: Iterable[Predecessor], ending: Collection[str]) -> bool:
    return all(term.job in ending and term.condition != "failed" for term in terms)


def _past(job: EndedJob) -> KnownJob:
    duration_s = job.limit_s or UNKNOWN_DURATION_S
    known = Job(
        job.id,
        job.submitted_s,
        job.gpus,
        duration_s,
        model=job.model,
        user=job.user,
        group=job.queue,
        open_ended=job.limit_s is None,
    )
    return KnownJob(known, job.attained_s, True, limit_s=job.limit_s or math.inf)


def _live(
    engine: Engine, now_s: float, jobs: Iterable[LiveJob], job_indices: dict[str, int], exact: Collection[str]
) -> Iterable[KnownJob]:
    work_s = work_done_s(engine, now_s)
    for job in jobs:
        job_index = job_indices[job.id]
        known, spec = engine.table.jobs[job_index], job.spec
        # Steps alone are no length: only with a speed that the job reported, or that was measured of its model.
        measured = engine.perf.throughputs.rate(spec.model, spec.gpus.count, engine.cluster.types[0]) is not None
        by_steps = bool(job.total or spec.steps) and (job.rate > 0 or job.last_rate > 0 or measured)
        yield KnownJob(known, work_s[job_index], False, by_steps or job.id in exact, spec.max_runtime or math.inf)
