"""``trine up``: finds the GPUs, opens the store, starts scheduler and API, and ends all of it in order.

Running jobs outlive the daemon; the next one finds them again.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import json
import os
import signal
import socket
import sqlite3
import ssl
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
import uvloop

from trine import __version__
from trine.core.atomic_file import make_private_dir, write_private
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError, TrineError
from trine.engine.quotas import Quotas
from trine.executor.base import NodeInfo
from trine.executor.faults import describe, is_host_fault
from trine.executor.inventory import discover, nodes_of
from trine.executor.local import LocalExecutor
from trine.inputs.cluster import load_cluster
from trine.inputs.prices import load_prices
from trine.inputs.throughputs import load_throughputs
from trine.profile.load import load_any
from trine.server.access import Access, blocking_directory, is_system_user, read_access
from trine.server.api.app import build_app
from trine.server.api.limits import Limits, connections_within, raise_descriptor_limit
from trine.server.api.serve import SOCKET, bind, bind_local, serve, usable_url
from trine.server.auth import UserToken, open_auth, user_name, user_tokens
from trine.server.build import Model
from trine.server.clock import JournalClock
from trine.server.controller import Controller
from trine.server.desk import Setup
from trine.server.identity import owner_of
from trine.server.leases import Leases
from trine.server.prune import Pruner, Retention
from trine.server.records import StartOrder
from trine.server.scheduler import Scheduler, check_settings
from trine.server.state import LiveState
from trine.server.store import Store

JOURNAL = "journal.db"
_PLAIN_LOCK = "a plain file that the daemon makes itself; remove it"
_LEASE_ROUNDS = 10
_LEASE_AT_LEAST_S = 900.0
"""A daemon may be away this long before its jobs save their work and leave."""


@dataclass(frozen=True)
class Options:
    """The command line of ``trine up``."""

    state: Path
    gpus: str = ""
    """Virtual GPUs (``4x2``) or a cluster file; empty: what the driver lists."""
    policy: str = "fifo-backfill"
    placement: str = "packed-sticky"
    round_s: float = 60.0
    settings: dict[str, Any] = field(default_factory=dict)
    store: str = ""
    host: str = "127.0.0.1"
    port: int | None = None
    """``None``: the usual one, or any free one if that is taken."""
    config: Path | None = None
    variability: str = ""
    throughputs: str = ""
    prices: str = ""
    """Per GPU and hour, in place of those of the cluster."""
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
    take_over: bool = False
    """The journal's owner on record is gone for good: it is ours from now on."""
    retention: Retention = field(default_factory=Retention)
    """How long directories of ended jobs stay."""


class AlreadyUpError(TrineError):
    """Another daemon has the state directory."""


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
    nodes, setup, model, access = prepare(options)
    for note in setup.cluster.notes:
        structlog.get_logger("daemon").warning("cluster", note=note)
    make_state_directory(options.state)
    with (
        bind(options.host, options.port) as listener,
        _Lock(options.state),
        bind_local(options.state) as local,
    ):
        auth = open_auth(options.state)
        if os.geteuid() == 0:
            # Jobs of other users must get through to their own directories below; they cannot list this one.
            options.state.chmod(0o711)
        store = open_store(options)
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(_serve(options, nodes, setup, model, access, auth, store, listener, local, ready))
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


def make_state_directory(state: Path) -> None:
    """The directory of the daemon's state, with a journal that only its owner may read: jobs' variables are in it."""
    try:
        make_private_dir(state)
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
    if runs_as_user:
        check_reachable(options, access)
        access = replace(access, blocked=lambda user: blocking_directory(options.state, user))
    if options.variability:
        cluster = _with_scores(cluster, options.variability)
    if options.prices:
        cluster = _with_prices(cluster, options.prices)
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


def check_reachable(options: Options, access: Access) -> None:
    """Root's jobs of other users need a way to their own directories below the state directory."""
    known = {options.job_user, *access.users, *(token.user for token in _tokens(options.state))} - {"", "root"}
    for user in sorted(known):
        if directory := blocking_directory(options.state, user):
            mode = f"{stat.S_IMODE(Path(directory).stat().st_mode):o}"
            raise InputError(
                str(options.state),
                f"jobs of user {user} cannot get there, {directory} (mode {mode}) lets them not pass",
                f"a directory that all may pass through, such as --state /var/lib/trine, or chmod o+x {directory}",
                "--state",
            )


def _tokens(state: Path) -> list[UserToken]:
    try:
        return user_tokens(state)
    except (InputError, OSError):
        return []  # said later, by who needs them


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


def _with_scores(cluster: Cluster, path: str) -> Cluster:
    """The cluster with measured slowdowns, which so become part of the record, and with what had to be assumed."""
    table, notes = load_any(path, cluster)
    scores = {name: tuple(values) for name, values in table.slowdowns.items()}
    return replace(cluster, scores=scores, notes=(*cluster.notes, *(f"{path}: {note}" for note in notes)))


