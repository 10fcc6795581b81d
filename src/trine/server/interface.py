"""What the daemon offers, independent of HTTP: the verbs, and the values they answer with.

The API serves these values as JSON; the scheduler (``server.scheduler``) implements the verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trine.core.errors import TrineError
from trine.executor.base import JobLog
from trine.inputs.job_spec import JobSpec

if TYPE_CHECKING:
    from trine.server.board import Board

JobState = Literal[
    "waiting", "held", "set aside", "starting", "running", "stopping", "done", "failed", "cancelled", "timed out"
]
LIVE_STATES: frozenset[str] = frozenset({"waiting", "held", "set aside", "starting", "running", "stopping"})
"""States a job can still leave."""
MAX_HISTORY_PAGE = 5_000
"""Ended jobs in one answer."""


class Refused(TrineError):
    """A request that cannot be carried out: ``code`` is a stable name, the message one sentence for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotFound(Refused):
    """There is no such job or node (or it is not the caller's to see)."""

    def __init__(self, message: str) -> None:
        super().__init__("not-found", message)


class Unavailable(Refused):
    """The daemon cannot make anything durable now (disk full, shutting down); nothing was accepted."""

    def __init__(self, message: str) -> None:
        super().__init__("unavailable", message)


class OutcomeUnknown(Unavailable):
    """The request may have been carried out or not: the acknowledgement of the write was lost."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = "unknown"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. ``admin`` may see and change everything."""

    user: str
    admin: bool = False

    def sees(self, user: str) -> bool:
        """Whether jobs of ``user`` exist for this caller."""
        return self.admin or user == self.user


@dataclass(frozen=True, slots=True)
class ReasonView:
    """A reason as the engine gave it."""

    code: str
    sentence: str
    change: str = ""
    counts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlacementView:
    """GPUs of a job on one node, by their index on that node."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProgressView:
    """What a job last said of itself; ``at_s`` is Unix time."""

    step: float
    total: float | None
    steps_per_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as users see it. Times are Unix seconds."""

    id: str
    name: str
    user: str
    queue: str
    state: JobState
    gpus: int
    model: str
    app_class: str
    priority: float
    attempt: int
    """Number of starts so far."""
    submitted_s: float
    reason: ReasonView
    position: int | None = None
    """Rank among the waiting jobs, from 1."""
    placement: tuple[PlacementView, ...] = ()
    progress: ProgressView | None = None
    started_s: float | None = None
    """First start."""
    finished_s: float | None = None
    exit_code: int | None = None
    preemptions: int = 0
    migrations: int = 0
    expected_end_s: float | None = None
    shares_with: str | None = None
    """The job on the same GPUs, if there is one."""
    max_runtime_s: float | None = None
    """How long it may run, over all its attempts."""
    run_from_s: float | None = None
    """Since when the present attempt holds its GPUs; ``None`` while the job has none."""
    after: tuple[str, ...] = ()
    """Jobs that have to end before it may start, of those that have not ended yet: `17`, `any:17`, `failed:17`."""
    array: str = ""
    """Id of the first element of its array; empty: it belongs to none."""
    array_index: int | None = None
    eligible_s: float | None = None
    """When the last job that it had to wait for ended; `None`: it waited for none, or still does."""
    command: tuple[str, ...] | None = None
    """What it runs; like ``workdir`` given of a single job only, it would be most of a long list."""
    workdir: str | None = None
    expected_start_s: float | None = None
    """Median of the last predictions, for a job that has not started; ``expected_end_s`` likewise where the job does
    not say itself when it ends."""
    start_interval_s: tuple[float, float] | None = None
    """In four of five cases it starts between these."""
    end_interval_s: tuple[float, float] | None = None
    predicted_reason: str = ""
    """What the predicted times rest on most, such as the job whose end it waits for; of a single job only."""


