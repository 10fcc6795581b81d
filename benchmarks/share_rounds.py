"""Cost of a round of a share policy on a large cluster: 5,000 jobs without end on 10,176 GPUs of three types."""

from __future__ import annotations

import hashlib
import random
import statistics
import time
from collections import deque
from dataclasses import dataclass

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.events import Decision, Start, Started, Stopped, Submitted, Tick
from trine.inputs.cluster import load_cluster
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.policy.base import Ranking, Selection
from trine.policy.view import View

JOBS, CLUSTER, ROUND_S = 5_000, "v100=424x8,p100=424x8,k80=424x8", 360.0
MODELS = 40
GANGS, WEIGHTS = (1, 2, 4, 8, 16, 32), (0.55, 0.12, 0.13, 0.14, 0.04, 0.02)
FIRST, ROUNDS = 10, 30
"""Rounds that are not measured, in which most jobs start, and those that are."""
ENDLESS = 1e12


@dataclass(frozen=True)
class SettledRounds:
    """Processor milliseconds per round, of the policy alone and of all of the engine's decision."""

    policy_ms: float
    round_ms: float
    slowest_ms: float
    """The policy alone, in the slowest of the rounds measured."""
    changes: int
    """Starts and stops, over all rounds."""
    digest: str
    """Of all decisions: the same for the same schedule."""


def settled_rounds(policy: str = "max-min-fairness", jobs: int = JOBS, cluster: str = CLUSTER) -> SettledRounds:
    """The median of rounds in which no job comes or leaves, so that shares stay and only deficits move."""
    engine = _engine(policy, load_cluster(cluster))
    rng = random.Random(1)
    for number, gang in enumerate(rng.choices(GANGS, WEIGHTS, k=jobs)):
        model = f"m{rng.randrange(MODELS)}"
        engine.handle(Submitted(0.0, Job(str(number), 0.0, gang, ENDLESS, model=model)))
    ranked = _RankClock(engine)
    spent: list[tuple[float, float]] = []
    digest = hashlib.sha256()
    changes = 0
    for number in range(FIRST + ROUNDS):
        now = number * ROUND_S
        before_ns, ranked.spent_ns = time.process_time_ns(), 0
        decisions = engine.handle(Tick(now))
        spent.append((ranked.spent_ns / 1e6, (time.process_time_ns() - before_ns) / 1e6))
        digest.update(repr([(type(d).__name__, d.job_index, getattr(d, "gpus", ())) for d in decisions]).encode())
        changes += _carry_out(engine, now, decisions)
    policy_ms, round_ms = (sorted(column) for column in zip(*spent[FIRST:], strict=True))
    return SettledRounds(
        statistics.median(policy_ms), statistics.median(round_ms), policy_ms[-1], changes, digest.hexdigest()[:12]
    )


def _engine(policy: str, cluster: Cluster) -> Engine:
    settings = resolve(policy, "packed-sticky", {"round_s": ROUND_S})
    perf = performance_model(settings.run, cluster, VariabilityTable.of_cluster(cluster), _throughputs(cluster))
    return make_engine(settings, perf, "0/placement")


def _throughputs(cluster: Cluster) -> ThroughputTable:
    """Models that gain differently from faster GPUs, as in Gavel's table."""
    rng = random.Random(2)
    rates = {}
    for model in range(MODELS):
        slow = rng.uniform(0.5, 5.0)
        speedups = sorted(rng.uniform(1.0, 10.0) for _ in cluster.types)
        for gang in GANGS:
            by_type = zip(sorted(cluster.types), speedups, strict=True)  # k80, p100, v100
            rates[f"m{model}", gang] = {name: slow * speedup * gang for name, speedup in by_type}
    return ThroughputTable(rates)


class _RankClock:
    """Takes the processor time of ``Policy.rank``."""

    def __init__(self, engine: Engine) -> None:
        self.spent_ns = 0
        self._rank, engine.policy.rank = engine.policy.rank, self  # type: ignore[method-assign]

    def __call__(self, view: View) -> Ranking | Selection:
        before_ns = time.process_time_ns()
        found = self._rank(view)
        self.spent_ns += time.process_time_ns() - before_ns
        return found


def _carry_out(engine: Engine, now: float, decisions: list[Decision]) -> int:
    """At once, as decided; returns the number of starts and stops."""
    todo, changes = deque(decisions), 0
    while todo:
        decision, changes = todo.popleft(), changes + 1
        if isinstance(decision, Start):
            todo.extend(engine.handle(Started(now, decision.job_index, 1.0, now)))
        else:
            todo.extend(engine.handle(Stopped(now, decision.job_index, 0.0)))
    return changes
