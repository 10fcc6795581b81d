"""A job that starts beside a slow chip and could move to a good node once another job has left."""

from __future__ import annotations

import random
from typing import Any

from trine.assembly.settings import WorldSettings
from trine.core.cluster import Cluster
from trine.core.costs import StopCosts
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.pal import Pal
from trine.policy.fifo import Fifo
from trine.sim.recorder import Recorder
from trine.sim.world import World


def finish_times(migration_s: float, want: str = "finish_s") -> dict[str, Any]:
    """Two nodes of four; GPU 0 is 1.5 times slower. ``short`` takes the good node first, ``long`` the other one."""
    cluster = Cluster.uniform(2, 4)
    slow = {"A": [1.5, *[1.0] * 7]}
    perf = PerfModel(cluster, VariabilityTable(8, slow), LocalityPenalty(1.0, 3.0, 3.0))
    placement = Pal()
    placement.prepare(perf, random.Random(0))
    engine = Engine(cluster, Fifo(), placement, perf, costs=StopCosts(migration_s=migration_s))
    jobs = [Job("short", 0.0, 4, 300.0, 1.0, app_class="A"), Job("long", 0.0, 4, 6000.0, 1.0, app_class="A")]
    recorder = Recorder(cluster)
    world = World(engine, iter(jobs), 2, WorldSettings(round_s=300.0, migration_s=migration_s, validate=True), recorder)
    world.run()
    return {life.job.id: getattr(life, want) for life in recorder.lives}
