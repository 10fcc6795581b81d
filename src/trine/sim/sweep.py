"""Many runs in processes: every policy with every placement and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trine.core.process_pool import Done, work_through
from trine.core.result import RunResult
from trine.sim.scenario import Scenario, run


@dataclass(frozen=True)
class Sweep:
    """Every policy with every placement and every seed, in this order."""

    base: Scenario
    policies: Sequence[str]
    placements: Sequence[str]
    seeds: Sequence[int]

    def scenarios(self) -> list[Scenario]:
        return [
            replace(self.base, policy=policy, placement=placement, seed=seed, others=(*self.policies, *self.placements))
            for policy in self.policies
            for placement in self.placements
            for seed in self.seeds
        ]


def run_all(sweep: Sweep, workers: int = 0, done: Done = lambda: None) -> list[RunResult]:
    """Run the whole sweep; ``workers`` 0 takes all cores. Only the first seed keeps its segments, for the report."""
    return run_each([(s, s.seed == sweep.seeds[0]) for s in sweep.scenarios()], workers, done)


def run_each(todo: list[tuple[Scenario, bool]], workers: int = 0, done: Done = lambda: None) -> list[RunResult]:
    """Run scenarios, each with whether to keep its segments; results in the same order."""
    return work_through(_run, todo, workers, done)


def _run(item: tuple[Scenario, bool]) -> RunResult:
    scenario, keep_segments = item
    return run(scenario, keep_segments=keep_segments)
