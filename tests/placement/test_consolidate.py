"""Placements that wait for the fewest nodes: always, or only for models with one dominant tensor."""

from __future__ import annotations

import pytest

from tests.sim.tiny import simulate
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.placement.base import Ask
from trine.placement.consolidate import Consolidate
from trine.placement.free_index import FreePool
from trine.placement.packed import Packed
from trine.placement.skew import Skew

RACKS = Cluster.uniform(4, 2, nodes_per_rack=2)


def pool_without(*taken: int, cluster: Cluster = RACKS) -> FreePool:
    pool = FreePool(cluster, "gpu")
    pool.take(taken)
    return pool


def asked(gpus: int, model: str = "", waited_s: float = 0.0) -> Ask:
    return Ask(Job("j", 0.0, gpus, 1000.0, model=model), now=waited_s)


@pytest.mark.parametrize(
    ("gpus", "taken", "found"),
    [
        (1, (0, 2, 4), [1]),
        (2, (0, 2, 4), [6, 7]),
        (2, (0, 2, 4, 6), None),
        (3, (0, 2, 4, 6), None),
        (3, (0,), [2, 3, 1]),
        (4, (1, 5), None),
        (5, (0, 2, 4), None),
        (5, (0, 2), [4, 5, 6, 7, 1]),
    ],
    ids=["single", "a node", "apart", "two racks", "one rack", "a rack", "four nodes", "three nodes"],
)
def test_a_gang_gets_the_fewest_nodes_or_waits(gpus: int, taken: tuple[int, ...], found: list[int] | None) -> None:
    """The fewest: 1 node for 2 GPUs, 2 of a rack for 3 and 4, 3 nodes for 5."""
    answer = Consolidate().place(asked(gpus), pool_without(*taken))
    if found is None:
        assert isinstance(answer, Reason) and answer.code is Why.WAITS
    else:
        assert answer == found


def test_the_refusal_says_what_it_waits_for_and_when_it_ends() -> None:
    answer = Consolidate(max_wait_s=500).place(asked(3, waited_s=100), pool_without(0, 2, 4, 6))
    assert isinstance(answer, Reason)
    assert (
        answer.sentence == "job j waits for its 3 GPUs on 2 nodes of one rack; the 4 that are free are further apart."
    )
    assert answer.wakes_s == 500
    assert isinstance(Consolidate(max_wait_s=500).place(asked(3, waited_s=500), pool_without(0, 2, 4, 6)), list)


def test_gpus_out_of_service_are_not_waited_for() -> None:
    """With a GPU of each node drained, two nodes are as few as it gets."""
    pool = FreePool(Cluster.uniform(2, 2), "gpu")
    pool.cordon(0)
    assert Consolidate().place(asked(2), pool) == [2, 3]
    pool.cordon(3)
    assert Consolidate().place(asked(2), pool) == [1, 2]


def test_waiting_pays_off_for_a_gang_that_feels_the_network() -> None:
    """One GPU is free on each node: packed takes both at a third of the speed, consolidate waits 100 s for a node."""
    cluster = Cluster((Node("n0", 2), Node("n1", 2)))
    jobs = [Job("a", 0, 1, 100), Job("b", 0, 1, 50), Job("c", 0, 1, 900), Job("gang", 60, 2, 300)]
    packed = simulate(jobs, cluster, "fifo", "packed-sticky", event_driven=True, locality_penalty=3.0)
    waits = simulate(jobs, cluster, "fifo", "consolidate-sticky", event_driven=True, locality_penalty=3.0)
    assert (packed.start("gang"), packed.finish("gang")) == (60, 960)
    assert (waits.start("gang"), waits.finish("gang")) == (100, 400)


def test_skewed_models_are_consolidated_and_the_others_take_what_is_left_over() -> None:
    pool = pool_without(0, 2, 4, 6)
    assert isinstance(Skew().place(asked(2, "VGG-16"), pool), Reason)
    assert Skew().place(asked(2, "ResNet-50"), pool) == [1, 3]
    assert Skew().place(asked(2, ""), pool) == [1, 3]
    assert Skew().place(asked(2, "resnet50"), pool_without(0)) == [1, 2], "whole nodes are left to others"
    assert Packed().place(asked(2, "resnet50"), pool_without(0)) == [2, 3]


@pytest.mark.parametrize(
    ("model", "skew"), [("vgg19", 0.72), ("ResNet-50 (batch size 16)", 0.11), ("Inception-v3", 0.14), ("bert", 0.0)]
)
def test_models_are_known_however_they_are_written(model: str, skew: float) -> None:
    assert Skew().skew_of(model) == skew


def test_models_can_be_added() -> None:
    placement = resolve("tiresias", "skew", {"skews": "bert=0.5"}).placement
    assert isinstance(placement.place(asked(2, "bert"), pool_without(0, 2, 4, 6)), Reason)
    with pytest.raises(InputError, match="MODEL=SHARE"):
        resolve("tiresias", "skew", {"skews": "bert"})
