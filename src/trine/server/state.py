"""The durable state of the live scheduler: what the journal's records add up to. Pure: no clock, no I/O.

The engine, with its indices and tables, is built from this state; this state is never built from the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from trine.config.job_spec import JobSpec
from trine.core.cluster import Cluster
from trine.perf.observed import Observations
from trine.perf.variability import VariabilityTable
from trine.server import records as rec
from trine.server.cluster_record import cluster_from_record, cluster_to_record, renumbered
from trine.server.service import LIVE_STATES, JobState, StoryLine

FORMAT = 1
"""Version of the snapshot; a snapshot of another version is refused."""
_STORY_LENGTH = 50
_ENDED_KEPT = 100_000
"""Ended jobs kept in memory and in snapshots; older ones are forgotten."""
_REQUESTS_KEPT = 50_000
MAX_LOSSES = 5
"""A job whose processes vanished this often in a row is given up."""


@dataclass(slots=True)
class LiveJob:
    """A submitted job and what became of it. Times are Unix seconds."""

    id: str
    user: str
    queue: str
    weight: float
    spec: JobSpec
    submitted_s: float
    state: JobState = "waiting"
    epoch: int = 0
    gpus: tuple[int, ...] = ()
    """GPU ids of the present start; empty while it waits."""
    wish: str = ""
    """``cancel`` or ``hold``: what is to become of it once its processes are gone."""
    done: float = 0.0
    """Steps done, as last heard."""
    safe: float = 0.0
    """Steps that a stop left behind: what the next start resumes from."""
    total: float | None = None
    """Steps in all, as the job itself says."""
    rate: float = 0.0
    heard_s: float = 0.0
    attained_s: float = 0.0
    run_from_s: float = 0.0
    idle_from_s: float = 0.0
    started_s: float | None = None
    finished_s: float | None = None
    exit_code: int | None = None
    preemptions: int = 0
    migrations: int = 0
    losses: int = 0
    expected_s: float | None = None
    """Seconds the present start was expected to take, where that is known."""
    story: list[StoryLine] = field(default_factory=list)

    @property
    def live(self) -> bool:
        return self.state in LIVE_STATES

    @property
    def holds_gpus(self) -> bool:
        return self.state in ("starting", "running", "stopping")

    def tell(self, at_s: float, what: str, sentence: str = "") -> None:
        self.story.append(StoryLine(at_s, what, sentence))
        del self.story[:-_STORY_LENGTH]


@dataclass(slots=True)
class NodeState:
    """A node that is not simply up: ``drained`` or ``down``, and why."""

    state: str
    reason: str
    drained: bool = False
    """An operator took it out of service."""
    down: bool = False
    """The executor lost it."""


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
    observations: Observations | None = None
    """What running jobs taught about GPUs and models; there is one as soon as the cluster is known."""
    requests: dict[str, list[str]] = field(default_factory=dict)
    """Ids given for a client's request id, so that a repeated request is not a second job."""
    next_id: int = 1
    last_s: float = 0.0
    """Time of the last record."""

    def __post_init__(self) -> None:
        self.live: dict[str, LiveJob] = {job.id: job for job in self.jobs.values() if job.live}
        """The jobs that can still change, in order of arrival."""
        self._appliers: dict[str, Callable[[Any], None]] = {
            rec.Configured.kind: self._configured,
            rec.Refined.kind: lambda _: None,
            rec.Accepted.kind: self._accepted,
            rec.Asked.kind: self._asked,
            rec.NodeChanged.kind: self._node_changed,
            rec.Ticked.kind: self._ticked,
            rec.Started.kind: self._started,
            rec.Exited.kind: self._exited,
        }

    def apply(self, record: rec.Record) -> None:
        """Take one record into account, and then what was decided on it."""
        self.last_s = max(self.last_s, record.at_s)
        self._appliers[record.kind](record)
        for stop in record.orders.stops:
            self._stop(record.at_s, stop)
        for start in record.orders.starts:
            self._start(record.at_s, start)

    # -- what happened -------------------------------------------------------------------------------------------

    def _configured(self, record: rec.Configured) -> None:
        cluster = cluster_from_record(record.cluster)
        if self.cluster is not None and cluster.nodes != self.cluster.nodes:
            self._renumber(record.at_s, self.cluster, cluster)
        if self.observations is None:
            self.observations = Observations(VariabilityTable.of_cluster(cluster))
        elif self.cluster is not None and cluster.scores != self.cluster.scores:
            self.observations.rebase(VariabilityTable.of_cluster(cluster))
        self.cluster = cluster
        self.policy, self.placement, self.settings = record.policy, record.placement, record.settings
        self.round_s = record.round_s

    def _renumber(self, now: float, old: Cluster, new: Cluster) -> None:
        """Nodes came or went while the daemon was away: GPU ids follow their nodes."""
        new_id = renumbered(old, new)
        gone = "GPUs it ran on are not part of the cluster any more."
        for job in list(self.holders()):
            gpus = tuple(new_id.get(gpu, -1) for gpu in job.gpus)
            if -1 in gpus or len({new.type_of(gpu) for gpu in gpus}) > 1:
                self._exited(rec.Exited(now, job.id, job.epoch, "preempted", None, None, gone))
            else:
                job.gpus = tuple(sorted(gpus))
        if self.observations is not None:
            base = VariabilityTable.of_cluster(new)
            self.observations = Observations.from_json(self.observations.to_json(), base, gpu_ids=new_id)

    def _accepted(self, record: rec.Accepted) -> None:
        job = LiveJob(
            record.job,
            record.user,
            record.queue,
            record.weight,
            record.spec,
            record.at_s,
            idle_from_s=record.at_s,
        )
        job.tell(record.at_s, "submitted")
        self.jobs[job.id] = self.live[job.id] = job
        self.next_id = max(self.next_id, int(job.id) + 1)
        if record.request_id:
            self.requests.setdefault(record.request_id, []).append(job.id)
            while len(self.requests) > _REQUESTS_KEPT:
                del self.requests[next(iter(self.requests))]

    def _asked(self, record: rec.Asked) -> None:
        job = self.jobs[record.job]
        job.tell(record.at_s, f"{record.verb} asked by {record.by}")
        if record.verb == "release":
            job.wish = ""
            if job.state == "held":
                job.state = "waiting"
        elif job.holds_gpus:
            job.wish = record.verb
        elif record.verb == "hold":
            job.state = "held"
        else:
            self._end(job, record.at_s, "cancelled", None)

    def _node_changed(self, record: rec.NodeChanged) -> None:
        after = node_after(self.nodes.get(record.node), record)
        if after is None:
            self.nodes.pop(record.node, None)
        else:
            self.nodes[record.node] = after

    def _ticked(self, record: rec.Ticked) -> None:
        for heard in record.heard:
            job = self.live.get(heard.job)
            if job is None or job.epoch != heard.epoch or not job.holds_gpus:
                continue
            self._observe(job, heard)
            job.done, job.total, job.rate, job.heard_s = heard.step, heard.total, heard.steps_per_s, heard.at_s

    def _observe(self, job: LiveJob, heard: rec.Heard) -> None:
        if self.cluster is None or self.observations is None:
            return
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
        )

    def _started(self, record: rec.Started) -> None:
        job = self.live.get(record.job)
        if job is None or job.epoch != record.epoch:
            return
        job.run_from_s = record.at_s
        if job.state == "starting":
            job.state = "running"
            job.tell(record.at_s, "running")

    def _exited(self, record: rec.Exited) -> None:
        job = self.live.get(record.job)
        if job is None or job.epoch != record.epoch or not job.holds_gpus:
            return
        after = fate(job, record)
        took_s = max(record.at_s - job.run_from_s, 0.0)
        expected_s = job.expected_s or 0.0
        if after == "done" and self.observations is not None and expected_s > 0 and took_s > 0:
            self.observations.predicted(job.spec.model, expected_s, took_s)
        job.attained_s += took_s
        job.run_from_s = job.idle_from_s = record.at_s
        job.gpus, job.rate = (), 0.0
        job.safe = job.safe if record.step is None else record.step
        job.done = job.safe if after != "done" else job.total or job.spec.steps or max(job.done, job.safe)
        job.losses = job.losses + 1 if record.outcome == "lost" else 0
        if after in ("waiting", "held"):
            job.state, job.wish = after, ""
            job.tell(record.at_s, "lost" if record.outcome == "lost" else "stopped", record.detail)
        else:
            self._end(job, record.at_s, after, record.rc, record.detail)

    def _end(self, job: LiveJob, at_s: float, state: JobState, rc: int | None, sentence: str = "") -> None:
        job.state, job.finished_s, job.exit_code, job.wish = state, at_s, rc, ""
        job.tell(at_s, state, sentence)
        self.live.pop(job.id, None)
        if len(self.jobs) - len(self.live) > _ENDED_KEPT + _ENDED_KEPT // 10:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        ended = [job_id for job_id, job in self.jobs.items() if not job.live]
        for job_id in ended[: len(ended) - _ENDED_KEPT]:
            del self.jobs[job_id]

    # -- what was decided ----------------------------------------------------------------------------------------

    def _stop(self, at_s: float, order: rec.StopOrder) -> None:
        job = self.live.get(order.job)
        if job is None or job.epoch != order.epoch:
            return
        job.state = "stopping"
        job.migrations += order.moves
        job.preemptions += order.why == "preempted"
        job.tell(at_s, "told to move" if order.moves else "told to stop", order.sentence)

    def _start(self, at_s: float, order: rec.StartOrder) -> None:
        job = self.live[order.job]
        job.state, job.epoch, job.gpus = "starting", order.epoch, tuple(order.gpus)
        job.run_from_s, job.expected_s = at_s, order.expected_s
        job.started_s = at_s if job.started_s is None else job.started_s
        job.heard_s, job.done = 0.0, job.safe
        job.tell(at_s, "started", order.sentence)

    # -- queries and snapshots -----------------------------------------------------------------------------------

    def holders(self) -> Iterator[LiveJob]:
        """Jobs whose processes exist or are about to."""
        return (job for job in self.live.values() if job.holds_gpus)

    def to_snapshot(self) -> dict[str, Any]:
        """JSON-ready; ``from_snapshot`` gives the same state back."""
        return {
            "format": FORMAT,
            "jobs": [_job_to_json(job) for job in self.jobs.values()],
            "nodes": {name: asdict(node) for name, node in self.nodes.items()},
            "observations": None if self.observations is None else self.observations.to_json(),
            "requests": self.requests,
            "next_id": self.next_id,
            "last_s": self.last_s,
            "configured": None if self.cluster is None else self._configuration(),
        }

    def _configuration(self) -> dict[str, Any]:
        assert self.cluster is not None
        return {
            "cluster": cluster_to_record(self.cluster),
            "policy": self.policy,
            "placement": self.placement,
            "settings": self.settings,
            "round_s": self.round_s,
        }

    @classmethod
    def from_snapshot(cls, body: dict[str, Any]) -> LiveState:
        if body.get("format") != FORMAT:
            raise rec.JournalError(f"a snapshot of format {body.get('format')!r}; this version reads format {FORMAT}")
        told = body["configured"]
        cluster = cluster_from_record(told["cluster"]) if told else None
        learnt = None
        if cluster is not None and body["observations"] is not None:
            learnt = Observations.from_json(body["observations"], VariabilityTable.of_cluster(cluster))
        jobs = {job["id"]: _job_from_json(job) for job in body["jobs"]}
        return cls(
            jobs,
            {name: NodeState(**node) for name, node in body["nodes"].items()},
            cluster,
            told["policy"] if told else "",
            told["placement"] if told else "",
            told["settings"] if told else {},
            told["round_s"] if told else 60.0,
            learnt,
            dict(body["requests"]),
            body["next_id"],
            body["last_s"],
        )


