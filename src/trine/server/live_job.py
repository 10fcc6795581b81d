"""A job and a node as the live state keeps them, and what becomes of them when something happens. Pure values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trine.inputs.job_spec import JobSpec
from trine.server import records as rec
from trine.server.interface import LIVE_STATES, JobState, StoryLine

_STORY_LENGTH = 50
_PACE_S = 2.0
"""Time over which jobs measure the speed they report, at most; the SDK takes about a second."""


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
    requested_action: str = ""
    """``cancel``, ``timeout`` or ``hold``: what is to become of it once its processes are gone."""
    aside: str = ""
    """Why nothing can be decided about it, in a sentence; empty: it takes part in decisions."""
    not_before_s: float = 0.0
    """It pauses until then; 0: it does not."""
    done: float = 0.0
    """Steps done, as last heard."""
    safe: float = 0.0
    """Steps that a stop left behind: what the next start resumes from."""
    total: float | None = None
    """Steps in all, as the job itself says."""
    rate: float = 0.0
    last_rate: float = 0.0
    """Steps/s of the attempt before, as last heard: what is known of its speed while it waits."""
    heard_s: float = 0.0
    attained_s: float = 0.0
    run_from_s: float = 0.0
    attempt_from_s: float = 0.0
    """When the processes of the present attempt were up."""
    idle_from_s: float = 0.0
    started_s: float | None = None
    finished_s: float | None = None
    exit_code: int | None = None
    preemptions: int = 0
    migrations: int = 0
    vain: int = 0
    """Attempts in a row that came to nothing, see ``server.outcome``."""
    failures: int = 0
    """Attempts that failed by themselves."""
    lost_s: float = 0.0
    """Seconds of work that had to be done again, over all attempts."""
    protected_s: float = 0.0
    """The next attempt is not stopped for others before it has run so long: the last one lost its work."""
    expected_s: float | None = None
    """Seconds the present start was expected to take, where that is known."""
    co_runner: str = ""
    """The job declared to hold the same GPUs; whether it is there, ``LiveState.beside`` says."""
    colocated_s: float = 0.0
    """When a job last came to its GPUs or left them: what was heard of its speed before says nothing of it now."""
    after: tuple[str, ...] = ()
    """Predecessors that have not ended yet, as in ``inputs.job_relations``."""
    array_id: str = ""
    """Id of the first element of its array; empty: it belongs to none."""
    array_index: int | None = None
    external: str = ""
    """Work that was given to the engine itself: its key, see ``executor.base.ExternalJob``."""
    in_turn: bool = True
    """False while as many elements of its array as may be under way at once are."""
    eligible_s: float | None = None
    """When the last of what it had to wait for besides GPUs happened; ``None``: nothing, or not yet."""
    story: list[StoryLine] = field(default_factory=list)

    @property
    def blocked(self) -> bool:
        """Other jobs have to end before it may start."""
        return bool(self.after) or not self.in_turn

    @property
    def live(self) -> bool:
        return self.state in LIVE_STATES

    @property
    def holds_gpus(self) -> bool:
        return self.state in ("starting", "running", "stopping")

    @property
    def time_limit_at_s(self) -> float:
        """When it has run for its ``max_runtime`` if it keeps its GPUs; infinity: it has no limit, or no GPUs."""
        limit_s = self.spec.max_runtime
        return self.run_from_s + limit_s - self.attained_s if limit_s is not None and self.holds_gpus else math.inf

    def heard_since(self, at_s: float, seconds: float) -> bool:
        """No co-runner came or left during the ``seconds`` before ``at_s``."""
        return at_s - seconds >= self.colocated_s

    def hear(self, heard: rec.Heard) -> None:
        """Take over what the present start says of itself."""
        self.done, self.total, self.heard_s = heard.step, heard.total, heard.at_s
        self.rate = pace_now(self, heard)

    def tell(self, at_s: float, what: str, sentence: str = "") -> None:
        self.story.append(StoryLine(at_s, what, sentence))
        del self.story[:-_STORY_LENGTH]


@dataclass(slots=True)
class NodeState:
    """A node not all of which is in service: ``drained`` or ``down``, and why; ``up`` if only GPUs are drained."""

    state: str
    reason: str
    drained: bool = False
    """An operator took it out of service."""
    down: bool = False
    """The executor lost it."""
    gpus: dict[int, str] = field(default_factory=dict)
    """GPUs that were drained by themselves, by index on the node, and why."""
    withheld: dict[int, str] = field(default_factory=dict)
    """GPUs that the executor withholds, by index on the node, and why."""

    def __post_init__(self) -> None:
        self.gpus = {int(index): reason for index, reason in self.gpus.items()}  # keys of JSON are texts
        self.withheld = {int(index): reason for index, reason in self.withheld.items()}

    def withholds(self, index: int) -> bool:
        """Nothing may start on the node's GPU of this index."""
        return self.drained or self.down or index in self.gpus or index in self.withheld


def node_after(node: NodeState | None, record: rec.NodeChanged) -> NodeState | None:
    """A node after a change; ``None`` if all of it is in service.

    That it is drained, that some of its GPUs are, that the executor withholds some, and that it is down are four
    things, each with its own end; but putting the whole node back into service includes its GPUs that were drained.
    """
    known = node or NodeState("up", "")
    drained, down, gpus, withheld, reason = known.drained, known.down, known.gpus, known.withheld, known.reason
    if record.gpus and record.by == rec.EXECUTOR:
        withheld = _with_reasons(withheld, record, "withheld")
    elif record.gpus:
        gpus = _with_reasons(gpus, record, "drained")
    else:
        if record.by == rec.EXECUTOR:
            down = record.state == "down"
        else:
            drained, gpus = record.state == "drained", gpus if record.state == "drained" else {}
        reason = record.reason if record.state != "up" else reason
    return _node_state(reason, drained, down, gpus, withheld)


def node_gone(node: NodeState) -> NodeState | None:
    """A node that is not part of the cluster any more: what was asked of it holds when it comes back, no more."""
    return _node_state(node.reason, node.drained, False, node.gpus, {})


def _node_state(
    reason: str, drained: bool, down: bool, gpus: dict[int, str], withheld: dict[int, str]
) -> NodeState | None:
    if not (drained or down or gpus or withheld):
        return None
    state = "down" if down else "drained" if drained else "up"
    return NodeState(state, reason if state != "up" else "", drained, down, gpus, withheld)


def _with_reasons(known: dict[int, str], record: rec.NodeChanged, state: str) -> dict[int, str]:
    """GPUs that are out of service, after a record that takes some out (``state``) or puts them back."""
    others = {index: why for index, why in known.items() if index not in record.gpus}
    return others | dict.fromkeys(record.gpus, record.reason) if record.state == state else others


def pace_now(job: LiveJob, heard: rec.Heard) -> float:
    """Steps/s as heard; 0, not known, if others came to its GPUs or links, or left, since it was measured."""
    if heard.links_changed:
        return 0.0
    return heard.steps_per_s if job.heard_since(heard.at_s, measured_s(heard)) else 0.0


def measured_s(heard: rec.Heard) -> float:
    """Over how many seconds before it was reported the job measured its speed, at most."""
    return min(heard.seconds, _PACE_S)
