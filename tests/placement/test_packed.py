"""Packed placement, rule by rule, then against the rules written down naively."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.placement.test_free_index import random_cluster
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.placement.base import Ask
from trine.placement.free_index import FreeIndex, FreePool
from trine.placement.packed import Packed


def pool_with(free_by_node: list[list[int]], gpus_per_node: int = 4) -> FreePool:
    """Equal nodes; the lists name the free GPUs of each, counted within the node."""
    pool = FreePool(Cluster.uniform(len(free_by_node), gpus_per_node), "gpu")
    free = {n * gpus_per_node + g for n, gpus in enumerate(free_by_node) for g in gpus}
    used = [g for g in range(len(free_by_node) * gpus_per_node) if g not in free]
    if used:
        pool.take(used)
    return pool


def placed(count: int, pool: FreePool) -> list[int]:
    found = Packed().place(Ask(Job("j", 0, count, 1)), pool)
    assert not isinstance(found, Reason)
    return found


def test_a_node_with_exactly_enough_goes_first_and_the_lowest_of_them() -> None:
    assert placed(2, pool_with([[0, 1, 2], [1, 3], [0, 2]])) == [5, 7]


def test_else_the_node_with_the_fewest_that_still_holds_the_gang() -> None:
    assert placed(2, pool_with([[0, 1, 2, 3], [3], [0, 2, 3]])) == [8, 10]


def test_ties_of_the_second_rule_go_to_the_lowest_node_and_its_lowest_gpus() -> None:
    assert placed(1, pool_with([[0, 1, 2, 3], [1, 2, 3], [0, 1, 2]])) == [5]


def test_a_gang_no_node_can_hold_takes_the_emptiest_nodes_in_turn() -> None:
    """6 of 2 + 4 + 3 + 4: all of node 1, then the two lowest of node 3; the nodes with fewer stay untouched."""
    assert placed(6, pool_with([[0, 3], [0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3]])) == [4, 5, 6, 7, 12, 13]


def test_the_last_node_of_a_spread_gang_is_the_emptiest_too_not_the_best_fit() -> None:
    """5 of 1 + 3 + 3: after node 1 two are missing; node 2 has most, although node 0 would leave fewer fragments."""
    assert placed(5, pool_with([[2], [0, 1, 2], [1, 2, 3]])) == [4, 5, 6, 9, 10]


def test_a_gang_smaller_than_a_node_is_spread_if_it_has_to_be() -> None:
    assert placed(3, pool_with([[0], [1, 2], [3]])) == [5, 6, 0]


def test_too_few_is_a_reason_with_the_counts_and_takes_nothing() -> None:
    pool = pool_with([[0], [1, 2], []])
    found = Packed().place(Ask(Job("j", 0, 4, 1)), pool)
    assert isinstance(found, Reason)
    assert (found.code, found.counts) == (Why.NO_FREE_GPUS, {"needed": 4, "free": 3})
    assert "1 more" in str(found)
    assert pool.total == 3


def naive(count: int, free: list[int], cluster: Cluster) -> list[int] | None:
    """The rules (a) to (d) word by word, racks first where there are several."""
    by_node: dict[int, list[int]] = {}
    for g in free:
        by_node.setdefault(cluster.node_of[g], []).append(g)
    for node in sorted(by_node):
        if len(by_node[node]) == count:
            return by_node[node]
    roomy = [n for n in sorted(by_node) if len(by_node[n]) >= count]
    if roomy:
        return by_node[min(roomy, key=lambda n: (len(by_node[n]), n))][:count]
    if len(free) < count:
        return None
    racks: dict[int, list[int]] = {}
    for g in free:
        racks.setdefault(cluster.rack_of[cluster.node_of[g]], []).append(g)
    racks = dict(sorted(racks.items()))
    chosen: list[int] = []
    while len(chosen) < count:
        missing = count - len(chosen)
        roomy = [rack for rack, gpus in racks.items() if len(gpus) >= missing]
        if roomy:
            rack = min(roomy, key=lambda r: (len(nodes_in_turn(missing, racks[r], cluster)), len(racks[r]), r))
        else:
            rack = min(racks, key=lambda r: (-len(racks[r]), r))
        in_rack = racks.pop(rack)
        for node in nodes_in_turn(min(missing, len(in_rack)), in_rack, cluster):
            chosen += [g for g in in_rack if cluster.node_of[g] == node][: count - len(chosen)]
    return chosen


def nodes_in_turn(count: int, free: list[int], cluster: Cluster) -> list[int]:
    """The nodes with most free GPUs first, until they hold ``count``."""
    sizes = Counter(cluster.node_of[g] for g in free)
    nodes: list[int] = []
    while sum(sizes[n] for n in nodes) < count:
        nodes.append(min((n for n in sizes if n not in nodes), key=lambda n: (-sizes[n], n)))
    return nodes


@pytest.mark.parametrize("seed", range(40))
def test_the_rules_on_uneven_clusters_of_several_types(seed: int) -> None:
    rng = random.Random(seed)
    cluster = random_cluster(rng)
    for pool in FreeIndex(cluster).pools:
        used = rng.sample(pool.gpus(), rng.randint(0, pool.total))
        if used:
            pool.take(used)
        for count in range(1, pool.capacity + 1):
            found = Packed().place(Ask(Job("j", 0, count, 1)), pool)
            expected = naive(count, pool.gpus(), cluster)
            if expected is None:
                assert isinstance(found, Reason)
            else:
                assert found == expected


def test_a_gang_that_leaves_a_node_stays_in_one_rack_if_one_has_room() -> None:
    cluster = Cluster((Node("a", 2, rack="r0"), Node("b", 2, rack="r1"), Node("c", 2, rack="r0")))
    assert placed(4, FreePool(cluster, "gpu")) == [0, 1, 4, 5]


def test_it_takes_the_rack_with_the_fewest_nodes_then_the_tightest() -> None:
    """Racks of 2 nodes: r0 has 2 + 1, r1 has 3 + 3, r2 has 3 + 1 free: 4 GPUs take two nodes of r2, 3 one node."""
    cluster = Cluster.uniform(6, 3, nodes_per_rack=2)
    pool = FreePool(cluster, "gpu")
    pool.take([2, 4, 5, 16, 17])
    assert placed(4, pool) == [12, 13, 14, 15]
    assert placed(3, pool) == [6, 7, 8]


def test_a_gang_larger_than_a_rack_takes_as_few_racks_as_can_be() -> None:
    """Racks with 3, 4 and 2 GPUs free: 6 take the rack with 4, then the one with 2 that it fills."""
    cluster = Cluster.uniform(6, 2, nodes_per_rack=2)
    pool = FreePool(cluster, "gpu")
    pool.take([0, 8, 9])
    assert placed(6, pool) == [4, 5, 6, 7, 10, 11]
