"""Builds the engine from the durable state: after a restart, after a change of the configuration or the model."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import Settings, resolve
from trine.core.cluster import Cluster, Node, Tier
from trine.core.errors import InputError
from trine.core.job import Job, Shape
from trine.engine.engine import Engine
from trine.engine.events import GpusCordoned
from trine.engine.explain import never_fits
from trine.engine.job_table import State
from trine.engine.quotas import Quotas
from trine.engine.resume import Past, rate_resumed, resume
from trine.inputs.job_spec import JobSpec
from trine.perf.model import PerfModel
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.placement.topology import never_has_shape
from trine.policy.base import FinishedJob
from trine.policy.view import View
from trine.server.inventory import cluster_of, node_info
from trine.server.live_job import LiveJob, NodeState
from trine.server.quotas import quotas_now
from trine.server.records import Sharing
from trine.server.state import OF_PLACEMENT, LiveState

KNOWN = "known_speeds"
"""Where, among a policy's accounts, it is noted which speeds they come from."""
UNKNOWN_DURATION_S = 3600.0
"""How long a job is taken to need when it says nothing of itself."""
_UNSOUND = "its steps and its time limit make no sense together with the measured speeds"

_STATES = {"starting": State.STARTING, "running": State.RUNNING, "stopping": State.STOPPING}


@dataclass(frozen=True)
class Model:
    """What decisions depend on besides the state: measured throughputs, and the limits of queues and users as they are
    configured."""

    throughputs: ThroughputTable | None = None
    quotas: Quotas = field(default_factory=Quotas)
    seed: int = 0

    def quotas_record(self) -> dict[str, dict[str, int]]:
        """The limits as the journal keeps them; see ``with_recorded``."""
        known = {"groups": dict(self.quotas.by_group), "users": dict(self.quotas.by_user)}
        return known if self.quotas else {}

    def with_recorded(self, quotas: dict[str, dict[str, int]]) -> Model:
        """As this, with the limits that are on record, if any are."""
        return replace(self, quotas=Quotas(quotas["groups"], quotas["users"])) if quotas else self

    @cached_property
    def mark(self) -> int:
        """A number that differs between throughput tables."""
        known = self.throughputs or ThroughputTable()
        return zlib.crc32(
            repr(
                [sorted((key, sorted(row.items())) for key, row in part.items()) for part in (known.rates, known.pairs)]
            ).encode()
        )


RESTART_S = 30.0
"""What a restart of a job is taken to cost where no setting says it: no real program starts for nothing."""


def settings_of(state: LiveState) -> Settings:
    """The settings of the run; share policies count in rounds of the daemon."""
    values = {"restore_s": RESTART_S, **state.settings, "round_s": state.round_s}
    if state.fallback is None:
        return resolve(state.policy, state.placement, values)
    try:
        return resolve(state.fallback.policy, state.fallback.placement, values)
    except InputError:  # settings of the policy that failed
        return resolve(state.fallback.policy, state.fallback.placement, {"round_s": state.round_s})


def performance(state: LiveState, model: Model, cluster: Cluster) -> PerfModel:
    """The performance model: what was measured, refined by what was observed."""
    settings = settings_of(state).run
    assert state.observations is not None
    learnt, given = state.observations, model.throughputs or ThroughputTable()
    chips = learnt.refined()
    assumed = performance_model(settings, cluster, chips, given)
    rates = learnt.throughputs(given, cluster.types, assumed.gang_slowdown)
    return performance_model(settings, cluster, chips, rates, measured_slowdowns=learnt.network_slowdowns())


