"""PAL and PM-First: the chosen GPUs are the best there are, and slow chips go to those who do not mind."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.reason import Reason
from trine.engine.engine import Engine
from trine.engine.events import Decision, Start, Submitted, Tick
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.base import Ask, Placement
from trine.placement.exclude_outliers import ExcludeOutliers
from trine.placement.free_index import FreePool
from trine.placement.pal import Pal
from trine.placement.pm_first import PmFirst
from trine.policy.fifo import Fifo


def prepared(
    placement: Placement, cluster: Cluster, slow: dict[str, list[float]], penalty: LocalityPenalty
) -> PerfModel:
    perf = PerfModel(cluster, VariabilityTable(cluster.gpu_count, slow), penalty)
    placement.prepare(perf, random.Random(0))
    return perf


def job(gpus: int, app_class: str = "A", name: str = "j", submit_s: float = 0.0) -> Job:
    return Job(name, submit_s, gpus, 1000.0, 1.0, app_class=app_class)


clusters = st.builds(
    lambda sizes: Cluster(tuple(Node(f"n{i}", gpus, rack=f"r{rack}") for i, (gpus, rack) in enumerate(sizes))),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=5),
)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(clusters, st.data())
def test_pal_minimises_tier_penalty_times_worst_score(cluster: Cluster, data: st.DataObject) -> None:
    """Against all subsets of the free GPUs. Penalties grow with the tier, as in any real network."""
    count = cluster.gpu_count
    slow = data.draw(st.lists(st.sampled_from([0.9, 1.0, 1.05, 1.2, 1.9, 3.0]), min_size=count, max_size=count))
    rack = data.draw(st.sampled_from([1.0, 1.1, 1.7, 2.5]))
    penalty = LocalityPenalty(1.0, rack, rack * data.draw(st.sampled_from([1.0, 1.3, 2.0])))
    placement = Pal()
    prepared(placement, cluster, {"A": slow}, penalty)
    pool = FreePool(cluster, "gpu")
    taken = data.draw(st.sets(st.sampled_from(range(count)), max_size=count - 1))
    pool.take(sorted(taken))
    free = pool.gpus()
    gang = data.draw(st.integers(1, len(free)))
    scored = placement.scored(job(gang), pool)

    def product(gpus: tuple[int, ...]) -> float:
        return penalty.by_tier()[cluster.tier(gpus)] * max(scored.bins.scores[scored.bins.bin_of[g]] for g in gpus)

    chosen = placement.place(Ask(job(gang)), pool)
    assert not isinstance(chosen, Reason)
    assert len(set(chosen)) == gang
    assert set(chosen) <= set(free)
    assert product(tuple(sorted(chosen))) == pytest.approx(min(product(c) for c in combinations(free, gang)), rel=1e-12)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_wide_gangs_span_as_few_nodes_as_the_best_product_allows(sizes: list[int], data: st.DataObject) -> None:
    cluster = Cluster(tuple(Node(f"n{i}", gpus) for i, gpus in enumerate(sizes)))
    count = cluster.gpu_count
    slow = data.draw(st.lists(st.sampled_from([1.0, 1.3, 2.0]), min_size=count, max_size=count))
    placement = Pal()
    prepared(placement, cluster, {"A": slow}, LocalityPenalty(1.0, 1.5, 1.5))
    pool = FreePool(cluster, "gpu")
    gang = data.draw(st.integers(1, count))
    chosen = placement.place(Ask(job(gang)), pool)
    assert not isinstance(chosen, Reason)
    if gang <= pool.largest_node:
        return
    bins = placement.scored(job(gang), pool).bins
    worst = max(bins.bin_of[g] for g in chosen)
    eligible = [g for g in range(count) if bins.bin_of[g] <= worst]
    per_node = sorted((sum(cluster.node_of[g] == n for g in eligible) for n in range(len(cluster.nodes))), reverse=True)
    needed = next(k for k in range(1, len(per_node) + 1) if sum(per_node[:k]) >= gang)
    assert len({cluster.node_of[g] for g in chosen}) == needed


@settings(derandomize=True, max_examples=200, deadline=None)
@given(clusters, st.data())
def test_the_index_agrees_with_a_fresh_one_after_any_changes(cluster: Cluster, data: st.DataObject) -> None:
    count = cluster.gpu_count
    slow = data.draw(st.lists(st.sampled_from([0.95, 1.0, 1.1, 2.0]), min_size=count, max_size=count))
    placement, pool = Pal(), FreePool(cluster, "gpu")
    prepared(placement, cluster, {"A": slow}, LocalityPenalty(1.0, 1.4, 1.8))
    for gpu in data.draw(st.lists(st.integers(0, count - 1), max_size=20)):
        if pool.all_free([gpu]):
            pool.take([gpu])
        else:
            pool.give([gpu])
        if data.draw(st.booleans()):
            placement.scored(job(1), pool)
    if not pool.total:
        return
    gang = data.draw(st.integers(1, pool.total))
    fresh = Pal()
    prepared(fresh, cluster, {"A": slow}, LocalityPenalty(1.0, 1.4, 1.8))
    assert placement.place(Ask(job(gang)), pool) == fresh.place(Ask(job(gang)), pool)


def slow_gpu(at: int, gpus: int = 16, factor: float = 2.0) -> dict[str, list[float]]:
    """One GPU that is slow for class A and not for class D."""
    return {"A": [factor if g == at else 1.0 for g in range(gpus)], "D": [1.0] * gpus}


def start_all(engine: Engine, jobs: list[Job]) -> dict[str, tuple[Start, str]]:
    for each in jobs:
        engine.handle(Submitted(0.0, each))
    decisions: list[Decision] = engine.handle(Tick(0.0))
    return {engine.table.jobs[d.job_index].id: (d, str(engine.reason(d))) for d in decisions if isinstance(d, Start)}


@pytest.mark.parametrize("placement", [Pal(), PmFirst()], ids=lambda p: p.name)
def test_a_slow_gpu_is_left_to_a_job_that_does_not_mind(placement: Placement) -> None:
    cluster = Cluster.uniform(4, 4)
    perf = prepared(placement, cluster, slow_gpu(at=5), LocalityPenalty(1.0, 1.2, 1.2))
    engine = Engine(cluster, Fifo(), placement, perf)
    jobs = [job(4, "D", "insensitive"), job(4, "A", "first"), job(4, "A", "second"), job(4, "A", "third")]
    started = start_all(engine, jobs)
    for name in ("first", "second", "third"):
        assert 5 not in started[name][0].gpus
        assert "score 1.000" in started[name][1]
    # Class A chooses first although the insensitive job is ahead in the queue; that one gets the slow GPU.
    assert 5 in started["insensitive"][0].gpus


def test_the_reason_says_which_gpus_were_left_aside() -> None:
    placement = Pal()
    cluster = Cluster.uniform(2, 4)
    perf = prepared(placement, cluster, slow_gpu(at=0, gpus=8), LocalityPenalty(1.0, 1.2, 1.2))
    started = start_all(Engine(cluster, Fifo(), placement, perf), [job(4, "A", "wide")])
    assert "1 slower free GPU (up to 2.000) left aside" in started["wide"][1]


def test_a_moderate_outlier_is_worth_less_than_locality_and_a_bad_one_more() -> None:
    """Node 0 holds a slow chip, node 1 has three free GPUs: stay in node 0 while that costs less than spreading."""
    for factor, expected_nodes in ((1.3, 1), (2.5, 2)):
        placement = Pal()
        cluster = Cluster.uniform(2, 4)
        prepared(placement, cluster, slow_gpu(0, 8, factor), LocalityPenalty(1.0, 1.7, 1.7))
        pool = FreePool(cluster, "gpu")
        pool.take([7])
        chosen = placement.place(Ask(job(4)), pool)
        assert not isinstance(chosen, Reason)
        assert len({cluster.node_of[g] for g in chosen}) == expected_nodes


def test_penalties_may_differ_by_class() -> None:
    """Class A hardly minds a spread gang, class D does: only A leaves the node with the slow chip."""
    penalty = LocalityPenalty(1.0, 1.7, 1.7, {"A": (1.05, 1.05)})
    for app_class, expected_nodes in (("A", 2), ("D", 1)):
        placement = Pal()
        cluster = Cluster.uniform(2, 4)
        slow = [1.3 if g == 0 else 1.0 for g in range(8)]
        perf = prepared(placement, cluster, {"A": slow, "D": slow}, penalty)
        pool = FreePool(cluster, "gpu")
        pool.take([7])
        chosen = placement.place(Ask(job(4, app_class)), pool)
        assert not isinstance(chosen, Reason)
        assert len({cluster.node_of[g] for g in chosen}) == expected_nodes
        assert perf.speed(job(4, app_class), chosen).network == (1.05 if app_class == "A" else 1.0)


def test_a_job_moves_only_if_the_gain_over_its_remaining_work_exceeds_the_cost() -> None:
    """A gang of four on a slow chip could move to a free good node: it does for a cheap move, not for a dear one."""
    from tests.placement.moving import finish_times

    assert finish_times(migration_s=30.0)["long"] < finish_times(migration_s=10_000.0)["long"]
    assert finish_times(migration_s=30.0, want="migrations")["long"] == 1
    assert finish_times(migration_s=10_000.0, want="migrations")["long"] == 0


def test_exclude_outliers_never_uses_the_slow_gpu() -> None:
    placement = ExcludeOutliers()
    cluster = Cluster.uniform(4, 4)
    perf = prepared(placement, cluster, slow_gpu(at=0), LocalityPenalty())
    assert placement.excluded() == {0}
    engine = Engine(cluster, Fifo(), placement, perf)
    started = start_all(engine, [job(5, name=f"j{i}") for i in range(3)])
    assert sum(len(s.gpus) for s, _ in started.values()) == 15
    assert all(0 not in s.gpus for s, _ in started.values())
