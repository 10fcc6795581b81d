"""The verbs of the API: which caller may ask for what, and what the answer is. Time and processes are elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from trine.core.cluster import Node
from trine.core.errors import InputError
from trine.executor.base import Executor
from trine.inputs.job_spec import JobSpec
from trine.server import records as rec
from trine.server import views
from trine.server.access import Access, WaitingJobs
from trine.server.board import Board, LiveBoard
from trine.server.build import performance_with, why_too_small, why_unsound
from trine.server.clock import REPORTED_S
from trine.server.configuration import Setup
from trine.server.controller import Controller
from trine.server.history import history_page
from trine.server.interface import (
    LIVE_STATES,
    Caller,
    Collected,
    DaemonView,
    Explanation,
    HistoryQuery,
    HistoryRow,
    JobView,
    NodeView,
    NotFound,
    OpenLog,
    OutcomeUnknown,
    ProgressView,
    QuotaView,
    ReasonView,
    Refused,
    ShareView,
    SpeedView,
    Unavailable,
    UsageView,
)
from trine.server.journal import JournalWriter
from trine.server.leases import Leases
from trine.server.live_job import LiveJob
from trine.server.metrics import Metrics
from trine.server.predictions import Predictions
from trine.server.prune import Pruner
from trine.server.quotas import AS_CONFIGURED, Asked, access_now, check_changes, quota_views
from trine.server.submission import check_predecessors, entries_of
from trine.server.usage import Sample, UsageHistory, sample
from trine.server.webhook import Webhook

_EXPECTED_ID = "; expected the id of a job, which `trine queue` lists; queue and cancel also take --name"
_COLLECTS_S = 10.0
"""How long a caller waits for the removal of what is kept no longer, about."""
_NAME_A_JOB = frozenset({"cancel", "hold", "release", "priority"})
"""Changes of a what-if whose second word is a job."""
_ALREADY = {"held": "hold", "waiting": "release", "running": "release", "starting": "release"}


class LiveService(ABC):
    """Takes requests and answers them; a derived class writes records and carries out orders."""

    setup: Setup
    controller: Controller
    journal: JournalWriter
    access: Access
    leases: Leases
    executor: Executor
    observed: Metrics
    forecasts: Predictions
    live_board: LiveBoard
    past: UsageHistory
    started_s: float
    closing: bool
    trouble: str
    engine_down: str
    unusable_nodes: str
    departed: tuple[Node, ...]
    """Nodes that the engine had since the daemon started, and has not now."""
    webhook: Webhook | None = None
    pruner: Pruner | None = None
    _change: asyncio.Event

    @property
    @abstractmethod
    def skew_s(self) -> float:
        """By how much the wall clock is ahead of the time on record, in seconds."""

    @abstractmethod
    def now(self) -> float:
        """Unix time."""

    @abstractmethod
    async def write(self, records: Sequence[rec.Record]) -> None:
        """Durable when it returns; whatever it makes possible is decided soon."""

    @property
    def access_now(self) -> Access:
        """What is configured, with the quotas that were changed since."""
        return access_now(self.access, self.controller.state.quotas)

    async def submit(self, specs: list[JobSpec], caller: Caller, request_id: str = "") -> list[str]:
        try:
            return await self._submit(specs, caller, request_id)
        except OutcomeUnknown:
            again = f"ask again with the same request id {request_id}" if request_id else "look at the queue first"
            raise OutcomeUnknown(f"whether the jobs were accepted is not known; {again}") from None

    async def _submit(self, specs: list[JobSpec], caller: Caller, request_id: str) -> list[str]:
        self._take_requests()
        key = f"{caller.user}/{request_id}" if request_id else ""
        digest = _digest(specs) if key else ""
        state = self.controller.state
        if key in state.requests:
            if state.digests.get(key, digest) != digest:
                raise Refused("conflict", f"request id {request_id} was used before, to submit other jobs")
            ids = list(state.requests[key])
            await self.journal.add([])  # the first request may still be on its way to the disk
            return ids
        entries = entries_of(specs, state.next_id)
        admitted = self.access_now.admit([entry.spec for entry in entries], caller, self._waiting_jobs())
        if any(spec.after for spec in admitted):
            check_predecessors(entries, state.next_id, self._visible(caller))
        for spec in admitted:
            self._check_can_run(spec)
        now = self.now()
        queues = self.access.queues
        accepted = [
            self.controller.submit(
                now, queues[spec.queue].weight, spec, key, "" if number else digest, entry.array_id, entry.array_index
            )
            for number, (spec, entry) in enumerate(zip(admitted, entries, strict=True))
        ]
        await self.write(accepted)
        return [record.job for record in accepted]

    async def cancel(self, job_id: str, caller: Caller) -> JobView:
        return await self._ask(job_id, "cancel", caller)

    async def hold(self, job_id: str, caller: Caller) -> JobView:
        return await self._ask(job_id, "hold", caller)

    async def release(self, job_id: str, caller: Caller) -> JobView:
        job = self._job(job_id, caller)
        waits_by_order = (
            job.state in ("held", "set aside") or job.requested_action == "hold" or job.not_before_s or job.aside
        )
        if job.live and not waits_by_order:
            raise Refused("not-held", f"job {job_id} is {job.state}, not held")
        return await self._ask(job_id, "release", caller)

    async def set_priority(self, job_id: str, priority: float, caller: Caller) -> JobView:
        self._take_requests()
        job = self._live_job(job_id, "prioritise", caller)
        self.access.check_priority(priority, job.queue, caller)
        if priority != job.spec.priority:
            await self.write([self.controller.set_priority(self.now(), job_id, priority, caller.user)])
        else:
            await self.journal.add([])  # the record of the first request may still be on its way to the disk
        return views.job_view(self.controller, self.controller.state.jobs[job_id])

    async def set_quotas(self, asked: Mapping[str, Asked], caller: Caller) -> list[QuotaView]:
        self._take_requests()
        check_changes(self.access, asked, caller)
        known, none = self.controller.state.quotas, object()
        changes = {
            subject: max_gpus
            for subject, max_gpus in asked.items()
            if max_gpus != AS_CONFIGURED and getattr(known.get(subject), "max_gpus", none) != max_gpus
        }
        as_configured = tuple(name for name, asks in asked.items() if asks == AS_CONFIGURED and name in known)
        if changes or as_configured:
            await self.write([self.controller.set_quotas(self.now(), changes, caller.user, as_configured)])
        else:
            await self.journal.add([])
        return self.quotas(caller)

    def quotas(self, caller: Caller) -> list[QuotaView]:
        return quota_views(self.access, self.controller.state.quotas, caller)

    async def drain(self, node: str, reason: str, caller: Caller, gpus: tuple[int, ...] = ()) -> NodeView:
        return await self._change_node(node, "drained", reason, caller, gpus)

    async def undrain(self, node: str, caller: Caller, gpus: tuple[int, ...] = ()) -> NodeView:
        return await self._change_node(node, "up", "", caller, gpus)

    async def collect(self, caller: Caller, dry_run: bool = False) -> Collected:
        if not caller.admin:
            raise Refused("not-admin", "only the owner of the daemon may remove what is kept no longer")
        if self.pruner is None:
            raise Unavailable("this daemon removes nothing")
        return await self.pruner.once(dry_run, _COLLECTS_S)

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
            self._problems(),
            self.setup.engine,
            self.engine_down,
            self.leases.api_url,
        )

    def _problems(self) -> tuple[str, ...]:
        """What an operator should know, in sentences."""
        state = self.controller.state
        found = [f"Nothing is accepted or decided: {failure}."] if (failure := self.journal.failure) else []
        found += [state.fallback.reason] if state.fallback else []
        found += [why for why in (self.engine_down, self.trouble, self.unusable_nodes) if why]
        found += state.skipped
        if abs(self.skew_s) > REPORTED_S:
            found.append(f"The wall clock is {self.skew_s:+.0f} s off the time on record; durations are not affected.")
        return tuple(found)

    def ended(self, job_id: str, caller: Caller) -> bool:
        return not self._job(job_id, caller).live

    def job(self, job_id: str, caller: Caller) -> JobView:
        job = self._job(job_id, caller)
        view = self._with_news(views.job_view(self.controller, job))
        predicted = self.forecasts.of_job(job_id) if job.live else None
        reason = "" if predicted is None else self._without_names(predicted, caller)["reason"]
        return replace(view, command=job.spec.run, workdir=job.spec.workdir, predicted_reason=reason)

    def jobs(
        self, caller: Caller, states: frozenset[str] = LIVE_STATES, limit: int = 1000, user: str = "", name: str = ""
    ) -> list[JobView]:
        found = views.ordered(self.controller, self._chosen(caller, states, user, name), limit)
        return [self._with_news(view) for view in found]

    def _with_news(self, view: JobView) -> JobView:
        """With what is predicted, and what a running job said since the last round, which is on no record yet."""
        view = self._with_prediction(view)
        if view.state != "running":
            return view
        job = self.controller.state.jobs[view.id]
        last = self.leases.latest(job)
        if last is None or (view.progress is not None and last.at_s <= view.progress.at_s):
            return view
        return replace(
            view, progress=ProgressView(last.step, last.total or job.spec.steps, last.steps_per_s, last.at_s)
        )

    def _with_prediction(self, view: JobView) -> JobView:
        found = self.forecasts.of_job(view.id)
        if found is None or view.finished_s is not None:
            return view
        start, end = (found["start_s"] if view.started_s is None else None), found["end_s"]
        return replace(
            view,
            expected_start_s=None if start is None else start["median"],
            start_interval_s=None if start is None else (start["low"], start["high"]),
            expected_end_s=view.expected_end_s if end is None else end["median"],  # that of the interval
            end_interval_s=None if end is None else (end["low"], end["high"]),
        )

    def count(self, caller: Caller, states: frozenset[str] = LIVE_STATES, user: str = "", name: str = "") -> int:
        return len(self._chosen(caller, states, user, name))

    def _chosen(self, caller: Caller, states: frozenset[str], user: str, name: str) -> list[LiveJob]:
        state = self.controller.state
        among = state.live.values() if states <= LIVE_STATES else state.jobs.values()
        chosen = [job for job in among if job.state in states and caller.sees(job.user)]
        if user:
            chosen = [job for job in chosen if job.user == user]
        if name:
            composed = unicodedata.normalize("NFC", name)  # as names of jobs are
            chosen = [job for job in chosen if fnmatchcase(job.spec.name, composed)]
        return chosen

    def explain(self, job_id: str, caller: Caller) -> Explanation:
        job = self._job(job_id, caller)
        found, state = views.explanation(self.controller, job), self.controller.state
        found = replace(found, job=replace(self._with_news(found.job), command=job.spec.run, workdir=job.spec.workdir))
        if job.state != "waiting":
            return found
        more = [f"Nothing is started now: {self.engine_down}."] if self.engine_down else []
        more += [f"Nothing is started on this host now: {self.trouble}."] if self.trouble else []
        more += [state.fallback.reason] if state.fallback else []
        return replace(found, sentences=(*found.sentences, *more))

    def reasons(self, job_ids: Sequence[str], caller: Caller) -> dict[str, ReasonView]:
        jobs = (self.controller.state.jobs.get(job_id) for job_id in job_ids)
        return {job.id: views.reason_view(self.controller, job) for job in jobs if job and caller.sees(job.user)}

    def speed(self, job_id: str, caller: Caller) -> SpeedView:
        job = self._job(job_id, caller)
        return views.speed_view(self.controller, job, self.leases.checkpoint(job))

    def shares(self, caller: Caller) -> list[ShareView]:
        return self.past.shares(self.sample(), self.access_now, caller)

    def usage(self, caller: Caller) -> UsageView:
        jobs = (job for job in self.controller.state.jobs.values() if caller.sees(job.user))
        return self.past.view(jobs, self.sample())

    def sample(self) -> Sample:
        """What the history keeps of now."""
        return sample(self.controller.state, self.access, self.now())

    def history(self, query: HistoryQuery, caller: Caller) -> list[HistoryRow]:
        if not caller.admin and query.user not in ("", caller.user):
            return []
        seen = query if caller.admin else replace(query, user=caller.user)
        return history_page(self.controller.state.jobs, seen)

    def nodes(self) -> list[NodeView]:
        return views.node_views(self.controller)

    def board(self) -> Board:
        setup = self.setup
        about = {"live": True, "policy": setup.policy, "placement": setup.placement, "round_s": setup.round_s}
        about |= {"version": setup.version, "engine": setup.engine, "problems": self._problems()}
        return self.live_board.look(self.controller, self.leases, self.now(), about)

    def job_log(self, job_id: str, caller: Caller, rank: int = 0) -> OpenLog:
        job = self._job(job_id, caller)
        most = job.spec.gpus.count
        if not 0 <= rank < most:
            raise NotFound(f"job {job_id} has no rank {rank}; with {most} GPUs its ranks are 0 to {most - 1} at most")
        return partial(self.executor.storage.open_log, job.id, rank)

    async def changed(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._change.wait(), timeout_s)

    def metrics(self) -> bytes:
        host = {
            "trine_host_trouble": float(bool(self.trouble)),
            "trine_engine_up": float(not self.engine_down),
            "trine_clock_skew_seconds": self.skew_s,
            "trine_webhook_queue": float(0 if self.webhook is None else len(self.webhook)),
        } | self.forecasts.metrics()
        return self.observed.exposition(self.controller, self.journal, self.now(), host)

    async def predictions(self, caller: Caller) -> dict[str, Any]:
        return self._of_caller(await self.forecasts.latest(), caller)

    async def whatif(self, changes: Sequence[str], caller: Caller) -> dict[str, Any]:
        self._check_named(changes, caller)
        found = await self.forecasts.compare(changes, caller.user, self.access.default_queue)
        return self._of_caller(found, caller)

    def _check_named(self, changes: Sequence[str], caller: Caller) -> None:
        """A job of another user is refused in the words in which one is that does not exist; a policy or a placement in
        a file to all but the owner: the file would be executed with the rights of the daemon."""
        live = self.controller.state.live
        for first, job_id, *_ in (words for words in map(str.split, changes) if len(words) > 1):
            if first in ("policy", "placement") and ".py" in job_id and not caller.admin:
                raise Refused("not-admin", f"only the owner of the daemon may try a {first} from a file")
            if first in _NAME_A_JOB and (job_id not in live or not caller.sees(live[job_id].user)):
                sentence = InputError("what-if", f"no live job {job_id!r}", "the id of a job that has not ended")
                raise Refused("invalid", str(sentence))

    def _of_caller(self, found: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Without jobs that the caller may not see, also where the reason of another names them."""
        if caller.admin:
            return found
        jobs = self.controller.state.jobs
        seen = {i: each for i, each in found["jobs"].items() if i not in jobs or caller.sees(jobs[i].user)}
        return {**found, "jobs": {job_id: self._without_names(each, caller) for job_id, each in seen.items()}}

    def _without_names(self, found: dict[str, Any], caller: Caller) -> dict[str, Any]:
        blocker = found.get("blocker")
        job = None if blocker is None else self.controller.state.jobs.get(blocker)
        if blocker is None or (job is not None and caller.sees(job.user)):
            return found
        return {**found, "blocker": None, "reason": found["reason"].replace(f"job {blocker}", "another user's job", 1)}

    async def _ask(self, job_id: str, verb: str, caller: Caller) -> JobView:
        self._take_requests()
        job = self._live_job(job_id, verb, caller)
        already = _ALREADY.get(job.state) if not (job.not_before_s or job.aside) else None
        if verb not in (job.requested_action, already):
            await self.write([self.controller.ask(self.now(), job_id, verb, caller.user)])
        else:
            await self.journal.add([])  # the record of the first request may still be on its way to the disk
        return views.job_view(self.controller, self.controller.state.jobs[job_id])

    def _live_job(self, job_id: str, verb: str, caller: Caller) -> LiveJob:
        """A job of the caller that can still be changed; ``verb``: what is asked of it."""
        job = self._job(job_id, caller)
        if not job.live:
            raise Refused("ended", f"job {job_id} is {job.state} already; there is nothing to {verb}")
        if job.requested_action in ("cancel", "timeout") and job.requested_action != verb:
            raise Refused("ended", f"job {job_id} is being stopped for good; there is nothing to {verb}")
        return job

    async def _change_node(self, node: str, state: str, reason: str, caller: Caller, gpus: tuple[int, ...]) -> NodeView:
        self._take_requests()
        if not caller.admin:
            raise Refused("not-admin", "only the owner of the daemon may drain and undrain nodes")
        found = next((n for n in self.setup.cluster.nodes if n.name == node), None)
        if found is None:
            known = ", ".join(n.name for n in self.setup.cluster.nodes[:8])
            raise NotFound(f"there is no node {node!r}; the nodes are {known}")
        missing = [gpu for gpu in gpus if gpu not in found.gpu_indices]
        if missing:
            known = ", ".join(map(str, found.gpu_indices[:16]))
            raise NotFound(f"there is no GPU {missing[0]} on {node}; its GPUs are {known}")
        if self._changes_node(node, state, reason, gpus):
            await self.write([self.controller.change_node(self.now(), node, state, reason, caller.user, gpus)])
        else:
            await self.journal.add([])
        return next(view for view in self.nodes() if view.name == node)

    def _changes_node(self, node: str, state: str, reason: str, gpus: tuple[int, ...]) -> bool:
        """Not if all of it is so already; a reason that was given before is not replaced by none."""
        known = self.controller.state.nodes.get(node)
        if known is None:
            return state == "drained"
        if state == "drained":
            drained = set(gpus) <= known.gpus.keys() if gpus else known.drained
            return bool(reason) or not drained
        return not known.gpus.keys().isdisjoint(gpus) if gpus else known.drained or bool(known.gpus)

    def _job(self, job_id: str, caller: Caller) -> LiveJob:
        job = self.controller.state.jobs.get(job_id)
        if job is None or not caller.sees(job.user):
            raise NotFound(f"there is no job {job_id!r}{'' if job_id.isdecimal() else _EXPECTED_ID}")
        return job

    def _visible(self, caller: Caller) -> Mapping[str, LiveJob]:
        jobs = self.controller.state.jobs
        return jobs if caller.admin else {job_id: job for job_id, job in jobs.items() if job.user == caller.user}

    def _take_requests(self) -> None:
        if self.closing:
            raise Unavailable("the daemon is shutting down")
        if self.journal.failure is not None:
            raise Unavailable(str(self.journal.failure))

    def _waiting_jobs(self) -> WaitingJobs:
        """Waiting jobs by queue and user; not counted where no limit needs them."""
        if not self.access.limits_waiting:
            return WaitingJobs()
        waiting = [job for job in self.controller.state.live.values() if job.state in ("waiting", "held")]
        return WaitingJobs(Counter(job.queue for job in waiting), Counter(job.user for job in waiting))

    def _check_can_run(self, spec: JobSpec) -> None:
        """A job that can never run is refused now, with the reason, instead of waiting for ever."""
        for what, path in (("checkpoint.dir", spec.checkpoint.dir), ("workdir", spec.workdir)):
            if path is not None and self.executor.storage.is_reserved(path):
                raise Refused("forbidden", f"{what} {path} is inside the daemon's own state directory; name another.")
        engine = self.controller.deciding
        never = why_unsound(engine.perf, spec)
        if not never and (too_small := why_too_small(engine.perf, spec, engine.excluded)):
            never = "" if self._may_grow_for(spec) else too_small
        if never:
            raise Refused("never-runs", f"job {spec.name!r} can never run: {never}")

    def _may_grow_for(self, spec: JobSpec) -> bool:
        """The cluster is too small for the job only now: it was larger before, or the engine cannot say which nodes it
        has. Such a job waits, with the reason."""
        if self.engine_down:
            return True
        known = self.controller.state, self.controller.model
        return bool(self.departed) and not why_too_small(performance_with(*known, self.departed), spec)


def _digest(specs: Sequence[JobSpec]) -> str:
    """Equal for requests that ask for the same jobs, whatever the spelling of their numbers and keys."""
    bodies = "\n".join(spec.as_json() for spec in specs)
    return hashlib.blake2b(bodies.encode(), digest_size=16).hexdigest()
