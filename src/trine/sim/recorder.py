"""Keeps what happened in the virtual world: to each job, optionally every run of it, and on the links over time."""

from __future__ import annotations

from dataclasses import dataclass, field

from trine.core.cluster import Cluster, Tier
from trine.core.job import Job
from trine.core.reason import Why
from trine.core.result import LinkLoad, Segment
from trine.perf.model import Speed
from trine.perf.traffic import Traffic

_TIERS = tuple(t.label for t in Tier)
MAX_LINK_SAMPLES = 400
"""Samples kept. With more, every other one goes and the time between them doubles: a sample costs a look at every gang,
and a run may have a million rounds."""


@dataclass(slots=True)
class Run:
    """The run of a job on one set of GPUs that lasts now."""

    start_s: float
    gpus: tuple[int, ...]
    speed: Speed
    why: Why
    work_from_s: float
    """Work at the present speed began, or begins, then."""
    shared: bool = False
    """Another job runs on the same GPUs."""
    booked_s: float = -1.0
    """Counted in the totals up to this time; -1: nothing is yet."""
    worked_s: float = 0.0
    """Seconds of work at earlier speeds of this run."""
    slowed_s: float = 0.0
    """The same, each second times the slowdown it ran at."""
    booked_steps: float = 0.0
    """Steps of the job whose time is split already."""

    def mean_slowdown(self, end_s: float) -> float:
        """By chip and network, over the time of work; the present one if the speed never changed."""
        now = self.speed.chip * self.speed.network
        if not self.worked_s:
            return now
        worked_s = max(0.0, end_s - self.work_from_s)
        return (self.slowed_s + now * worked_s) / (self.worked_s + worked_s)


@dataclass(slots=True)
class Life:
    """What a job has been through so far. Times in seconds."""

    job: Job
    ideal_s: float
    start_s: float = -1.0
    finish_s: float = -1.0
    eligible_s: float | None = None
    """When the last job that it had to wait for ended; ``None``: it waited for none."""
    done: float = 0.0
    held_s: float = 0.0
    """Seconds with GPUs, up to the moment the work was done. The engine's ``attained_s``, by which policies decide, is
    larger where a completion becomes known only at the end of the round: that is its truth, this one of the results."""
    lost_s: float = 0.0
    cost: float = 0.0
    comm_gpu_s: float = 0.0
    """GPU-seconds of communication that compute did not hide."""
    work_s: float = 0.0
    """Seconds of work that was kept, and the parts of it, as in ``JobTime``; the rest of them is due to sharing."""
    ideal_work_s: float = 0.0
    type_s: float = 0.0
    chip_s: float = 0.0
    network_s: float = 0.0
    preemptions: int = 0
    migrations: int = 0
    tier: Tier = Tier.GPU
    leg: int = 0
    """Stretches at one speed so far."""
    dropped: bool = False
    """Given up before its work was done."""
    moving: bool = False
    """The last stop was part of a move."""
    run: Run | None = None