def _with_prices(cluster: Cluster, spec: str) -> Cluster:
    """The cluster with a price for every type, which so becomes part of the record.

    Changes over time are counted from the start of a simulation; a daemon has no such start, so it takes none.
    """
    prices = load_prices(spec)
    known: dict[str, float] = {}
    for gpu_type in cluster.types:
        told = prices.steps.get(gpu_type.lower())
        if told is None:
            raise InputError("--prices", f"no price for {gpu_type} in {spec}", "one for every GPU type of the cluster")
        if len(set(told[1])) > 1:
            found = f"prices of {gpu_type} in {spec} that change over time"
            raise InputError("--prices", found, "one price per type (v100=2.5,k80=0.5): a daemon follows no changes")
        known[gpu_type] = told[1][0]
    return replace(cluster, prices_per_gpu_h=known, changing_prices=None)


def find_nodes(spec: str) -> list[NodeInfo]:
    """Virtual nodes as told, or this machine with the GPUs its driver lists."""
    if spec:
        return nodes_of(_described(spec))
    nodes = discover()
    if not nodes:
        raise InputError("--gpus", "no GPU driver on this machine", "virtual GPUs such as --gpus 2x2")
    return nodes


def _described(spec: str) -> Cluster:
    """The cluster of ``--gpus``; ``8`` and ``v100=8`` are that many GPUs on one node."""
    gpu_type, equals, count = spec.strip().rpartition("=")
    return load_cluster(f"{gpu_type}{equals}1x{count}" if count.isdecimal() else spec)


def cluster_of(nodes: list[NodeInfo], spec: str) -> Cluster:
    """The cluster the engine schedules; a node of several GPU types cannot be described yet."""
    if spec:
        return _described(spec)
    for node in nodes:
        kinds = sorted({gpu.type for gpu in node.gpus})
        if len(kinds) > 1:
            raise InputError(
                node.name, f"GPUs of types {', '.join(kinds)} in one machine", "one type per node: give --gpus FILE"
            )
    return Cluster(tuple(_cluster_node(node) for node in nodes))


def _cluster_node(node: NodeInfo) -> Node:
    indices = tuple(gpu.index for gpu in node.gpus)
    told = () if indices == tuple(range(len(indices))) else indices
    return Node(node.name, len(indices), node.gpus[0].type, node.labels.get("rack", "rack0"), told)


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
        *(f"Note: {note}." for note in setup.cluster.notes),
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
    local: socket.socket | None,
    ready: Callable[[str], None],
) -> None:
    limits = Limits(connections=connections_within(raise_descriptor_limit()))
    executor = LocalExecutor(options.state, nodes)
    leases = Leases(options.state, _lease_s(options), run_as=_run_as(options.job_user))
    scheduler = Scheduler(setup, model, store, executor, leases, access, JournalClock())
    gc.freeze()  # a past of many jobs is no garbage: looking through it would hold up requests
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    entry = options.state / "api.json"

    def listening(_: str) -> None:
        leases.api_url = url = usable_url(options.host, listener, options.tls)
        found = {"url": url, "pid": os.getpid(), "version": __version__}
        write_private(entry, json.dumps(found | ({} if local is None else {"socket": SOCKET})))
        ready(url)

    crashes: list[BaseException] = []

    def crashed(error: BaseException) -> None:
        structlog.get_logger("daemon").error("crashed", exc_info=error)
        crashes.append(error)
        scheduler.closing = True
        stop.set()

    scheduler.on_crash = crashed
    await scheduler.start()
    pruner = Pruner(
        options.state / "jobs",
        options.retention,
        lambda: scheduler.controller.state,
        lambda: {handle.job_id for handle in executor.list_handles()},
        scheduler.now,
    )
    pruning = asyncio.create_task(pruner.run())
    try:
        app = build_app(scheduler, auth, limits, structlog.get_logger("api"), options.log_requests)
        await serve(app, listener, ready=listening, stop=stop, limits=limits, tls=options.tls, local=local)
    finally:
        pruning.cancel()
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


class _Lock:
    """One daemon per state directory; the lock ends with the process, however it ends."""

    def __init__(self, state: Path) -> None:
        self._path = state / "daemon.lock"

    def __enter__(self) -> None:
        self._file = os.fdopen(self._open(), "a+")
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

    def _open(self) -> int:
        """A link in its place would have the daemon write into whatever it leads to."""
        try:
            descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
        except OSError as error:
            found = "a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
            raise InputError(str(self._path), found, _PLAIN_LOCK) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise InputError(str(self._path), "not a plain file", _PLAIN_LOCK)
        return descriptor

    def __exit__(self, *_: object) -> None:
        self._file.close()
