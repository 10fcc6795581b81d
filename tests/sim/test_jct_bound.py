"""The bound on average JCT: exact where the optimum is known, and below every run."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from trine.sim.jct_bound import PooledJobs, elastic, least_mean_jct_s, pooled_jobs
from trine.sim.scenario import Scenario, jobs_and_model, run

HOUR_S = 3600.0


def jobs_of(arrival_h: list[float], work_h: list[float], speed: list[list[float]], gpus: list[float]) -> PooledJobs:
    """Jobs of one GPU on median chips."""
    n = len(work_h)
    return PooledJobs(
        np.array(arrival_h) * HOUR_S,
        np.array(work_h) * HOUR_S,
        np.ones(n, dtype=np.int64),
        np.array(speed),
        np.ones((n, len(gpus))),
        np.array(gpus),
    )


@pytest.mark.parametrize("run_h", [0.3, 1.0, 4.7])
@pytest.mark.parametrize("arrival_h", [0.0, 2.0, 3.6])
def test_a_job_alone_takes_its_run_time(arrival_h: float, run_h: float) -> None:
    alone = jobs_of([arrival_h], [run_h], [[1.0, 0.5]], [1.0, 1.0])
    assert least_mean_jct_s(alone, HOUR_S) == pytest.approx(run_h * HOUR_S, rel=1e-6)


def test_a_batch_on_one_gpu_is_served_shortest_first() -> None:
    batch = jobs_of([0.0] * 3, [3.0, 1.0, 2.0], [[1.0]] * 3, [1.0])
    assert least_mean_jct_s(batch, HOUR_S) == pytest.approx((1 + 3 + 6) / 3 * HOUR_S, rel=1e-6)


def test_a_late_short_job_overtakes_the_long_one() -> None:
    """Shortest remaining time first has 1 h for the short job, and 11 h for the one that it interrupts."""
    found = least_mean_jct_s(jobs_of([0.0, 4.0], [10.0, 1.0], [[1.0]] * 2, [1.0]), HOUR_S)
    assert 0.9 * 6.0 * HOUR_S < found <= 6.0 * HOUR_S


def test_types_are_used_as_a_search_over_all_assignments_would_and_no_better_than_its_relaxation() -> None:
    speed, work_h = [[1.0, 0.8], [1.0, 0.2], [1.0, 0.5]], [4.0, 4.0, 2.0]
    best = np.inf
    for order in permutations(range(3)):
        for types in np.ndindex(2, 2, 2):
            busy, ends = [0.0, 0.0], []
            for job in order:
                busy[types[job]] += work_h[job] / speed[job][types[job]]
                ends.append(busy[types[job]])
            best = min(best, float(np.mean(ends)))
    found = least_mean_jct_s(jobs_of([0.0] * 3, work_h, speed, [1.0, 1.0]), 0.5 * HOUR_S) / HOUR_S
    assert 0.85 * best < found <= best * (1 + 1e-6)


@pytest.mark.parametrize(("efficiency", "least_h"), [(1.0, 2.0), (0.75, 8 / 3)])
def test_a_job_alone_takes_twice_its_gpus_where_it_may(efficiency: float, least_h: float) -> None:
    alone = elastic(jobs_of([0.0], [4.0], [[1.0]], [2.0]), efficiency)
    assert least_mean_jct_s(alone, HOUR_S) == pytest.approx(least_h * HOUR_S, rel=1e-6)


@pytest.mark.parametrize("kind", ["TVN", "V", "N"])
def test_no_policy_is_below_the_bound(kind: str) -> None:
    small = {"world.jobs": 40, "world.racks": 3, "world.nodes_per_rack": 2, "world.load": 1.5}
    pooled = pooled_jobs(*jobs_and_model(Scenario(world=kind, seed=3, values=small)))  # whatever the policy is
    ideal_s, bounds_s = pooled.least_run_s.mean(), [least_mean_jct_s(pooled, slot_h * HOUR_S) for slot_h in (1.0, 6.0)]
    for policy, placement in (("trine", "trine"), ("srsf", "packed"), ("fifo", "packed-sticky")):
        scenario = Scenario(world=kind, seed=3, policy=policy, placement=placement, values=small)
        jct_mean_s = run(scenario, keep_segments=False).summary.jct_mean_s
        assert all(ideal_s < bound_s <= jct_mean_s for bound_s in bounds_s), bounds_s