@dataclass
class Recorder:
    """Lives of all jobs by job number, and totals over the cluster."""

    cluster: Cluster
    keep_segments: bool = True
    lives: list[Life] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    busy_gpu_s: float = 0.0
    busy_by_type: dict[str, float] = field(default_factory=dict)
    """The same by GPU type, as far as a type was used."""
    comm_gpu_s: float = 0.0
    held_by_tier: list[float] = field(default_factory=lambda: [0.0] * len(Tier))
    """GPU-seconds held by tier, and those of them in communication that compute did not hide."""
    comm_by_tier: list[float] = field(default_factory=lambda: [0.0] * len(Tier))
    cost: float = 0.0
    pair_cost_part: float = 0.5
    """Part of the price of shared GPUs that each of the two jobs pays."""

    def __post_init__(self) -> None:
        self._only_type = self.cluster.types[0] if len(self.cluster.types) == 1 else ""
        """Runs are many, and most clusters have one GPU type."""

    def end_run(self, life: Life, end_s: float, why: Why) -> None:
        """The run ends now: count the rest of it and keep it as a segment."""
        run = life.run
        assert run is not None
        self._count(life, run, end_s)
        life.run = None
        if self.keep_segments and end_s > run.start_s:
            self.segments.append(self._segment(life, run, end_s, why))

    def change_speed(self, life: Life, now: float, speed: Speed, shared: bool) -> None:
        """The run goes on at another speed from ``now`` on. That is neither a stop nor a move: it stays one segment."""
        run = life.run
        assert run is not None
        self._count(life, run, now)
        worked_s = max(0.0, now - run.work_from_s)
        run.worked_s += worked_s
        run.slowed_s += worked_s * run.speed.chip * run.speed.network
        run.speed, run.shared, run.booked_s = speed, shared, now
        run.work_from_s = max(now, run.work_from_s)

    def _count(self, life: Life, run: Run, until_s: float) -> None:
        """Add what happened since the run was last counted to the totals."""
        from_s = run.start_s if run.booked_s < 0 else run.booked_s
        speed, gpus, held_s = run.speed, life.job.gpus, until_s - from_s
        life.held_s += held_s
        if life.done > run.booked_steps:
            _split_work(life, speed, life.done - run.booked_steps)
            run.booked_steps = life.done
        # Shared GPUs are busy once: each of the two jobs counts for half of them.
        busy_gpu_s = held_s * gpus / 2 if run.shared else held_s * gpus
        gpu_type = self._only_type or self.cluster.type_of(run.gpus[0])
        self.busy_gpu_s += busy_gpu_s
        self.busy_by_type[gpu_type] = self.busy_by_type.get(gpu_type, 0.0) + busy_gpu_s
        self.held_by_tier[speed.tier] += busy_gpu_s
        if speed.exposed > 0.0:
            worked_s = max(0.0, until_s - run.work_from_s)
            comm_gpu_s = worked_s * gpus * speed.exposed
            self.comm_gpu_s += comm_gpu_s
            self.comm_by_tier[speed.tier] += comm_gpu_s
            life.comm_gpu_s += comm_gpu_s
        if self.cluster.prices:
            whole = self.cluster.prices.cost(gpu_type, life.job.gpus, from_s, until_s) or 0.0
            cost = whole * (self.pair_cost_part if run.shared else 1.0)
            self.cost += cost
            life.cost += cost

    def _segment(self, life: Life, run: Run, end_s: float, why: Why) -> Segment:
        return Segment(
            life.job.id,
            run.start_s,
            end_s,
            run.gpus,
            _TIERS[run.speed.tier],
            run.mean_slowdown(end_s),
            run.why.value,
            why.value,
            life.job.tracked,
        )


def _split_work(life: Life, speed: Speed, steps: float) -> None:
    """Add the seconds that ``steps`` took at ``speed`` to the parts: each factor on top of those before it.

    Next to a slow chip a network factor below 1 means that communication hides it: what is left is the chip's.
    """
    chip, network = speed.chip, speed.network
    ideal_s, work_s = steps * life.ideal_s / life.job.steps, steps / speed.steps_per_s
    life.work_s += work_s
    life.ideal_work_s += ideal_s
    if chip == network == 1.0:  # most runs
        life.type_s += work_s / speed.sharing - ideal_s
        return
    if network < 1.0 < chip:
        both = chip * network
        chip = max(1.0, both)
        network = both / chip
    on_type_s = work_s / (chip * network * speed.sharing)
    life.type_s += on_type_s - ideal_s
    life.chip_s += on_type_s * (chip - 1.0)
    life.network_s += on_type_s * chip * (network - 1.0)


class LinkLoads:
    """How busy the links are over time: samples of ``Traffic.load``, at least ``every_s`` seconds apart."""

    def __init__(self, traffic: Traffic, nodes: int, every_s: float) -> None:
        """Links with numbers below ``nodes`` are NICs."""
        self._traffic, self._nodes, self._every_s = traffic, nodes, every_s
        self.samples: list[LinkLoad] = []

    def look(self, now: float) -> None:
        """Take a sample if one is due."""
        samples = self.samples
        if samples and now < samples[-1].at_s + self._every_s:
            return
        nic = uplink = 0.0
        for link, load in self._traffic.load().items():
            if link < self._nodes:
                nic = max(nic, load)
            else:
                uplink = max(uplink, load)
        samples.append(LinkLoad(now, nic, uplink))
        if len(samples) > MAX_LINK_SAMPLES:
            del samples[1::2]
            self._every_s *= 2
