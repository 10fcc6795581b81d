"""The daemon's state as the forecaster needs it: its engine, built as after a restart, and what is known of lengths."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from trine.core.job import Job
from trine.engine.engine import Engine
from trine.forecast.present import Present, settle_transitions, work_done_s
from trine.forecast.work_history import KnownJob
from trine.policy.base import FinishedJob
from trine.server.build import UNKNOWN_DURATION_S, Model, build_engine, settings_of
from trine.server.live_job import LiveJob
from trine.server.predictions import EndedJob, ForecastRequest
from trine.server.snapshot import from_snapshot
from trine.server.state import LiveState

Change = Callable[[LiveState, Model], Model]
"""Changes the state, and gives the model that goes with it."""


def live_state(request: ForecastRequest) -> LiveState:
    """The state of the request, anew."""
    return from_snapshot(json.loads(request.live))


def live_present(request: ForecastRequest, state: LiveState, model: Model, exact: Collection[str] = ()) -> Present:
    """The cluster at the moment of the request, if ``state`` is what it is; the limits of ``exact`` are lengths."""
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
    return Present(now_s, engine, settings, [*past, *_live(engine, now_s, state.live.values(), job_indices, exact)])


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
