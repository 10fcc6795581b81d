"""The journal's vocabulary: what happened, in order. State is what these records add up to.

Records hold facts and the decisions taken on them, never a promise to decide the same again: a newer version of a
policy reads an old journal and finds the jobs exactly where they were left.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

from trine.core.cluster import Cluster, Links, Node
from trine.core.errors import TrineError
from trine.inputs.job_spec import JobSpec, recorded_job

Sharing = Literal["off", "user", "all"]
"""Which jobs may share GPUs: none, two jobs of one user, or any two."""

_CO_RUNNER_KEY = "partner"
"""What journals call ``StartOrder.co_runner``; journals outlive names in the code."""
_MANY = 500


class JournalError(TrineError):
    """The journal holds something this version cannot read."""


class UnknownRecordError(JournalError):
    """The journal holds a record of a kind that only a newer version knows."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Job ``job`` gets ``gpus`` (GPU ids of the cluster) for its start number ``epoch``."""

    job: str
    epoch: int
    gpus: tuple[int, ...]
    why: str
    sentence: str
    expected_s: float | None = None
    """Seconds the performance model expects it to need there, where its length is known."""
    co_runner: str = ""
    """The job that is to run on the same GPUs; it is there already, or starts later."""


@dataclass(frozen=True, slots=True)
class StopOrder:
    """The start ``epoch`` of ``job`` is to end; ``moves``: it goes on elsewhere at once."""

    job: str
    epoch: int
    moves: bool
    why: str
    sentence: str
    for_job: str = ""
    """The job that gets its GPUs, where the policy names it."""
    gain_s: float = 0.0
    """Seconds by which a job that moves for its own good is expected to end earlier; 0: not known, or none."""
    weighed: dict[str, float] = field(default_factory=dict)
    """Gain, cost and price that the policy weighed it by, where it did; see ``core.reason.Trade``."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What was decided on a record, to be carried out once the record is durable."""

    starts: tuple[StartOrder, ...] = ()
    stops: tuple[StopOrder, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.starts or self.stops)


@dataclass(frozen=True, slots=True)
class Configured:
    """The daemon started: what it schedules, and how. The engine is built anew from the state at this point."""

    kind: ClassVar[str] = "configured"
    at_s: float
    version: str
    cluster: dict[str, Any]
    policy: str
    placement: str
    settings: dict[str, Any]
    round_s: float = 60.0
    sharing: Sharing = "off"
    clock: dict[str, Any] | None = None
    """The boot of the machine and its monotonic clock at ``at_s``; see ``server.clock``."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Jobs with attempts on disk that this journal knows nothing of, after a restore: the newest of each."""
    quotas: dict[str, dict[str, int]] = field(default_factory=dict)
    """GPUs that queues (``groups``) and ``users`` may hold at most; empty: no limits, or a journal of before."""
    orders: Orders = field(default_factory=Orders)
    """No decisions: attempts that were found running and belong to the journal from now on."""


