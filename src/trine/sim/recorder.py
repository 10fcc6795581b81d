"""Keeps what happened in the virtual world: to each job, optionally every run of it, and on the links over time."""

from __future__ import annotations

from dataclasses import dataclass, field

from trine.core.cluster import Cluster, Tier
from trine.core.job import Job
from trine.core.reason import Why
from trine.core.result import LinkLoad, Segment
from trine.perf.model import Speed
from trine.perf.traffic import Traffic
from trine.sim.run_totals import RUN_PART, RunTotals, WorkParts

_TIERS = tuple(t.label for t in Tier)
_ADDED_AT_ONCE = RUN_PART << 14
"""Numbers that are kept before they are added to the totals: enough to be quick, few enough for the memory."""
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
    counted_s: float
    """Counted in the totals up to this time, and up to this many steps of the job."""
    counted_steps: float
    shared: bool = False
    """Another job runs on the same GPUs."""
    worked_s: float = 0.0
    """Seconds of work at earlier speeds of this run."""
    slowed_s: float = 0.0
    """The same, each second times the slowdown it ran at."""

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
    index: int
    """Its job number."""
    steps: float
    """Steps that it really takes; ``job.steps`` is what the engine knows."""
    start_s: float = -1.0
    finish_s: float = -1.0
    eligible_s: float | None = None
    """When the last job that it had to wait for ended; ``None``: it waited for none."""
    done: float = 0.0
    held_s: float = 0.0
    """Seconds with GPUs, up to the moment the work was done. The engine's ``attained_s``, by which policies decide, is
    larger where a completion becomes known only at the end of the round: that is its truth, this one of the results."""
    lost_s: float = 0.0
    comm_gpu_s: float = 0.0
    """GPU-seconds of communication that compute did not hide."""
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
    work: WorkParts | None = None
    """Where the time of kept work went, once all runs are counted; ``None``: nothing was kept."""


@dataclass
class Recorder:
    """Lives of all jobs by job number, and totals over the cluster, which are complete after ``close``."""

    cluster: Cluster
    keep_segments: bool = True
    lives: list[Life] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    comm_gpu_s: float = 0.0
    comm_by_tier: list[float] = field(default_factory=lambda: [0.0] * len(Tier))
    """GPU-seconds of communication that compute did not hide."""
    cost: float = 0.0
    pair_cost_part: float = 0.5
    """Part of the price of shared GPUs that each of the two jobs pays."""

    def __post_init__(self) -> None:
        self.totals = RunTotals(self.cluster)
        self._parts: list[float] = []
        """Not yet in the totals."""
        self._priced = bool(self.cluster.prices)

    def close(self) -> None:
        """All runs have ended: say where the work of each job went."""
        self._add_up()
        for life, work in zip(self.lives, self.totals.work_parts(len(self.lives)), strict=True):
            life.work = work

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
        if now > run.counted_s or life.done != run.counted_steps:  # two that start together change speed at once
            self._count(life, run, now)
        worked_s = max(0.0, now - run.work_from_s)
        run.worked_s += worked_s
        run.slowed_s += worked_s * run.speed.chip * run.speed.network
        run.speed, run.shared = speed, shared
        run.work_from_s = max(now, run.work_from_s)

    def _count(self, life: Life, run: Run, until_s: float) -> None:
        """Note what happened since the run was last counted. Runs are many: what can be added up later is."""
        job, from_s = life.job, run.counted_s
        gpus, held_s = job.gpus, until_s - from_s
        life.held_s += held_s
        # Shared GPUs are busy once: each of the two jobs counts for half of them.
        busy_gpu_s = held_s * gpus / 2 if run.shared else held_s * gpus
        rate, chip, network, tier, sharing, exposed = run.speed
        steps = life.done - run.counted_steps
        self._parts += (  # the tier as a plain number: numpy looks twice at any other
            life.index, life.ideal_s, job.steps, run.gpus[0], busy_gpu_s, steps, rate, chip, network, sharing, +tier
        )  # fmt: skip
        run.counted_s, run.counted_steps = until_s, life.done
        if len(self._parts) == _ADDED_AT_ONCE:
            self._add_up()
        if exposed > 0.0:
            comm_gpu_s = max(0.0, until_s - run.work_from_s) * gpus * exposed
            self.comm_gpu_s += comm_gpu_s
            self.comm_by_tier[tier] += comm_gpu_s
            life.comm_gpu_s += comm_gpu_s
        if self._priced:
            gpu_type = self.cluster.type_of(run.gpus[0])
            whole = self.cluster.prices.cost(gpu_type, gpus, from_s, until_s) or 0.0
            self.cost += whole * (self.pair_cost_part if run.shared else 1.0)

    def _add_up(self) -> None:
        self.totals.add(self._parts)
        self._parts.clear()

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
