"""Small simulations from jobs in memory: the same parts that ``trine.sim.scenario.run`` puts together from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import Settings, resolve
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.core.result import JobRecord, Segment, Summary
from trine.engine.engine import Engine
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.sim import metrics
from trine.sim.fair_share import fair_completion_s
from trine.sim.recorder import Life
from trine.sim.scenario import make_world
from trine.sim.world import World


@dataclass(frozen=True)
class Outcome:
    """What a run left behind, by job id."""

    world: World
    records: dict[str, JobRecord]
    summary: Summary
    segments: list[Segment]

    @property
    def engine(self) -> Engine:
        return self.world.engine

    @property
    def lives(self) -> dict[str, Life]:
        return {life.job.id: life for life in self.world.recorder.lives}

    def start(self, job_id: str) -> float:
        return self.records[job_id].start_s

    def finish(self, job_id: str) -> float:
        return self.records[job_id].finish_s

    @property
    def times(self) -> dict[str, tuple[float, float]]:
        return {job_id: (record.start_s, record.finish_s) for job_id, record in self.records.items()}

    def stretches(self, job_id: str) -> list[tuple[float, float]]:
        """When the job held GPUs: (from, to) of each segment."""
        return [(s.start_s, s.end_s) for s in self.segments if s.job_id == job_id]


def build_engine(
    cluster: Cluster,
    settings: Settings,
    seed: int = 0,
    throughputs: ThroughputTable | None = None,
    cls: type[Engine] = Engine,
) -> Engine:
    tables = VariabilityTable.of_cluster(cluster), throughputs or ThroughputTable()
    perf = performance_model(settings.run, cluster, *tables)
    return make_engine(settings, perf, f"{seed}/placement", engine_type=cls)


def simulate(
    jobs: Sequence[Job],
    cluster: Cluster,
    policy: str = "fifo",
    placement: str = "packed-sticky",
    *,
    seed: int = 0,
    background: Iterable[Job] = (),
    throughputs: ThroughputTable | None = None,
    engine: type[Engine] = Engine,
    **values: Any,
) -> Outcome:
    """Run ``jobs`` to the end with the invariants checked after every step."""
    settings = resolve(policy, placement, {"validate": True} | {k.replace("__", "."): v for k, v in values.items()})
    tracked = sum(job.tracked for job in jobs)
    built = build_engine(cluster, settings, seed, throughputs, engine)
    world = make_world(settings, built, chain(jobs, background), tracked)
    world.run()
    recorder = world.recorder
    fair_s = fair_completion_s([life.job for life in recorder.lives], built.perf)
    tracked_lives = [life for life in recorder.lives if life.job.tracked]
    records = [metrics.job_record(life, fair_s[life.job.id] + settings.run.round_s) for life in tracked_lives]
    summary = metrics.summarise(
        recorder, records, rounds=world.rounds, cpu_s=0.0, policy=policy, placement=placement, seed=seed
    )
    return Outcome(world, {r.job_id: r for r in records}, summary, recorder.segments)


def one_node(gpus: int) -> Cluster:
    return Cluster.uniform(1, gpus)
