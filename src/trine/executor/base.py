"""What every executor takes and gives: leases in, handles and events out. No process is started here.

Times are unix seconds, durations seconds. An executor never raises for what a cluster does wrong: a launch that fails
is an event, so that whoever drives it has one place to look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

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
    checkpoint_dir: str = ""
    run_as: str | None = None
    """The user whose job it is; ``None`` is the user that runs the executor."""
    ranks: Ranks = "gpu"
    """One process per GPU or one per node."""
    grace_s: float = 30.0
    lease_s: float | None = None
    """Seconds that the lease holds from its start or its last renewal; a script with the SDK leaves by itself then.

    A duration and not a moment, so that a clock that is set does not end it."""
    shares_with: str = ""
    """The job that may hold the same GPUs at the same time, if that names this one; empty: nobody."""

    @property
    def handle(self) -> Handle:
        return Handle(self.job_id, self.epoch)


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU of a node. ``index`` counts in PCI bus order."""

    index: int
    type: str
    uuid: str = ""
    name: str = ""
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as the executor sees it now; ``reason`` says why it is down or takes no jobs."""

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
class Capabilities:
    """What an executor can do, so that nobody plans what it cannot."""

    exact_gpu: bool
    suspend: bool
    per_node_gpu_sets: bool
    native_grace: bool
    shared_gpus: bool = False
    """Two jobs that name each other may hold the same GPUs."""


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The attempt never ran; ``reason`` is a sentence for the person who submitted it. Nothing follows."""

    handle: Handle
    at_s: float
    reason: str
    host_fault: bool = False
    """The machine could not start it now; the job itself is not to blame, and may be started again later."""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """All ranks run."""

    handle: Handle
    at_s: float


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """What rank 0 last told; ``total`` steps and ``checkpoint_step`` where it told them."""

    handle: Handle
    at_s: float
    step: int
    steps_per_s: float
    total: int | None = None
    checkpoint_step: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptExited:
    """No process of the attempt is left, its GPUs are free. Nothing follows.

    ``rc`` is the exit code of the first rank that failed, 128 + n for one ended by signal n; ``step`` what rank 0 last
    told. A job that was asked to stop has saved its work if ``rc`` is that of a checkpoint, and not otherwise."""

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


JobEvent = LaunchFailed | AttemptStarted | AttemptProgress | AttemptExited
Event = JobEvent | NodeDown | NodeUp | NodeDrained


class Executor(Protocol):
    """Runs leases somewhere. Safe to call from any thread; calls return at once, outcomes come as events.

    Events of one attempt come in the order Started, Progress ..., Exited (or LaunchFailed alone). The last event of
    every attempt that was not forgotten comes again after a restart: at least once, never lost."""

    @property
    def capabilities(self) -> Capabilities: ...

    def inventory(self) -> list[NodeInfo]: ...

    def trouble(self) -> str:
        """Why nothing can be started on this host now (a sentence), empty if it can."""

    def launch(self, lease: JobLease) -> Handle:
        """Start it; idempotent on (job, epoch), also over restarts: what runs or ended already is only told again.

        An epoch older than the newest seen fails."""

    def renew(self, handle: Handle, lease_s: float | None) -> None:
        """Let a lease hold for another ``lease_s`` seconds from when the job sees this, without a restart."""

    def pair(self, handle: Handle, co_runner: str) -> None:
        """Let the job ``partner``, launched next, onto the GPUs of a running attempt; not while another is there."""

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

    def list_handles(self) -> list[Handle]:
        """Attempts that run, or ended and were not forgotten; after a restart those of before."""

    def placement(self, handle: Handle) -> Placement:
        """The GPUs of an attempt that still runs; empty if it ended or is not known."""

    def recall(self, handle: Handle) -> bool:
        """Tell the end of an attempt again although it was forgotten; False if nothing is known of it any more."""

    def forget(self, handle: Handle) -> None:
        """The end of this attempt is on record elsewhere and need not be told again."""

    def cordon(self, node: str, reason: str) -> None: ...

    def uncordon(self, node: str) -> None: ...

    def close(self) -> None:
        """Stop watching. Jobs go on."""
