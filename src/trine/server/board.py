"""The cluster and its jobs as the dashboard shows them: columns of plain values, cheap to make again and to compare.

One shape for a daemon and for a recorded simulation; ``LiveBoard`` makes that of a daemon. What a caller may see of it,
and how it travels, is decided in ``server.api.board``.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from typing import Any

from trine.core.cluster import Cluster
from trine.server import views
from trine.server.build import withheld_gpus
from trine.server.controller import Controller
from trine.server.leases import Leases
from trine.server.live_job import LiveJob
from trine.server.state import LiveState

JOB_COLUMNS = (
    *("id", "name", "user", "queue", "state", "gpus", "model", "app_class", "priority", "attempt"),
    *("submitted_s", "started_s", "finished_s", "run_from_s", "step", "total", "steps_per_s", "heard_s"),
    *("expected_end_s", "exit_code", "preemptions", "migrations", "max_runtime_s"),
)
Row = tuple[Any, ...]
"""A job, in the order of ``JOB_COLUMNS``. Times are Unix seconds, in a simulation those of its trace."""
USER_COLUMN = JOB_COLUMNS.index("user")
ENDED_KEPT = 500
"""Ended jobs that are shown; the API lists the others."""


LINKS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class BoardNode:
    """A node; its GPUs follow those of the node before it. ``state`` is ``up``, ``drained`` or ``down``."""

    name: str
    rack: str
    gpu_type: str
    gpus: int
    state: str = "up"
    reason: str = ""
    indices: tuple[int, ...] = ()
    """What the machine calls its GPUs, where that is not 0, 1, 2 ..."""


@dataclass
class Board:
    """What there is to see at one moment; GPUs are counted over all nodes in order."""

    now_s: float
    about: dict[str, Any]
    """Of the scheduler itself: names of policy and placement, what an operator should know."""
    nodes: list[BoardNode]
    gpu_jobs: list[tuple[str, ...]]
    """Ids of the jobs on each GPU; two where they share it."""
    rows: dict[str, Row]
    order: list[str] = field(default_factory=list)
    """Ids of the waiting jobs by rank."""
    slowdowns: dict[str, list[float]] = field(default_factory=dict)
    """Chip slowdown of each GPU by application class."""
    out: dict[int, str] = field(default_factory=dict)
    """GPUs that are out of service, and why."""
    flags: dict[int, list[str]] = field(default_factory=dict)
    """What is remarkable about a GPU, in sentences."""
    link_loads: list[dict[str, Any]] = field(default_factory=list)
    """Links that jobs share, the fullest first, where the cluster describes its links."""

    def layout(self) -> dict[str, Any]:
        """What seldom changes."""
        return {
            "about": self.about,
            "nodes": [asdict(node) for node in self.nodes],
            "slowdowns": self.slowdowns,
            "out": self.out,
            "flags": self.flags,
            "link_loads": self.link_loads,
        }


class LiveBoard:
    """The board of a daemon. A job's row is made again only when something about the job changed."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[tuple[Any, ...], Row]] = {}
        """What a row was made from, and the row."""
        self._ended: OrderedDict[str, Row] | None = None
        self._scores: tuple[object, dict[str, list[float]]] = (None, {})

    def look(self, controller: Controller, leases: Leases, now_s: float, about: dict[str, Any]) -> Board:
        state = controller.state
        cluster = state.cluster
        assert cluster is not None
        live = self._live_rows(state, leases)
        ended = self._ended_rows(state)
        order = list(views.positions(controller))
        return Board(
            now_s,
            about,
            _nodes(cluster, state),
            _gpu_jobs(cluster, state),
            {**live, **ended},
            order,
            self._slowdowns(controller),
            _out_of_service(cluster, state),
            views.drift_flags(controller),
            _link_loads(controller),
        )

    def _live_rows(self, state: LiveState, leases: Leases) -> dict[str, Row]:
        """Keyed by what can change of a job, as most of ten thousand jobs are as they were."""
        rows, kept = {}, {}
        known = self._rows
        for job in state.live.values():
            said = leases.latest(job) if job.state == "running" else None
            asked = (job.requested_action, job.spec.priority)
            key = (job.state, job.epoch, job.heard_s, *asked, job.preemptions, said and said.at_s)
            found = known.get(job.id)
            if found is None or found[0] != key:
                found = (key, job_row(job, leases))
            kept[job.id] = found
            rows[job.id] = found[1]
        for job_id in known.keys() - kept.keys():
            self._end(job_id, state)
        self._rows = kept
        return rows

    def _end(self, job_id: str, state: LiveState) -> None:
        job = state.jobs.get(job_id)
        if job is not None and not job.live and self._ended is not None:
            self._ended[job_id] = job_row(job)
            while len(self._ended) > ENDED_KEPT:
                self._ended.popitem(last=False)

    def _ended_rows(self, state: LiveState) -> dict[str, Row]:
        if self._ended is None:
            over = sorted((job for job in state.jobs.values() if not job.live), key=lambda job: job.finished_s or 0.0)
            self._ended = OrderedDict((job.id, job_row(job)) for job in over[-ENDED_KEPT:])
        return {job_id: row for job_id, row in self._ended.items() if job_id not in state.live}

    def _slowdowns(self, controller: Controller) -> dict[str, list[float]]:
        table = controller.deciding.perf.variability
        if self._scores[0] is not table:
            gpus = range(controller.deciding.cluster.gpu_count)
            found = {name: [round(float(table.slowdown(name)[gpu]), 3) for gpu in gpus] for name in table.classes}
            self._scores = (table, {name: values for name, values in found.items() if any(v != 1.0 for v in values)})
        return self._scores[1]