def node_after(node: NodeState | None, record: rec.NodeChanged) -> NodeState | None:
    """A node after a change; ``None`` if it is in service. Drained and down are two things, each with its own end."""
    drained, down = (node.drained, node.down) if node else (False, False)
    if record.by == rec.EXECUTOR:
        down = record.state == "down"
    else:
        drained = record.state == "drained"
    if not drained and not down:
        return None
    reason = record.reason if record.state != "up" or node is None else node.reason
    return NodeState("down" if down else "drained", reason, drained, down)


def fate(job: LiveJob, record: rec.Exited) -> JobState:
    """Where a job goes when its processes are gone. Dying when told to stop is no failure; vanishing often is."""
    if record.outcome == "done":
        return "done"
    if job.wish == "cancel":
        return "cancelled"
    gives_up = record.outcome == "lost" and job.losses + 1 >= MAX_LOSSES
    if gives_up or (record.outcome == "failed" and job.state != "stopping"):
        return "failed"
    return "held" if job.wish == "hold" else "waiting"


def _job_to_json(job: LiveJob) -> dict[str, Any]:
    names = [name for name in LiveJob.__slots__ if name not in ("spec", "story")]
    body = {name: getattr(job, name) for name in names}
    body["spec"] = rec.spec_to_body(job.spec)
    body["story"] = [[line.at_s, line.what, line.sentence] for line in job.story]
    return body


def _job_from_json(body: dict[str, Any]) -> LiveJob:
    story = [StoryLine(*line) for line in body["story"]]
    spec = rec.spec_from_body(body["spec"])
    return LiveJob(**{**body, "spec": spec, "story": story, "gpus": tuple(body["gpus"])})