@dataclass(frozen=True, slots=True)
class StoryLine:
    """Something that happened to a job, with the reason of the day."""

    at_s: float
    what: str
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is where it is: the reason, what would change it, and its story, oldest first."""

    job: JobView
    sentences: tuple[str, ...]
    story: tuple[StoryLine, ...]


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU: who holds it, its score by application class, and what is remarkable about it."""

    index: int
    gpu_type: str
    job: str | None
    scores: dict[str, float]
    flags: tuple[str, ...] = ()
    second_job: str | None = None
    """The other job, where two share the GPU."""
    drained: bool = False
    """It was drained by itself, whatever its node is."""
    reason: str = ""
    """Why it was drained or is withheld."""
    withheld: bool = False
    """The engine gives it to no job of ours: others hold it, or it takes no jobs there."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node; ``state`` is ``up``, ``drained`` or ``down``; GPUs may be drained by themselves."""

    name: str
    state: Literal["up", "drained", "down"]
    rack: str
    gpus: tuple[GpuView, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DaemonView:
    """The daemon itself."""

    version: str
    policy: str
    placement: str
    round_s: float
    started_s: float
    gpus: int
    free_gpus: int
    jobs: dict[str, int]
    """Number of jobs by state."""
    problems: tuple[str, ...] = ()
    """What an operator should know, in sentences: a policy that fails, a full disk, a clock that was set."""
    engine: str = "local"
    """What runs the jobs."""
    engine_down: str = ""
    """Since when and why the engine cannot be asked, in a sentence; nothing is started or given up meanwhile."""
    url: str = ""
    """Where programs and browsers on this machine reach it."""


@dataclass(frozen=True, slots=True)
class SpeedView:
    """How fast a job runs against what is expected of it, and what a stop would cost. Slowdowns are factors."""

    expected_steps_per_s: float | None = None
    """On the GPUs it has, by the performance model; ``None`` where that is not known."""
    chip: float | None = None
    network: float | None = None
    sharing: float | None = None
    checkpoint_step: float | None = None
    checkpoint_s: float | None = None
    """When it was first heard of, Unix seconds."""
    attained_s: float = 0.0
    lost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ShareView:
    """A user or a queue: what it has, and what it was promised and received over the last day."""

    kind: str
    """``user`` or ``queue``."""
    name: str
    weight: float
    held_gpus: int
    waiting_gpus: int
    fair_gpus: float
    """Its fair share of the GPUs now: weighted max-min, never more than its jobs ask for."""
    promised: float
    """That share of the cluster over the last day, as a fraction; the next one: what it held of it."""
    received: float
    deficit_gpu_h: float
    """Promised less received, in GPU-hours."""
    max_gpus: int | None = None
    max_waiting: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaView:
    """GPUs that the jobs of a user or of a queue may hold together; ``None``: no limit."""

    kind: str
    """``user`` or ``queue``."""
    name: str
    max_gpus: int | None
    """What holds now."""
    configured: int | None
    """What the daemon's configuration file says."""
    changed_by: str = ""
    """User who changed it since; empty: not changed."""
    changed_s: float | None = None
    """When, Unix seconds."""


@dataclass(frozen=True, slots=True)
class WaitsView:
    """An hour: waits of the jobs that started in it, bounded slowdown and preemptions of those that ended in it."""

    hour_s: float
    started: int
    ended: int
    wait_p50_s: float | None
    wait_p95_s: float | None
    slowdown_p50: float | None
    slowdown_p95: float | None
    preemptions: int


@dataclass(frozen=True, slots=True)
class UsageView:
    """The past week: columns of samples along ``at_s``, and hours."""

    at_s: list[float]
    columns: dict[str, list[float]]
    hours: list[WaitsView]


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One ended job. Times are Unix seconds."""

    id: str
    name: str
    user: str
    queue: str
    state: str
    gpus: int
    model: str
    app_class: str
    priority: float
    submitted_s: float
    eligible_s: float | None
    """When the last job that it had to wait for ended; `None`: it waited for none."""
    started_s: float | None
    """First start."""
    finished_s: float
    wait_s: float
    """From submission to the first start, or to the end if it never started."""
    held_s: float
    """Seconds with GPUs, over all attempts."""
    gpu_h: float
    """Those times its GPUs, in hours."""
    attempts: int
    preemptions: int
    migrations: int
    lost_s: float
    """Seconds of work that were done again."""
    exit_code: int | None
    array: str
    array_index: int | None


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed because it is kept no longer, or would be."""

    jobs: int
    """Directories of ended jobs: logs, attempts, checkpoints."""
    job_bytes: int
    kept_for_checkpoints: int
    """Directories that are as old but stay, since there are checkpoints in them."""
    records: int
    """Records of the journal."""
    more: bool = False
    """There is more than one answer has time for: ask again."""


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which ended jobs: those that ended from ``since_s`` on and before ``until_s``; empty texts choose all."""

    since_s: float = 0.0
    until_s: float = float("inf")
    user: str = ""
    state: str = ""
    after: str = ""
    """Only jobs with ids behind this one: the last of the page before."""
    limit: int = MAX_HISTORY_PAGE


OpenLog = Callable[[], JobLog | None]
"""Opens a log for reading; ``None`` while there is none. May block."""


class Service(Protocol):
    """The verbs. Everything that changes something is durable when it returns; ``Refused`` says why it was not done."""

    async def submit(self, specs: list[JobSpec], caller: Caller, request_id: str = "") -> list[str]:
        """Accept all jobs or none; returns their ids. The same non-empty ``request_id`` again returns the same ids,
        and is refused (``conflict``) with other jobs."""

    async def cancel(self, job_id: str, caller: Caller) -> JobView: ...

    async def hold(self, job_id: str, caller: Caller) -> JobView: ...

    async def release(self, job_id: str, caller: Caller) -> JobView: ...

    async def set_priority(self, job_id: str, priority: float, caller: Caller) -> JobView:
        """Of a job that has not ended; users within what their queue allows at submission."""

    async def set_quotas(self, asked: Mapping[str, int | Literal["default"] | None], caller: Caller) -> list[QuotaView]:
        """GPUs that users (``user:NAME``) and queues (``queue:NAME``) may hold at most from now on, all or none of
        them; ``None``: no limit, ``default``: as configured. Jobs that run go on. For administrators."""

    def quotas(self, caller: Caller) -> list[QuotaView]:
        """All queues, and the users with a quota that the caller may see."""

    async def drain(self, node: str, reason: str, caller: Caller, gpus: tuple[int, ...] = ()) -> NodeView:
        """Start nothing more on the node, or only on those of its GPUs that have these indices."""

    async def undrain(self, node: str, caller: Caller, gpus: tuple[int, ...] = ()) -> NodeView:
        """End a drain: of ``gpus`` alone, or of the node and of every GPU of it."""

    async def collect(self, caller: Caller, dry_run: bool = False) -> Collected:
        """Remove what is kept no longer now instead of within the hour; ``dry_run``: say what that would be."""

    def daemon(self) -> DaemonView: ...

    def job(self, job_id: str, caller: Caller) -> JobView: ...

    def ended(self, job_id: str, caller: Caller) -> bool:
        """Whether the job is over; cheap, for those who ask again and again."""

    def jobs(
        self, caller: Caller, states: frozenset[str] = LIVE_STATES, limit: int = 1000, user: str = "", name: str = ""
    ) -> list[JobView]:
        """Jobs in one of ``states``: those that hold GPUs first, then by rank, then ended ones, newest first.

        ``user`` and ``name`` choose among them; ``*`` and ``?`` in a name stand for any text and any character."""

    def count(self, caller: Caller, states: frozenset[str] = LIVE_STATES, user: str = "", name: str = "") -> int:
        """How many jobs ``jobs`` would give without a limit."""

    def explain(self, job_id: str, caller: Caller) -> Explanation: ...

    async def predictions(self, caller: Caller) -> dict[str, Any]:
        """When the caller's jobs will start and end, as ``forecast.predictions`` has it, and the score."""

    async def whatif(self, changes: Sequence[str], caller: Caller) -> dict[str, Any]:
        """What changes would do to the caller's jobs; nothing is changed."""

    def reasons(self, job_ids: Sequence[str], caller: Caller) -> dict[str, ReasonView]:
        """Why jobs are in the state they are in, by id; jobs the caller cannot see are left out."""

    def speed(self, job_id: str, caller: Caller) -> SpeedView: ...

    def shares(self, caller: Caller) -> list[ShareView]:
        """All queues, and the users that the caller may see."""

    def usage(self, caller: Caller) -> UsageView:
        """The cluster over the past week; waits are those of jobs that the caller may see."""

    def history(self, query: HistoryQuery, caller: Caller) -> list[HistoryRow]:
        """Ended jobs that the caller may see, in order of submission, a page at a time."""

    def nodes(self) -> list[NodeView]: ...

    def board(self) -> Board:
        """All that a dashboard shows at once; what a caller may see of it is for the API to choose."""

    def job_log(self, job_id: str, caller: Caller, rank: int = 0) -> OpenLog:
        """Opens the log of one rank, over all attempts; it may not exist yet."""

    async def changed(self, timeout_s: float) -> None:
        """Return when any job changed its state, or after ``timeout_s``."""

    def metrics(self) -> bytes:
        """Prometheus text exposition."""
