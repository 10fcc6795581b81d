"""A service in memory: the verbs without a scheduler, for tests of what is in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from trine.executor.attempt.storage import open_log_file
from trine.inputs.job_spec import JobSpec
from trine.server.access import Access, WaitingJobs
from trine.server.board import JOB_COLUMNS, Board, BoardNode
from trine.server.interface import (
    LIVE_STATES,
    Caller,
    Collected,
    DaemonView,
    Explanation,
    GpuView,
    HistoryQuery,
    HistoryRow,
    JobState,
    JobView,
    NodeView,
    NotFound,
    OpenLog,
    OutcomeUnknown,
    QuotaView,
    ReasonView,
    Refused,
    ShareView,
    SpeedView,
    StoryLine,
    Unavailable,
    UsageView,
)
from trine.server.quotas import QuotaChange, check_changes, quota_views
from trine.server.sessions import digest

ADMIN_TOKEN, ANNA_TOKEN, BEN_TOKEN = "a" * 64, "b" * 64, "c" * 64
_CALLERS = {ADMIN_TOKEN: Caller("root", admin=True), ANNA_TOKEN: Caller("anna"), BEN_TOKEN: Caller("ben")}
WAITS = ReasonView("no-free-gpus", "No GPU is free.", "It starts when job 1 ends.", {"free": 0.0})


class FakeAuth:
    """Three callers: an administrator, anna and ben."""

    def caller(self, token: str) -> Caller | None:
        return _CALLERS.get(token)

    def holder(self, found: str) -> Caller | None:
        return next((caller for token, caller in _CALLERS.items() if digest(token) == found), None)


class FakeService:
    """Accepts jobs and keeps them waiting; tests end them with ``finish``."""

    def __init__(self, logs: Path, access: Access | None = None) -> None:
        self.logs, self.access = logs, access or Access()
        self.specs: dict[str, JobSpec] = {}
        self.views: dict[str, JobView] = {}
        self.requests: dict[str, list[str]] = {}
        self.node = NodeView("node0", "up", "rack0", (GpuView(0, "v100", None, {"A": 1.0}, ("slow",)),))
        self.changed_quotas: dict[str, QuotaChange] = {}
        self.full_disk = False
        self.unknown = False
        self.watched = 0
        """How often somebody waited for a change."""
        self._changes = asyncio.Condition()

    async def submit(self, specs: list[JobSpec], caller: Caller, request_id: str = "") -> list[str]:
        if self.unknown:
            raise OutcomeUnknown(f"whether the jobs were accepted is not known; ask again with {request_id}")
        if self.full_disk:
            raise Unavailable("The disk is full; nothing was accepted.")
        if request_id in self.requests:
            return self.requests[request_id]
        if any(spec.gpus.count > 64 for spec in specs):
            raise Refused("too-large", "The cluster has only 64 GPUs.")
        waiting = {"by_user": {caller.user: len(self.views)}}
        ids = [self._accept(spec) for spec in self.access.admit(specs, caller, WaitingJobs(**waiting))]
        if request_id:
            self.requests[request_id] = ids
        return ids

    def _accept(self, spec: JobSpec) -> str:
        job_id = str(len(self.views) + 1)
        self.specs[job_id] = spec
        self.views[job_id] = JobView(
            id=job_id,
            name=spec.name,
            user=spec.user,
            queue=spec.queue,
            state="waiting",
            gpus=spec.gpus.count,
            model=spec.model,
            app_class=spec.app_class,
            priority=spec.priority,
            attempt=0,
            submitted_s=1_000.0,
            reason=WAITS,
        )
        return job_id

    async def finish(self, job_id: str, state: JobState = "done") -> None:
        self.views[job_id] = replace(self.views[job_id], state=state, exit_code=0, finished_s=1_060.0)
        async with self._changes:
            self._changes.notify_all()

    async def cancel(self, job_id: str, caller: Caller) -> JobView:
        return self._move(job_id, caller, "cancelled", LIVE_STATES)

    async def hold(self, job_id: str, caller: Caller) -> JobView:
        return self._move(job_id, caller, "held", {"waiting", "running"})

    async def release(self, job_id: str, caller: Caller) -> JobView:
        return self._move(job_id, caller, "waiting", {"held"})

    async def set_priority(self, job_id: str, priority: float, caller: Caller) -> JobView:
        job = self.job(job_id, caller)
        self.access.check_priority(priority, job.queue, caller)
        self.views[job_id] = replace(job, priority=priority)
        return self.views[job_id]

    async def set_quotas(self, asked: Mapping[str, int | Literal["default"] | None], caller: Caller) -> list[QuotaView]:
        check_changes(self.access, asked, caller)
        self.changed_quotas |= {
            name: QuotaChange(most, caller.user, 1_000.0) for name, most in asked.items() if not isinstance(most, str)
        }
        return self.quotas(caller)

    def quotas(self, caller: Caller) -> list[QuotaView]:
        return quota_views(self.access, self.changed_quotas, caller)

    def _move(self, job_id: str, caller: Caller, to: JobState, allowed: set[str] | frozenset[str]) -> JobView:
        job = self.job(job_id, caller)
        if job.state not in allowed:
            raise Refused("conflict", f"Job {job_id} is {job.state}.")
        self.views[job_id] = replace(job, state=to)
        return self.views[job_id]

    async def drain(self, node: str, reason: str, caller: Caller, gpus: tuple[int, ...] = ()) -> NodeView:
        self._check_node(node)
        self.node = self._drained(gpus, True, reason) if gpus else replace(self.node, state="drained", reason=reason)
        return self.node

    async def undrain(self, node: str, caller: Caller, gpus: tuple[int, ...] = ()) -> NodeView:
        self._check_node(node)
        self.node = self._drained(gpus, False, "") if gpus else replace(self.node, state="up", reason="")
        return self.node

    def _drained(self, gpus: tuple[int, ...], drained: bool, reason: str) -> NodeView:
        changed = (replace(g, drained=drained, reason=reason) if g.index in gpus else g for g in self.node.gpus)
        return replace(self.node, gpus=tuple(changed))

    def _check_node(self, node: str) -> None:
        if node != self.node.name:
            raise NotFound(f"There is no node {node}.")

    def daemon(self) -> DaemonView:
        return DaemonView("1.0", "fifo", "packed", 60.0, 0.0, 64, 64, {"waiting": len(self.views)})

    def ended(self, job_id: str, caller: Caller) -> bool:
        return self.job(job_id, caller).state not in LIVE_STATES

    def job(self, job_id: str, caller: Caller) -> JobView:
        job = self.views.get(job_id)
        if job is None or not (caller.admin or job.user == caller.user):
            raise NotFound(f"There is no job {job_id}.")
        return job

    def jobs(
        self, caller: Caller, states: frozenset[str] = LIVE_STATES, limit: int = 1000, user: str = "", name: str = ""
    ) -> list[JobView]:
        mine = [job for job in self.views.values() if caller.admin or job.user == caller.user]
        chosen = [job for job in mine if user in ("", job.user) and name in ("", job.name)]
        return [job for job in chosen if job.state in states][:limit]

    def count(self, caller: Caller, states: frozenset[str] = LIVE_STATES, user: str = "", name: str = "") -> int:
        return len(self.jobs(caller, states, len(self.views), user, name))

    def explain(self, job_id: str, caller: Caller) -> Explanation:
        return Explanation(self.job(job_id, caller), (WAITS.sentence,), (StoryLine(1_000.0, "submitted"),))

    async def collect(self, caller: Caller, dry_run: bool = False) -> Collected:
        return Collected(2, 3_000_000, 1, 0)

    async def predictions(self, caller: Caller) -> dict[str, Any]:
        times = {"low": 1_100.0, "median": 1_200.0, "high": 4_800.0}
        job = {"start_s": times, "end_s": None, "reason": "waits for job 17 to end", "blocker": "17"}
        score = {"starts": {"count": 4, "coverage": 0.75, "median_error_s": 90.0}}
        return {
            "made_at_s": 1_000.0,
            "draws": 100,
            "calibrated": True,
            "score": score,
            "jobs": dict.fromkeys(self.views, job),
        }

    async def whatif(self, changes: Sequence[str], caller: Caller) -> dict[str, Any]:
        if changes[0].startswith("policy nosuch"):
            raise Refused("invalid", "what-if: no policy 'nosuch'; expected one that `trine policies` lists")
        times = {"low": -120.0, "median": -60.0, "high": 30.0}
        job = {"before": None, "after": None, "change_s": times}
        counts = {"gain": len(self.views), "lose": 0, "same": 0, "mean_change_s": times}
        found = {"made_at_s": 1_000.0, "draws": 100, "assumed": [], "instead": {}, **counts}
        return {**found, "jobs": dict.fromkeys(self.views, job)}

    def reasons(self, job_ids: Sequence[str], caller: Caller) -> dict[str, ReasonView]:
        found = (self.views.get(job_id) for job_id in job_ids)
        return {job.id: job.reason for job in found if job is not None and caller.sees(job.user)}

    def speed(self, job_id: str, caller: Caller) -> SpeedView:
        self.job(job_id, caller)
        return SpeedView(2.5, 1.1, 1.0, 1.0, 40.0, 1_010.0)

    def shares(self, caller: Caller) -> list[ShareView]:
        users = sorted({job.user for job in self.views.values() if caller.sees(job.user)})
        return [ShareView("user", user, 1.0, 0, 1, 1.0, 0.5, 0.25, 3.0) for user in users]

    def usage(self, caller: Caller) -> UsageView:
        return UsageView([1_000.0], {"GPUs held": [1.0]}, [])

    def history(self, query: HistoryQuery, caller: Caller) -> list[HistoryRow]:
        return []

    def nodes(self) -> list[NodeView]:
        return [self.node]

    def board(self) -> Board:
        values = (asdict(job) for job in self.views.values())
        rows = {job["id"]: tuple(job.get(name) for name in JOB_COLUMNS) for job in values}
        order = [job.id for job in self.views.values() if job.state == "waiting"]
        nodes = [BoardNode(self.node.name, self.node.rack, "v100", len(self.node.gpus), self.node.state)]
        return Board(1_000.0, {"live": True}, nodes, [()] * len(self.node.gpus), rows, order)

    def job_log(self, job_id: str, caller: Caller, rank: int = 0) -> OpenLog:
        job = self.job(job_id, caller)
        if rank >= job.gpus:
            raise NotFound(f"Job {job_id} has no rank {rank}.")
        return partial(open_log_file, self.logs / f"{job.id}.log{f'.{rank}' if rank else ''}")

    async def changed(self, timeout_s: float) -> None:
        self.watched += 1
        await until(self._changes, timeout_s)

    def metrics(self) -> bytes:
        return b"trine_jobs 1\n"


async def until(changes: asyncio.Condition, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s), changes:
            await changes.wait()
    except TimeoutError:
        pass