@dataclass(frozen=True, slots=True)
class ModelRefined:
    """What was learnt from running jobs changed the performance model; the engine is built anew from here."""

    kind: ClassVar[str] = "refined"
    at_s: float
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """Nodes joined the cluster or left it while the daemon ran; the engine is built anew from here.

    GPU ids follow their nodes. No job on record holds GPUs of a node that left."""

    kind: ClassVar[str] = "cluster"
    at_s: float
    cluster: dict[str, Any]
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job was submitted."""

    kind: ClassVar[str] = "accepted"
    at_s: float
    job: str
    user: str
    queue: str
    weight: float
    spec: JobSpec
    request_id: str = ""
    digest: str = ""
    """Of all that the request asked for; on its first job only."""
    array_id: str = ""
    """Id of the first element of the array that the job belongs to."""
    array_index: int | None = None
    external: str = ""
    """Work that was given to the engine itself: its key, see ``executor.base.ExternalJob``."""
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class ActionRequested:
    """A job is to be cancelled, held or released on request, or stopped because its time is over."""

    kind: ClassVar[str] = "asked"
    at_s: float
    job: str
    verb: str
    by: str
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """A job that has not ended has another priority from now on."""

    kind: ClassVar[str] = "priority"
    at_s: float
    job: str
    priority: float
    by: str
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """GPUs that users (``user:NAME``) and queues (``queue:NAME``) may hold at most from now on; the engine is built
    anew from here."""

    kind: ClassVar[str] = "quotas"
    at_s: float
    changes: dict[str, int | None]
    """``None``: no limit."""
    by: str
    as_configured: tuple[str, ...] = ()
    """What the configuration says holds again for these."""
    orders: Orders = field(default_factory=Orders)


EXECUTOR = "executor"
"""The author of a change of a node that was not asked for."""


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node, or only ``gpus`` of it, was drained (``drained``), came back (``up``) or was lost (``down``).

    A drain ends on request, an outage when the executor (``by``) says so: each brings back its own only. GPUs that the
    executor withholds (``withheld``), because others hold them say, are a matter of its own, too.
    """

    kind: ClassVar[str] = "node"
    at_s: float
    node: str
    state: str
    reason: str
    by: str
    gpus: tuple[int, ...] = ()
    """Indices on the node; empty: the whole node."""
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class Heard:
    """Progress of one running job: ``step`` reached at ``at_s``, ``steps_per_s`` over the last ``seconds``."""

    job: str
    epoch: int
    at_s: float
    step: float
    total: float | None
    steps_per_s: float
    seconds: float
    links_shared: bool = False
    """During these seconds other jobs took bandwidth from it: that says nothing of its tier or its GPUs."""
    links_changed: bool = False
    """Others came to its links or left them after the speed was measured: it is another one now."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """A round was decided (``fill``: only free GPUs were given out), on the progress known at that moment."""

    kind: ClassVar[str] = "ticked"
    at_s: float
    fill: bool
    heard: tuple[Heard, ...] = ()
    orders: Orders = field(default_factory=Orders)
    accounts: dict[str, Any] = field(default_factory=dict)
    """What changed in the accounts of a policy that keeps some: new values by name, ``None`` for what is gone."""


@dataclass(frozen=True, slots=True)
class StartReported:
    """The processes of a start are up."""

    kind: ClassVar[str] = "started"
    at_s: float
    job: str
    epoch: int
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class ExitReported:
    """The processes of a start are gone, all of them: ``outcome`` is done, preempted, failed, lost or host-fault."""

    kind: ClassVar[str] = "exited"
    at_s: float
    job: str
    epoch: int
    outcome: str
    rc: int | None
    step: float | None
    detail: str = ""
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A job about which nothing can be decided is left out of all decisions from now on; ``reason`` is a sentence."""

    kind: ClassVar[str] = "set-aside"
    at_s: float
    job: str
    reason: str
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True)
class FellBack:
    """The configured policy or placement fails for all jobs: until the next start these are used in its place."""

    kind: ClassVar[str] = "fell-back"
    at_s: float
    policy: str
    placement: str
    reason: str
    orders: Orders = field(default_factory=Orders)


Record = (
    Configured
    | ModelRefined
    | ClusterChanged
    | Accepted
    | ActionRequested
    | PriorityChanged
    | QuotasChanged
    | NodeChanged
    | Ticked
    | StartReported
    | ExitReported
    | SetAside
    | FellBack
)

_KINDS: dict[str, type[Record]] = {
    cls.kind: cls
    for cls in (
        Configured,
        ModelRefined,
        ClusterChanged,
        Accepted,
        ActionRequested,
        PriorityChanged,
        QuotasChanged,
        NodeChanged,
        Ticked,
        StartReported,
        ExitReported,
        SetAside,
        FellBack,
    )
}


def valid_text(text: str) -> str:
    """``text`` as UTF-8 can have it: a file name that is none may be quoted in an error message, and no answer of the
    API could hold it."""
    return text.encode("utf-8", "replace").decode()


def to_body(record: Record) -> dict[str, Any]:
    """JSON-ready; empty orders are left out because most records have none."""
    body = {part.name: getattr(record, part.name) for part in fields(record) if part.name != "orders"}
    if isinstance(record, Accepted):
        body["spec"] = spec_to_body(record.spec)
        for name in ("digest", "array_id", "external"):
            if not body[name]:
                del body[name]
        if record.array_index is None:
            del body["array_index"]
    elif isinstance(record, Configured):
        for name in ("attempts", "quotas", "clock"):
            if not body[name]:
                del body[name]
    elif isinstance(record, Ticked):
        body["heard"] = [_heard_body(h) for h in record.heard]
        body["accounts"] = _packed(record.accounts)
        if not record.accounts:
            del body["accounts"]
    elif isinstance(record, NodeChanged) and not record.gpus:
        del body["gpus"]
    if record.orders:
        body["starts"] = [_start_body(o) for o in record.orders.starts]
        body["stops"] = [_stop_body(o) for o in record.orders.stops]
    return body


