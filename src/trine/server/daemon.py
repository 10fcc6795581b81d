"""``trine up``: finds the GPUs, opens the store, starts scheduler and API, and ends all of it in order.

Running jobs outlive the daemon; the next one finds them again.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
import uvloop

from trine import __version__
from trine.config.cluster import load_cluster
from trine.config.throughputs import load_throughputs
from trine.config.variability import load_variability
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError, TrineError
from trine.engine.quotas import Quotas
from trine.executor.base import NodeInfo
from trine.executor.inventory import discover, nodes_of
from trine.executor.local import LocalExecutor
from trine.server.access import Access, is_system_user, read_access
from trine.server.api.app import build_app
from trine.server.api.limits import Limits
from trine.server.api.serve import bind, serve
from trine.server.auth import open_auth, user_name
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.desk import Setup
from trine.server.leases import Leases
from trine.server.private import write_private
from trine.server.records import StartOrder
from trine.server.scheduler import Scheduler, check_settings
from trine.server.state import LiveState
from trine.server.store import Store

JOURNAL = "journal.db"
_LEASE_ROUNDS = 10
_LEASE_AT_LEAST_S = 900.0
"""A daemon may be away this long before its jobs save their work and leave."""


@dataclass(frozen=True)
class Options:
    """The command line of ``trine up``."""

    state: Path
    gpus: str = ""
    """Virtual GPUs (``4x2``) or a cluster file; empty: what the driver lists."""
    policy: str = "fifo"
    placement: str = "packed-sticky"
    round_s: float = 60.0
    settings: dict[str, Any] = field(default_factory=dict)
    store: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    config: Path | None = None
    variability: str = ""
    throughputs: str = ""
    event_driven: bool = False
    lease_s: float | None = None
    job_user: str = ""
    """As whom jobs of the daemon's owner run, where the daemon is root."""
    truncate: int | None = None
    tls: tuple[Path, Path] | None = None
    """Certificate and key of the API."""
    log_requests: bool = False
    share_between_users: bool = False
    """Two users' jobs may be on the same GPUs."""


class AlreadyUpError(TrineError):
    """Another daemon has the state directory."""


def run(options: Options, ready: Callable[[str], None]) -> None:
    """Serve until a signal says otherwise; ``ready`` is called with the API's address."""
    nodes, setup, model, access = prepare(options)
    make_state_directory(options.state)
    with bind(options.host, options.port) as listener, _Lock(options.state):
        auth = open_auth(options.state)
        if os.geteuid() == 0:
            # Jobs of other users must get through to their own directories below; they cannot list this one.
            options.state.chmod(0o711)
        store = open_store(options)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(options, nodes, setup, model, access, auth, store, listener, ready))
        finally:
            store.close()