def build_engine(
    state: LiveState,
    model: Model,
    now: float,
    only: Collection[str] | None = None,
    ended: Iterable[FinishedJob] = (),
) -> tuple[Engine, dict[str, int]]:
    """An engine that stands where the state says, and the job numbers by job id.

    ``only`` these jobs take part in decisions, where it is given; others that hold GPUs are set aside, and those that
    do not are left out: the engine is that much sooner built. ``ended``: jobs to learn from that the state does not
    have. A policy with a record of its own goes on from that instead: it counts them already."""
    settings = settings_of(state)
    engine = empty_engine(state, model, settings, f"{model.seed}/placement/{len(state.jobs)}")
    for job in state.jobs.values():
        if job.state == "done":
            settings.policy.finished(_ended(job))
    for each in ended:
        settings.policy.finished(each)
    job_indices: dict[str, int] = {}
    for job in state.live.values():
        if only is not None and job.id not in only and not job.holds_gpus:
            continue
        other = state.co_runner_of(job)
        co_runner = -1 if other is None else job_indices.get(other.id, -1)
        known = sound_job(job, engine.perf, state.sharing)
        job_indices[job.id] = job_index = resume(engine, now, known or _stand_in(job), past(job, co_runner))
        if job.aside or known is None or (only is not None and job.id not in only):
            engine.set_aside(job_index)
    rate_resumed(engine)
    for name, node in state.nodes.items():
        engine.handle(GpusCordoned(now, withheld_gpus(engine.cluster, name, node)))
    _restore(state, settings, engine.view(now), known_speeds(state, model))
    return engine, job_indices


def _ended(job: LiveJob) -> FinishedJob:
    """What policies learn from a job that is done. The time it held GPUs stands for its work: that is not on record."""
    known = Job(job.id, job.submitted_s, job.spec.gpus.count, 1.0, model=job.spec.model, user=job.user)
    return FinishedJob(known, job.attained_s * job.spec.gpus.count, job.attained_s)


def _restore(state: LiveState, settings: Settings, view: View, speeds: list[int]) -> None:
    """Policy and placement go on from their accounts."""
    of_placement = {name: value for name, value in state.accounts.items() if name.startswith(OF_PLACEMENT)}
    of_policy = {name: value for name, value in state.accounts.items() if name not in of_placement}
    if of_policy:
        settings.policy.restore(of_policy, view, stale=of_policy[KNOWN] != speeds)
    if of_placement:
        settings.placement.restore({name.removeprefix(OF_PLACEMENT): v for name, v in of_placement.items()})


def empty_engine(state: LiveState, model: Model, settings: Settings, seed: str) -> Engine:
    """An engine for the cluster, without jobs; ``seed`` is that of the placement."""
    assert state.cluster is not None
    perf = performance(state, model, state.cluster)
    quotas = quotas_now(model.quotas, state.quotas)
    return make_engine(settings, perf, seed, quotas, space_sharing=state.sharing != "off")


def known_speeds(state: LiveState, model: Model) -> list[int]:
    """Changes when the throughput table does, or when what was observed changed the model noticeably."""
    return [model.mark, state.observations.token if state.observations else 0]


def gpus_of(cluster: Cluster, node: str) -> tuple[int, ...]:
    """GPU ids of the node of this name; none if it is not part of the cluster any more."""
    for i, found in enumerate(cluster.nodes):
        if found.name == node:
            return tuple(range(cluster.first_gpu[i], cluster.first_gpu[i] + found.gpus))
    return ()


def withheld_gpus(cluster: Cluster, name: str, node: NodeState | None) -> tuple[int, ...]:
    """GPU ids of the node of this name on which nothing may start."""
    if node is None:
        return ()
    return tuple(gpu for gpu in gpus_of(cluster, name) if node.withholds(cluster.index_of(gpu)))


def past(job: LiveJob, co_runner: int = -1) -> Past:
    """What the engine must know of the job's history; ``co_runner``: the job put back on its GPUs before."""
    return Past(
        job.epoch,
        job.done,
        job.attained_s,
        job.idle_from_s,
        job.run_from_s,
        job.gpus if job.holds_gpus else (),
        _STATES.get(job.state, State.WAITING),
        job.state == "held" or bool(job.requested_action) or job.not_before_s > 0 or job.blocked,
        job.rate,
        job.heard_s or job.run_from_s,
        co_runner,
    )


