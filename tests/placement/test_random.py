"""Random placement: every set of free GPUs has the same chance, and a seed gives the same draws again."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest
from scipy.stats import chisquare

from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.perf.model import PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.base import Ask
from trine.placement.free_index import FreePool
from trine.placement.random import Random

CLUSTER = Cluster((Node("a", 4), Node("b", 1), Node("c", 2)))


def seeded(seed: int) -> Random:
    placement = Random()
    placement.prepare(PerfModel(CLUSTER, VariabilityTable.flat(CLUSTER.gpu_count)), random.Random(seed))
    return placement


def draws(seed: int, count: int, times: int, pool: FreePool) -> list[tuple[int, ...]]:
    placement, job = seeded(seed), Job("j", 0, count, 1)
    found = [placement.place(Ask(job), pool) for _ in range(times)]
    return [tuple(gpus) for gpus in found if not isinstance(gpus, Reason)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_set_of_free_gpus_has_the_same_chance(count: int) -> None:
    """GPUs 1 and 4 are taken; 3,000 draws over the sets of the other five, tested by chi-square."""
    pool = FreePool(CLUSTER, "gpu")
    pool.take([1, 4])
    sets = list(combinations([0, 2, 3, 5, 6], count))
    seen = Counter(draws(7, count, 3000, pool))
    assert set(seen) <= set(sets)
    assert chisquare([seen[s] for s in sets]).pvalue > 0.01


def test_a_seed_gives_the_same_draws_and_another_one_others() -> None:
    pool = FreePool(CLUSTER, "gpu")
    assert draws(1, 3, 50, pool) == draws(1, 3, 50, pool)
    assert draws(1, 3, 50, pool) != draws(2, 3, 50, pool)


def test_the_way_the_pool_came_about_does_not_matter() -> None:
    one, other = FreePool(CLUSTER, "gpu"), FreePool(CLUSTER, "gpu")
    one.take([0, 5])
    for gpus in ([5], [2, 3], [0, 6]):
        other.take(gpus)
    for gpus in ([3], [6, 2]):
        other.give(gpus)
    assert draws(3, 2, 50, one) == draws(3, 2, 50, other)


def test_too_few_is_a_reason() -> None:
    found = seeded(0).place(Ask(Job("j", 0, 8, 1)), FreePool(CLUSTER, "gpu"))
    assert isinstance(found, Reason)
    assert found.code is Why.NO_FREE_GPUS
