"""What every executor takes and gives: leases in, handles and events out. No process is started here.

Times are unix seconds, durations seconds. An executor never raises for what a cluster does wrong: a launch that fails
is an event, an engine that cannot be asked is answered for by a value (``Unreachable``): the caller has one place to
look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

CHECKPOINTED_EXIT = 85
"""A rank that leaves with this code has saved its work and wants to go on later."""
STALE_EXIT = 83
"""A rank that was started for a lease that is no longer the current one leaves with this code."""

Ranks = Literal["gpu", "node"]
ExitKind = Literal["done", "preempted", "failed", "lost"]


class Handle(NamedTuple):
    """One attempt at a job: what ``launch`` returns and events refer to."""

    job_id: str
    epoch: int


Placement = tuple[tuple[str, tuple[int, ...]], ...]
"""GPUs by node: the node's name, and indices of GPUs on it."""


@dataclass(frozen=True, slots=True)
class JobLease:
    """The right of a job to run a command on some GPUs. ``epoch`` grows with every attempt at the same job."""

    job_id: str
    epoch: int
    placement: Placement
    """(node, indices of its GPUs), in the order of the ranks."""
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    """Empty: its checkpoint directory."""
    checkpoint_dir: str = ""
    """Empty: one that the executor keeps for the job, in its own storage."""
    run_as: str | None = None
    """The user whose job it is; ``None`` is the user that runs the executor."""
    ranks: Ranks = "gpu"
    """One process per GPU or one per node."""
    grace_s: float = 30.0
    lease_s: float | None = None
    """Seconds that the lease holds from its start or its last renewal; a script with the SDK leaves by itself then.

    A duration and not a moment, so that a clock that is set does not end it."""
    shares_with: str = ""
    """The job that may hold the same GPUs at the same time, if that names this one; empty: none."""
    external: str = ""
    """The key of the ``ExternalJob`` that is to be placed; then there is nothing of ours to run, whatever the command
    says."""

    @property
    def handle(self) -> Handle:
        return Handle(self.job_id, self.epoch)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. Decisions are made by these, never by the name of an engine."""

    exact_gpus: bool
    """Ranks get the very GPUs that a placement names; else only as many of them as it names, of that node."""
    shares_gpus: bool
    """Two jobs that name each other may hold the same GPUs."""
    separates_users: bool
    """A job runs with the rights of the user whose it is; else all jobs run under one account."""
    uses_api: bool = False
    """Attempts reach the daemon by its API alone, from other machines: see ``AttemptRelay``."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """In place of an answer: the engine cannot be asked now. What it said last may hold or not."""

    reason: str
    """In a few words, such as ``squeue: timed out after 5 s``."""


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU of a node. ``index`` counts in PCI bus order."""

    index: int
    type: str
    uuid: str = ""
    name: str = ""
    memory_bytes: int | None = None
    withheld: str = ""
    """Why nothing may be started there although the node is up: others hold it, for one. Never for a GPU of ours."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as the executor sees it now; ``reason`` says why it is down or takes no jobs.

    A label ``rack`` says where it stands, where the engine knows that; else the description of the cluster does."""

    name: str
    gpus: tuple[NodeGpu, ...]
    cpus: int = 1
    memory_bytes: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    up: bool = True
    schedulable: bool = True
    reason: str = ""
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The attempt never ran; ``reason`` is a sentence for the person who submitted it. Nothing follows."""

    handle: Handle
    at_s: float
    reason: str
    passing: bool = False
    """May work later: the machine or the engine could not start it now, and the job is not to blame. Else it is final:
    the same job would fail again."""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """All ranks run."""

    handle: Handle
    at_s: float


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """What rank 0 last reported; ``total`` steps and ``checkpoint_step`` where it reported them."""

    handle: Handle
    at_s: float
    step: int
    steps_per_s: float
    total: int | None = None
    checkpoint_step: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptExited:
    """No process of the attempt is left, its GPUs are free. Nothing follows.

    That holds for ``lost``, too: it is reported when the end of the processes is proven, or when the lease and the
    grace are over, at which every part of the attempt ends itself, whether or not it can be observed.

    ``rc`` is the exit code of the first rank that failed, 128 + n for one ended by signal n; ``step`` what rank 0 last
    reported. A job that was asked to stop has saved its work if ``rc`` is that of a checkpoint, and not otherwise."""

    handle: Handle
    at_s: float
    kind: ExitKind
    rc: int
    step: int | None = None
    reason: str = ""
    killed: bool = False
    """A rank was still there at the end of the grace, and was ended by SIGKILL."""
    grace_s: float | None = None
    """How long it had to leave, if it was asked to."""


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node went away; the attempts on it end as lost, each with an event of its own."""

    node: str
    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node takes jobs again."""

    node: str
    at_s: float


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A cordoned node is empty."""

    node: str
    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class InventoryChanged:
    """Nodes joined, left or changed, or GPUs were withheld or given back; ``nodes`` is all there is now.

    A node that left may still run ranks: the attempts on it end with events of their own."""

    at_s: float
    nodes: tuple[NodeInfo, ...]


@dataclass(frozen=True, slots=True)
class EngineDown:
    """The engine cannot be asked from now on. Attempts go on or not: nothing follows from its silence."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class EngineUp:
    """The engine answers again; what changed meanwhile has been, or will be, reported by other events."""

    at_s: float


@dataclass(frozen=True, slots=True)
class ExternalJob:
    """Work that was submitted to the engine itself, and that asks to be placed by trine. It brings its own processes:
    none of ours run, and it reports nothing."""

    key: str
    """Never used for anything else, also over restarts of daemon and engine."""
    name: str
    user: str
    """Whose it is, by the rules of the engine's settings: nothing that the work itself says."""
    gpus: int
    nodes: int | None = None
    """Exactly so many nodes, with equally many GPUs on each; ``None``: any."""
    types: tuple[str, ...] = ()
    """GPU types that it may run on; none: any."""
    queue: str = ""
    preemptible: bool = False
    refused: str = ""
    """Why it cannot be placed as it is, in a sentence; then it is no job."""


