"""The verbs of ``server.service``: who may ask for what, and what the answer is. Time and processes are elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trine.config.job_spec import JobSpec
from trine.core.cluster import Cluster
from trine.server import records as rec
from trine.server import views
from trine.server.access import Access, Load
from trine.server.build import why_never
from trine.server.controller import Controller
from trine.server.journal import Journal
from trine.server.leases import Leases
from trine.server.live_job import LiveJob
from trine.server.metrics import Metrics
from trine.server.service import (
    LIVE_STATES,
    Caller,
    DaemonView,
    Explanation,
    JobView,
    NodeView,
    NotFound,
    Refused,
    Unavailable,
)

_ALREADY = {"held": "hold", "waiting": "release", "running": "release", "starting": "release"}


@dataclass(frozen=True)
class Setup:
    """What the daemon was told at its start."""

    cluster: Cluster
    policy: str
    placement: str
    settings: dict[str, Any]
    round_s: float
    version: str
    event_driven: bool = False
    """Decide a whole round at every event, not only what to do with GPUs that are free."""
    sharing: rec.Sharing = "user"
    """Who may be two on the same GPUs, where the executor can do that."""


class Desk(ABC):
    """Takes requests and answers them; whoever derives from it writes records and carries out orders."""

    setup: Setup
    controller: Controller
    journal: Journal
    access: Access
    leases: Leases
    observed: Metrics
    started_s: float
    closing: bool
    _change: asyncio.Event

    @abstractmethod
    def now(self) -> float:
        """Unix time."""

    @abstractmethod
    async def write(self, records: Sequence[rec.Record]) -> None:
        """Durable when it returns; whatever it makes possible is decided soon."""

    async def submit(self, specs: list[JobSpec], caller: Caller, request_id: str = "") -> list[str]:
        self._take_requests()
        key = f"{caller.user}/{request_id}" if request_id else ""
        state = self.controller.state
        if key in state.requests:
            await self.journal.add([])  # the first request may still be on its way to the disk
            return list(state.requests[key])
        admitted = self.access.admit(specs, caller, self._load())
        for spec in admitted:
            self._check_can_run(spec)
        now = self.now()
        queues = self.access.queues
        accepted = [self.controller.submit(now, queues[spec.queue].weight, spec, key) for spec in admitted]
        await self.write(accepted)
        return [record.job for record in accepted]

    async def cancel(self, job_id: str, caller: Caller) -> JobView:
        return await self._ask(job_id, "cancel", caller)

    async def hold(self, job_id: str, caller: Caller) -> JobView:
        return await self._ask(job_id, "hold", caller)

    async def release(self, job_id: str, caller: Caller) -> JobView:
        job = self._job(job_id, caller)
        if job.live and job.state != "held" and job.wish != "hold":
            raise Refused("not-held", f"job {job_id} is {job.state}, not held")
        return await self._ask(job_id, "release", caller)

    async def drain(self, node: str, reason: str, caller: Caller) -> NodeView:
        return await self._change_node(node, "drained", reason, caller)

    async def undrain(self, node: str, caller: Caller) -> NodeView:
        return await self._change_node(node, "up", "", caller)

    def daemon(self) -> DaemonView:
        engine, jobs = self.controller.deciding, self.controller.state.jobs
        counts: dict[str, int] = {}
        for job in jobs.values():
            counts[job.state] = counts.get(job.state, 0) + 1
        return DaemonView(
            self.setup.version,
            self.setup.policy,
            self.setup.placement,
            self.setup.round_s,
            self.started_s,
            engine.cluster.gpu_count,
            engine.free.total,
            counts,
        )

    def job(self, job_id: str, caller: Caller) -> JobView:
        return views.job_view(self.controller, self._job(job_id, caller))

    def jobs(self, caller: Caller, states: frozenset[str] = LIVE_STATES, limit: int = 1000) -> list[JobView]:
        state = self.controller.state
        among = state.live.values() if states <= LIVE_STATES else state.jobs.values()
        chosen = [j for j in among if j.state in states and (caller.admin or j.user == caller.user)]
        return views.ordered(self.controller, chosen, limit)

    def explain(self, job_id: str, caller: Caller) -> Explanation:
        return views.explanation(self.controller, self._job(job_id, caller))

    def nodes(self) -> list[NodeView]:
        return views.node_views(self.controller)

    def log_path(self, job_id: str, caller: Caller) -> str:
        return str(self.leases.log_path(self._job(job_id, caller).id))

    async def changed(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._change.wait(), timeout_s)

    def metrics(self) -> bytes:
        return self.observed.exposition(self.controller, self.journal, self.now())

    async def _ask(self, job_id: str, verb: str, caller: Caller) -> JobView:
        self._take_requests()
        job = self._job(job_id, caller)
        if not job.live:
            raise Refused("ended", f"job {job_id} is {job.state} already; there is nothing to {verb}")
        if job.wish == "cancel" != verb:
            raise Refused("ended", f"job {job_id} is being cancelled; there is nothing to {verb}")
        if verb not in (job.wish, _ALREADY.get(job.state)):
            await self.write([self.controller.ask(self.now(), job_id, verb, caller.user)])
        return views.job_view(self.controller, self.controller.state.jobs[job_id])

    async def _change_node(self, node: str, state: str, reason: str, caller: Caller) -> NodeView:
        self._take_requests()
        if not caller.admin:
            raise Refused("not-admin", "only the owner of the daemon may drain and undrain nodes")
        if node not in {n.name for n in self.setup.cluster.nodes}:
            known = ", ".join(n.name for n in self.setup.cluster.nodes[:8])
            raise NotFound(f"there is no node {node!r}; the nodes are {known}")
        await self.write([self.controller.change_node(self.now(), node, state, reason, caller.user)])
        return next(view for view in self.nodes() if view.name == node)

    def _job(self, job_id: str, caller: Caller) -> LiveJob:
        job = self.controller.state.jobs.get(job_id)
        if job is None or not (caller.admin or job.user == caller.user):
            raise NotFound(f"there is no job {job_id!r}")
        return job

    def _take_requests(self) -> None:
        if self.closing:
            raise Unavailable("the daemon is shutting down")
        if self.journal.failure is not None:
            raise Unavailable(str(self.journal.failure))

    def _load(self) -> Load:
        """Who has how many jobs waiting; not counted where nobody asks."""
        if not self.access.limits_waiting:
            return Load()
        waiting = [job for job in self.controller.state.live.values() if job.state in ("waiting", "held")]
        return Load(Counter(job.queue for job in waiting), Counter(job.user for job in waiting))

    def _check_can_run(self, spec: JobSpec) -> None:
        """A job that can never run is refused now, with the reason, instead of waiting for ever."""
        never = why_never(self.controller.deciding, spec)
        if never:
            raise Refused("never-runs", f"job {spec.name!r} can never run: {never}")
