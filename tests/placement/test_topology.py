"""Shapes: whatever the placement, GPUs lie as asked or the job waits; where there is room for a shape it is found."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from trine.core.cluster import Cluster, Node, Tier
from trine.core.job import Job, Shape
from trine.core.reason import Reason, Why
from trine.perf.model import PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.base import Ask
from trine.placement.free_index import FreePool
from trine.placement.packed import Packed
from trine.placement.pal import Pal
from trine.placement.topology import never_has_shape, shaped

CLUSTER = Cluster(
    (Node("n0", 3, rack="r0"), Node("n1", 2, rack="r0"), Node("n2", 4, rack="r1"), Node("n3", 2, rack="r1"))
)
TIERS = st.sampled_from((None, Tier.NODE, Tier.RACK, Tier.NETWORK))
shapes = st.builds(Shape, nodes=st.sampled_from((None, None, 1, 2, 3)), required=TIERS, preferred=TIERS)


def job(gpus: int, shape: Shape) -> Job:
    return Job("j", 0, gpus, 1, shape=shape)


def pool_without(taken: set[int]) -> FreePool:
    pool = FreePool(CLUSTER, "gpu")
    pool.take(sorted(taken))
    return pool


def has_shape(gpus: tuple[int, ...], shape: Shape, widest: Tier) -> bool:
    nodes = [CLUSTER.node_of[gpu] for gpu in gpus]
    parts = [nodes.count(node) for node in set(nodes)]
    even = shape.nodes is None or (len(parts) == shape.nodes and len(set(parts)) == 1)
    return even and (len(gpus) == 1 or CLUSTER.tier(gpus) <= widest)


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 4), shapes, st.sets(st.integers(0, 10), max_size=9), st.booleans())
def test_gpus_are_found_exactly_if_some_have_the_shape(gpus: int, shape: Shape, taken: set[int], late: bool) -> None:
    shape = Shape(shape.nodes, shape.required, shape.preferred, prefer_until_s=100.0)
    pool, now = pool_without(taken), 100.0 if late else 0.0
    if pool.total < gpus:
        return  # not asked then
    wanted = [shape.required, None if late else shape.preferred]
    widest = min((Tier(max(tier, Tier.NODE)) for tier in wanted if tier is not None), default=Tier.NETWORK)
    wider = Tier(max(shape.required, Tier.NODE)) if shape.required is not None else Tier.NETWORK
    found = shaped(Packed(), Ask(job(gpus, shape), now=now), pool)
    possible = any(has_shape(gang, shape, widest) for gang in combinations(pool.gpus(), gpus))
    if isinstance(found, Reason):
        assert not possible, f"{shape} has room among {pool.gpus()}, but: {found}"
        gangs = combinations(pool.gpus(), gpus)
        offered = not late and shape.preferred is not None and any(has_shape(gang, shape, wider) for gang in gangs)
        assert found.code is (Why.WAITS if offered else Why.TOPOLOGY) and found.change
    else:
        assert set(found) <= set(pool.gpus()) and len(set(found)) == gpus
        assert has_shape(tuple(found), shape, widest), f"{found} for {shape}"


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 8), shapes)
def test_a_shape_is_refused_for_ever_exactly_if_the_empty_cluster_has_no_room_for_it(gpus: int, shape: Shape) -> None:
    perf = PerfModel(CLUSTER, VariabilityTable.of_cluster(CLUSTER))
    never = never_has_shape(job(gpus, shape), perf)
    widest = Tier(max(shape.required, Tier.NODE)) if shape.required is not None else Tier.NETWORK
    possible = any(has_shape(gang, shape, widest) for gang in combinations(range(11), gpus))
    assert bool(never) != possible, f"{gpus} GPUs as {shape}: {never or 'no objection'}"


def test_a_preference_never_widens_what_is_required() -> None:
    shape = Shape(None, Tier.NODE, Tier.RACK, float("inf"))
    found = shaped(Packed(), Ask(job(3, shape)), pool_without({0, 5, 6}))
    assert isinstance(found, Reason)


def test_the_reason_says_when_the_preference_ends() -> None:
    shape = Shape(None, None, Tier.NODE, 60.0)
    pool = pool_without({0, 5, 6})
    found = shaped(Packed(), Ask(job(3, shape), now=20.0), pool)
    assert isinstance(found, Reason) and "60 s after its submission" in found.change and found.wakes_s == 60.0
    assert shaped(Packed(), Ask(job(3, shape), now=60.0), pool) == [1, 2, 3]


def test_a_placement_that_takes_no_notice_of_the_bound_is_packed_within_it() -> None:
    class Lowest(Packed):
        def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
            return pool.gpus()[: ask.job.gpus]

    shape, pool = Shape(None, Tier.NODE), pool_without({0})
    assert Lowest().place(Ask(job(3, shape)), pool) == [1, 2, 3]
    assert shaped(Lowest(), Ask(job(3, shape)), pool) == [5, 6, 7]


def test_the_placement_chooses_the_chips_within_the_bound() -> None:
    """GPU 5 is slow: the shape must not keep ``pal`` from leaving it aside."""
    pal, slow = Pal(), [1.0] * 11
    slow[5] = 2.0
    pal.prepare(PerfModel(CLUSTER, VariabilityTable(11, {"A": slow})), random.Random(0))
    asked = replace(job(3, Shape(None, Tier.NODE)), app_class="A")
    assert shaped(pal, Ask(asked), pool_without({0})) == [6, 7, 8]


@given(st.integers(1, 11), shapes)
def test_a_cluster_holds_a_shape_if_and_only_if_its_free_gpus_have_it(gpus: int, shape: Shape) -> None:
    """Counted without looking for GPUs, as types are, and found among them: the same answer."""
    required = Shape(shape.nodes, shape.required)
    found = shaped(Packed(), Ask(job(gpus, required)), pool_without(set()))
    widest = Tier.NETWORK if shape.required is None else shape.required
    assert CLUSTER.holds("gpu", gpus, shape.nodes, widest) == isinstance(found, list)


def test_a_type_that_never_has_the_shape_is_not_a_type_for_the_job() -> None:
    """The faster type is spread over two racks: a gang that must lie in one goes to the other."""
    nodes = (Node("f0", 2, "fast", "r0"), Node("f1", 2, "fast", "r1"), Node("s0", 4, "slow", "r0"))
    perf = PerfModel(Cluster(nodes), VariabilityTable(8))
    assert perf.types_for(job(4, Shape())) == (0, 1)
    assert perf.types_for(job(4, Shape(required=Tier.RACK))) == (1,)
    assert perf.types_for(job(4, Shape(nodes=2))) == (0,)
    assert perf.types_for(job(4, Shape(nodes=4))) == (0, 1), (
        "no type has it: that is said of the shape, not of the size"
    )
