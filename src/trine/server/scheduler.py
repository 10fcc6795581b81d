"""The live scheduler: keeps controller, journal and executor in step, and offers the verbs of ``server.interface``.

Everything happens in one event loop. A record is decided and applied first, made durable next, and only then are its
orders carried out and its author answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog

from trine.executor.base import (
    Executor,
    Handle,
)
from trine.server import records as rec
from trine.server import views
from trine.server.access import Access
from trine.server.board import LiveBoard
from trine.server.build import Model
from trine.server.clock import JournalClock
from trine.server.configuration import Setup
from trine.server.containment import FAULTS
from trine.server.controller import Controller
from trine.server.execution import Execution, adoptable, unknown_attempts
from trine.server.interface import (
    Unavailable,
)
from trine.server.journal import PAUSE_S, JournalWriter, take_snapshot
from trine.server.leases import Leases
from trine.server.metrics import Metrics
from trine.server.notices import Notices
from trine.server.predictions import Predictions
from trine.server.store import Store, StoreError
from trine.server.usage import UsageHistory
from trine.server.webhook import Webhook

_LOOK_AGAIN_S = 1.0
"""How often a host that cannot start jobs, or a policy that is always due, is looked at again."""
_FILL_AFTER_S = 0.02
"""Requests and exits that come this close together are decided together."""
_RETRY_S = 1.0
"""How often a journal that cannot be written is tried again; the first time at once."""
_SNAPSHOT_EVERY = 20_000


class Scheduler(Execution):
    """Implements ``server.interface.Service``."""

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
        super().__init__()
        self.setup, self.model, self.store, self.executor = setup, model, store, executor
        self.leases, self.access, self.clock = leases, access, clock
        self.log = structlog.get_logger("scheduler")
        self.controller = self._loaded()
        self.journal = JournalWriter(store, self._durable)
        self.observed, self.live_board, self.past = Metrics(), LiveBoard(), UsageHistory()
        self.forecasts = Predictions(
            lambda: self.controller.state, lambda: self.model, self.now, self._heard_since_the_round
        )
        self.started_s = clock()
        self.closing = False
        self._fill: asyncio.TimerHandle | None = None
        self._wake: asyncio.TimerHandle | None = None
        self.trouble = ""
        """Why nothing can be started on this host now, in a sentence."""
        self.engine_down = ""
        """Why the engine cannot be asked now, in a sentence."""
        self.unusable_nodes = ""
        """Why nodes that joined are not scheduled, in a sentence."""
        self.departed = ()
        self._change = asyncio.Event()
        self._since_snapshot = 0
        self._snapshots: asyncio.Task[None] | None = None
        """The snapshot that is being taken, or the last one."""
        self._tasks: list[asyncio.Task[None]] = []
        self._notices: Notices | None = None
        self._gone_back: StoreError | None = None
        """The failure of the journal after which the state was read from disk again."""
        self.on_crash: Callable[[BaseException], None] = _raise
        """Called with an error that must not happen; whatever was decided since is forgotten with the process."""

    def use_webhook(self, webhook: Webhook | None) -> None:
        """Changes of jobs are sent to ``webhook`` from now on."""
        self.webhook = webhook
        state = self.controller.state
        self._notices = None if webhook is None else Notices(webhook, webhook.settings.states, state)

    # -- life ----------------------------------------------------------------------------------------------------

    def _loaded(self, writing: bool = True) -> Controller:
        """What is on disk. Ids of job directories are never used again, even if the journal has lost those jobs."""
        state = self.store.load(writing)
        stored = [int(name) for name in self.executor.storage.job_ids() if name.isdigit()]
        state.next_id = max(state.next_id, max(stored, default=0) + 1)
        if isinstance(self.clock, JournalClock):
            self.clock.go_on_from(state)
        for sentence in state.skipped:
            self.log.error("skipped", record=sentence)
        return Controller(state, self.model)

    async def start(self) -> None:
        """Write down the configuration, find the jobs that still run, and begin to schedule."""
        running = (self.journal.run(), self._rounds(), self._recoveries())
        self._tasks = [asyncio.create_task(run) for run in running]
        self._tasks[0].add_done_callback(self._journal_ended)
        await self._configure()
        asyncio.get_running_loop().add_reader(self.executor.fileno(), self._guarded, self._read_events)
        self._reconcile()
        self._decide_soon()

    async def stop(self, keep_snapshot: bool = True) -> None:
        """Stop deciding; running jobs go on and are found again at the next start."""
        self.closing = True
        self._wake_at(math.inf)
        asyncio.get_running_loop().remove_reader(self.executor.fileno())
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks[1:], return_exceptions=True)
        with contextlib.suppress(StoreError, Unavailable):
            await self._end_snapshot()
            await self.journal.drained()
            if self.journal.failure is None and keep_snapshot:
                await self._snapshot(pause_s=0.0)
        self._tasks[0].cancel()
        self.journal.close()
        self._notify()

    async def _configure(self) -> None:
        setup, state = self.setup, self.controller.state
        attempts = unknown_attempts(state, self.executor.storage)
        record = self.controller.configure(
            self.now(),
            setup.version,
            setup.cluster,
            setup.policy,
            setup.placement,
            setup.settings,
            setup.round_s,
            setup.sharing,
            self.clock.mark() if isinstance(self.clock, JournalClock) else None,
            attempts,
            adoptable(state, attempts, setup.cluster, self.executor),
        )
        await self.journal.add([record])
        self._report_problems()

    def now(self) -> float:
        """Never before anything that is on record: clocks are set back, journals are not."""
        return max(self.clock(), self.controller.state.last_s)

    @property
    def skew_s(self) -> float:
        """By how much the wall clock is ahead of the time on record, in seconds."""
        return self.clock.skew_s if isinstance(self.clock, JournalClock) else 0.0

    def _compare_clocks(self) -> None:
        if not isinstance(self.clock, JournalClock):
            return
        skew_s = self.clock.news(busy=any(True for _ in self.controller.state.holders()))
        if skew_s is not None:
            self.log.warning("clock was set", ahead_s=round(skew_s, 1), effect="none: durations are monotonic")

    # -- records and orders --------------------------------------------------------------------------------------

    async def write(self, records: Sequence[rec.Record]) -> None:
        """Durable when it returns; whatever it makes possible is decided soon."""
        written = self.journal.add(records)
        self._decide_soon()
        await written

    def _note(self, record: rec.Record | None) -> None:
        """As ``write`` for records that no caller waits for."""
        if record is not None:
            self.journal.add([record]).add_done_callback(_heard_of)
            self._decide_soon()

    def _durable(self, records: Sequence[rec.Record]) -> None:
        """Carry out what was decided, now that it is on record.

        One order that cannot be carried out keeps neither the others from that nor the journal from going on."""
        for record in records:
            self.observed.count(record, self.controller.state)
            if isinstance(record, rec.ExitReported):
                handle = Handle(record.job, record.epoch)
                self._ended.pop(handle, None)
                self._up.discard(handle)
                self._guarded(partial(self.executor.forget, handle))
                self._guarded(self._follow_departures)
            elif isinstance(record, rec.NodeChanged):
                self._guarded(partial(self._cordon, record))
            elif isinstance(record, rec.QuotasChanged):
                self._say_quotas(record)
            for stop in record.orders.stops:
                self._say("stop", stop.job, stop.sentence)
                self._guarded(partial(self._stop, stop.job, stop.epoch))
            for start in record.orders.starts:
                self._say("start", start.job, start.sentence, **({"with": start.co_runner} if start.co_runner else {}))
                self._guarded(partial(self._launch, start.job, start.epoch))
        self._since_snapshot += len(records)
        self._tell_external_soon()
        if self._notices is not None:
            self._notices.touch(records)
            if self.journal.idle:  # else the state is ahead of the disk: it is sent with the next batch
                self._guarded(partial(self._notices.tell, self.controller.state))
        self._notify()

    def _say_quotas(self, change: rec.QuotasChanged) -> None:
        """No job has it in its story: who changed what is in the log, and in the journal."""
        asked = {name: "no limit" if most is None else most for name, most in change.changes.items()}
        self.log.info("quotas", by=change.by, **asked, **dict.fromkeys(change.as_configured, "as configured"))

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    # -- time ----------------------------------------------------------------------------------------------------

    def _decide_soon(self) -> None:
        """Between rounds only GPUs that no job holds are given out, unless the daemon is event-driven."""
        if self._fill is None and not self.closing:
            self._fill = asyncio.get_running_loop().call_later(_FILL_AFTER_S, self._guarded, self._decide)

    def _journal_ended(self, task: asyncio.Task[None]) -> None:
        """Without its writer nothing is durable any more: better no daemon than one that hangs."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.on_crash(error)

    def _report_bug(self, error: BaseException) -> None:
        self.observed.problem()
        self.log.error("internal error", exc_info=error)
        try:
            self.controller.rebuild(self.now())
        except FAULTS as second:
            self.on_crash(second)

    def _report_problems(self) -> None:
        """Errors that the controller contained."""
        for problem in self.controller.problems:
            self.observed.problem()
            self.log.error("contained", problem=problem)
        self.controller.problems.clear()

    def _decide(self) -> None:
        self._fill = None
        engine, state = self.controller.deciding, self.controller.state
        if self.closing or self.journal.failure is not None or self._in_trouble():
            return
        if self.setup.event_driven:
            self._round()
        elif engine.free.total and any(job.state == "waiting" and not job.blocked for job in state.live.values()):
            # On record even without orders: GPUs may have been promised to a start that still waits for them.
            self._note_rounds(self.controller.decide(self.now(), fill=True))
        self._wake_in_time()

    def _in_trouble(self) -> bool:
        """The host or the engine cannot start jobs now; looked at again soon; ``explain`` and a metric say so."""
        if self.engine_down:
            return True  # decided again when it is back
        before, self.trouble = self.trouble, self.executor.trouble()
        if self.trouble != before:
            self.log.warning("host", trouble=self.trouble or "over")
        if self.trouble:
            self._wake_at(self.now() + _LOOK_AGAIN_S)
        return bool(self.trouble)

    def _wake_in_time(self) -> None:
        """Be back when the first time limit or pause is over, when a placement would no longer refuse a job, or when an
        event-driven policy would change its mind."""
        state = self.controller.state
        due_s = min((state.live[job_id].not_before_s for job_id in state.paused), default=math.inf)
        for job in state.holders():
            if not job.requested_action:
                due_s = min(due_s, job.time_limit_at_s)
        if self.setup.event_driven:
            # It was asked just now: a time that is over already would only come again at once, and for ever.
            now, wakes_s = self.now(), self.controller.wakes_s
            due_s = min(due_s, wakes_s if wakes_s > now else now + _LOOK_AGAIN_S)
        else:
            wakes_s = self.controller.placement_wakes_s
            due_s = min(due_s, wakes_s if wakes_s > self.now() else math.inf)  # what is over is for the next round
        self._wake_at(due_s)

    def _wake_at(self, due_s: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if due_s < math.inf and not self.closing:
            delay_s = min(max(due_s - self.now(), 0.0) + _FILL_AFTER_S, 3_600.0)
            self._wake = asyncio.get_running_loop().call_later(delay_s, self._guarded, self._woken)

    def _woken(self) -> None:
        self._wake = None
        if not self.closing and self.journal.failure is None:
            self._end_overdue(self.now())
            self._decide()

    async def _rounds(self) -> None:
        """A round every ``round_s``; none while the journal cannot be written."""
        while True:
            await asyncio.sleep(self.setup.round_s)
            try:
                await self._each_round()
            except (StoreError, Unavailable) as error:
                self.log.error("journal", problem=str(error))
            except FAULTS as error:
                self._report_bug(error)

    async def _each_round(self) -> None:
        if self.journal.failure is not None:
            return
        if self._refusals:
            self._compare_external()
        self._round()
        for job in self.controller.state.holders():
            if job.state != "stopping":
                self.executor.renew(Handle(job.id, job.epoch), self.leases.lease_s)
        if self._since_snapshot >= _SNAPSHOT_EVERY and (self._snapshots is None or self._snapshots.done()):
            self._snapshots = asyncio.create_task(self._snapshot_aside())

    def _heard_since_the_round(self) -> Iterable[rec.Heard]:
        """What forecasts know of running jobs before the next round puts it on record."""
        return map(self.controller.marked, self.leases.not_on_record(self.controller.state))

    def _round(self) -> None:
        """Use the news of the running jobs, then rank, place and preempt."""
        now = self.now()
        self._compare_clocks()
        self._end_overdue(now)
        heard = self.leases.news(self.controller.state)
        engine = self.controller.deciding
        idle = not heard and engine.can_wait and now < self.controller.wakes_s and not self.controller.state.due(now)
        if idle or self._in_trouble():
            return
        self._refine(now)
        with self.observed.deciding():
            records = self.controller.decide(now, heard)
        self._note_rounds(records)
        self._wake_in_time()

    def _refine(self, now: float) -> None:
        """Before the round decides, with what earlier rounds heard: a new engine knows no reasons until it decides."""
        refined = self.controller.refine(now)
        if refined is not None:
            flags = views.drift_flags(self.controller)
            self.log.info("refined", flags=[sentence for sentences in flags.values() for sentence in sentences])
            self._note_round(refined)

    def _note_rounds(self, records: Sequence[rec.Record]) -> None:
        for record in records:
            if isinstance(record, rec.SetAside):
                self.log.error("set aside", job=record.job, why=record.reason)
            elif isinstance(record, rec.FellBack):
                self.log.error("policy fails", why=record.reason)
            self._note_round(record)
        self._report_problems()

    def _note_round(self, record: rec.Record) -> None:
        self.journal.add([record]).add_done_callback(_heard_of)

    def _end_overdue(self, now: float) -> None:
        """Jobs that have run for their ``max_runtime`` are stopped for good."""
        for job in list(self.controller.state.holders()):
            if job.time_limit_at_s <= now and not job.requested_action:
                self._note(self.controller.ask(now, job.id, "timeout", f"max_runtime of {job.spec.max_runtime:g} s"))

    async def _snapshot(self, pause_s: float = PAUSE_S) -> None:
        """Keep the state, so that the next start need not add up all records."""
        self._since_snapshot = 0
        await take_snapshot(self.journal, self.store, self.controller.state, pause_s)

    async def _snapshot_aside(self) -> None:
        """One that could not be kept costs nothing but time at the next start."""
        try:
            await self._snapshot()
        except StoreError as error:
            self.log.warning("snapshot", problem=str(error))
        except Exception as error:
            self.on_crash(error)

    async def _end_snapshot(self) -> None:
        """No snapshot is being taken any more; half of one is no harm."""
        if self._snapshots is not None:
            self._snapshots.cancel()
            await asyncio.gather(self._snapshots, return_exceptions=True)

    async def _recoveries(self) -> None:
        """Whenever the journal could not be written: try to go on, at once and then every second."""
        while True:
            await self.journal.failed.wait()
            try:
                await self._recover()
            except (StoreError, Unavailable) as error:
                self.log.error("journal", problem=str(error))
                await asyncio.sleep(_RETRY_S)
            except Exception as error:
                self.on_crash(error)
                return

    async def _recover(self) -> None:
        """The journal could not be written: go back to what is on disk, and on from there if it can be written now."""
        try:
            self.controller = await self.journal.between(self._loaded)
        except StoreError:
            await self._go_back()
            raise
        self.journal.reset()
        await self._configure()
        self.log.info("recovered", records=self.store.seq)
        self._reconcile()
        for handle in sorted(self._up):
            self._note(self.controller.started(self.now(), *handle))
        for event in list(self._ended.values()):
            self._exited(self.now(), event)
        self._decide_soon()

    async def _go_back(self) -> None:
        """Nothing can be written for a while: answer with what is on disk, not with what was decided and then lost."""
        failure = self.journal.failure
        if failure is self._gone_back:
            return
        with contextlib.suppress(StoreError):
            found = await self.journal.between(partial(self._loaded, writing=False))
            found.rebuild(self.now())
            self.controller, self._gone_back = found, failure


def _raise(error: BaseException) -> None:
    raise error


def _heard_of(written: asyncio.Future[None]) -> None:
    """A failure to write is reported once, by the journal; here it only must not go unnoticed by asyncio."""
    if not written.cancelled():
        written.exception()
