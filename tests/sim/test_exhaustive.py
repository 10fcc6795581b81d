"""A second opinion from exhaustive search: on a few jobs, the simulator against the best of all schedules.

Times are whole seconds, so the best preemptive schedule changes at whole seconds too, and trying every set of jobs in
every second finds it. The search shares no code with the engine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations

import pytest

from tests.sim.tiny import Outcome, one_node, simulate
from trine.core.job import Job
from trine.core.plugins import discover
from trine.policy.base import Policy

POLICIES = sorted(discover("trine.policy", Policy))


def random_jobs(seed: int, count: int, latest_s: int, gpus: tuple[int, ...] = (1,)) -> list[Job]:
    rng = random.Random(seed)
    jobs = [(rng.randint(0, latest_s), rng.choice(gpus), rng.randint(1, 4)) for _ in range(count)]
    return [Job(str(i), float(at), wide, float(long)) for i, (at, wide, long) in enumerate(sorted(jobs))]


def sets_that_fit(jobs: Sequence[Job], present: Sequence[int], gpus: int) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(present) + 1):
        for chosen in combinations(present, count):
            if sum(jobs[i].gpus for i in chosen) <= gpus:
                yield chosen


def least_total_completion_s(jobs: Sequence[Job], gpus: int) -> float:
    """The smallest sum of completion times of all preemptive schedules."""

    @cache
    def best(now: int, left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        present = [i for i, job in enumerate(jobs) if left[i] and job.submit_s <= now]
        # Every job that is there and not done costs a second of completion time in this second.
        return len(present) + min(
            (best(now + 1, _served(left, chosen)) for chosen in sets_that_fit(jobs, present, gpus)),
            default=best(now + 1, left) if not present else float("inf"),
        )

    return best(0, tuple(int(job.steps) for job in jobs))


def least_makespan_s(jobs: Sequence[Job], gpus: int) -> int:
    """The shortest preemptive schedule of jobs that are all there from the beginning."""
    reached, seconds = {tuple(int(job.steps) for job in jobs)}, 0
    while all(any(left) for left in reached):
        seconds += 1
        reached = {
            _served(left, chosen)
            for left in reached
            for chosen in sets_that_fit(jobs, [i for i, steps in enumerate(left) if steps], gpus)
        }
    return seconds


def _served(left: tuple[int, ...], chosen: Sequence[int]) -> tuple[int, ...]:
    return tuple(steps - (i in chosen) for i, steps in enumerate(left))


def total_completion_s(outcome: Outcome) -> float:
    return sum(record.jct_s for record in outcome.records.values())


@pytest.mark.parametrize("seed", range(25))
def test_srtf_is_optimal_on_one_gpu(seed: int) -> None:
    jobs = random_jobs(seed, count=6, latest_s=8)
    outcome = simulate(jobs, one_node(1), "srtf", event_driven=True)
    assert total_completion_s(outcome) == pytest.approx(least_total_completion_s(jobs, 1))


@pytest.mark.parametrize("seed", range(10))
def test_srtf_is_optimal_on_two_gpus_when_all_jobs_are_there(seed: int) -> None:
    """Shortest first on equal machines; with arrivals it is not optimal any more."""
    jobs = random_jobs(seed, count=5, latest_s=0)
    outcome = simulate(jobs, one_node(2), "srtf", event_driven=True)
    assert total_completion_s(outcome) == pytest.approx(least_total_completion_s(jobs, 2))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_beats_the_best_schedule(policy: str) -> None:
    """Gangs and arrivals on two GPUs: a simulator in which work is lost or done twice would."""
    for seed in range(4):
        jobs = random_jobs(seed, count=5, latest_s=5, gpus=(1, 1, 2))
        outcome = simulate(jobs, one_node(2), policy, event_driven=True)
        assert total_completion_s(outcome) >= least_total_completion_s(jobs, 2) - 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_the_makespan_policy_ends_as_early_as_the_best_schedule(seed: int) -> None:
    """Jobs of one GPU: shares without rounds reach what McNaughton's rule allows, rounds lose less than one round."""
    jobs = random_jobs(seed, count=6, latest_s=0)
    best_s = least_makespan_s(jobs, 2)
    shared = simulate(jobs, one_node(2), "makespan", ideal=True)
    in_rounds = simulate(jobs, one_node(2), "makespan", round_s=1.0)
    assert best_s - 1.0 < shared.summary.makespan_s <= best_s + 1e-6
    assert shared.summary.makespan_s == pytest.approx(max(*(j.steps for j in jobs), sum(j.steps for j in jobs) / 2))
    assert best_s - 1e-6 <= in_rounds.summary.makespan_s < best_s + 1.0 + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_rounds_of_gangs_are_no_shorter_than_the_best_schedule(seed: int) -> None:
    jobs = random_jobs(seed, count=5, latest_s=0, gpus=(1, 2))
    outcome = simulate(jobs, one_node(2), "makespan", round_s=1.0)
    assert outcome.summary.makespan_s >= least_makespan_s(jobs, 2) - 1e-6
