"""Simulated clusters in the middle of their work, for tests of forecasts."""

from __future__ import annotations

from collections.abc import Sequence

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import resolve
from trine.core.job import Job
from trine.forecast.present import Present, of_engine
from trine.inputs.cluster import load_cluster
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.sim.scenario import make_world
from trine.sim.world import World


def world_at(policy: str, shape: str, jobs: Sequence[Job], now_s: float, **values: object) -> World:
    """The world that ran ``jobs`` up to ``now_s``."""
    settings = resolve(policy, "packed-sticky", {"fill": True, "round_s": 60.0, **values})
    cluster = load_cluster(shape)
    perf = performance_model(settings.run, cluster, VariabilityTable.of_cluster(cluster), ThroughputTable())
    world = make_world(settings, make_engine(settings, perf, "0/placement"), iter(jobs), len(jobs), keep_segments=False)
    world.now = jobs[0].submit_s
    world.advance(now_s)
    return world


def present_at(policy: str, shape: str, jobs: Sequence[Job], now_s: float, **values: object) -> Present:
    world = world_at(policy, shape, jobs, now_s, **values)
    return of_engine(world.engine, now_s, world.settings)
