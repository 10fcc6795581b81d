"""The command line of ``trine up``, checked, and what follows from it: nodes, cluster, policy, limits of users.

Everything that can be wrong is found here, in one sentence, before anything is started; nothing is written."""

from __future__ import annotations

import os
import re
import ssl
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from trine import __version__
from trine.assembly.settings import is_only_simulated
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.engine.quotas import Quotas
from trine.executor import registry
from trine.executor.accounts import blocking_directory, is_system_user
from trine.executor.base import Capabilities, NodeInfo, Unreachable
from trine.inputs.cluster import load_cluster
from trine.inputs.prices import load_prices
from trine.inputs.throughputs import load_throughputs
from trine.inputs.yaml_reader import read_mapping
from trine.profile.profile_matching import load_any
from trine.server import records as rec
from trine.server.access import Access, access_of
from trine.server.api.serve import is_loopback
from trine.server.auth import UserToken, user_name, user_tokens
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.inventory import Describe, cluster_of, node_info
from trine.server.prune import Retention
from trine.server.state import LiveState
from trine.server.state_directory import JOURNAL
from trine.server.store import Store
from trine.server.webhook import WebhookSettings, webhook_of
from trine.server.webhook import check_reachable as webhook_address

_HOST_NAME = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.I)
_ENGINE_SETTING = "engine."
"""What settings of the executor begin with, on the command line."""


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
    allowed_hosts: tuple[str, ...] = ()
    """More names by which browsers may ask, such as that of a proxy; ``*.example.org`` for all below."""
    config: Path | None = None
    variability: str = ""
    throughputs: str = ""
    prices: str = ""
    """Per GPU and hour, in place of those of the cluster."""
    event_driven: bool = False
    lease_s: float | None = None
    job_user: str = ""
    """The account under which jobs of the daemon's owner run, where the daemon is root."""
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
    engine: str = registry.DEFAULT
    """The executor that runs the jobs; its settings are those of ``settings`` that begin with ``engine.``."""


@dataclass(frozen=True)
class Setup:
    """What the daemon was started with."""

    cluster: Cluster
    policy: str
    placement: str
    settings: dict[str, Any]
    round_s: float
    version: str
    event_driven: bool = False
    """Decide a whole round at every event, not only what to do with GPUs that are free."""
    sharing: rec.Sharing = "user"
    """Which jobs may share GPUs."""
    describe: Describe = cluster_of
    """The cluster of the nodes that the engine has now, with what was said of them on the command line."""
    engine: str = registry.DEFAULT


class Prepared(NamedTuple):
    """What a command line comes to."""

    engine: registry.ExecutorFactory
    nodes: list[NodeInfo]
    setup: Setup
    model: Model
    access: Access
    warnings: tuple[str, ...] = ()
    """What an operator should know before the daemon starts, in sentences."""
    webhook: WebhookSettings | None = None


@dataclass(frozen=True)
class ClusterDescription:
    """What the command line says of the cluster, whichever nodes the engine has at the moment."""

    gpus: str = ""
    variability: str = ""
    prices: str = ""

    @property
    def stated(self) -> Cluster | None:
        return _described(self.gpus) if self.gpus else None

    def cluster(self, nodes: Sequence[NodeInfo]) -> Cluster:
        """The cluster of ``nodes`` with racks, links, scores and prices as far as they were given."""
        cluster = cluster_of(nodes, self.stated)
        if self.variability:
            cluster = _with_scores(cluster, self.variability)
        return _with_prices(cluster, self.prices) if self.prices else cluster


def prepare(options: Options) -> Prepared:
    """Everything that can be wrong with the command line and its files, found before anything is started."""
    _check_options(options)
    own = {name for name in options.settings if name.startswith(_ENGINE_SETTING)}
    settings = {name: value for name, value in options.settings.items() if name not in own}
    engine = registry.engine(
        options.engine, {name.removeprefix(_ENGINE_SETTING): options.settings[name] for name in own}
    )
    description = ClusterDescription(options.gpus, options.variability, options.prices)
    nodes = find_nodes(engine, description.stated, options)
    cluster = description.cluster(nodes)
    capabilities = engine.capabilities(nodes)
    _check_encrypted(options, capabilities)
    runs_as_user = capabilities.separates_users
    access, webhook = read_configuration(options.config, runs_as_user)
    if runs_as_user:
        check_reachable(options, access)
        access = replace(access, blocked=lambda user: blocking_directory(options.state, user))
    model = Model(
        load_throughputs(options.throughputs) if options.throughputs else None,
        quotas_of(access),
    )
    setup = Setup(
        cluster,
        options.policy,
        options.placement,
        settings,
        options.round_s,
        __version__,
        options.event_driven,
        _sharing(options, capabilities),
        description.cluster,
        engine.name,
    )
    check_settings(setup, model, capabilities)
    warnings = () if runs_as_user else _shared_account(engine.name, _others(options, access))
    return Prepared(engine, nodes, setup, model, access, warnings, webhook)


def read_configuration(path: Path | None, runs_as_user: bool) -> tuple[Access, WebhookSettings | None]:
    """What the file of ``--config`` says: who may submit what, and where notices go."""
    if path is None:
        return Access(runs_as_user=runs_as_user), None
    top = read_mapping(path, "a daemon configuration file")
    access, webhook = access_of(top, runs_as_user), webhook_of(top)
    top.finish()
    if webhook is not None:
        webhook_address(webhook, str(path))
    return access, webhook


def _sharing(options: Options, capabilities: Capabilities) -> rec.Sharing:
    if capabilities.shares_gpus:
        return "all" if options.share_between_users else "user"
    if options.share_between_users:
        found = f"the engine {options.engine} gives a GPU to one job only"
        raise InputError("--share-between-users", found, "an engine that shares GPUs, such as local, or none of it")
    return "off"


