"""``trine up``: finds the GPUs, opens the store, starts scheduler and API, and ends all of it in order.

Running jobs outlive the daemon; the next one finds them again.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import structlog
import uvloop
from starlette.concurrency import run_in_threadpool

from trine import __version__
from trine.core.atomic_file import write_private
from trine.core.errors import InputError, TrineError
from trine.executor.base import Executor, Unreachable
from trine.executor.faults import describe, is_host_fault
from trine.server.api.app import build_app
from trine.server.api.browser import Browsers
from trine.server.api.limits import Limits, connections_within, raise_descriptor_limit
from trine.server.api.serve import SOCKET, bind, bind_local, certificate_names, serve, usable_url
from trine.server.auth import Auth, open_auth, user_name
from trine.server.clock import JournalClock
from trine.server.configuration import Options, Prepared, on_record, prepare
from trine.server.controller import Controller
from trine.server.leases import Leases
from trine.server.predictions import SCORE_FILE
from trine.server.prune import Pruner
from trine.server.records import StartOrder
from trine.server.scheduler import Scheduler
from trine.server.sessions import SESSIONS_FILE, Sessions
from trine.server.state_directory import JOURNAL, StateLock, make_state_directory, owner_of
from trine.server.store import Store
from trine.server.usage import USAGE_FILE, UsageHistory
from trine.server.webhook import Webhook

_SECRET = ("token", "authorization", "secret", "password")
_LEASE_ROUNDS = 10
_LEASE_AT_LEAST_S = 900.0
"""A daemon may be away this long before its jobs save their work and leave."""


def run(options: Options, ready: Callable[[str], None]) -> None:
    """Serve until a signal says otherwise; ``ready`` is called with the API's address.

    What the machine lacks now (room, descriptors) is a ``TrineError``, not an ``InputError``: options that are wrong
    stay wrong, but a daemon that is started again later may find room."""
    try:
        _run(options, ready)
    except InputError as error:
        if not _may_pass(error.__context__, options):
            raise
        raise TrineError(f"{error.where}: {error.found}") from None
    except OSError as error:
        if not _may_pass(error, options):
            raise
        raise TrineError(f"the daemon cannot run now: {describe(error)}") from None


_PASSING = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_BUSY})


def _may_pass(error: BaseException | None, options: Options) -> bool:
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_CANTOPEN:
        return not options.store  # we made that file ourselves a moment ago; one that was named may not be there
    return code in _PASSING or (error is not None and is_host_fault(error, str(options.state)))


def _run(options: Options, ready: Callable[[str], None]) -> None:
    prepared = prepare(options)
    for note in prepared.setup.cluster.notes:
        structlog.get_logger("daemon").warning("cluster", note=note)
    for warning in prepared.warnings:
        structlog.get_logger("daemon").warning("engine", note=warning)
    make_state_directory(options.state)
    with (
        bind(options.host, options.port) as listener,
        StateLock(options.state),
        bind_local(options.state) as local,
    ):
        auth = open_auth(options.state)
        if os.geteuid() == 0:
            # Jobs of other users must get through to their own directories below; they cannot list this one.
            options.state.chmod(0o711)
        store = open_store(options)
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(_serve(options, prepared, auth, store, listener, local, ready))
        finally:
            store.close()


_LOOP_DESCRIPTORS = 24
"""More than an event loop opens."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop, or OSError where there are too few descriptors left: libuv would abort the process."""
    with ExitStack() as opened:
        for _ in range(_LOOP_DESCRIPTORS):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    return uvloop.new_event_loop()


def open_store(options: Options) -> Store:
    """The journal; a damaged tail is cut off if that was asked for."""
    store = Store.open(options.store or options.state / JOURNAL)
    store.claim(owner_of(options.state, options.take_over), options.take_over)
    if options.truncate is not None:
        gone = store.truncate(options.truncate)
        structlog.get_logger("daemon").warning("truncated", after=options.truncate, records=gone)
    return store


def dry_run(options: Options) -> list[str]:
    """What would happen at the start, in sentences. Nothing is started, nothing is written."""
    _, nodes, setup, model, _, warnings, _ = prepare(options)
    state = on_record(options)
    controller = Controller(state, model)
    now = max(time.time(), state.last_s)
    controller.configure(
        now, setup.version, setup.cluster, setup.policy, setup.placement, setup.settings, setup.round_s, setup.sharing
    )
    kind = "virtual" if nodes[0].virtual else "real"
    sentences = [
        f"{setup.cluster.describe()}, {kind}.",
        *(f"Note: {note}." for note in setup.cluster.notes),
        *warnings,
        f"Policy {setup.policy}, placement {setup.placement}, rounds of {setup.round_s:g} s.",
        f"Jobs on record that have not ended: {len(state.live):,}, with GPUs: {sum(1 for _ in state.holders()):,}.",
    ]
    orders = controller.tick(now).orders
    sentences += [stop.sentence for stop in orders.stops] + [_start_sentence(start) for start in orders.starts]
    return [*sentences, f"The first round would stop {len(orders.stops)} and start {len(orders.starts)} jobs."]


def _start_sentence(start: StartOrder) -> str:
    return f"{start.sentence} It shares with job {start.co_runner}." if start.co_runner else start.sentence


