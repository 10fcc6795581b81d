"""The durable state of the live scheduler: what the journal's records add up to. Pure: no clock, no I/O.

The engine, with its indices and tables, is built from this state; this state is never built from the engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trine.core.cluster import Cluster
from trine.inputs.job_relations import predecessor
from trine.perf.learning.observations import Observations
from trine.perf.learning.observations_json import observations_from_json, observations_to_json
from trine.perf.variability import VariabilityTable
from trine.server import records as rec
from trine.server.dependencies import Dependencies
from trine.server.interface import LIVE_STATES, JobState
from trine.server.live_job import LiveJob, NodeState, node_after, node_gone
from trine.server.outcome import StateAfterExit, state_after_exit
from trine.server.quotas import QuotaChange

OF_PLACEMENT = "placement/"
"""What the accounts of the placement begin with; the others are the policy's."""
_ENDED_KEPT = 100_000
"""Ended jobs kept in memory and in snapshots; older ones are forgotten."""
_REQUESTS_KEPT = 50_000
_SKIPPED_KEPT = 100


@dataclass
class LiveState:
    """All jobs by id in order of arrival, nodes that are out of service, and what was learnt."""

    jobs: dict[str, LiveJob] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    cluster: Cluster | None = None
    policy: str = ""
    placement: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    round_s: float = 60.0
    sharing: rec.Sharing = "off"
    """Which jobs may share GPUs."""
    accounts: dict[str, Any] = field(default_factory=dict)
    """What the policy keeps of the time jobs received, and the placement of their starts, in a form of their own."""
    observations: Observations | None = None
    """What running jobs taught about GPUs and models; there is one as soon as the cluster is known."""
    requests: dict[str, list[str]] = field(default_factory=dict)
    """Ids given for a client's request id, so that a repeated request is not a second job."""
    digests: dict[str, str] = field(default_factory=dict)
    """What those requests asked for; of a journal of an older version that is not known."""
    quotas: dict[str, QuotaChange] = field(default_factory=dict)
    """Quotas that were changed while the daemon ran, by ``user:NAME`` or ``queue:NAME``."""
    next_id: int = 1
    last_s: float = 0.0
    """Time of the last record."""
    clock: dict[str, Any] | None = None
    """The machine's clock at the last start of the daemon, see ``server.clock``."""
    fallback: rec.FellBack | None = None
    """What is used in the place of the configured policy and placement, which fail for all jobs."""
    skipped: list[str] = field(default_factory=list)
    """Records that could not be applied, each in a sentence; they are still in the journal."""

    def __post_init__(self) -> None:
        self.live: dict[str, LiveJob] = {job.id: job for job in self.jobs.values() if job.live}
        """The jobs that can still change, in order of arrival."""
        self.paused: set[str] = {job.id for job in self.live.values() if job.not_before_s}
        """Ids of the jobs that are not started again before some time."""
        self.unsaved: dict[str, LiveJob] = {job.id: job for job in self.jobs.values() if not job.live}
        """Ended jobs that no snapshot holds yet; they never change again."""
        self.forgotten: list[str] = []
        """Ended jobs that snapshots hold and this state does not any more."""
        self.external: dict[str, LiveJob] = {job.external: job for job in self.jobs.values() if job.external}
        """Jobs that others gave to the engine itself, by their keys; also those that have ended."""
        self._dependencies = Dependencies(self.live)
        self._followers: list[str] = []
        """Jobs that stand in line, or were cancelled, because jobs they waited for have ended."""
        self._appliers: dict[str, Callable[[Any], None]] = {
            rec.Configured.kind: self._configured,
            rec.ModelRefined.kind: lambda _: None,
            rec.ClusterChanged.kind: self._cluster_changed,
            rec.Accepted.kind: self._accepted,
            rec.ActionRequested.kind: self._asked,
            rec.PriorityChanged.kind: self._priority_changed,
            rec.QuotasChanged.kind: self._quotas_changed,
            rec.NodeChanged.kind: self._node_changed,
            rec.Ticked.kind: self._ticked,
            rec.StartReported.kind: self._started,
            rec.ExitReported.kind: self._exited,
            rec.SetAside.kind: self._set_aside,
            rec.FellBack.kind: self._fell_back,
        }

    def apply(self, record: rec.Record) -> None:
        """Take one record into account, and then what was decided on it."""
        self.last_s = max(self.last_s, record.at_s)
        self._appliers[record.kind](record)
        for stop in record.orders.stops:
            self._stop(record.at_s, stop)
        for start in record.orders.starts:
            self._start(record.at_s, start)

    def reapply(self, number: int, record: rec.Record) -> None:
        """Take record ``number`` of the journal into account; one that cannot be is reported and passed over.

        It was written by a daemon that could, so this is a bug of ours. It must not keep the daemon from starting."""
        try:
            self.apply(record)
        except Exception as error:
            self.skip(number, record.kind, error)

    def skip(self, number: int, kind: str, error: BaseException) -> None:
        """Note that a record of the journal was passed over."""
        self.skipped.append(f"record {number} ({kind}) cannot be applied: {error or type(error).__name__}")
        del self.skipped[:-_SKIPPED_KEPT]

    # -- what happened -------------------------------------------------------------------------------------------

    def _configured(self, record: rec.Configured) -> None:
        self._use_cluster(record.at_s, rec.cluster_from_record(record.cluster))
        if (self.policy, self.settings, self.round_s) != (record.policy, record.settings, record.round_s):
            self.accounts = {}  # of another policy
        elif self.placement != record.placement:
            self.accounts = {name: kept for name, kept in self.accounts.items() if not name.startswith(OF_PLACEMENT)}
        self.policy, self.placement, self.settings = record.policy, record.placement, record.settings
        self.round_s, self.sharing = record.round_s, record.sharing
        self.fallback = None
        if record.clock is not None:
            self.clock = {**record.clock, "at_s": record.at_s}
        for job_id, newest in record.attempts.items():
            self._outdated(record.at_s, job_id, newest)

    def _cluster_changed(self, record: rec.ClusterChanged) -> None:
        self._use_cluster(record.at_s, rec.cluster_from_record(record.cluster))
        names = {node.name for node in self.cluster.nodes} if self.cluster else set()
        left = {name: node_gone(node) for name, node in self.nodes.items() if name not in names}
        kept = {name: left.get(name, node) for name, node in self.nodes.items()}
        self.nodes = {name: node for name, node in kept.items() if node is not None}

    def _use_cluster(self, now: float, cluster: Cluster) -> None:
        before, self.cluster = self.cluster, cluster
        if before is not None and cluster.nodes != before.nodes:
            self._renumber(now, before, cluster)
        if self.observations is None:
            self.observations = Observations(VariabilityTable.of_cluster(cluster))
        elif before is not None and cluster.scores != before.scores:
            self.observations.rebase(VariabilityTable.of_cluster(cluster))
        if before is None or before.types != cluster.types:
            self.accounts = {}  # in another form

    def _outdated(self, now: float, job_id: str, newest: int) -> None:
        """The journal is older than attempt ``newest``, which it does not know: the one it knows is over."""
        job = self.live.get(job_id)
        if job is None or job.epoch >= newest:
            return
        if job.holds_gpus:
            job.state = "stopping"  # not by itself
            later = f"Attempt {newest} was started after this journal was saved."
            self._exited(rec.ExitReported(now, job.id, job.epoch, "preempted", None, None, later))
        job.epoch = newest

    def _renumber(self, now: float, old: Cluster, new: Cluster) -> None:
        """Nodes came or went: GPU ids follow their nodes."""
        new_id = _renumbered(old, new)
        gone = "GPUs it ran on are not part of the cluster any more."
        for job in list(self.holders()):
            gpus = tuple(new_id.get(gpu, -1) for gpu in job.gpus)
            if -1 in gpus or len({new.type_of(gpu) for gpu in gpus}) > 1:
                job.state = "stopping"  # not by itself
                self._exited(rec.ExitReported(now, job.id, job.epoch, "preempted", None, None, gone))
            else:
                job.gpus = tuple(sorted(gpus))
        if self.observations is not None:
            base = VariabilityTable.of_cluster(new)
            self.observations = observations_from_json(observations_to_json(self.observations), base, gpu_ids=new_id)

    def _accepted(self, record: rec.Accepted) -> None:
        job = LiveJob(
            record.job,
            record.user,
            record.queue,
            record.weight,
            record.spec,
            record.at_s,
            idle_from_s=record.at_s,
            after=tuple(term for term in record.spec.after if predecessor(term).job in self.live),
            array_id=record.array_id,
            array_index=record.array_index,
            external=record.external,
        )
        job.in_turn = self._dependencies.has_turn(job)
        job.tell(record.at_s, "submitted")
        self.jobs[job.id] = self.live[job.id] = job
        if job.external:
            self.external[job.external] = job
        self._dependencies.enter(job)
        self.next_id = max(self.next_id, int(job.id) + 1)
        if record.request_id:
            self.requests.setdefault(record.request_id, []).append(job.id)
            if record.digest:
                self.digests[record.request_id] = record.digest
            while len(self.requests) > _REQUESTS_KEPT:
                oldest = next(iter(self.requests))
                del self.requests[oldest]
                self.digests.pop(oldest, None)

    def _asked(self, record: rec.ActionRequested) -> None:
        job = self.jobs[record.job]
        over = record.verb == "timeout"
        job.tell(record.at_s, f"time limit: {record.by}" if over else f"{record.verb} asked by {record.by}")
        if record.verb == "release":
            job.requested_action, job.aside, job.vain = "", "", 0
            self._resume_now(job)
            if job.state in ("held", "set aside"):
                job.state = "waiting"
        elif job.holds_gpus:
            job.requested_action = record.verb
        elif record.verb == "hold":
            self._resume_now(job)
            job.state, job.aside = "held", ""
        else:
            self._end(job, record.at_s, "cancelled", None)

    def _priority_changed(self, record: rec.PriorityChanged) -> None:
        job = self.live.get(record.job)
        if job is None:
            return
        before = job.spec.priority
        job.spec = job.spec.model_copy(update={"priority": record.priority})
        job.tell(record.at_s, f"priority {record.priority:g} asked by {record.by}", f"It was {before:g}.")

    def _quotas_changed(self, record: rec.QuotasChanged) -> None:
        kept = {subject: known for subject, known in self.quotas.items() if subject not in record.as_configured}
        new = {name: QuotaChange(max_gpus, record.by, record.at_s) for name, max_gpus in record.changes.items()}
        self.quotas = kept | new

    def _resume_now(self, job: LiveJob) -> None:
        job.not_before_s = 0.0
        self.paused.discard(job.id)

    def due(self, now: float) -> list[LiveJob]:
        """Jobs whose pause is over, in order of arrival."""
        found = [self.live[job_id] for job_id in self.paused if self.live[job_id].not_before_s <= now]
        return sorted(found, key=lambda job: int(job.id))

    def _set_aside(self, record: rec.SetAside) -> None:
        job = self.live.get(record.job)
        if job is None:
            return
        self._resume_now(job)
        job.aside = record.reason
        if job.state == "waiting":
            job.state = "set aside"
        job.tell(record.at_s, "set aside", record.reason)

    def _fell_back(self, record: rec.FellBack) -> None:
        self.fallback = record
        self.accounts = {}  # of another policy

    def _node_changed(self, record: rec.NodeChanged) -> None:
        after = node_after(self.nodes.get(record.node), record)
        if after is None:
            self.nodes.pop(record.node, None)
        else:
            self.nodes[record.node] = after

    def _ticked(self, record: rec.Ticked) -> None:
        for paused in self.due(record.at_s):
            self._resume_now(paused)
        for heard in record.heard:
            job = self.live.get(heard.job)
            if job is None or job.epoch != heard.epoch or not job.holds_gpus:
                continue
            self._observe(job, heard)
            job.hear(heard)
        for name, value in record.accounts.items():
            if value is None:
                self.accounts.pop(name, None)
            else:
                self.accounts[name] = value

    def _observe(self, job: LiveJob, heard: rec.Heard) -> None:
        if self.cluster is None or self.observations is None or not job.heard_since(heard.at_s, heard.seconds):
            return
        if heard.links_shared:
            return
        co_runner = self.co_runner_of(job)
        if co_runner is not None and co_runner.state == "starting":
            return
        # What a job reports is no more than evidence: a report that nothing can be learnt from is passed over.
        with contextlib.suppress(ArithmeticError, ValueError):
            self.observations.observe(
                at_s=heard.at_s,
                model=job.spec.model,
                app_class=job.spec.app_class,
                gpus=job.gpus,
                gpu_type=self.cluster.type_of(job.gpus[0]),
                tier=self.cluster.tier(job.gpus),
                steps_per_s=heard.steps_per_s,
                seconds=heard.seconds,
                run=f"{job.id}/{job.epoch}",
                co_runner=None if co_runner is None else co_runner.spec.model,
            )

    def _started(self, record: rec.StartReported) -> None:
        job = self.live.get(record.job)
        if job is None or job.epoch != record.epoch:
            return
        job.run_from_s = job.attempt_from_s = record.at_s
        self._colocation_changed(job, record.at_s)
        if job.state == "starting":
            job.state = "running"
            job.tell(record.at_s, "running")

    def _exited(self, record: rec.ExitReported) -> None:
        job = self.live.get(record.job)
        if job is None or job.epoch != record.epoch or not job.holds_gpus:
            return
        after = state_after_exit(job, record)
        took_s = max(record.at_s - job.run_from_s, 0.0)
        expected_s = (job.expected_s or 0.0) if job.state != "stopping" else 0.0
        if after.state == "done" and self.observations is not None and expected_s > 0 and took_s > 0:
            self.observations.predicted(job.spec.model, expected_s, took_s)
        job.attained_s += took_s
        job.run_from_s = job.idle_from_s = record.at_s
        self._part(job, record.at_s)
        job.gpus, job.rate, job.last_rate = (), 0.0, job.rate or job.last_rate
        job.safe = job.safe if record.step is None else record.step
        job.done = job.safe if after.state != "done" else job.total or job.spec.steps or max(job.done, job.safe)
        if after.state == "done" and job.done:
            job.total = job.done  # whatever it had said of its length, if anything: that was all
        job.vain, job.failures, job.lost_s = after.vain, after.failures, job.lost_s + after.lost_s
        if after.state in LIVE_STATES:
            self._put_back(job, after, record.at_s)
        else:
            self._end(job, record.at_s, after.state, record.rc, after.sentence)

    def _put_back(self, job: LiveJob, after: StateAfterExit, at_s: float) -> None:
        """The job waits (or is held) again."""
        preempted = job.state == "stopping" and not job.requested_action
        ran_s = at_s - job.attempt_from_s if job.attempt_from_s else 0.0
        # Twice as long as was in vain: a job without checkpoints gets through after a few attempts, however long.
        job.protected_s = 2 * ran_s if preempted and after.lost_s > 0 else 0.0
        job.state, job.requested_action, job.attempt_from_s = after.state, "", 0.0
        if job.aside and job.state == "waiting":
            job.state = "set aside"
        elif after.pause_s and job.state == "waiting":
            job.not_before_s = at_s + after.pause_s
            self.paused.add(job.id)
        job.tell(at_s, after.what, after.sentence)

    def _end(self, job: LiveJob, at_s: float, state: JobState, rc: int | None, sentence: str = "") -> None:
        """The job is over, and with it those that can never start any more."""
        self._close(job, at_s, state, rc, sentence)
        ended = [job]
        for each in ended:  # grows: a chain of jobs may be longer than calls can be deep
            follows = self._dependencies.ended(each)
            for dependent, why in follows.impossible:
                self._close(dependent, at_s, "cancelled", None, why)
                ended.append(dependent)
            for dependent in follows.eligible:
                dependent.eligible_s = dependent.idle_from_s = at_s
                dependent.tell(at_s, "eligible", "What it had to wait for has ended.")
            self._followers += [each.id for each in (*follows.eligible, *(one for one, _ in follows.impossible))]
        if len(self.jobs) - len(self.live) > _ENDED_KEPT + _ENDED_KEPT // 10:
            self._forget_oldest()

    def _close(self, job: LiveJob, at_s: float, state: JobState, rc: int | None, sentence: str) -> None:
        job.state, job.finished_s, job.exit_code, job.requested_action = state, at_s, rc, ""
        job.tell(at_s, state, sentence)
        # Its variables are of no more use: they would only make every snapshot larger, and may hold secrets.
        job.spec = job.spec.model_copy(update={"env": {}}) if job.spec.env else job.spec
        self.live.pop(job.id, None)
        self._resume_now(job)
        self.unsaved[job.id] = job

    def take_followers(self) -> list[str]:
        """Ids of the jobs that stand in line, or were cancelled, since this was asked last, because others ended."""
        found, self._followers = self._followers, []
        return found

    def _forget_oldest(self) -> None:
        ended = [job_id for job_id, job in self.jobs.items() if not job.live]
        for job_id in ended[: len(ended) - _ENDED_KEPT]:
            self.external.pop(self.jobs.pop(job_id).external, None)
            if self.unsaved.pop(job_id, None) is None:
                self.forgotten.append(job_id)

    # -- what was decided ----------------------------------------------------------------------------------------

    def _stop(self, at_s: float, order: rec.StopOrder) -> None:
        job = self.live.get(order.job)
        if job is None or job.epoch != order.epoch:
            return
        job.state = "stopping"
        job.attained_s += max(at_s - job.run_from_s, 0.0)
        job.run_from_s = at_s
        job.migrations += order.moves
        job.preemptions += order.why == "preempted"
        job.tell(at_s, "moving" if order.moves else "stopping", order.sentence)

    def _start(self, at_s: float, order: rec.StartOrder) -> None:
        job = self.live[order.job]
        job.state, job.epoch, job.gpus = "starting", order.epoch, tuple(order.gpus)
        job.run_from_s, job.expected_s, job.attempt_from_s = at_s, order.expected_s, 0.0
        job.started_s = at_s if job.started_s is None else job.started_s
        job.heard_s, job.done = 0.0, job.safe
        job.co_runner, job.colocated_s = order.co_runner, 0.0
        job.tell(at_s, "started", order.sentence)
        other = self.live.get(order.co_runner)
        if other is not None and other.holds_gpus and other.gpus == job.gpus:
            self._join(job, other, at_s)

    # -- two on the same GPUs ------------------------------------------------------------------------------------

    def co_runner_of(self, job: LiveJob) -> LiveJob | None:
        """The job that holds the same GPUs now; both were declared to share them."""
        other = self.live.get(job.co_runner)
        if other is None or not (job.holds_gpus and other.holds_gpus):
            return None
        return other if other.co_runner == job.id and other.gpus == job.gpus else None

    def _join(self, job: LiveJob, other: LiveJob, at_s: float) -> None:
        other.co_runner = job.id
        other.tell(at_s, "shares its GPUs", f"job {job.id} starts there, too.")
        # How long it takes depends on how long the other stays.
        job.expected_s = other.expected_s = None
        self._colocation_changed(job, at_s)

    def _part(self, job: LiveJob, at_s: float) -> None:
        """The job leaves; its co-runner has the GPUs to itself."""
        other = self.co_runner_of(job)
        if other is not None:
            self._colocation_changed(job, at_s)
            other.co_runner = ""
            other.tell(at_s, "has its GPUs to itself", f"job {job.id} left them.")
        job.co_runner = ""

    def _colocation_changed(self, job: LiveJob, at_s: float) -> None:
        """The speeds of both are others from now on."""
        other = self.co_runner_of(job)
        if other is not None:
            job.colocated_s = other.colocated_s = at_s
            job.rate = other.rate = 0.0

    # -- queries --------------------------------------------------------------------------------------------------

    def holders(self) -> Iterator[LiveJob]:
        """Jobs whose processes exist or are about to."""
        return (job for job in self.live.values() if job.holds_gpus)


def _renumbered(old: Cluster, new: Cluster) -> dict[int, int]:
    """New GPU id by old, for GPUs of nodes that both clusters have."""
    there = {(new.nodes[node].name, new.index_of(gpu)): gpu for gpu, node in enumerate(new.node_of)}
    ids: dict[int, int] = {}
    for gpu, node in enumerate(old.node_of):
        found = there.get((old.nodes[node].name, old.index_of(gpu)))
        if found is not None:
            ids[gpu] = found
    return ids
