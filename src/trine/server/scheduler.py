"""The live scheduler: keeps controller, journal and executor in step, and offers the verbs of ``server.service``.

Everything happens in one event loop. A record is decided and applied first, made durable next, and only then are its
orders carried out and its author answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import structlog

from trine.executor.base import Event, Executor, Exited, Handle, LaunchFailed, NodeDown, NodeUp, Progress, Started
from trine.server import records as rec
from trine.server import views
from trine.server.access import Access
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.desk import Desk, Setup
from trine.server.journal import Journal
from trine.server.leases import Leases
from trine.server.metrics import Metrics
from trine.server.service import (
    Unavailable,
)
from trine.server.state import LiveState
from trine.server.store import Store, StoreError

_FILL_AFTER_S = 0.02
"""Requests and exits that come this close together are decided together."""
_RETRY_S = 5.0
"""How often a journal that cannot be written is tried again."""
_SNAPSHOT_EVERY = 20_000


class Scheduler(Desk):
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
        sharing: rec.Sharing = setup.sharing if self.executor.capabilities.shared_gpus else "off"
        record = self.controller.configure(
            self.now(),
            setup.version,
            setup.cluster,
            setup.policy,
            setup.placement,
            setup.settings,
            setup.round_s,
            sharing,
        )
        await self.journal.add([record])

    def now(self) -> float:
        """Never before anything that is on record: clocks are set back, journals are not."""
        return max(self.clock(), self.controller.state.last_s)

    # -- records and orders --------------------------------------------------------------------------------------

    async def write(self, records: Sequence[rec.Record]) -> None:
        """Durable when it returns; whatever it makes possible is decided soon."""
        written = self.journal.add(records)
        self._decide_soon()
        await written

    def _note(self, record: rec.Record | None) -> None:
        """As ``write`` for records nobody waits for."""
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
                self._say("start", start.job, start.sentence, **({"with": start.partner} if start.partner else {}))
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

    def _say(self, what: str, job_id: str, sentence: str, **more: str) -> None:
        self.log.info(what, job=job_id, why=sentence, **more)

    def _launch(self, job_id: str, epoch: int) -> None:
        job = self.controller.state.live.get(job_id)
        if job is None or job.epoch != epoch or not job.holds_gpus:
            return
        lease = self.leases.lease(job, views.placement_view(self.controller, job.gpus), self.now())
        mate = self.controller.state.beside(job)
        if mate is not None:
            self.executor.pair(Handle(mate.id, mate.epoch), job.id)
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


def _raise(error: BaseException) -> None:
    raise error


def _heard_of(written: asyncio.Future[None]) -> None:
    """A failure to write is reported once, by the journal; here it only must not go unnoticed by asyncio."""
    if not written.cancelled():
        written.exception()


def check_settings(setup: Setup, model: Model) -> None:
    """Fail at once, with one sentence, on settings the engine would trip over later."""
    controller = Controller(LiveState(), model)
    controller.configure(
        0.0, setup.version, setup.cluster, setup.policy, setup.placement, setup.settings, setup.round_s, setup.sharing
    )
