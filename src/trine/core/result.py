"""What a simulation hands to reports: one record per job, run segments, a summary. Plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from trine.core.cluster import Cluster, Tier


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One line of ``jobs.csv``. Times in seconds on the trace's clock."""

    job_id: str
    submit_s: float
    start_s: float
    finish_s: float
    jct_s: float
    wait_s: float
    """Seconds without GPUs between submission and finish, waits after preemptions included."""
    gpus: int
    model: str
    user: str
    preemptions: int
    migrations: int
    tier: str
    """The widest tier the job ever ran at: gpu, node, rack or network."""
    slowdown: float
    """JCT over the ideal run time; 1 is perfect."""
    comm_gpu_s: float = 0.0
    """GPU-seconds of communication that compute did not hide. Not in ``jobs.csv``, whose columns are a contract."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch during which a job held the same GPUs."""

    job_id: str
    start_s: float
    end_s: float
    gpus: tuple[int, ...]
    tier: str
    slowdown: float
    """Step time here over the step time on reference GPUs, packed."""
    started: str
    ended: str
    """Codes of the reasons for the start and the end."""
    tracked: bool = True


class TimerChange(NamedTuple):
    """From ``at_s`` on, jobs of ``gpus`` GPUs wait ``timer_s`` for GPUs within one ``tier``."""

    at_s: float
    gpus: int
    tier: Tier
    timer_s: float


class TierTime(NamedTuple):
    """GPU time held by gangs in one tier, untracked jobs included."""

    tier: Tier
    held_gpu_s: float
    comm_gpu_s: float
    """The part of it in communication that compute did not hide."""


class LinkLoad(NamedTuple):
    """Share of its capacity that the busiest NIC, and the busiest uplink or spine, carries on average."""

    at_s: float
    nic: float
    uplink: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The object that ``--json`` prints: keys and meaning are a contract."""

    jobs: int
    finished: int
    jct_mean_s: float
    jct_p50_s: float
    jct_p95_s: float
    jct_p99_s: float
    makespan_s: float
    wait_mean_s: float
    wait_p95_s: float
    utilization: float
    preemptions: int
    migrations: int
    lost_work_s: float
    comm_gpu_s: float
    cost: float
    rounds: int
    sim_cpu_s: float
    policy: str
    placement: str
    seed: int
    deadlines: int = 0
    """Jobs with a deadline; this and the next are left out where there are none."""
    deadlines_missed: int = 0

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return values if self.deadlines else {k: v for k, v in values.items() if not k.startswith("deadlines")}

    def results(self) -> dict[str, Any]:
        """All but the processor time: the part that is equal in every repetition."""
        return {k: v for k, v in self.as_dict().items() if k != "sim_cpu_s"}


@dataclass(frozen=True)
class RunResult:
    """All that one simulated run produced."""

    summary: Summary
    jobs: list[JobRecord]
    segments: list[Segment]
    cluster: Cluster
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Sentences a reader must know: skipped rows, assumed values."""
    timers: list[TimerChange] = field(default_factory=list)
    """How long jobs wait for a better place, over time, where the placement tunes that; oldest change first."""
    tier_times: list[TierTime] = field(default_factory=list)
    """Where GPU time went, by tier; empty where no communication was modelled."""
    link_loads: list[LinkLoad] = field(default_factory=list)
    """At some moments, in order; each holds until about the next. Empty where links are not modelled or not shared."""
