"""Keeps what happened to each job in the virtual world, and optionally every stretch it ran."""

from __future__ import annotations

from dataclasses import dataclass, field

from trine.core.cluster import Cluster, Tier
from trine.core.job import Job
from trine.core.reason import Why
from trine.core.result import Segment
from trine.perf.model import Speed

_TIERS = tuple(t.label for t in Tier)


@dataclass(slots=True)
class Run:
    """The stretch a job is running now."""

    start_s: float
    gpus: tuple[int, ...]
    speed: Speed
    why: Why
    work_from_s: float
    shared: bool = False
    """Another job runs on the same GPUs."""


@dataclass(slots=True)
class Life:
    """What a job has been through so far. Times in seconds."""

    job: Job
    ideal_s: float
    start_s: float = -1.0
    finish_s: float = -1.0
    done: float = 0.0
    held_s: float = 0.0
    lost_s: float = 0.0
    cost: float = 0.0
    preemptions: int = 0
    migrations: int = 0
    tier: Tier = Tier.GPU
    leg: int = 0
    """Stretches at one speed so far."""
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
    comm_gpu_s: float = 0.0
    cost: float = 0.0
    pair_part: float = 0.5
    """Part of the price of shared GPUs that each of the two jobs pays."""

    def end_run(self, life: Life, end_s: float, why: Why) -> None:
        """Book the stretch that ends now."""
        run = life.run
        assert run is not None
        held_s = end_s - run.start_s
        gpu_s = held_s * life.job.gpus
        life.held_s += held_s
        life.run = None
        # Shared GPUs are busy once, whoever is asked.
        self.busy_gpu_s += gpu_s / 2 if run.shared else gpu_s
        if run.speed.network > 1.0:
            worked_s = max(0.0, end_s - run.work_from_s)
            self.comm_gpu_s += worked_s * life.job.gpus * (1.0 - 1.0 / run.speed.network)
        if self.cluster.prices:
            gpu_type = self.cluster.type_of(run.gpus[0])
            whole = self.cluster.prices.cost(gpu_type, life.job.gpus, run.start_s, end_s) or 0.0
            cost = whole * (self.pair_part if run.shared else 1.0)
            self.cost += cost
            life.cost += cost
        if self.keep_segments and held_s > 0:
            self.segments.append(self._segment(life, run, end_s, why))

    def _segment(self, life: Life, run: Run, end_s: float, why: Why) -> Segment:
        return Segment(
            life.job.id,
            run.start_s,
            end_s,
            run.gpus,
            _TIERS[run.speed.tier],
            run.speed.chip * run.speed.network,
            run.why.value,
            why.value,
            life.job.tracked,
        )