def job_row(job: LiveJob, leases: Leases | None = None) -> Row:
    """With what a running job said since the last round, if it is asked for."""
    spec = job.spec
    said = leases.latest(job) if leases is not None and job.state == "running" else None
    step, rate, heard_s, total = job.done, job.rate, job.heard_s, job.total or spec.steps
    if said is not None and said.at_s > heard_s:
        step, rate, heard_s, total = said.step, said.steps_per_s, said.at_s, said.total or spec.steps
    name = spec.name if job.array_index is None else f"{spec.name}[{job.array_index}]"
    return (
        *(job.id, name, job.user, job.queue, job.state, spec.gpus.count, spec.model, spec.app_class),
        *(spec.priority, job.epoch, job.submitted_s, job.started_s, job.finished_s, views.run_from_s(job)),
        *(step, total, rate, heard_s or None, views.expected_end_s(job), job.exit_code, job.preemptions),
        *(job.migrations, spec.max_runtime),
    )


def _link_loads(controller: Controller) -> list[dict[str, Any]]:
    """To a per cent, so that what changes less is not sent."""
    traffic = controller.deciding.traffic
    links = [] if traffic is None else traffic.used_links()[:LINKS_SHOWN]
    return [{**link._asdict(), "load": round(link.load, 2)} for link in links]


def _nodes(cluster: Cluster, state: LiveState) -> list[BoardNode]:
    found = []
    for node in cluster.nodes:
        known = state.nodes.get(node.name)
        condition = (known.state, known.reason) if known else ("up", "")
        found.append(BoardNode(node.name, node.rack, node.gpu_type, node.gpus, *condition, node.indices))
    return found


def _gpu_jobs(cluster: Cluster, state: LiveState) -> list[tuple[str, ...]]:
    jobs: list[tuple[str, ...]] = [()] * cluster.gpu_count
    for job in state.holders():
        alone = (job.id,)
        for gpu in job.gpus:
            jobs[gpu] = (*jobs[gpu], job.id) if jobs[gpu] else alone
    return jobs


def _out_of_service(cluster: Cluster, state: LiveState) -> dict[int, str]:
    out = {}
    for name, known in state.nodes.items():
        reasons = known.withheld | known.gpus
        for gpu in withheld_gpus(cluster, name, known):
            out[gpu] = reasons.get(cluster.index_of(gpu)) or known.reason or known.state
    return out
