"""The index by score answers as plain counting would after any changes; PAL's shortcut ends where the walk does."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.core.cluster import Cluster, Node, Tier
from trine.core.job import Job
from trine.perf.bins import Bins
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement import scored as scored_module
from trine.placement.base import Ask
from trine.placement.free_index import FreePool
from trine.placement.pal import Pal
from trine.placement.scored import ScoredPool

SCORES = (0.9, 1.0, 1.3, 2.0)

clusters = st.builds(
    lambda sizes: Cluster(tuple(Node(f"n{i}", gpus, rack=f"r{rack}") for i, (gpus, rack) in enumerate(sizes))),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=8),
)


def shuffled(cluster: Cluster, data: st.DataObject) -> ScoredPool:
    """An index that has seen GPUs come and go, and looked at some of the changes only."""
    count = cluster.gpu_count
    bin_of = data.draw(st.lists(st.integers(0, len(SCORES) - 1), min_size=count, max_size=count))
    pool = FreePool(cluster, "gpu")
    index = ScoredPool(pool, Bins(tuple(bin_of), SCORES, (False,) * count))
    for gpus in data.draw(st.lists(st.sets(st.integers(0, count - 1), min_size=1), max_size=8)):
        pool.give([g for g in gpus if not pool.all_free([g])])
        pool.take(sorted(gpus))
        if data.draw(st.booleans()):
            index.refresh()
    index.refresh()
    return index


def gpus_up_to(index: ScoredPool, b: int) -> list[int]:
    return [g for g in index.pool.gpus() if index.bins.bin_of[g] <= b]


def lowest_bin(index: ScoredPool, count: int, unit_of: Sequence[int]) -> int:
    """The lowest bin such that one unit (node or rack, by GPU) has ``count`` free GPUs up to it."""
    for b in range(len(SCORES)):
        units = [unit_of[g] for g in gpus_up_to(index, b)]
        if any(units.count(unit) >= count for unit in units):
            return b
    return -1


@settings(derandomize=True, max_examples=150, deadline=None)
@given(clusters, st.data(), st.sampled_from([1, 2, 1 << 16]))
def test_counts_and_lowest_bins_are_those_of_the_free_gpus(
    cluster: Cluster, data: st.DataObject, steps_kept: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scored_module, "_STEPS_KEPT", steps_kept)
        index = shuffled(cluster, data)
    free = [index.bins.bin_of[g] for g in index.pool.gpus()]
    assert index.free_in_bin == [free.count(b) for b in range(len(SCORES))]
    assert [index.free_up_to(b) for b in range(4)] == [len(gpus_up_to(index, b)) for b in range(4)]
    rack_of = [cluster.rack_of[n] for n in cluster.node_of]
    for count in range(1, 8):
        assert index.node_bin_for(count) == lowest_bin(index, count, cluster.node_of)
        assert index.rack_bin_for(count) == lowest_bin(index, count, rack_of)
        if count <= len(free):
            assert index.worst_bin_for(count) == lowest_bin(index, count, [0] * cluster.gpu_count)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(clusters, st.data())
def test_best_gpus_come_from_the_nodes_that_the_gang_fills_best(cluster: Cluster, data: st.DataObject) -> None:
    index = shuffled(cluster, data)
    free, bin_of, node_of = index.pool.gpus(), index.bins.bin_of, cluster.node_of

    def co_runner_of(gpu: int) -> int:
        return sum(node_of[g] == node_of[gpu] and bin_of[g] == bin_of[gpu] for g in free)

    for count in range(1, len(free) + 1):
        best = sorted(free, key=lambda g: (bin_of[g], abs(co_runner_of(g) - count), g))
        assert index.by_score(count) == best[:count]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(clusters, st.data())
def test_the_rack_needs_the_fewest_nodes_then_is_the_tightest_then_the_first(
    cluster: Cluster, data: st.DataObject
) -> None:
    index = shuffled(cluster, data)
    count, b = data.draw(st.integers(2, 10)), data.draw(st.integers(0, len(SCORES) - 1))
    if len(cluster.racks) == 1:
        return
    keys = []
    for rack in range(len(cluster.racks)):
        nodes = [cluster.node_of[g] for g in gpus_up_to(index, b) if cluster.rack_of[cluster.node_of[g]] == rack]
        sizes = sorted((nodes.count(n) for n in set(nodes)), reverse=True)
        needed = next((k for k in range(1, len(sizes) + 1) if sum(sizes[:k]) >= count), 0)
        if needed:
            keys.append((needed, len(nodes), rack))
    found = index.in_one_rack(count, b)
    assert (found is None) == (not keys)
    if found is not None:
        assert len(set(found)) == count and set(found) <= set(gpus_up_to(index, b))
        assert {cluster.rack_of[cluster.node_of[g]] for g in found} == {min(keys)[2]}
        assert len({cluster.node_of[g] for g in found}) == min(keys)[0]


@settings(derandomize=True, max_examples=200, deadline=None)
@given(clusters, st.data(), st.booleans())
def test_pal_ends_where_a_walk_over_all_tiers_and_bins_ends(
    cluster: Cluster, data: st.DataObject, authors: bool
) -> None:
    """Any penalties, also ones that shrink with the distance."""
    count = cluster.gpu_count
    slow = data.draw(st.lists(st.sampled_from([0.9, 1.0, 1.3, 1.9, 3.0]), min_size=count, max_size=count))
    penalty = LocalityPenalty(1.0, *data.draw(st.tuples(*[st.sampled_from([0.8, 1.0, 1.3, 2.0])] * 2)))
    pal, pool = Pal(), FreePool(cluster, "gpu")
    pal.spans_nodes_by_score = authors
    pal.prepare(PerfModel(cluster, VariabilityTable(count, {"A": slow}), penalty), random.Random(0))
    pool.take(sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))))
    gang = data.draw(st.integers(1, pool.total))
    job = Job("j", 0.0, gang, 1.0, app_class="A")
    assert pal.place(Ask(job), pool) == walk(pal.scored(job, pool), gang, penalty, authors)


def walk(index: ScoredPool, gang: int, penalty: LocalityPenalty, authors: bool) -> list[int] | None:
    """Every entry of the L x V matrix in ascending product until one holds the gang."""
    if gang == 1 or (authors and gang > index.pool.largest_node):
        return index.by_score(gang)
    by_tier, several = penalty.by_tier(), len(index.racks) > 1 and not authors
    tiers = (Tier.NODE, Tier.RACK, Tier.NETWORK) if several else (Tier.NODE, Tier.RACK)
    for _, tier, b in sorted((by_tier[t] * score, t, b) for t in tiers for b, score in enumerate(index.bins.scores)):
        if tier is Tier.NODE:
            found = index.on_one_node(gang, b)
        elif authors:
            found = index.by_score(gang) if index.free_up_to(b) >= gang else None
        else:
            found = index.in_one_rack(gang, b) if tier is Tier.RACK else index.anywhere(gang, b)
        if found:
            return found
    return None
