"""The policies of Dally's experiments, and one run of one of them: what to simulate and what is kept of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.core.cluster import Tier
from trine.core.result import JobRecord, RunResult
from trine.sim.scenario import Scenario, run

HOUR_S = 3600.0
ENDLESS_S = 1e9
"""A timer that no job outlives."""
AUTO, NO_WAIT, FULL, MANUAL = (
    "dally, tuned timers",
    "dally, no wait",
    "dally, fully consolidated",
    "dally, 12 h and 24 h",
)
FIFO, GANDIVA = "fifo, backfill", "gandiva-like"
SKEW, ALWAYS = "tiresias, skew rule", "tiresias, always consolidate"
_SPREAD = (Tier.RACK.label, Tier.NETWORK.label)


@dataclass(frozen=True)
class Contender:
    """A policy with its placement and the settings of both."""

    policy: str
    placement: str
    values: Mapping[str, Any] = field(default_factory=dict)


def delayed(machine_s: float, rack_s: float) -> Contender:
    """Dally's policy with fixed timers, in seconds."""
    return Contender("dally", "delay", {"machine_timer_s": machine_s, "rack_timer_s": rack_s})


CONTENDERS: dict[str, Contender] = {
    FIFO: Contender("fifo", "packed-sticky", {"backfill": True}),
    GANDIVA: Contender("gandiva-slices", "packed-sticky"),
    SKEW: Contender("tiresias", "skew-sticky"),
    ALWAYS: Contender("tiresias", "consolidate-sticky"),
    NO_WAIT: delayed(0.0, 0.0),
    FULL: delayed(ENDLESS_S, ENDLESS_S),
    MANUAL: delayed(12 * HOUR_S, 24 * HOUR_S),
    AUTO: Contender("dally", "delay"),
}


@dataclass(frozen=True)
class Ask:
    """One simulation, and the GPUs of a node: communication is split at jobs that fit one."""

    scenario: Scenario
    node_gpus: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What is kept of a run. Times in hours, communication and use in GPU-hours."""

    makespan_h: float
    jct_h: float
    jct_p95_h: float
    jct_p99_h: float
    wait_p95_h: float
    wait_p99_h: float
    comm_h: float
    """Exposed communication of all jobs."""
    comm_node_h: float
    """The part of jobs that fit one node."""
    comm_spread_h: float
    """Of that, the part of jobs that ever ran on more than one node: what is left of ``comm_node_h`` is inside nodes,
    where no placement can avoid it."""
    utilization: float
    gpu_h: float
    """Held by jobs."""
    preemptions: float
    """Per job, as the next."""
    moves: float
    tiers: tuple[float, float, float]
    """Share of gangs by the widest tier they ever ran at: node, rack, network."""


def measure(ask: Ask) -> Figures:
    """Simulate and sum up."""
    return figures_of(run(ask.scenario, keep_segments=False), ask.node_gpus)


def figures_of(result: RunResult, node_gpus: int) -> Figures:
    """The figures of a run on nodes of ``node_gpus`` GPUs."""
    s, jobs = result.summary, result.jobs
    wait_s = np.array([job.wait_s for job in jobs])
    fitting = [job for job in jobs if job.gpus <= node_gpus]
    return Figures(
        makespan_h=s.makespan_s / HOUR_S,
        jct_h=s.jct_mean_s / HOUR_S,
        jct_p95_h=s.jct_p95_s / HOUR_S,
        jct_p99_h=s.jct_p99_s / HOUR_S,
        wait_p95_h=s.wait_p95_s / HOUR_S,
        wait_p99_h=float(np.quantile(wait_s, 0.99)) / HOUR_S,
        comm_h=s.comm_gpu_s / HOUR_S,
        comm_node_h=sum(job.comm_gpu_s for job in fitting) / HOUR_S,
        comm_spread_h=sum(job.comm_gpu_s for job in fitting if job.tier in _SPREAD) / HOUR_S,
        utilization=s.utilization,
        gpu_h=sum((job.jct_s - job.wait_s) * job.gpus for job in jobs) / HOUR_S,
        preemptions=s.preemptions / s.jobs,
        moves=s.migrations / s.jobs,
        tiers=_tiers(jobs),
    )


def _tiers(jobs: list[JobRecord]) -> tuple[float, float, float]:
    """Shares of gangs by tier; nothing but zeros where there is no gang."""
    found = Counter(job.tier for job in jobs if job.gpus > 1)
    gangs = max(1, found.total())
    node, rack, network = (found[tier.label] / gangs for tier in (Tier.NODE, Tier.RACK, Tier.NETWORK))
    return node, rack, network
