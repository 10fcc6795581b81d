"""Scores of single GPUs learnt from jobs, and the flag on GPUs that no longer run as profiled."""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perf.learning.test_observations import World, flat, observe
from trine.core.cluster import Tier
from trine.perf.learning.observations import Observations
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable

A_DAY_S = 86400.0


@given(seed=st.integers(0, 10_000), gpus=st.sampled_from([8, 24]))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_without_a_profile_slowdowns_are_learnt_within_eight_percent(seed: int, gpus: int) -> None:
    world = World(gpus, seed, slow={1: 1.3})
    seen = flat(gpus)
    world.run_single(seen, 40 * gpus)
    found = seen.refined().slowdown("A")
    errors = [math.log(found[g] / world.slowdown[g]) for g in range(gpus)]
    assert max(map(abs, errors)) < 0.08
    assert abs(median(errors)) < 0.06  # between the two middle ones of 8 GPUs there is a gap


@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None, derandomize=True)
def test_a_right_profile_stays_right_within_five_percent(seed: int) -> None:
    world = World(16, seed)
    seen = Observations(world.profile())
    world.run_single(seen, 400)
    found = seen.refined().slowdown("A")
    assert max(abs(math.log(found[g] / world.slowdown[g])) for g in range(16)) < 0.05


@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None, derandomize=True)
def test_the_order_of_observations_hardly_matters(seed: int) -> None:
    world = World(8, seed, one_offs=0.0)
    rng = random.Random(seed)
    runs = [(gpu, world.rate("resnet", (gpu,), Tier.GPU)) for gpu in range(8) for _ in range(16)]
    tables = []
    for _ in range(2):
        rng.shuffle(runs)
        seen = flat(8)
        for i, (gpu, rate) in enumerate(runs):
            observe(seen, gpu, rate, at_s=60.0 * i)
        tables.append(seen.refined().slowdown("A"))
    assert tables[0] == pytest.approx(tables[1], rel=0.05)


def test_one_off_slow_runs_do_not_move_an_estimate() -> None:
    tables = []
    for one_offs in (0.0, 3.6):
        world = World(8, seed=2, chip_sd=0.03, one_offs=0.0)
        seen = flat(8)
        for i in range(400):
            wild = one_offs if one_offs and i % 13 == 0 else 1.0
            observe(seen, i % 8, world.rate("resnet", (i % 8,), Tier.GPU) / wild, at_s=60.0 * i)
        assert seen.drifts() == []
        tables.append(seen.refined().slowdown("A"))
    assert tables[0] == pytest.approx(tables[1], rel=0.02)


def test_the_profile_stands_until_there_are_enough_runs() -> None:
    base = VariabilityTable(4, {"A": (1.0, 1.0, 1.0, 1.1), "B": (1.0, 1.0, 1.0, 1.05)})
    seen = Observations(base)
    for gpu in range(3):
        observe(seen, gpu, at_s=gpu)
    for i in range(2):
        observe(seen, 3, 0.5, at_s=10.0 + i)
    assert seen.refined() is base
    observe(seen, 3, 0.5, at_s=20.0)
    refined = seen.refined()
    assert 1.1 < refined.slowdown("A")[3] < 2.0
    assert refined.slowdown("B") == base.slowdown("B")


def test_two_gpus_alone_cannot_tell_which_of_them_is_slow() -> None:
    seen = flat(2)
    for i in range(40):
        observe(seen, i % 2, 1.0 if i % 2 else 0.7, at_s=float(i))
    assert seen.refined().slowdown("A") == [1.0, 1.0]
    assert seen.drifts() == []


def test_another_program_of_the_same_name_is_not_a_slow_gpu() -> None:
    seen = flat(4)
    for i in range(60):
        observe(seen, i % 4, 0.01 if i % 4 == 3 else 1.0, at_s=float(i))
    assert seen.refined().slowdown("A") == pytest.approx([1.0] * 4, rel=1e-3)
    assert seen.drifts() == []


