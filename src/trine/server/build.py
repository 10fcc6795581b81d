"""Builds the engine from the durable state: after a restart, after a change of the configuration or the model."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from trine.config.job_spec import JobSpec
from trine.core.cluster import Cluster, Tier
from trine.core.job import Job, Shape
from trine.engine.engine import Engine
from trine.engine.events import Withheld
from trine.engine.quotas import Quotas
from trine.engine.reasons import never_fits
from trine.engine.resume import Past, resume
from trine.engine.table import State
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.throughput import ThroughputTable
from trine.placement.shaped import never_has_shape
from trine.server.live_job import LiveJob
from trine.server.records import Sharing
from trine.server.state import LiveState
from trine.sim.scenario import class_penalties
from trine.sim.settings import Settings, resolve

KNOWN = "known_speeds"
"""Where, among a policy's accounts, it is noted which speeds they come from."""
UNKNOWN_LENGTH_S = 3600.0
"""How long a job is taken to need when it says nothing of itself."""

_STATES = {"starting": State.STARTING, "running": State.RUNNING, "stopping": State.STOPPING}


@dataclass(frozen=True)
class Model:
    """What decisions depend on besides the state: measured throughputs and the limits of queues and users."""

    throughputs: ThroughputTable | None = None
    quotas: Quotas = field(default_factory=Quotas)
    seed: int = 0

    @cached_property
    def mark(self) -> int:
        """A number that tells throughput tables apart."""
        known = self.throughputs or ThroughputTable()
        return zlib.crc32(
            repr(
                [sorted((key, sorted(row.items())) for key, row in part.items()) for part in (known.rates, known.pairs)]
            ).encode()
        )


def settings_of(state: LiveState) -> Settings:
    """All that was said about the run; share policies count in rounds of the daemon."""
    return resolve(state.policy, state.placement, {**state.settings, "round_s": state.round_s})


def performance(state: LiveState, model: Model, cluster: Cluster) -> PerfModel:
    """The performance model: what was measured, refined by what was observed."""
    settings = settings_of(state).run
    across = settings.locality_penalty
    assert state.observations is not None
    penalty = LocalityPenalty(
        1.0,
        across,
        across if settings.rack_penalty is None else settings.rack_penalty,
        class_penalties(settings.class_penalty),
    )
    rates = state.observations.throughputs(model.throughputs or ThroughputTable(), cluster.types, penalty)
    return PerfModel(cluster, state.observations.refined(), penalty, rates)


def build_engine(state: LiveState, model: Model, now: float) -> tuple[Engine, dict[str, int]]:
    """An engine that stands where the state says, and the job numbers by job id."""
    settings = settings_of(state)
    engine = empty_engine(state, model, settings, f"{model.seed}/placement/{len(state.jobs)}")
    for job in state.jobs.values():
        if job.state == "done":
            settings.policy.finished(job.attained_s * job.spec.gpus.count)
    slots: dict[str, int] = {}
    for job in state.live.values():
        mate = state.beside(job)
        partner = -1 if mate is None else slots.get(mate.id, -1)
        slots[job.id] = resume(engine, now, engine_job(job, engine.perf, state.sharing), past(job, partner))
    for name in state.nodes:
        engine.handle(Withheld(now, gpus_of(engine.cluster, name)))
    if state.accounts:
        stale = state.accounts[KNOWN] != known_speeds(state, model)
        settings.policy.restore(state.accounts, engine.view(now), stale)
    return engine, slots


def empty_engine(state: LiveState, model: Model, settings: Settings, seed: str) -> Engine:
    """An engine for the cluster, without jobs; ``seed`` is that of the placement."""
    assert state.cluster is not None
    perf = performance(state, model, state.cluster)
    settings.placement.prepare(perf, random.Random(seed), settings.compat)
    run = settings.run
    return Engine(
        state.cluster,
        settings.policy,
        settings.placement,
        perf,
        run.strict,
        settings.compat,
        run.costs,
        model.quotas,
        space_sharing=state.sharing != "off",
    )


def known_speeds(state: LiveState, model: Model) -> list[int]:
    """Changes when the throughput table does, or when what was observed changed the model noticeably."""
    return [model.mark, state.observations.token if state.observations else 0]


def gpus_of(cluster: Cluster, node: str) -> tuple[int, ...]:
    """GPU ids of the node of this name; none if it is not part of the cluster any more."""
    for i, found in enumerate(cluster.nodes):
        if found.name == node:
            return tuple(range(cluster.first_gpu[i], cluster.first_gpu[i] + found.gpus))
    return ()


def past(job: LiveJob, partner: int = -1) -> Past:
    """What the engine must know of the job's history; ``partner``: who was put back on its GPUs before it."""
    return Past(
        job.epoch,
        job.done,
        job.attained_s,
        job.idle_from_s,
        job.run_from_s,
        job.gpus if job.holds_gpus else (),
        _STATES.get(job.state, State.WAITING),
        job.state == "held" or bool(job.wish),
        job.rate,
        job.heard_s or job.run_from_s,
        partner,
    )


def engine_job(job: LiveJob, perf: PerfModel, sharing: Sharing = "user") -> Job:
    """The job as policies and placements see it. Work without a known number of steps is counted in seconds."""
    spec = job.spec
    length_s = spec.max_runtime or UNKNOWN_LENGTH_S
    steps = job.total or spec.steps
    made = Job(
        job.id,
        job.submitted_s,
        spec.gpus.count,
        steps or length_s,
        length_s / steps if steps else 1.0,
        spec.model,
        job.user,
        job.queue,
        spec.app_class,
        priority=spec.priority,
        weight=job.weight,
        deadline_s=_deadline_s(job),
        gpu_types=spec.gpus.types,
        shape=_shape(job),
        circle=job.user if sharing == "user" else "",
    )
    if steps is None and perf.throughputs.rate(spec.model, made.gpus, perf.cluster.types[0]) is not None:
        # Counted in seconds, the table's steps per second would be taken for seconds per second.
        return replace(made, model="")
    return made


def why_never(engine: Engine, spec: JobSpec) -> str:
    """Why the cluster, were it empty, could not run such a job; empty if it could."""
    job = engine_job(LiveJob("new", "", "", 1.0, spec, 0.0), engine.perf)
    types = engine.perf.types_for(job)
    if not types:
        return never_fits(job, engine.perf)
    if engine.excluded:
        in_use = [gpu for gpu in range(engine.cluster.gpu_count) if gpu not in engine.excluded]
        kinds = Counter(map(engine.cluster.type_of, in_use))
        most = max(kinds[engine.cluster.types[kind]] for kind in types)
        if most < job.gpus:
            return f"it asks for {job.gpus} GPUs of one type, and the placement leaves {most} in use"
    return never_has_shape(job, engine.perf)


def _deadline_s(job: LiveJob) -> float | None:
    deadline = job.spec.deadline
    if isinstance(deadline, datetime):
        return deadline.timestamp()
    return None if deadline is None else job.submitted_s + deadline


def _shape(job: LiveJob) -> Shape | None:
    topology, nodes = job.spec.topology, job.spec.nodes
    if nodes is None and topology.required is None and topology.preferred is None:
        return None
    wait_s = float("inf") if topology.max_wait_s is None else topology.max_wait_s
    return Shape(nodes, _tier(topology.required), _tier(topology.preferred), job.submitted_s + wait_s)


def _tier(name: str | None) -> Tier | None:
    return None if name is None else Tier[name.upper()]
