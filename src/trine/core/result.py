"""What a simulation hands to reports: one record per job, run segments, a summary. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple

from trine.core.cluster import Cluster, Tier
from trine.core.errors import unknown_name

SHORT_JOB_S = 10.0
"""Run times below this count as so long in the bounded slowdown: ten seconds of waiting say little about a scheduler,
even for a job of one second."""


class JobTime(NamedTuple):
    """Where the completion time of a job went, in seconds: the parts add up to it.

    A part is negative where it gained time, as on a chip that is faster than the median of its type.
    """

    wait_s: float
    """Without GPUs."""
    ideal_s: float
    """What its steps take on median GPUs of the best type, packed and alone."""
    type_s: float
    """More than that on GPUs of a slower type."""
    chip_s: float
    """More on slower chips of the type."""
    network_s: float
    """More by place and traffic. Where communication hides a slow chip, what is left of both is under the chip."""
    sharing_s: float
    """More by another job on the same GPUs."""
    restart_s: float
    """With GPUs: restoring, and work that a stop threw away."""
    round_end_s: float
    """With GPUs, its work done, until the round ended."""


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
    rho: float = 0.0
    """JCT over the JCT with an equal share of the cluster (and one round); the last column of ``jobs.csv``."""
    time: JobTime | None = None
    """Where the JCT went; ``None`` where no GPUs were assigned (``ideal``). Not in ``jobs.csv``."""
    blocked_s: float = 0.0
    """Seconds of the wait before the jobs it had to wait for (``after``) had ended. Not in ``jobs.csv``."""

    @property
    def bounded_slowdown(self) -> float:
        """JCT over the ideal run time, of which at least ``SHORT_JOB_S`` counts; never below 1 (Feitelson 1997)."""
        return max(1.0, self.jct_s / max(self.jct_s / self.slowdown, SHORT_JOB_S)) if self.slowdown > 0 else 1.0


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


Kind = Literal["duration", "share", "count", "amount", "ratio", "text"]
"""How a value is written: seconds with a fitting unit, a fraction as per cent, a whole number, an amount (of money, of
hours, of energy), a ratio as it is."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A key of the summary: what it means, and where and how reports show it. An empty title leaves it out there."""

    key: str
    doc: str
    kind: Kind = "duration"
    title: str = ""
    """Over its plot in a comparison, and ``column`` over its column there."""
    column: str = ""
    card: str = ""
    """Under its value on the page of a run."""
    line: tuple[str, str] | None = None
    """In a terminal: the line it stands in, and what stands before the value there."""
    more_is_better: bool = False
    optional: bool = False
    """Left out where it is 0."""
    by_type: bool = False
    """One value per GPU type of the cluster: a mapping, which flat tables write as ``key.TYPE``."""
    formula: str = ""
    """How it is computed, for the reference; empty where its meaning says so."""


def _metric(doc: str, kind: Kind = "duration", **shown: Any) -> dict[str, Any]:
    """Metadata of a field of ``Summary``; ``shown`` are further attributes of ``Metric``."""
    return {"doc": doc, "kind": kind, **shown}


_QUANTILE = "of the completion times; quantiles are linear"
_STOPS = "preemptions"
_RHO = "JCT over the JCT with an equal share of the cluster; above 1 a job fared worse than that"
_DEADLINES = "left out where no job has a deadline"
_AFTER = "left out where no job had to"
_BOUNDED = f"JCT over the ideal run time, of which at least {SHORT_JOB_S:g} s count; 1 is perfect"
_EACH_BOUNDED = f"b_j = max(1, JCT_j / max(ideal_j, {SHORT_JOB_S:g} s))"
_EACH_RHO = "rho_j = JCT_j / (JCT_j with 1/n of the cluster + one round, if decisions are made in rounds)"