def _packed(accounts: dict[str, Any]) -> dict[str, Any] | str:
    """Many changes at once, as after shares were computed for many pairs, are much alike: compressed they are few."""
    if len(accounts) < _MANY:
        return accounts
    return base64.b64encode(zlib.compress(json.dumps(accounts).encode())).decode()


def _unpacked(body: dict[str, Any] | str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(body))) if isinstance(body, str) else body
    return found


def _heard_body(heard: Heard) -> dict[str, Any]:
    body = asdict(heard)
    for name in ("links_shared", "links_changed"):
        if not body[name]:
            del body[name]
    return body


def _start_body(order: StartOrder) -> dict[str, Any]:
    body = asdict(order)
    co_runner = body.pop("co_runner")
    if co_runner:
        body[_CO_RUNNER_KEY] = co_runner
    return body


def _start_from_body(body: dict[str, Any]) -> StartOrder:
    values = {**body, "gpus": tuple(body["gpus"])}
    co_runner = values.pop(_CO_RUNNER_KEY, "")
    return StartOrder(**values, co_runner=co_runner)


def _stop_body(order: StopOrder) -> dict[str, Any]:
    body = asdict(order)
    if not order.for_job:
        del body["for_job"]
    if not order.gain_s:
        del body["gain_s"]
    if not order.weighed:
        del body["weighed"]
    return body


def from_body(kind: str, body: dict[str, Any]) -> Record:
    """The record that ``to_body`` wrote."""
    if kind not in _KINDS:
        raise UnknownRecordError(f"the journal holds a record of kind {kind!r}, which this version does not know")
    values = dict(body)
    orders = Orders(
        tuple(map(_start_from_body, values.pop("starts", ()))),
        tuple(StopOrder(**o) for o in values.pop("stops", ())),
    )
    if kind == Accepted.kind:
        values["spec"] = spec_from_body(values["spec"])
    elif kind == Ticked.kind:
        values["heard"] = tuple(Heard(**h) for h in values["heard"])
        values["accounts"] = _unpacked(values.get("accounts", {}))
    elif kind == NodeChanged.kind:
        values["gpus"] = tuple(values.get("gpus", ()))
    elif kind == QuotasChanged.kind:
        values["as_configured"] = tuple(values.get("as_configured", ()))
    try:
        return _KINDS[kind](**values, orders=orders)
    except TypeError as error:
        raise JournalError(f"a journal record of kind {kind!r} does not have the expected fields: {error}") from error


def spec_to_body(spec: JobSpec) -> dict[str, Any]:
    """A job specification in plain values, without what is left at its default.

    ``ranks`` is always there: records without it are from versions in which a process per GPU was the default.
    """
    return {**spec.model_dump(mode="json", by_alias=True, exclude_defaults=True), "ranks": spec.ranks}


def spec_from_body(body: dict[str, Any]) -> JobSpec:
    """The specification that ``spec_to_body`` wrote, in this version or an earlier one."""
    return recorded_job({"ranks": "gpu", **body})


def cluster_to_record(cluster: Cluster) -> dict[str, Any]:
    """Nodes, scores, prices and links, as far as the description states them."""
    body: dict[str, Any] = {
        "name": cluster.name,
        "nodes": [_node_to_record(node) for node in cluster.nodes],
        "scores": {name: list(values) for name, values in cluster.scores.items()},
    }
    if cluster.prices_per_gpu_h:
        body["prices"] = dict(cluster.prices_per_gpu_h)
    if links := _links_to_record(cluster.links):
        body["links"] = links
    if cluster.type_links:
        body["type_links"] = {name: _links_to_record(links) for name, links in cluster.type_links.items()}
    return body


def _links_to_record(links: Links) -> dict[str, Any]:
    """What differs from links of which nothing is stated."""
    return {part.name: stated for part in fields(links) if (stated := getattr(links, part.name)) != part.default}


def _node_to_record(node: Node) -> dict[str, Any]:
    body = asdict(node)
    if not node.indices:
        del body["indices"]
    return body


def cluster_from_record(body: dict[str, Any]) -> Cluster:
    """The cluster that ``cluster_to_record`` wrote."""
    nodes = tuple(Node(**{**node, "indices": tuple(node.get("indices", ()))}) for node in body["nodes"])
    scores = {name: tuple(values) for name, values in body["scores"].items()}
    links = Links(**body.get("links", {}))
    type_links = {name: Links(**stated) for name, stated in body.get("type_links", {}).items()}
    return Cluster(nodes, body["name"], links, type_links, body.get("prices", {}), scores)
