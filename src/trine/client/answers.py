"""Shape of the daemon's answers: plain dicts, described for type checkers. Times are Unix seconds."""

from __future__ import annotations

from typing import NotRequired, TypedDict

ENDED = frozenset({"done", "failed", "cancelled", "timed out"})
"""States a job never leaves."""

LIVE = ("waiting", "held", "set aside", "starting", "running", "stopping")
"""States a job can still leave, as they follow each other."""


class ReasonAnswer(TypedDict):
    """Why a job is in its state, and what would change that."""

    code: str
    sentence: str
    change: str
    counts: dict[str, float]


class PlacementAnswer(TypedDict):
    """GPUs of a job on one node, by their index on that node."""

    node: str
    gpus: list[int]


class ProgressAnswer(TypedDict):
    """What a job last said of itself."""

    step: float
    total: float | None
    steps_per_s: float
    at_s: float


class JobAnswer(TypedDict):
    """One job."""

    id: str
    name: str
    user: str
    queue: str
    state: str
    gpus: int
    model: str
    app_class: str
    priority: float
    attempt: int
    submitted_s: float
    reason: ReasonAnswer
    position: int | None
    placement: list[PlacementAnswer]
    progress: ProgressAnswer | None
    started_s: float | None
    finished_s: float | None
    exit_code: int | None
    preemptions: int
    migrations: int
    expected_end_s: float | None
    shares_with: str | None
    max_runtime_s: NotRequired[float | None]
    run_from_s: NotRequired[float | None]
    expected_start_s: NotRequired[float | None]
    start_interval_s: NotRequired[list[float] | None]
    end_interval_s: NotRequired[list[float] | None]
    after: NotRequired[list[str]]
    array: NotRequired[str]
    array_index: NotRequired[int | None]
    eligible_s: NotRequired[float | None]
    command: NotRequired[list[str] | None]
    workdir: NotRequired[str | None]
    predicted_reason: NotRequired[str]


def has_ended(job: JobAnswer) -> bool:
    """Whether a job can change no more; a daemon that is newer than this may have states that are not known here."""
    state = job["state"]
    return state in ENDED or (state not in LIVE and job["finished_s"] is not None)


class HistoryAnswer(TypedDict):
    """One ended job; times are Unix seconds."""

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
    started_s: float | None
    finished_s: float
    wait_s: float
    held_s: float
    gpu_h: float
    attempts: int
    preemptions: int
    migrations: int
    lost_s: float
    exit_code: int | None
    array: str
    array_index: int | None


class StoryAnswer(TypedDict):
    """Something that happened to a job."""

    at_s: float
    what: str
    sentence: str


class ExplanationAnswer(TypedDict):
    """Why a job is where it is, and its story, oldest first."""

    job: JobAnswer
    sentences: list[str]
    story: list[StoryAnswer]


class GpuAnswer(TypedDict):
    """One GPU: which job holds it, its score by application class, what is remarkable about it.

    ``drained``: it was drained by itself, whatever its node is, for ``reason``."""

    index: int
    gpu_type: str
    job: str | None
    scores: dict[str, float]
    flags: list[str]
    second_job: str | None
    drained: NotRequired[bool]
    withheld: NotRequired[bool]
    reason: NotRequired[str]


class NodeAnswer(TypedDict):
    """One node; ``state`` is ``up``, ``drained`` or ``down``."""

    name: str
    state: str
    rack: str
    gpus: list[GpuAnswer]
    reason: str


class QuotaAnswer(TypedDict):
    """GPUs that a user or a queue (``kind``) may hold together; ``None``: no limit."""

    kind: str
    name: str
    max_gpus: int | None
    configured: int | None
    changed_by: str
    changed_s: float | None


class CollectedAnswer(TypedDict):
    """What was removed because it is kept no longer, or would be."""

    jobs: int
    job_bytes: int
    kept_for_checkpoints: int
    records: int
    more: bool


class DaemonAnswer(TypedDict):
    """The daemon itself; ``jobs`` counts them by state."""

    version: str
    policy: str
    placement: str
    round_s: float
    started_s: float
    gpus: int
    free_gpus: int
    jobs: dict[str, int]
    problems: list[str]
    engine: NotRequired[str]
    engine_down: NotRequired[str]
    url: NotRequired[str]
