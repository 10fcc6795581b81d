"""The index of free GPUs against a plain set of numbers, over random clusters and random comings and goings."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.placement.base import Ask
from trine.placement.free_index import FreeIndex, FreePool
from trine.placement.packed import Packed


def random_cluster(rng: random.Random) -> Cluster:
    """Uneven nodes of up to three types, interleaved."""
    nodes = rng.randint(1, 9)
    kinds = ("x", "y", "z")[: rng.randint(1, 3)]
    return Cluster(
        tuple(Node(f"n{i}", rng.choice((1, 2, 3, 4, 8)), rng.choice(kinds), f"r{i % 2}") for i in range(nodes))
    )


def assert_same(pool: FreePool, cluster: Cluster, free: set[int]) -> None:
    """Everything the pool says, worked out anew from the set of free GPU ids."""
    mine = sorted(g for g in free if cluster.type_of(g) == pool.gpu_type)
    assert pool.total == len(mine)
    assert pool.gpus() == mine
    by_node: dict[int, list[int]] = {}
    for g in mine:
        by_node.setdefault(cluster.node_of[g], []).append(g)
    assert list(pool.nodes_by_most_free()) == sorted(by_node, key=lambda n: (-len(by_node[n]), n))
    for node, gpus in by_node.items():
        for count in range(len(gpus) + 1):
            assert pool.lowest(node, count) == gpus[:count]
    for count in range(1, pool.largest_node + 1):
        listed = [n for n in range(len(cluster.nodes)) if pool.nodes_with[count] >> n & 1]
        assert listed == [n for n in sorted(by_node) if len(by_node[n]) == count]


def comings_and_goings(rng: random.Random, index: FreeIndex, free: set[int]) -> Iterator[None]:
    held: list[list[int]] = []
    for _ in range(40):
        pool = rng.choice(index.pools)
        if pool.total and rng.random() < 0.6:
            gang = rng.sample(pool.gpus(), rng.randint(1, pool.total))
            index.take(gang)
            free -= set(gang)
            held.append(gang)
        elif held:
            gang = held.pop(rng.randrange(len(held)))
            index.give(gang)
            free |= set(gang)
        yield


@pytest.mark.parametrize("seed", range(25))
def test_the_index_says_what_a_plain_set_says(seed: int) -> None:
    rng = random.Random(seed)
    cluster = random_cluster(rng)
    index, free = FreeIndex(cluster), set(range(cluster.gpu_count))
    for _ in comings_and_goings(rng, index, free):
        assert index.total == len(free)
        for pool in index.pools:
            assert_same(pool, cluster, free)


def test_pools_are_the_types_of_the_cluster_in_order() -> None:
    cluster = Cluster((Node("a", 2, "y"), Node("b", 3, "x"), Node("c", 1, "y")))
    index = FreeIndex(cluster)
    assert [(p.gpu_type, p.capacity, p.gpus()) for p in index.pools] == [("y", 3, [0, 1, 5]), ("x", 3, [2, 3, 4])]
    assert [index.type_of([g]) for g in range(6)] == [0, 0, 1, 1, 1, 0]


def test_taking_or_giving_twice_is_caught_and_changes_nothing() -> None:
    pool = FreePool(Cluster.uniform(2, 2), "gpu")
    pool.take([0, 1])
    with pytest.raises(AssertionError, match="taken twice"):
        pool.take([1])
    with pytest.raises(AssertionError, match="freed twice"):
        pool.give([2])
    assert pool.gpus() == [2, 3]
    pool.give([1, 0])
    assert pool.gpus() == [0, 1, 2, 3]


def test_files_that_import_the_earlier_name_go_on_working() -> None:
    with pytest.warns(FutureWarning, match="called trine.placement.free_index now"):
        from trine.placement.free import FreePool as Earlier
    assert Earlier is FreePool


@pytest.mark.parametrize("racks", [1, 2])
@pytest.mark.parametrize("cordoned", [False, True])
def test_one_gpu_is_taken_and_given_as_packed_placement_and_the_index_would(racks: int, cordoned: bool) -> None:
    cluster = Cluster(tuple(Node(f"n{i}", 1 + i % 4, "v100", f"r{i % racks}") for i in range(12)))
    rng, held = random.Random(racks), list[int]()
    quick, plain = FreeIndex(cluster), FreeIndex(cluster)
    for index in (quick, plain):
        if cordoned:
            index.cordon(5)
    for _ in range(400):
        if held and (rng.random() < 0.45 or not plain.total):
            gpu = held.pop(rng.randrange(len(held)))
            plain.give((gpu,))
            quick.pools[0].give_one(gpu)
        else:
            chosen = Packed().place(Ask(Job("j", 0.0, 1, 1.0)), plain.pools[0])
            assert chosen == [quick.pools[0].take_one()]
            plain.take(chosen)
            held += chosen
        assert quick.pools[0].free_on == plain.pools[0].free_on and quick.total == plain.total
        assert quick.pools[0].nodes_with == plain.pools[0].nodes_with
    with pytest.raises(AssertionError, match="freed twice"):
        for gpu in (held[0], held[0]):
            quick.pools[0].give_one(gpu)
