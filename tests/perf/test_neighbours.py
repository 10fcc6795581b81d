"""Jobs that slow each other, on the same GPUs or links: whose speed changes, when, and from what to what."""

from __future__ import annotations

from tests.perf.test_traffic import IN_RACK, OVER_RACKS, OVER_RACKS_TOO, UPLINK, gang, perf
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.perf.model import ALONE, Neighbours, PerfModel
from trine.perf.neighbours import Affected, Neighbourhood
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable

CLUSTER = Cluster((Node("n0", 2, "x"),))
TABLE = ThroughputTable(
    rates={("big", 1): {"x": 10.0}, ("small", 1): {"x": 4.0}}, pairs={("big", "small", 1): {"x": (8.0, 3.0)}}
)
BIG, SMALL = Job("big", 0, 1, 100, None, "big"), Job("small", 0, 1, 100, None, "small")


def pairs() -> Neighbourhood:
    model = PerfModel(CLUSTER, VariabilityTable.of_cluster(CLUSTER), throughputs=TABLE)
    return Neighbourhood(model, [BIG, SMALL, BIG])


def test_both_of_a_pair_are_affected_when_the_second_comes_and_one_when_it_leaves() -> None:
    found = pairs()
    found.join(0, (0,))
    assert not found.unsettled and found.settle() == []
    found.join(1, (0,), 0)
    assert found.of(0) == found.of(1) == ALONE, "until all of the moment stand"
    assert found.settle() == [Affected(0, ALONE, Neighbours(SMALL)), Affected(1, ALONE, Neighbours(BIG))]
    found.leave(1)
    assert found.settle() == [Affected(0, Neighbours(SMALL), ALONE)]
    assert not found.matters


def test_a_co_runner_that_is_replaced_within_a_moment_counts_once() -> None:
    found = pairs()
    found.join(0, (0,))
    found.join(1, (0,), 0)
    found.settle()
    found.leave(1)
    found.join(2, (0,), 0)
    assert found.settle() == [Affected(0, Neighbours(SMALL), Neighbours(BIG)), Affected(2, ALONE, Neighbours(BIG))]


def test_a_job_that_left_and_came_back_has_no_neighbours_of_before() -> None:
    found = pairs()
    found.join(0, (0,))
    found.join(1, (0,), 0)
    found.settle()
    found.leave(1)
    found.leave(0)
    found.join(0, (1,))
    assert found.of(0) == ALONE and found.settle() == []


def test_gangs_on_the_same_links_are_neighbours_too() -> None:
    model = perf()
    found = Neighbourhood(model, [gang(), gang()])
    found.join(0, OVER_RACKS)
    found.settle()
    found.join(1, OVER_RACKS_TOO)
    alone, half = Neighbours(bandwidth=UPLINK), Neighbours(bandwidth=UPLINK / 2)
    assert found.settle() == [Affected(0, alone, half), Affected(1, alone, half)]
    assert model.speed(gang(), OVER_RACKS, half).steps_per_s < model.speed(gang(), OVER_RACKS, alone).steps_per_s
    assert found.quote(1, IN_RACK) == model.speed(gang(), IN_RACK), "its own flow does not count against it"
    found.leave(1)
    assert found.settle() == [Affected(0, half, alone)]