def test_old_observations_fade() -> None:
    seen = flat(4)
    for i in range(40):
        observe(seen, i % 4, 0.7 if i % 4 == 3 else 1.0, at_s=100.0 * i)
    before = seen.refined().slowdown("A")[3]
    for i in range(16):
        observe(seen, i % 4, 1.0, at_s=60 * A_DAY_S + 100.0 * i)
    assert before > 1.3
    assert seen.refined().slowdown("A")[3] == pytest.approx(1.0, abs=0.02)


def test_a_class_the_profile_does_not_know_counts_as_its_most_sensitive_one() -> None:
    seen = Observations(VariabilityTable(3, {"A": (1.0, 1.0, 1.0), "B": (1.0, 1.0, 1.0)}))
    for i in range(60):
        observe(seen, i % 3, 0.8 if i % 3 == 1 else 1.0, at_s=float(i), app_class="")
    refined = seen.refined()
    assert refined.slowdown("A")[1] > 1.15
    assert refined.slowdown("B") == [1.0, 1.0, 1.0]


def test_a_gang_is_only_as_fast_as_its_slowest_chip_and_the_slow_chip_is_found() -> None:
    world = World(16, seed=4, chip_sd=0.02)
    world.slowdown[5] = 1.35
    seen = flat(16)
    world.run_gangs(seen, 600, 4)
    found = seen.refined().slowdown("A")
    assert found[5] == pytest.approx(1.35, rel=0.08)
    assert max(found[:5] + found[6:]) < 1.08
    assert [d.gpu for d in seen.drifts()] == [5]


def test_gpus_that_always_run_together_are_suspects_and_not_blamed() -> None:
    world = World(8, seed=6, chip_sd=0.0, one_offs=0.0)
    world.slowdown[0] = 1.4
    seen = flat(8)
    for _ in range(40):
        for pair in ((0, 1), (2, 3), (4, 5), (6, 7)):
            world.run(seen, pair, tier=Tier.NODE)
    assert seen.refined().slowdown("A") == [1.0] * 8
    assert [seen.chips.by_class["A"][gpu].weak_runs > 20 for gpu in range(8)] == [True, True] + [False] * 6
    for _ in range(12):
        for gpu in (1, 2, 3):
            world.run(seen, (gpu,))  # alone, one of the suspects turns out to be fast
        world.run(seen, (0, 1), tier=Tier.NODE)
    assert [d.gpu for d in seen.drifts()] == [0]


def test_a_fast_gang_clears_a_gpu_believed_slow() -> None:
    world = World(8, seed=8, chip_sd=0.0)
    profile = VariabilityTable(8, {"A": (1.5, *[1.0] * 7)})
    seen = Observations(profile)
    world.run_gangs(seen, 200, 2)
    assert seen.refined().slowdown("A")[0] < 1.15
    (drift,) = seen.drifts()
    assert (drift.gpu, drift.slower) == (0, False)


@pytest.mark.parametrize("seed", range(4))
def test_a_gpu_that_becomes_slower_is_flagged_within_ten_runs_and_unflagged_when_it_recovers(seed: int) -> None:
    world = World(12, seed)
    seen = Observations(world.profile())
    world.run_single(seen, 360)
    assert seen.drifts() == []
    healthy = world.slowdown[7]
    world.slowdown[7] *= 1.4
    began_s = world.at_s
    assert _own_runs_until(world, seen, flagged=True) <= 10
    (drift,) = seen.drifts()
    assert (drift.gpu, drift.app_class, drift.slower) == (7, "A", True)
    assert drift.slowdown == pytest.approx(1.4 * healthy, rel=0.06)
    assert drift.since_s > began_s - 1500.0
    world.slowdown[7] = healthy
    assert _own_runs_until(world, seen, flagged=False) <= 10