@dataclass(frozen=True, slots=True)
class Summary:
    """The object that ``--json`` prints: keys and meaning are a contract.

    This is the one table of metrics: files, terminal, report pages and the reference take their columns from the fields
    and their metadata, in this order. A new metric is a field here and its value in ``sim.metrics.summarise``.
    """

    jobs: int = field(metadata=_metric("tracked jobs", "count"))
    finished: int = field(metadata=_metric("tracked jobs that finished", "count"))
    jct_mean_s: float = field(
        metadata=_metric(
            "mean completion time, finish minus submission",
            title="Mean completion time",
            column="JCT mean",
            card="mean completion time",
            line=("JCT", "mean"),
        )
    )
    jct_p50_s: float = field(
        metadata=_metric(
            f"median {_QUANTILE}",
            title="Median completion time",
            column="JCT p50",
            card="median completion time",
            line=("JCT", "median"),
        )
    )
    jct_p95_s: float = field(metadata=_metric(f"95th percentile {_QUANTILE}", line=("JCT", "p95")))
    jct_p99_s: float = field(
        metadata=_metric(
            f"99th percentile {_QUANTILE}",
            title="99th percentile of completion time",
            column="JCT p99",
            card="99th percentile",
            line=("JCT", "p99"),
        )
    )
    makespan_s: float = field(
        metadata=_metric(
            "first submission to last finish of tracked jobs",
            title="Makespan",
            column="makespan",
            card="makespan",
            line=("makespan", ""),
        )
    )
    wait_mean_s: float = field(
        metadata=_metric(
            "mean wait: seconds without GPUs between submission and finish, waits after preemptions included",
            title="Mean wait",
            column="wait",
            card="mean wait",
            line=("wait", "mean"),
        )
    )
    wait_p95_s: float = field(metadata=_metric("95th percentile of the waits", line=("wait", "p95")))
    utilization: float = field(
        metadata=_metric(
            "GPU-seconds held by any job over those of the cluster during the makespan",
            "share",
            title="Utilization",
            column="utilization",
            card="utilization",
            line=("utilization", ""),
            more_is_better=True,
        )
    )
    preemptions: int = field(
        metadata=_metric(
            "stops without an immediate start on other GPUs",
            "count",
            title="Preemptions",
            column="preemptions",
            card="preemptions",
            line=(_STOPS, ""),
        )
    )
    migrations: int = field(
        metadata=_metric(
            "stops with an immediate start on other GPUs", "count", card="migrations", line=(_STOPS, "migrations")
        )
    )
    lost_work_s: float = field(
        metadata=_metric(
            "run time that did not advance jobs: restoring, and work since the last checkpoint",
            card="work lost to stops",
            line=(_STOPS, "lost work"),
            optional=True,
        )
    )
    comm_gpu_s: float = field(
        metadata=_metric(
            "GPU-seconds in communication that compute does not hide; without [links](../network.md), those lost to "
            "placements that span nodes",
            card="GPU time in communication",
            optional=True,
        )
    )
    cost: float = field(
        metadata=_metric(
            "GPU-hours times the price per type, if the cluster file or `--prices` has prices; exact where they change",
            "amount",
            title="Cost",
            column="cost",
            card="cost",
            line=("cost", ""),
            optional=True,
        )
    )
    rounds: int = field(
        metadata=_metric("decision rounds, skipped ones included; decisions in event-driven mode", "count")
    )
    sim_cpu_s: float = field(
        metadata=_metric("processor seconds of the simulation; not in `summary.json`, whose bytes repeat")
    )
    policy: str = field(metadata=_metric("the policy that was simulated", "text"))
    placement: str = field(metadata=_metric("the placement that was simulated", "text"))
    seed: int = field(metadata=_metric("the seed of everything random", "text"))
    rho_mean: float = field(
        default=0.0,
        metadata=_metric(
            f"mean finish-time fairness: {_RHO}",
            "ratio",
            title="Mean finish-time fairness (rho)",
            column="rho mean",
            card="mean rho (JCT over that of a fair share)",
            line=("fairness", "rho mean"),
            formula=f"mean of {_EACH_RHO}, n the active jobs",
        ),
    )
    rho_p99: float = field(
        default=0.0, metadata=_metric(f"99th percentile of rho, {_RHO}", "ratio", line=("fairness", "p99"))
    )
    rho_max: float = field(
        default=0.0,
        metadata=_metric(
            f"largest rho, {_RHO}",
            "ratio",
            title="Worst finish-time fairness (rho)",
            column="rho max",
            line=("fairness", "max"),
        ),
    )
    deadlines: int = field(default=0, metadata=_metric(f"jobs with a deadline; {_DEADLINES}", "count"))
    deadlines_missed: int = field(default=0, metadata=_metric(f"jobs that missed theirs; {_DEADLINES}", "count"))
    bounded_slowdown_mean: float = field(
        default=0.0,
        metadata=_metric(
            f"mean bounded slowdown: {_BOUNDED}",
            "ratio",
            title="Mean bounded slowdown",
            column="bounded slowdown",
            card="mean bounded slowdown",
            line=("slowdown", "bounded mean"),
            formula=f"mean of {_EACH_BOUNDED}",
        ),
    )
    bounded_slowdown_p99: float = field(
        default=0.0,
        metadata=_metric(f"99th percentile of the bounded slowdown, {_BOUNDED}", "ratio", line=("slowdown", "p99")),
    )
    bounded_slowdown_max: float = field(
        default=0.0, metadata=_metric(f"largest bounded slowdown, {_BOUNDED}", "ratio", line=("slowdown", "max"))
    )
    jain_index: float = field(
        default=0.0,
        metadata=_metric(
            "Jain's index of rho: 1 if all jobs fared alike, 1/jobs if one had all the delay",
            "ratio",
            line=("fairness", "Jain"),
            more_is_better=True,
            formula="(sum of rho_j)^2 / (jobs * sum of rho_j^2)",
        ),
    )
    dependents: int = field(
        default=0, metadata=_metric(f"jobs that had to wait for others to end; {_AFTER}", "count", optional=True)
    )
    eligible_wait_mean_s: float = field(
        default=0.0,
        metadata=_metric(
            f"mean wait without the time before the jobs a job had to wait for had ended; {_AFTER}",
            title="Mean wait once eligible",
            column="wait once eligible",
            line=("wait", "mean once eligible"),
            optional=True,
        ),
    )
    gpu_h_by_type: Mapping[str, float] = field(
        default_factory=dict,
        hash=False,
        metadata=_metric(
            "GPU-hours held by any job, by GPU type; GPUs that two jobs share count once",
            "amount",
            by_type=True,
            line=("GPU-hours", ""),
        ),
    )
    utilization_by_type: Mapping[str, float] = field(
        default_factory=dict,
        hash=False,
        metadata=_metric(
            "GPU-hours held over those of the GPUs of the type, from the first submission to the last finish",
            "share",
            by_type=True,
            more_is_better=True,
        ),
    )
    energy_kwh: float = field(
        default=0.0,
        metadata=_metric(
            "kilowatt-hours of the GPUs while jobs hold them, at the board power of their type "
            "([published watts](#board-power), or the setting `watts`); left out where that of a type is unknown",
            "amount",
            title="Energy (kWh)",
            column="kWh",
            card="kWh of energy",
            line=("energy, kWh", ""),
            optional=True,
            formula="sum over types of GPU-hours * watts / 1000",
        ),
    )

    @classmethod
    def metrics(cls) -> tuple[Metric, ...]:
        """All keys with their meaning, in order."""
        return tuple(Metric(f.name, **f.metadata) for f in fields(cls))

    @classmethod
    def chosen(cls, names: Sequence[str]) -> tuple[Metric, ...]:
        """The metrics that ``names`` select: keys, or what several keys begin with (``jct``, ``rho``)."""
        known = [metric for metric in cls.metrics() if metric.kind != "text"]
        found: dict[str, Metric] = {}
        for name in names:
            meant = [metric for metric in known if metric.key == name or metric.key.startswith(f"{name}_")]
            if not meant:
                raise unknown_name("--metrics", "metric", name, [metric.key for metric in known])
            found |= {metric.key: metric for metric in meant}
        return tuple(found.values())

    def as_dict(self) -> dict[str, Any]:
        left_out = () if self.deadlines else ("deadlines", "deadlines_missed")
        left_out = left_out if self.energy_kwh else (*left_out, "energy_kwh")
        left_out = left_out if self.dependents else (*left_out, "dependents", "eligible_wait_mean_s")
        return {k: v for k, v in asdict(self).items() if k not in left_out}

    def results(self) -> dict[str, Any]:
        """All but the processor time: the part that is equal in every repetition."""
        return {k: v for k, v in self.as_dict().items() if k != "sim_cpu_s"}


def flat_results(results: Mapping[str, Any]) -> dict[str, Any]:
    """Results without nesting, for tables: values by GPU type become ``KEY.TYPE``."""
    flat: dict[str, Any] = {}
    for key, value in results.items():
        flat |= {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
    return flat


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
