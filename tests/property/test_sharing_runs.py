"""What holds in every simulated run with random selections and pairs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import PLACEMENTS, Case, cases, costs, stable
from tests.property.test_every_run import (
    Watched,
    every_job_ends_once,
    gangs_are_whole,
    nobody_beats_physics,
    the_cluster_is_not_overfull,
)
from tests.sim.tiny import Outcome, simulate
from trine.assembly.settings import resolve
from trine.policy.base import Policy, Selection
from trine.policy.view import View

ROUND_S = 30.0


@dataclass
class AnyPairs(Policy):
    """Any jobs, on any GPUs, with any partner of the same size."""

    name: ClassVar[str] = "any-pairs"
    title: ClassVar[str] = "for tests"
    seed: int = 0
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def rank(self, view: View) -> Selection:
        order = [i for i in range(len(view)) if self.rng.random() < 0.8]
        self.rng.shuffle(order)
        co_runners = [-1] * len(order)
        for i, job in enumerate(order):
            alike = [k for k in range(i) if co_runners[k] < 0 and view.gpus[order[k]] == view.gpus[job]]
            if alike and self.rng.random() < 0.7:
                co_runners[i] = self.rng.choice(alike)
                co_runners[co_runners[i]] = i
        return Selection.of(view.job_indices[np.array(order, np.int64)], co_runners=np.array(co_runners, np.int64))


def run(case: Case, placement: str, seed: int, patch: pytest.MonkeyPatch, **values: Any) -> Outcome:
    with patch.context() as inside:
        inside.setattr("tests.sim.tiny.resolve", lambda *a: replace(resolve(*a), policy=AnyPairs(seed)))
        return simulate(case.jobs, case.cluster, "fifo", placement, round_s=ROUND_S, engine=Watched, **values)


def at_most_two_on_a_gpu(out: Outcome) -> None:
    changes: dict[int, list[tuple[float, int]]] = {}
    for segment in out.segments:
        for gpu in segment.gpus:
            changes.setdefault(gpu, []).extend([(segment.start_s, 1), (segment.end_s, -1)])
    for steps in changes.values():
        assert max(np.cumsum([by for _, by in sorted(steps)])) <= 2


PATCH = pytest.MonkeyPatch()


@pytest.mark.parametrize("placement", PLACEMENTS)
@stable(10)
@given(case=cases(), seed=st.integers(0, 99), event_driven=st.booleans(), cost=costs())
def test_runs_with_pairs(placement: str, case: Case, seed: int, event_driven: bool, cost: dict[str, Any]) -> None:
    # Without the fairness of a real policy, checkpoints further apart than rounds could keep a job from getting on.
    values = cost | {"checkpoint_every_s": 0}
    if event_driven:
        values["restore_s"] = values["migration_s"] = 0
    out = run(case, placement, seed, PATCH, event_driven=event_driven, **values)
    every_job_ends_once(case, out)
    gangs_are_whole(case, out)
    at_most_two_on_a_gpu(out)
    nobody_beats_physics(case, out)
    the_cluster_is_not_overfull(out)
    assert out.engine.free.total == case.cluster.gpu_count - len(out.engine.excluded)


@stable(10)
@given(case=cases(), seed=st.integers(0, 9), placement=st.sampled_from(PLACEMENTS))
def test_the_same_again_gives_the_same(case: Case, seed: int, placement: str) -> None:
    one, again = (run(case, placement, seed, PATCH) for _ in range(2))
    assert (one.records, one.segments, one.summary) == (again.records, again.segments, again.summary)