def _own_runs_until(world: World, seen: Observations, flagged: bool) -> int:
    """Runs on GPU 7 until the flag is as asked, while the others run, too."""
    runs = 0
    while bool(seen.drifts()) != flagged and runs < 50:
        gpu = world.rng.randrange(world.gpus)
        world.run(seen, (gpu,))
        runs += gpu == 7
    return runs


@pytest.mark.parametrize("noise", [0.02, 0.03])
@pytest.mark.parametrize("seed", range(3))
def test_no_false_flag_in_a_thousand_healthy_runs(seed: int, noise: float) -> None:
    world = World(16, seed, noise=noise)
    seen = Observations(world.profile())
    for _ in range(1000):
        world.run_single(seen, 1)
        assert seen.drifts() == []


def test_one_long_slow_run_is_not_drift() -> None:
    seen = flat(4)
    for i in range(80):
        observe(seen, i % 4, at_s=100.0 * i)
    for hour in range(72):
        observe(seen, 2, 0.5, at_s=10_000.0 + 3600.0 * hour, seconds=3600.0, run="job-9/1")
    assert seen.drifts() == []
    for i in range(16):
        observe(seen, i % 4, at_s=400_000.0 + 100.0 * i)
    assert seen.drifts() == []


def test_the_flag_is_a_sentence_with_its_numbers() -> None:
    seen = Observations(VariabilityTable(4, {"A": (1.0, 1.02, 1.0, 1.0)}))
    for i in range(48):
        observe(seen, i % 4, 1 / 1.31 if i % 4 == 1 else 1.0, at_s=1.7e9 + 100.0 * i)
    (drift,) = seen.drifts()
    assert drift.sentence("node2:1") == (
        "GPU node2:1 ran 11 jobs of class A 1.31x slower than its type's median since 2023-11-14 22:21 UTC, "
        "profile says 1.02"
    )


def test_a_new_profile_settles_the_flag() -> None:
    seen = flat(4)
    for i in range(48):
        observe(seen, i % 4, 1 / 1.3 if i % 4 == 1 else 1.0, at_s=100.0 * i)
    assert [d.gpu for d in seen.drifts()] == [1]
    token = seen.token
    seen.rebase(VariabilityTable(4, {"A": (1.0, 1.3, 1.0, 1.0)}))
    assert seen.drifts() == []
    assert seen.changed_materially_since(token)
    assert seen.refined().slowdown("A")[1] == pytest.approx(1.3, rel=0.01)
    with pytest.raises(ValueError, match="5 GPUs for 4"):
        seen.rebase(VariabilityTable.flat(5))


def test_measured_runs_with_one_offs_of_3_6x_flag_no_gpu(shared_data: Path) -> None:
    path = shared_data / "hardware/pal_gpu_variability/longhorn/resnet-longhorn-agg.csv.gz"
    with gzip.open(path, "rt") as lines:
        rows = sorted((float(r["ts"]), r["uuid"], float(r["perf"])) for r in csv.DictReader(lines))
    names = sorted({uuid for _, uuid, _ in rows})
    times = defaultdict(list)
    for _, uuid, perf in rows:
        times[uuid].append(perf)
    middle = median(perf for _, _, perf in rows)
    own = [median(times[uuid]) / middle for uuid in names]
    assert max(perf / median(times[uuid]) for _, uuid, perf in rows) > 3.5
    for profile in (VariabilityTable.flat(len(names)), VariabilityTable(len(names), {"A": own})):
        seen = Observations(profile)
        for at_s, uuid, perf in rows:
            observe(seen, names.index(uuid), 1000.0 / perf, at_s=at_s)
        assert [names[d.gpu] for d in seen.drifts() if own[d.gpu] < 1.08] == []
        refined = seen.refined().slowdown("A")
        assert max(refined) < 1.15
        assert seen.throughputs(ThroughputTable()).rate("m", 1, "v100") == pytest.approx(1000.0 / middle, rel=0.02)