async def _serve(
    options: Options,
    prepared: Prepared,
    auth: Auth,
    store: Store,
    listener: socket.socket,
    local: socket.socket | None,
    ready: Callable[[str], None],
) -> None:
    limits = Limits(connections=connections_within(raise_descriptor_limit()))
    # The first request would load what runs calls beside the event loop, and fail where no file may be opened by then.
    await run_in_threadpool(int)
    daemon = _Daemon(options, prepared, store)
    gc.freeze()  # a past of many jobs is no garbage: looking through it would hold up requests
    daemon.stop_on_signals()
    await daemon.start()
    try:
        await daemon.answer(auth, limits, listener, local, ready)
    finally:
        await daemon.close()
    daemon.raise_crash()


class _Daemon:
    """Scheduler, engine and what runs beside them, from the start to the end of one daemon."""

    def __init__(self, options: Options, prepared: Prepared, store: Store) -> None:
        engine, nodes, setup, model, access, _, notified = prepared
        self.options, self.store = options, store
        self.entry = options.state / "api.json"
        """How other commands find this daemon."""
        self.stop = asyncio.Event()
        self.crashes: list[BaseException] = []
        self.aside: list[asyncio.Task[None]] = []
        self.executor = engine.open(options.state, nodes)
        self.leases = Leases(_lease_s(options), run_as=_run_as(options.job_user, access.runs_as_user))
        self.scheduler = Scheduler(setup, model, store, self.executor, self.leases, access, JournalClock())
        self.webhook = None if notified is None else Webhook(notified, self.scheduler.observed.notified)
        self.scheduler.use_webhook(self.webhook)
        self.scheduler.on_crash = self._crashed
        self.scheduler.past = UsageHistory(options.state / USAGE_FILE)
        self.scheduler.forecasts.keep_score_at(options.state / SCORE_FILE)

    def stop_on_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.stop.set)

    async def start(self) -> None:
        """Begin to schedule, and what goes on beside it: pruning, forecasts, samples of the use."""
        scheduler = self.scheduler
        await scheduler.start()
        pruner = scheduler.pruner = Pruner(
            self.executor.storage,
            self.options.retention,
            lambda: scheduler.controller.state,
            lambda: _busy_jobs(self.executor),
            scheduler.now,
            (scheduler.journal, self.store),
        )
        running = (pruner.run(), scheduler.forecasts.run(), scheduler.past.run(scheduler.sample), self._end_forecasts())
        self.aside = [asyncio.create_task(each) for each in running]

    async def _end_forecasts(self) -> None:
        """At the end neither a request nor the daemon waits for one."""
        await self.stop.wait()
        self.scheduler.forecasts.close()

    async def answer(
        self,
        auth: Auth,
        limits: Limits,
        listener: socket.socket,
        local: socket.socket | None,
        ready: Callable[[str], None],
    ) -> None:
        """Serve the API until the end."""
        options = self.options
        browsers = Browsers(Sessions(auth.holder, options.state / SESSIONS_FILE), _own_names(options))
        log = structlog.get_logger("api")
        app = build_app(self.scheduler, auth, limits, log, options.log_requests, browsers, self.executor.relay)

        def listening(_: str) -> None:
            self.leases.api_url = url = usable_url(options.host, listener, options.tls)
            found = {"url": url, "pid": os.getpid(), "version": __version__}
            write_private(self.entry, json.dumps(found | ({} if local is None else {"socket": SOCKET})))
            ready(url)

        await serve(app, listener, ready=listening, stop=self.stop, limits=limits, tls=options.tls, local=local)

    async def close(self) -> None:
        """Running jobs go on."""
        for task in self.aside:
            task.cancel()
        self.entry.unlink(missing_ok=True)
        await self.scheduler.stop(keep_snapshot=not self.crashes)
        self.executor.close()
        if self.webhook is not None:
            self.webhook.close()

    def _crashed(self, error: BaseException) -> None:
        structlog.get_logger("daemon").error("crashed", exc_info=error)
        self.crashes.append(error)
        self.scheduler.closing = True
        self.stop.set()

    def raise_crash(self) -> None:
        if self.crashes:
            found = self.crashes[0]
            raise TrineError(f"the scheduler stopped on an error ({found}); running jobs go on, `trine up` resumes")


def _own_names(options: Options) -> set[str]:
    """Host names by which browsers may ask for this daemon."""
    named = certificate_names(options.tls[0]) if options.tls else []
    return {options.host, socket.gethostname(), *named, *options.allowed_hosts}


def _busy_jobs(executor: Executor) -> set[str] | None:
    """Jobs with attempts that the executor follows; ``None`` if it cannot say."""
    handles = executor.list_handles()
    return None if isinstance(handles, Unreachable) else {handle.job_id for handle in handles}


def _lease_s(options: Options) -> float:
    if options.lease_s is not None:
        return options.lease_s
    return max(_LEASE_ROUNDS * options.round_s, _LEASE_AT_LEAST_S)


def _run_as(job_user: str, runs_as_user: bool) -> Callable[[str], str | None]:
    """Where the engine separates users, each job is started as its user; else all under the account of the daemon."""
    if not runs_as_user:
        return lambda _: None
    owner = user_name(os.geteuid())
    return lambda user: (job_user or None) if user == owner else user


def configure_logging(as_json: bool, quiet: bool = False) -> None:
    """Structured logs on stderr, one line per event, for people or as JSON."""
    level = logging.WARNING if quiet else logging.INFO
    last: Any = structlog.processors.JSONRenderer() if as_json else _plain_renderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            hide_secrets,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _plain_renderer() -> Any:
    """Tracebacks without the values of variables: among those of a request are its token and its cookie."""
    return structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)


def hide_secrets(_: Any, __: str, event: Any) -> Any:
    """Whatever is called like a secret is not shown."""
    for name in event:
        if any(word in name.lower() for word in _SECRET):
            event[name] = "***"
    return event
