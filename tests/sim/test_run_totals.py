"""Totals of many runs at once are those of one run after the other, to the last bit."""

import random

import pytest

from trine.core.cluster import Tier
from trine.inputs.cluster import load_cluster
from trine.sim.run_totals import RUN_PART, RunTotals, WorkParts

CLUSTER = load_cluster("v100=2x4,p100=2x4")
Part = tuple[int, float, float, int, float, float, float, float, float, float, int]


def drawn(count: int) -> list[Part]:
    """Parts of runs of nine jobs, some of them without kept steps, some where communication hides the chip."""
    draw = random.Random(7)
    return [
        (
            draw.randrange(9),
            draw.uniform(1, 1e5),
            draw.uniform(1, 1e6),
            draw.randrange(16),
            draw.uniform(0, 1e4),
            draw.uniform(-1, 1e3),
            draw.uniform(0.01, 10),
            draw.choice((1.0, 1.3)),
            draw.choice((0.9, 1.0, 2.5)),
            draw.choice((1.0, 1.7)),
            draw.choice(list(Tier)).value,
        )
        for _ in range(count)
    ]


def one_by_one(parts: list[Part]) -> tuple[float, dict[str, float], list[float], list[list[float]]]:
    busy, by_type, by_tier, work = 0.0, dict[str, float](), [0.0] * len(Tier), [[0.0] * 5 for _ in range(10)]
    for job, ideal_s, job_steps, gpu, gpu_s, steps, rate, chip, network, sharing, tier in parts:
        gpu_type = CLUSTER.type_of(gpu)
        busy += gpu_s
        by_type[gpu_type] = by_type.get(gpu_type, 0.0) + gpu_s
        by_tier[tier] += gpu_s
        if steps <= 0:
            continue
        if network < 1.0 < chip:
            chip, network = max(1.0, chip * network), chip * network / max(1.0, chip * network)
        work_s, kept_s = steps / rate, steps * ideal_s / job_steps
        on_type_s = work_s / (chip * network * sharing)
        found = (work_s, kept_s, on_type_s - kept_s, on_type_s * (chip - 1), on_type_s * chip * (network - 1))
        work[job] = [total + part for total, part in zip(work[job], found, strict=True)]
    return busy, by_type, by_tier, work


@pytest.mark.parametrize("at_once", [1, 7, 500])
def test_how_many_runs_are_added_at_once_makes_no_difference(at_once: int) -> None:
    parts, totals = drawn(500), RunTotals(CLUSTER)
    for first in range(0, len(parts), at_once):
        totals.add([number for part in parts[first : first + at_once] for number in part])
    busy, by_type, by_tier, work = one_by_one(parts)
    assert all(len(part) == RUN_PART for part in parts)
    assert (totals.busy_gpu_s, totals.busy_by_type, totals.held_by_tier) == (busy, by_type, by_tier)
    assert list(totals.work_parts(10)) == [WorkParts(*parts_s) if parts_s[0] else None for parts_s in work]


def test_the_parts_of_a_jobs_work_add_up_to_it_where_it_ran_alone() -> None:
    totals = RunTotals(CLUSTER)
    totals.add([0, 100.0, 50.0, 0, 80.0, 10.0, 0.25, 1.25, 1.6, 1.0, 2])
    (work,) = totals.work_parts(1)
    assert work is not None
    assert work == pytest.approx((40.0, 20.0, 0.0, 5.0, 15.0))