def make_state_directory(state: Path) -> None:
    """The directory of the daemon's state, with a journal that only its owner may read: jobs' variables are in it."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(state / JOURNAL, os.O_RDWR | os.O_CREAT, 0o600))
        (state / JOURNAL).chmod(0o600)
    except OSError as error:
        found = f"cannot be used ({error.strerror})"
        raise InputError(str(state), found, "a directory of your own", "--state") from None


def prepare(options: Options) -> tuple[list[NodeInfo], Setup, Model, Access]:
    """Everything that can be wrong with the command line and its files, found before anything is started."""
    _check_options(options)
    nodes = find_nodes(options.gpus)
    cluster = cluster_of(nodes, options.gpus)
    runs_as_user = os.geteuid() == 0
    access = read_access(options.config, runs_as_user) if options.config else Access(runs_as_user=runs_as_user)
    if options.variability:
        cluster = replace(cluster, scores=_scores(options.variability, cluster))
    model = Model(
        load_throughputs(options.throughputs) if options.throughputs else None,
        quotas_of(access),
    )
    setup = Setup(
        cluster,
        options.policy,
        options.placement,
        options.settings,
        options.round_s,
        __version__,
        options.event_driven,
        "all" if options.share_between_users else "user",
    )
    check_settings(setup, model)
    return nodes, setup, model, access


def _check_options(options: Options) -> None:
    if options.lease_s is not None and not options.lease_s > 0:
        raise InputError("--lease", f"{options.lease_s:g}", "a number of seconds greater than 0")
    if options.truncate is not None and options.truncate < 0:
        raise InputError("--truncate", f"{options.truncate}", "the number of the last record to keep, 0 or more")
    if "round_s" in options.settings:
        raise InputError("--set", "round_s", "--round SECONDS")
    if options.job_user and not is_system_user(options.job_user):
        raise InputError("--job-user", f"no user {options.job_user!r} on this machine", "a user that exists")
    if options.tls is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*options.tls)
        except (OSError, ssl.SSLError) as error:
            where = " and ".join(map(str, options.tls))
            found = f"no usable certificate and key ({error})"
            raise InputError(where, found, "PEM files that belong together") from None


def _scores(path: str, cluster: Cluster) -> dict[str, tuple[float, ...]]:
    """Measured slowdowns, which become part of the cluster and so of the record."""
    return {name: tuple(values) for name, values in load_variability(path, cluster).slowdowns.items()}


def find_nodes(spec: str) -> list[NodeInfo]:
    """Virtual nodes as told, or this machine with the GPUs its driver lists."""
    if spec:
        return nodes_of(load_cluster(spec))
    nodes = discover()
    if not nodes:
        raise InputError("--gpus", "no GPU driver on this machine", "virtual GPUs such as --gpus 2x2")
    return nodes


def cluster_of(nodes: list[NodeInfo], spec: str) -> Cluster:
    """The cluster the engine schedules; a node of several GPU types cannot be described yet."""
    found = load_cluster(spec) if spec else None
    if found is not None:
        return found
    for node in nodes:
        kinds = sorted({gpu.type for gpu in node.gpus})
        if len(kinds) > 1:
            raise InputError(
                node.name, f"GPUs of types {', '.join(kinds)} in one machine", "one type per node: give --gpus FILE"
            )
    return Cluster(tuple(Node(n.name, len(n.gpus), n.gpus[0].type, n.labels.get("rack", "rack0")) for n in nodes))


def open_store(options: Options) -> Store:
    """The journal; a damaged tail is cut off if that was asked for."""
    store = Store.open(options.store or options.state / JOURNAL)
    store.claim()
    if options.truncate is not None:
        gone = store.truncate(options.truncate)
        structlog.get_logger("daemon").warning("truncated", after=options.truncate, records=gone)
    return store


def dry_run(options: Options) -> list[str]:
    """What would happen at the start, in sentences. Nothing is started, nothing is written."""
    nodes, setup, model, _ = prepare(options)
    state = _on_record(options)
    controller = Controller(state, model)
    now = max(time.time(), state.last_s)
    controller.configure(
        now, setup.version, setup.cluster, setup.policy, setup.placement, setup.settings, setup.round_s, setup.sharing
    )
    kind = "virtual" if nodes[0].virtual else "real"
    told = [
        f"{setup.cluster.describe()}, {kind}.",
        f"Policy {setup.policy}, placement {setup.placement}, rounds of {setup.round_s:g} s.",
        f"{len(state.live)} jobs are on record, {sum(1 for _ in state.holders())} of them hold GPUs.",
    ]
    orders = controller.tick(now).orders
    told += [stop.sentence for stop in orders.stops] + [_start_sentence(start) for start in orders.starts]
    return [*told, f"The first round would stop {len(orders.stops)} and start {len(orders.starts)} jobs."]


def _start_sentence(start: StartOrder) -> str:
    return f"{start.sentence} It shares with job {start.partner}." if start.partner else start.sentence


def _on_record(options: Options) -> LiveState:
    """The state as the journal has it, if there is one; none is made."""
    journal = options.state / JOURNAL
    if not options.store and not journal.exists():
        return LiveState()
    store = Store.open(options.store or journal, create=False)
    try:
        return store.load()
    finally:
        store.close()


async def _serve(
    options: Options,
    nodes: list[NodeInfo],
    setup: Setup,
    model: Model,
    access: Access,
    auth: Any,
    store: Store,
    listener: socket.socket,
    ready: Callable[[str], None],
) -> None:
    executor = LocalExecutor(options.state, nodes)
    leases = Leases(options.state, _lease_s(options), run_as=_run_as(options.job_user))
    scheduler = Scheduler(setup, model, store, executor, leases, access, _steady_clock())
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    entry = options.state / "api.json"

    def listening(url: str) -> None:
        leases.api_url = url
        write_private(entry, json.dumps({"url": url, "pid": os.getpid(), "version": __version__}))
        ready(url)

    crashes: list[BaseException] = []

    def crashed(error: BaseException) -> None:
        structlog.get_logger("daemon").error("crashed", exc_info=error)
        crashes.append(error)
        scheduler.closing = True
        stop.set()

    scheduler.on_crash = crashed
    await scheduler.start()
    try:
        app = build_app(scheduler, auth, Limits(), structlog.get_logger("api"), options.log_requests)
        await serve(app, listener, ready=listening, stop=stop, tls=options.tls)
    finally:
        entry.unlink(missing_ok=True)
        await scheduler.stop(keep_snapshot=not crashes)
        executor.close()
    if crashes:
        raise TrineError(f"the scheduler stopped on an error ({crashes[0]}); running jobs go on, `trine up` resumes")


def _lease_s(options: Options) -> float:
    if options.lease_s is not None:
        return options.lease_s
    return max(_LEASE_ROUNDS * options.round_s, _LEASE_AT_LEAST_S)


def _run_as(job_user: str) -> Callable[[str], str | None]:
    """Root starts each job as its user; anybody else can only start jobs as himself."""
    owner = user_name(os.geteuid())
    if os.geteuid() != 0:
        return lambda _: None
    return lambda user: (job_user or None) if user == owner else user


def quotas_of(access: Access) -> Quotas:
    """GPUs that queues and users may hold at most."""
    groups = {queue.name: queue.max_gpus for queue in access.queues.values() if queue.max_gpus is not None}
    users = {name: limits.max_gpus for name, limits in access.users.items() if limits.max_gpus is not None}
    return Quotas(groups, users)


def _steady_clock() -> Callable[[], float]:
    """Unix time that is not moved by corrections of the system's clock while the daemon runs."""
    wall, steady = time.time(), time.monotonic()
    return lambda: wall + time.monotonic() - steady


class _Lock:
    """One daemon per state directory; the lock ends with the process, however it ends."""

    def __init__(self, state: Path) -> None:
        self._path = state / "daemon.lock"

    def __enter__(self) -> None:
        self._file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            pid = self._file.read().strip() or "unknown"
            self._file.close()
            raise AlreadyUpError(f"another daemon (process {pid}) already runs with {self._path.parent}") from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        self._file.close()
