"""The live scheduler: keeps controller, journal and executor in step, and offers the verbs of ``server.service``.

Everything happens in one event loop. A record is decided and applied first, made durable next, and only then are its
orders carried out and its author answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from trine.config.job_spec import JobSpec
from trine.core.cluster import Cluster
from trine.executor.base import Event, Executor, Exited, Handle, LaunchFailed, NodeDown, NodeUp, Progress, Started
from trine.server import records as rec
from trine.server import views
from trine.server.access import Access, Load
from trine.server.build import Model, why_never
from trine.server.controller import Controller
from trine.server.journal import Journal
from trine.server.leases import Leases
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
from trine.server.state import LiveJob, LiveState
from trine.server.store import Store, StoreError

_FILL_AFTER_S = 0.02
"""Requests and exits that come this close together are decided together."""
_RETRY_S = 5.0
"""How often a journal that cannot be written is tried again."""
_SNAPSHOT_EVERY = 20_000


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
    dry_run: bool = False
    """Decide and say what would be done, but start nothing."""


class Scheduler:
    """Implements ``server.service.Service``."""

    def __init__(
        self,
        setup: Setup,
        model: Model,
        store: Store,
        executor: Executor,
        leases: Leases,
        access: Access,
        clock: Callable[[], float],
    ) -> None:
        self.setup, self.model, self.store, self.executor = setup, model, store, executor
        self.leases, self.access, self.clock = leases, access, clock
        self.log = structlog.get_logger("scheduler")
        self.controller = self._loaded()
        self.journal = Journal(store, self._durable)
        self.observed = Metrics()
        self.started_s = clock()
        self.closing = False
        self._ended: dict[Handle, Exited | LaunchFailed] = {}
        """Ends that are not on record yet: the executor tells them once."""
        self._up: set[Handle] = set()
        """Starts that the executor has confirmed; it does so once, too."""
        self._fill: asyncio.TimerHandle | None = None
        self._change = asyncio.Event()
        self._since_snapshot = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.on_crash: Callable[[BaseException], None] = _raise
        """Told of an error that must not happen; whatever was decided since is forgotten with the process."""

    # -- life ----------------------------------------------------------------------------------------------------

    def _loaded(self) -> Controller:
        """What is on disk. Ids of job directories are never used again, even if the journal has lost those jobs."""
        state = self.store.load()
        state.next_id = max(state.next_id, self.leases.highest_id() + 1)
        return Controller(state, self.model)

    async def start(self) -> None:
        """Write down the configuration, find the jobs that still run, and begin to schedule."""
        self._tasks = [asyncio.create_task(self.journal.run()), asyncio.create_task(self._rounds())]
        self._tasks[0].add_done_callback(self._journal_ended)
        await self._configure()
        asyncio.get_running_loop().add_reader(self.executor.fileno(), self._guarded, self._read_events)
        self._reconcile()
        self._decide_soon()

    async def stop(self, keep_snapshot: bool = True) -> None:
        """Stop deciding; running jobs go on and are found again at the next start."""
        self.closing = True
        asyncio.get_running_loop().remove_reader(self.executor.fileno())
        self._tasks[1].cancel()
        with contextlib.suppress(StoreError, Unavailable):
            await self.journal.drained()
            if self.journal.failure is None and keep_snapshot:
                await self._snapshot()
        self._tasks[0].cancel()
        self.journal.close()
        self._notify()

    async def _configure(self) -> None:
        setup = self.setup
        record = self.controller.configure(
            self.now(), setup.version, setup.cluster, setup.policy, setup.placement, setup.settings, setup.round_s
        )
        await self.journal.add([record])

    def now(self) -> float:
        """Never before anything that is on record: clocks are set back, journals are not."""
        return max(self.clock(), self.controller.state.last_s)

    # -- verbs ---------------------------------------------------------------------------------------------------

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
        await self._write(accepted)
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
            await self._write([self.controller.ask(self.now(), job_id, verb, caller.user)])
        return views.job_view(self.controller, self.controller.state.jobs[job_id])

    async def _change_node(self, node: str, state: str, reason: str, caller: Caller) -> NodeView:
        self._take_requests()
        if not caller.admin:
            raise Refused("not-admin", "only the owner of the daemon may drain and undrain nodes")
        if node not in {n.name for n in self.setup.cluster.nodes}:
            known = ", ".join(n.name for n in self.setup.cluster.nodes[:8])
            raise NotFound(f"there is no node {node!r}; the nodes are {known}")
        await self._write([self.controller.change_node(self.now(), node, state, reason, caller.user)])
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

    # -- records and orders --------------------------------------------------------------------------------------

    async def _write(self, records: Sequence[rec.Record]) -> None:
        """Durable when it returns; whatever it makes possible is decided soon."""
        written = self.journal.add(records)
        self._decide_soon()
        await written

    def _note(self, record: rec.Record | None) -> None:
        """As ``_write`` for records nobody waits for."""
        if record is not None:
            self.journal.add([record]).add_done_callback(_heard_of)
            self._decide_soon()

    def _durable(self, records: Sequence[rec.Record]) -> None:
        """Carry out what was decided, now that it is on record."""
        for record in records:
            self.observed.count(record)
            if isinstance(record, rec.Exited):
                handle = Handle(record.job, record.epoch)
                self._ended.pop(handle, None)
                self._up.discard(handle)
                self.executor.forget(handle)
            elif isinstance(record, rec.NodeChanged):
                self._cordon(record)
            for stop in record.orders.stops:
                self._say("stop", stop.job, stop.sentence)
                self._stop(stop.job, stop.epoch)
            for start in record.orders.starts:
                self._say("start", start.job, start.sentence)
                self._launch(start.job, start.epoch)
        self._since_snapshot += len(records)
        self._notify()

    def _cordon(self, change: rec.NodeChanged) -> None:
        """The executor guards a drained node, too; one that it reported itself it knows about."""
        if change.by == rec.EXECUTOR:
            return
        if change.state == "up":
            self.executor.uncordon(change.node)
        else:
            self.executor.cordon(change.node, change.reason)

    def _say(self, what: str, job_id: str, sentence: str) -> None:
        self.log.info(what, job=job_id, why=sentence)

    def _launch(self, job_id: str, epoch: int) -> None:
        job = self.controller.state.live.get(job_id)
        if job is None or job.epoch != epoch or not job.holds_gpus or self.setup.dry_run:
            return
        lease = self.leases.lease(job, views.placement_view(self.controller, job.gpus), self.now())
        self.executor.launch(lease)

    def _stop(self, job_id: str, epoch: int) -> None:
        job = self.controller.state.live.get(job_id)
        if job is not None and job.epoch == epoch:
            self.executor.preempt(Handle(job_id, epoch), job.spec.checkpoint.grace_s)

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    # -- time ----------------------------------------------------------------------------------------------------

    def _decide_soon(self) -> None:
        """Between rounds only GPUs that nobody holds are given out, unless told otherwise."""
        if self._fill is None and not self.closing:
            self._fill = asyncio.get_running_loop().call_later(_FILL_AFTER_S, self._guarded, self._decide)

    def _journal_ended(self, task: asyncio.Task[None]) -> None:
        """Without its writer nothing is durable any more: better no daemon than one that hangs."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.on_crash(error)

    def _guarded(self, call: Callable[[], None]) -> None:
        """A bug in a policy or in trine ends the daemon: deciding on with a state that may be wrong is worse."""
        try:
            call()
        except Exception as error:
            self.on_crash(error)

    def _decide(self) -> None:
        self._fill = None
        engine, state = self.controller.deciding, self.controller.state
        if self.closing or self.journal.failure is not None:
            return
        if self.setup.event_driven:
            self._round()
        elif engine.free.total and any(job.state == "waiting" for job in state.live.values()):
            # On record even without orders: GPUs may have been promised to a start that still waits for them.
            self._note_round(self.controller.tick(self.now(), fill=True))

    async def _rounds(self) -> None:
        """A round every ``round_s``; while the journal cannot be written, attempts to come back instead."""
        while True:
            await asyncio.sleep(self.setup.round_s if self.journal.failure is None else _RETRY_S)
            try:
                await self._each_round()
            except (StoreError, Unavailable) as error:
                self.log.error("journal", problem=str(error))
            except Exception as error:
                self.on_crash(error)

    async def _each_round(self) -> None:
        if self.journal.failure is not None:
            await self._recover()
            return
        self._round()
        now = self.now()
        for job in self.controller.state.holders():
            if job.state != "stopping":
                self.executor.renew(Handle(job.id, job.epoch), self.leases.deadline_s(now))
        if self._since_snapshot >= _SNAPSHOT_EVERY:
            await self._snapshot()

    def _round(self) -> None:
        """Use the news of the running jobs, then rank, place and preempt."""
        now = self.now()
        self._end_overdue(now)
        heard = self.leases.news(self.controller.state)
        if not heard and self.controller.deciding.can_wait:
            return
        with self.observed.deciding():
            record = self.controller.tick(now, heard)
        self._note_round(record)
        refined = self.controller.refine(now)
        if refined is not None:
            flags = views.drift_flags(self.controller)
            self.log.info("refined", flags=[sentence for told in flags.values() for sentence in told])
            self._note_round(refined)

    def _note_round(self, record: rec.Record) -> None:
        self.journal.add([record]).add_done_callback(_heard_of)

    def _end_overdue(self, now: float) -> None:
        """Jobs past their ``max_runtime`` are cancelled."""
        for job in list(self.controller.state.holders()):
            limit = job.spec.max_runtime
            if limit is not None and not job.wish and job.attained_s + now - job.run_from_s > limit:
                self._note(self.controller.ask(now, job.id, "cancel", f"max_runtime of {limit:g} s"))

    async def _snapshot(self) -> None:
        """The state as of the last durable record; taken only when nothing is on its way."""
        await self.journal.drained()
        body, seq = self.controller.state.to_snapshot(), self.store.seq
        await self.journal.in_thread(lambda: self.store.snapshot(body, seq))
        self._since_snapshot = 0

    # -- the executor's news -------------------------------------------------------------------------------------

    def _read_events(self) -> None:
        for event in self.executor.events():
            self._heard(event)

    def _heard(self, event: Event) -> None:
        now = self.now()
        if isinstance(event, Progress):
            self.leases.hear(event)
        elif isinstance(event, Started):
            self._up.add(event.handle)
            self._note(self.controller.started(now, *event.handle))
        elif isinstance(event, Exited | LaunchFailed):
            self._ended[event.handle] = event
            self._exited(now, event)
        elif isinstance(event, NodeDown):
            self._note(self.controller.change_node(now, event.node, "down", event.reason, rec.EXECUTOR))
        elif isinstance(event, NodeUp):
            known = self.controller.state.nodes.get(event.node)
            if known is not None and known.down:
                self._note(self.controller.change_node(now, event.node, "up", "", rec.EXECUTOR))

    def _exited(self, now: float, event: Exited | LaunchFailed) -> None:
        if self.journal.failure is not None:
            return  # told again after the journal has come back
        step = self.leases.safe_step(event.handle)
        if isinstance(event, LaunchFailed):
            record = self.controller.exited(now, *event.handle, "failed", None, None, event.reason)
        else:
            record = self.controller.exited(now, *event.handle, event.kind, event.rc, step, event.reason)
        if record is None:
            self.executor.forget(event.handle)
            self._ended.pop(event.handle, None)
            self._up.discard(event.handle)
        self._note(record)

    def _reconcile(self) -> None:
        """Bring the executor in line with the state, after either of them was away."""
        known = set(self.executor.list_handles())
        holders = {Handle(job.id, job.epoch): job for job in self.controller.state.holders()}
        for handle in known - holders.keys():
            self.executor.kill(handle)
        for handle, job in holders.items():
            if job.state == "starting":
                self._launch(job.id, job.epoch)
            elif handle not in known:
                lost = self.controller.exited(
                    self.now(), job.id, job.epoch, "lost", None, None, "its processes left no trace"
                )
                self._note(lost)
            elif job.state == "stopping":
                self._stop(job.id, job.epoch)
        for found in self.executor.inventory():
            node = self.controller.state.nodes.get(found.name)
            if node is not None and node.drained:
                self.executor.cordon(found.name, node.reason)
            if found.up == (node is not None and node.down):
                state = "up" if found.up else "down"
                self._note(self.controller.change_node(self.now(), found.name, state, found.reason, rec.EXECUTOR))

    async def _recover(self) -> None:
        """The journal could not be written: go back to what is on disk, and on from there if it can be written now."""
        self.controller = await asyncio.get_running_loop().run_in_executor(None, self._loaded)
        self.journal.reset()
        await self._configure()
        self.log.info("recovered", records=self.store.seq)
        self._reconcile()
        for handle in sorted(self._up):
            self._note(self.controller.started(self.now(), *handle))
        for event in list(self._ended.values()):
            self._exited(self.now(), event)
        self._decide_soon()


_ALREADY = {"held": "hold", "waiting": "release", "running": "release", "starting": "release"}


def _raise(error: BaseException) -> None:
    raise error


def _heard_of(written: asyncio.Future[None]) -> None:
    """A failure to write is reported once, by the journal; here it only must not go unnoticed by asyncio."""
    if not written.cancelled():
        written.exception()


def check_settings(setup: Setup, model: Model) -> None:
    """Fail at once, with one sentence, on settings the engine would trip over later."""
    controller = Controller(LiveState(), model)
    controller.configure(0.0, setup.version, setup.cluster, setup.policy, setup.placement, setup.settings)