@dataclass(frozen=True, slots=True)
class ExternalJobsChanged:
    """All work of others that asks to be placed or runs where it was placed. What was there and is not any more was
    taken back by its owner. Comes once the engine has been asked, and whenever it changes."""

    at_s: float
    jobs: tuple[ExternalJob, ...]


JobEvent = LaunchFailed | AttemptStarted | AttemptProgress | AttemptExited
Event = JobEvent | NodeDown | NodeUp | NodeDrained | InventoryChanged | ExternalJobsChanged | EngineDown | EngineUp


class JobLog(Protocol):
    """The output of one rank over all attempts at its job, open for reading. Calls may block."""

    def size(self) -> int:
        """Bytes that are there now."""

    def read(self, offset: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``offset`` on; none at the end."""

    def close(self) -> None: ...


class JobStorage(Protocol):
    """What jobs leave behind where they ran: logs, and checkpoints of those that name no directory of their own.

    Apart from the executor proper, since it is used long after a job has ended. Safe to call from any thread."""

    def open_log(self, job_id: str, rank: int = 0) -> JobLog | None:
        """The log of one rank; ``None`` if there is none yet, or no longer."""

    def is_reserved(self, path: str) -> bool:
        """A path where only the executor itself keeps files: no job may name one."""

    def newest_epoch(self, job_id: str) -> int:
        """The highest epoch ever launched of a job, -1 if none is known. OSError if that cannot be known."""

    def job_ids(self) -> list[str]:
        """Jobs of which anything is left; names that are no ids may be among them."""

    def changed_s(self) -> dict[str, float]:
        """The same, ids only, with the Unix time at which the storage of each was last changed."""

    def has_checkpoints(self, job_id: str) -> bool:
        """Checkpoints are kept for the job, or may be."""

    def used_bytes(self, job_id: str) -> int:
        """Bytes of all that is left of a job, as far as they can be counted; may take long."""

    def remove(self, job_id: str) -> None:
        """Remove all that is left of a job that has ended; may take long. OSError if it cannot be removed."""


class AttemptRelay(Protocol):
    """What the daemon's API does for attempts that share no file system with it. Safe to call from any thread; calls
    may block. ``None``: the token is of no attempt that is on record, or what was sent makes no sense."""

    def exchange(self, token: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """News of one part of an attempt, both ways."""

    def agree(self, token: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """After which step all ranks of an attempt leave."""


class Executor(Protocol):
    """Runs leases somewhere. Safe to call from any thread; calls return at once, outcomes come as events.

    Events of one attempt come in the order Started, Progress ..., Exited (or LaunchFailed alone). The last event of
    every attempt that was not forgotten comes again after a restart: at least once, never lost.

    An executor whose engine cannot be asked says so with ``EngineDown`` (also when it is opened then) and answers
    ``Unreachable``; ``EngineUp`` follows when it can be asked again. Requests made meanwhile are carried out as far as
    they can be, and made again by the caller afterwards."""

    @property
    def storage(self) -> JobStorage: ...

    @property
    def relay(self) -> AttemptRelay | None:
        """For the paths of the API that attempts call; ``None``: none of them does."""

    def inventory(self) -> list[NodeInfo] | Unreachable: ...

    def trouble(self) -> str:
        """Why nothing can be started on this host now (a sentence), empty if it can."""

    def launch(self, lease: JobLease) -> Handle:
        """Start it; idempotent on (job, epoch), also over restarts: what runs or ended already is only reported again.

        An epoch older than the newest seen fails."""

    def renew(self, handle: Handle, lease_s: float | None) -> None:
        """Let a lease hold for another ``lease_s`` seconds from when the job sees this, without a restart."""

    def pair(self, handle: Handle, co_runner: str) -> None:
        """Let the job ``co_runner``, launched next, onto the GPUs of a running attempt; not while another is there."""

    def preempt(self, handle: Handle, grace_s: float) -> None:
        """Ask every rank to save its work and leave; what is left after the grace is killed."""

    def kill(self, handle: Handle) -> None:
        """End it without grace."""

    def events(self) -> Iterator[Event]:
        """The events that wait to be read, without waiting."""

    def wait_events(self, timeout_s: float | None = None) -> list[Event]:
        """The same, after waiting for the first one; empty if none came in time."""

    def fileno(self) -> int:
        """A file descriptor that is readable while events wait to be read, for an event loop."""

    def list_handles(self) -> list[Handle] | Unreachable:
        """Attempts that run, or ended and were not forgotten; after a restart those of before. Complete, or none."""

    def placement(self, handle: Handle) -> Placement:
        """The GPUs of an attempt that still runs; empty if it ended or is not known."""

    def recall(self, handle: Handle) -> bool:
        """Report the end of an attempt again although it was forgotten.

        False only if it is certain that no process of it runs and nothing is known of its end; if it may still run, its
        loss is reported as an event once it is fenced."""

    def tell_external(self, reasons: Mapping[str, str]) -> None:
        """Why work of others (by ``ExternalJob.key``) waits, in sentences for its owners; as often as it likes."""

    def forget(self, handle: Handle) -> None:
        """The end of this attempt is on record elsewhere and need not be reported again."""

    def cordon(self, node: str, reason: str) -> None: ...

    def uncordon(self, node: str) -> None: ...

    def close(self) -> None:
        """Stop watching. Jobs go on."""