def engine_job(job: LiveJob, perf: PerfModel, sharing: Sharing = "user") -> Job:
    """The job as policies and placements see it. Work without a known number of steps is counted in seconds."""
    spec = job.spec
    rate = job.rate or job.last_rate
    known = bool(job.total and rate)
    steps = job.total or spec.steps
    duration_s = job.total / rate if job.total and rate else spec.max_runtime or UNKNOWN_DURATION_S
    measured = perf.throughputs.rate(spec.model, spec.gpus.count, perf.cluster.types[0]) is not None
    return Job(
        job.id,
        job.submitted_s,
        spec.gpus.count,
        steps or duration_s,
        duration_s / steps if steps else 1.0,
        # Counted in seconds, the table's steps per second would be taken for seconds per second.
        "" if steps is None and measured else spec.model,
        job.user,
        job.queue,
        spec.app_class,
        priority=spec.priority,
        weight=job.weight,
        deadline_s=_deadline_s(job),
        gpu_types=spec.gpus.types,
        shape=_shape(job),
        sharing_domain=job.user if sharing == "user" else "",
        min_run_s=min_run_s(job),
        open_ended=spec.max_runtime is None and not known and not (steps and measured),
    )


def min_run_s(job: LiveJob) -> float:
    """How long a start of the job runs before it may be stopped for others, in seconds."""
    return max(job.spec.min_run or 0.0, job.protected_s) if job.spec.preemptible else math.inf


def sound_job(job: LiveJob, perf: PerfModel, sharing: Sharing = "user") -> Job | None:
    """As ``engine_job``; ``None`` if its numbers make no sense to the performance model."""
    try:
        made = engine_job(job, perf, sharing)
        speed = perf.speed(made, job.gpus).steps_per_s if job.holds_gpus else 1.0
        # Infinity is what a type that cannot hold the job has for a step.
        sound = 0 < made.steps < math.inf and 0 < speed < math.inf and perf.ideal_s(made) > 0
        return made if sound and all(step_s > 0 for step_s in perf.step_s_by_type(made)) else None
    except (ArithmeticError, ValueError, LookupError):
        return None


def _stand_in(job: LiveJob) -> Job:
    """In place of a job that nothing is known of but its GPUs: it may run on, and is not decided about."""
    return Job(job.id, job.submitted_s, job.spec.gpus.count, UNKNOWN_DURATION_S, user=job.user, group=job.queue)


def performance_with(state: LiveState, model: Model, nodes: Sequence[Node]) -> PerfModel:
    """The performance model of the cluster and more nodes, of whose chips nothing is known."""
    assert state.cluster is not None
    cluster = cluster_of([node_info(node) for node in (*state.cluster.nodes, *nodes)], state.cluster)
    chips = VariabilityTable.of_cluster(cluster)
    return performance_model(settings_of(state).run, cluster, chips, model.throughputs or ThroughputTable())


def why_unsound(perf: PerfModel, spec: JobSpec) -> str:
    """Why no cluster could run such a job, however large; empty if one could."""
    return _UNSOUND if sound_job(_submitted(spec), perf) is None else ""


def why_too_small(perf: PerfModel, spec: JobSpec, excluded: Collection[int] = ()) -> str:
    """Why the cluster, were it empty and all of it in service, could not run such a job; empty if it could.

    ``excluded``: GPUs that the placement never uses."""
    job = sound_job(_submitted(spec), perf)
    if job is None:
        return _UNSOUND
    types = perf.types_for(job)
    if not types:
        return never_fits(job, perf)
    if excluded:
        in_use = [gpu for gpu in range(perf.cluster.gpu_count) if gpu not in excluded]
        kinds = Counter(map(perf.cluster.type_of, in_use))
        most = max(kinds[perf.cluster.types[kind]] for kind in types)
        if most < job.gpus:
            return f"it asks for {job.gpus} GPUs of one type, and the placement leaves {most} in use"
    return never_has_shape(job, perf)


def _submitted(spec: JobSpec) -> LiveJob:
    return LiveJob("new", "", "", 1.0, spec, 0.0)


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
