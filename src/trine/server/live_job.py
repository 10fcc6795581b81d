"""A job and a node as the live state keeps them, and what becomes of them when something happens. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field

from trine.config.job_spec import JobSpec
from trine.server import records as rec
from trine.server.service import LIVE_STATES, JobState, StoryLine

_STORY_LENGTH = 50
_PACE_S = 2.0
"""Time over which jobs measure the speed they tell, at most; the SDK takes about a second."""
MAX_LOSSES = 5
"""A job whose processes vanished this often in a row is given up."""


@dataclass(slots=True)
class LiveJob:
    """A submitted job and what became of it. Times are Unix seconds."""

    id: str
    user: str
    queue: str
    weight: float
    spec: JobSpec
    submitted_s: float
    state: JobState = "waiting"
    epoch: int = 0
    gpus: tuple[int, ...] = ()
    """GPU ids of the present start; empty while it waits."""
    wish: str = ""
    """``cancel`` or ``hold``: what is to become of it once its processes are gone."""
    done: float = 0.0
    """Steps done, as last heard."""
    safe: float = 0.0
    """Steps that a stop left behind: what the next start resumes from."""
    total: float | None = None
    """Steps in all, as the job itself says."""
    rate: float = 0.0
    heard_s: float = 0.0
    attained_s: float = 0.0
    run_from_s: float = 0.0
    idle_from_s: float = 0.0
    started_s: float | None = None
    finished_s: float | None = None
    exit_code: int | None = None
    preemptions: int = 0
    migrations: int = 0
    losses: int = 0
    expected_s: float | None = None
    """Seconds the present start was expected to take, where that is known."""
    partner: str = ""
    """The job declared to hold the same GPUs; whether it is there, ``LiveState.beside`` says."""
    company_s: float = 0.0
    """When a job last came to its GPUs or left them: what was heard of its speed before says nothing of it now."""
    story: list[StoryLine] = field(default_factory=list)

    @property
    def live(self) -> bool:
        return self.state in LIVE_STATES

    @property
    def holds_gpus(self) -> bool:
        return self.state in ("starting", "running", "stopping")

    def heard_since(self, at_s: float, seconds: float) -> bool:
        """Nobody came or left during the ``seconds`` before ``at_s``."""
        return at_s - seconds >= self.company_s

    def tell(self, at_s: float, what: str, sentence: str = "") -> None:
        self.story.append(StoryLine(at_s, what, sentence))
        del self.story[:-_STORY_LENGTH]


@dataclass(slots=True)
class NodeState:
    """A node that is not simply up: ``drained`` or ``down``, and why."""

    state: str
    reason: str
    drained: bool = False
    """An operator took it out of service."""
    down: bool = False
    """The executor lost it."""


def node_after(node: NodeState | None, record: rec.NodeChanged) -> NodeState | None:
    """A node after a change; ``None`` if it is in service. Drained and down are two things, each with its own end."""
    drained, down = (node.drained, node.down) if node else (False, False)
    if record.by == rec.EXECUTOR:
        down = record.state == "down"
    else:
        drained = record.state == "drained"
    if not drained and not down:
        return None
    reason = record.reason if record.state != "up" or node is None else node.reason
    return NodeState("down" if down else "drained", reason, drained, down)


def pace_now(job: LiveJob, heard: rec.Heard) -> float:
    """Steps/s as heard; 0, not known, if somebody came to its GPUs or left them since it was measured."""
    return heard.steps_per_s if job.heard_since(heard.at_s, min(heard.seconds, _PACE_S)) else 0.0


def fate(job: LiveJob, record: rec.Exited) -> JobState:
    """Where a job goes when its processes are gone. Dying when told to stop is no failure; vanishing often is."""
    if record.outcome == "done":
        return "done"
    if job.wish == "cancel":
        return "cancelled"
    gives_up = record.outcome == "lost" and job.losses + 1 >= MAX_LOSSES
    if gives_up or (record.outcome == "failed" and job.state != "stopping"):
        return "failed"
    return "held" if job.wish == "hold" else "waiting"