def _shared_account(engine: str, others: list[str]) -> tuple[str, ...]:
    """What follows from an engine that runs all jobs under one account, if there is anybody to separate."""
    account = user_name(os.geteuid())
    if not others and account != "root":
        return ()
    theirs = f", those of {', '.join(others[:8])} too" if others else ""
    return (
        f"The engine {engine} runs all jobs as {account}{theirs}: each can read the files and end the processes of the "
        "others. See docs/security.md.",
    )


def _others(options: Options, access: Access) -> list[str]:
    """Users besides the owner who may submit jobs, as far as is known at the start."""
    known = {options.job_user, *access.users, *(token.user for token in _tokens(options.state))}
    return sorted(known - {"", user_name(os.geteuid())})


def check_reachable(options: Options, access: Access) -> None:
    """Root's jobs of other users need a way to their own directories below the state directory."""
    for user in _others(options, access):
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
        return []  # reported later, when the tokens are needed


def _check_options(options: Options) -> None:
    if options.lease_s is not None and not options.lease_s > 0:
        raise InputError("--lease", f"{options.lease_s:g}", "a number of seconds greater than 0")
    if options.truncate is not None and options.truncate < 0:
        raise InputError("--truncate", f"{options.truncate}", "the number of the last record to keep, 0 or more")
    if "round_s" in options.settings:
        raise InputError("--set", "round_s", "--round SECONDS")
    if options.job_user and not is_system_user(options.job_user):
        raise InputError("--job-user", f"no user {options.job_user!r} on this machine", "a user that exists")
    for name in options.allowed_hosts:
        if not _HOST_NAME.fullmatch(name):
            expected = "a host name such as trine.example.org, without scheme and port, or *.example.org"
            raise InputError("--allow-host", repr(name), expected)
    if options.tls is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*options.tls)
        except (OSError, ssl.SSLError) as error:
            where = " and ".join(map(str, options.tls))
            found = f"no usable certificate and key ({error})"
            raise InputError(where, found, "PEM files that belong together") from None


def _check_encrypted(options: Options, capabilities: Capabilities) -> None:
    """Where jobs on other machines call the API, their tokens and variables travel over the network."""
    if capabilities.uses_api and options.tls is None and not is_loopback(options.host):
        expected = "--tls-cert and --tls-key: jobs of this engine call the API from other machines"
        raise InputError("--host", f"{options.host} without TLS", expected)


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
        steps = prices.steps.get(gpu_type.lower())
        if steps is None:
            raise InputError("--prices", f"no price for {gpu_type} in {spec}", "one for every GPU type of the cluster")
        if len(set(steps[1])) > 1:
            found = f"prices of {gpu_type} in {spec} that change over time"
            raise InputError("--prices", found, "one price per type (v100=2.5,k80=0.5): a daemon follows no changes")
        known[gpu_type] = steps[1][0]
    return replace(cluster, prices_per_gpu_h=known, changing_prices=None)


def find_nodes(engine: registry.ExecutorFactory, described: Cluster | None, options: Options) -> list[NodeInfo]:
    """The nodes that were described, what the executor finds by itself, or, if it cannot be asked, those on record."""
    nodes = engine.find_nodes(described)
    if isinstance(nodes, Unreachable):
        cluster = on_record(options).cluster
        if cluster is None:
            found = f"it does not answer ({nodes.reason}), and no earlier start has its nodes on record"
            raise InputError(f"--engine {engine.name}", found, "an engine that answers at the first start")
        nodes = [node_info(node) for node in cluster.nodes]
    if not nodes:
        raise InputError("--gpus", "no GPU driver on this machine", "virtual GPUs such as --gpus 2x2")
    return nodes


def _described(spec: str) -> Cluster:
    """The cluster of ``--gpus``; ``8`` and ``v100=8`` are that many GPUs on one node."""
    gpu_type, equals, count = spec.strip().rpartition("=")
    return load_cluster(f"{gpu_type}{equals}1x{count}" if count.isdecimal() else spec)


def on_record(options: Options) -> LiveState:
    """The state as the journal has it, if there is one; none is made."""
    journal = options.state / JOURNAL
    if not options.store and not journal.exists():
        return LiveState()
    store = Store.open(options.store or journal, create=False)
    try:
        return store.load()
    finally:
        store.close()


def quotas_of(access: Access) -> Quotas:
    """GPUs that queues and users may hold at most."""
    groups = {queue.name: queue.max_gpus for queue in access.queues.values() if queue.max_gpus is not None}
    users = {name: limits.max_gpus for name, limits in access.users.items() if limits.max_gpus is not None}
    return Quotas(groups, users)


def refuse_simulated(settings: Iterable[str]) -> None:
    """Settings that only a simulation reads would change nothing here, and silently."""
    for name in filter(is_only_simulated, settings):
        instead = "--event-driven" if name.endswith("event_driven") else "none: live, jobs and nodes are what they are"
        raise InputError("--set", "a setting that only a simulation reads", instead, name)


def check_settings(setup: Setup, model: Model, capabilities: Capabilities) -> None:
    """Fail at once, with one sentence, on settings that engine or executor would trip over later."""
    refuse_simulated(setup.settings)
    controller = Controller(LiveState(), model)
    controller.configure(
        0.0, setup.version, setup.cluster, setup.policy, setup.placement, setup.settings, setup.round_s, setup.sharing
    )
    if controller.deciding.placement.chooses.reads_chips and not capabilities.exact_gpus:
        found = f"{setup.placement} chooses GPUs by their chips, and the engine {setup.engine} cannot give exact GPUs"
        raise InputError("--placement", found, "one that does not, such as packed-sticky")
