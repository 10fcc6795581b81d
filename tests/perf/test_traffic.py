"""The book of flows: which gangs share links, what that leaves to each, and whose bandwidth changes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.core.cluster import Cluster, Links
from trine.core.job import Job
from trine.perf.link_sharing import Flow, LinkLoad, burst_bandwidth, max_min
from trine.perf.model import LinkSharing, Neighbours, PerfModel
from trine.perf.model_traffic import ModelTraffic, TrafficTable
from trine.perf.network import Network
from trine.perf.traffic import Changed, Traffic
from trine.perf.variability import VariabilityTable

NIC, UPLINK = 1e9, 0.5e9
CLUSTER = Cluster.uniform(8, 4, "v100", nodes_per_rack=4)
LINKS = Links(20e9, NIC, uplink_bytes_per_s=UPLINK)
TABLE = TrafficTable(
    models={
        "chatty": ModelTraffic(400e6, compute_s=0.01, overlap=1.0),
        "half": ModelTraffic(100e6, compute_s=0.2, overlap=2.0),
        "quiet": ModelTraffic(1e6, compute_s=1.0, overlap=2.0),
    }
)
OVER_RACKS, OVER_RACKS_TOO = (0, 16), (4, 20)
"""On nodes of their own, both over the uplinks of both racks."""
IN_RACK = (8, 12)


def perf(sharing: LinkSharing = "max-min", links: Links = LINKS) -> PerfModel:
    table = VariabilityTable.of_cluster(CLUSTER)
    return PerfModel(CLUSTER, table, network=Network(CLUSTER, links, TABLE), link_sharing=sharing)


def book(sharing: LinkSharing = "max-min") -> Traffic:
    found = Traffic.of(perf(sharing))
    assert found is not None
    return found


def gang(model: str = "chatty", gpus: int = 2) -> Job:
    return Job("j", 0, gpus, 100, model=model)


def test_there_is_no_book_without_links_or_where_none_is_shared() -> None:
    assert Traffic.of(PerfModel(CLUSTER, VariabilityTable.of_cluster(CLUSTER))) is None
    assert Traffic.of(perf("none")) is None


def test_two_gangs_on_one_uplink_get_halves() -> None:
    traffic = book()
    traffic.join(0, gang(), OVER_RACKS)
    assert traffic.settle() == [], "alone it has all that it was taken to have"
    traffic.join(1, gang(), OVER_RACKS_TOO)
    assert traffic.bandwidth(1) == UPLINK
    assert traffic.settle() == [Changed(0, UPLINK, UPLINK / 2), Changed(1, UPLINK, UPLINK / 2)]
    assert traffic.settle() == [], "once settled nothing changes by itself"


def test_what_leaves_gives_back_what_it_took() -> None:
    traffic = book()
    traffic.join(0, gang(), OVER_RACKS)
    traffic.join(1, gang(), OVER_RACKS_TOO)
    traffic.settle()
    traffic.leave(1)
    assert traffic.settle() == [Changed(0, UPLINK / 2, UPLINK)]
    assert 1 not in traffic and traffic.bandwidth(1) is None


def test_what_comes_and_leaves_between_two_settlements_changes_nothing() -> None:
    traffic = book()
    traffic.join(0, gang(), OVER_RACKS)
    traffic.settle()
    traffic.join(1, gang(), OVER_RACKS_TOO)
    traffic.leave(1)
    assert traffic.settle() == []


def test_only_gangs_that_are_connected_change() -> None:
    traffic = book()
    traffic.join(0, gang(), OVER_RACKS)
    traffic.join(1, gang(), IN_RACK)
    traffic.settle()
    traffic.join(2, gang(), OVER_RACKS_TOO)
    assert [changed.job_index for changed in traffic.settle()] == [0, 2]
    assert traffic.bandwidth(1) == NIC


def test_inside_a_node_nothing_is_shared() -> None:
    traffic = book()
    traffic.join(0, gang(), (0, 1))
    traffic.join(1, gang(gpus=1), (2,))
    assert 0 not in traffic and 1 not in traffic and traffic.settle() == []
    traffic.leave(0)
    assert traffic.load() == {}


# -- quotes ------------------------------------------------------------------------------------------------------


def test_a_quote_counts_what_runs_and_leaves_the_book_as_it_was() -> None:
    traffic, model = book(), perf()
    traffic.join(0, gang(), OVER_RACKS)
    traffic.settle()
    assert traffic.quote(gang(), OVER_RACKS_TOO) == model.speed(
        gang(), OVER_RACKS_TOO, Neighbours(bandwidth=UPLINK / 2)
    )
    assert traffic.quote(gang(), IN_RACK) == model.speed(gang(), IN_RACK)
    assert traffic.quote(gang(), (4, 5)) == model.speed(gang(), (4, 5))
    assert traffic.bandwidth(0) == UPLINK and traffic.settle() == []


def test_a_gang_that_considers_a_move_is_not_in_its_own_way() -> None:
    traffic, model = book(), perf()
    traffic.join(0, gang(), OVER_RACKS)
    traffic.settle()
    assert traffic.quote(gang(), OVER_RACKS_TOO, without=0) == model.speed(gang(), OVER_RACKS_TOO)


@pytest.mark.parametrize("sharing", ["max-min", "duty"])
def test_the_quote_of_the_place_it_has_is_what_it_has(sharing: LinkSharing) -> None:
    traffic, model = book(sharing), perf(sharing)
    traffic.join(0, gang("half"), OVER_RACKS)
    traffic.join(1, gang(), OVER_RACKS_TOO)
    traffic.settle()
    has = model.speed(gang("half"), OVER_RACKS, Neighbours(bandwidth=traffic.bandwidth(0)))
    assert traffic.quote(gang("half"), OVER_RACKS, without=0) == pytest.approx(has)


# -- rules of sharing --------------------------------------------------------------------------------------------


def test_a_gang_that_sends_little_takes_little() -> None:
    traffic = book()
    traffic.join(0, gang(), OVER_RACKS)
    traffic.join(1, gang("quiet"), OVER_RACKS_TOO)
    traffic.settle()
    quiet = 1e6 / 1.0  # 2 (p - 1) / p of its gradients, once in about a second
    assert traffic.bandwidth(0) == pytest.approx(UPLINK - quiet, rel=1e-4)
    sent = traffic.load()
    assert sent[len(CLUSTER.nodes)] <= 1 and sent[1] == pytest.approx(quiet / NIC, rel=0.02)


def test_a_gang_that_sends_rarely_has_half_of_a_full_link_while_it_sends() -> None:
    """Not only the little that its neighbour leaves on average, with which a step would take 1.4 times as long."""
    traffic, model = book(), perf()
    traffic.join(0, gang(), OVER_RACKS)
    traffic.join(1, gang("quiet"), OVER_RACKS_TOO)
    traffic.settle()
    assert traffic.bandwidth(1) == pytest.approx(UPLINK / 2)
    shared = model.speed(gang("quiet"), OVER_RACKS_TOO, Neighbours(bandwidth=traffic.bandwidth(1))).steps_per_s
    assert shared == pytest.approx(model.speed(gang("quiet"), OVER_RACKS_TOO).steps_per_s, rel=1e-3)


def test_duty_divides_a_link_by_the_time_that_others_send() -> None:
    traffic, model = book("duty"), perf("duty")
    traffic.join(0, gang("half"), OVER_RACKS)
    traffic.join(1, gang("half"), OVER_RACKS_TOO)
    traffic.settle()
    bandwidth = traffic.bandwidth(0)
    assert bandwidth is not None and traffic.bandwidth(1) == bandwidth
    network = model.network
    assert network is not None
    base, chip = model.network_baseline(gang("half"), OVER_RACKS)
    step = network.step(base, network.route(OVER_RACKS), chip, bandwidth)
    assert bandwidth == pytest.approx(UPLINK / (1 + step.comm_s / step.iteration_s), rel=0.02)


Entry = tuple[str, tuple[int, ...]]
NODES = st.lists(st.integers(0, 7), min_size=2, max_size=4, unique=True)
ENTRIES = st.lists(
    st.tuples(st.sampled_from(("chatty", "half", "quiet")), NODES.map(lambda n: tuple(4 * i for i in sorted(n)))),
    min_size=1,
    max_size=10,
)


def entered(traffic: Traffic, entries: dict[int, Entry]) -> dict[int, float | None]:
    for index, (model, gpus) in entries.items():
        traffic.join(index, gang(model, len(gpus)), gpus)
    traffic.settle()
    return {index: traffic.bandwidth(index) for index in sorted(entries)}


@pytest.mark.parametrize("sharing", ["max-min", "duty"])
@given(entries=ENTRIES, rng=st.randoms(use_true_random=False))
def test_bandwidths_depend_on_what_runs_and_not_on_how_it_came_to_run(
    sharing: LinkSharing, entries: list[Entry], rng: random.Random
) -> None:
    """The very same numbers whatever came first, came and left, and was settled in between."""
    stay = dict(enumerate(entries))
    order = list(stay)
    rng.shuffle(order)
    traffic = book(sharing)
    for index in order:
        model, gpus = stay[index]
        traffic.join(index + 100, gang(model, len(gpus)), gpus)
        if rng.random() < 0.5:
            traffic.settle()
        traffic.join(index, gang(model, len(gpus)), gpus)
        if rng.random() < 0.5:
            traffic.settle()
        traffic.leave(index + 100)
    traffic.settle()
    assert {index: traffic.bandwidth(index) for index in stay} == entered(book(sharing), stay)


@given(entries=ENTRIES)
def test_what_is_computed_in_parts_agrees_with_all_flows_filled_at_once(entries: list[Entry]) -> None:
    traffic, network = book(), perf().network
    found = entered(traffic, dict(enumerate(entries)))
    assert network is not None
    flows = {}
    for index, (model, gpus) in enumerate(entries):
        base, chip = perf().network_baseline(gang(model, len(gpus)), gpus)
        route = network.route(gpus)
        flows[index] = Flow(route.links, network.demand(base, route, chip))
    rates = max_min(flows, network.capacity)
    loads = {
        link: LinkLoad([rates[i] for i, flow in flows.items() if link in flow.links], network.capacity[link])
        for link in {link for flow in flows.values() for link in flow.links}
    }
    for index, flow in flows.items():
        assert found[index] == pytest.approx(burst_bandwidth(flow.links, rates[index], loads))


@pytest.mark.parametrize("sharing", ["max-min", "duty"])
@given(entries=ENTRIES, asked=ENTRIES)
def test_a_quote_is_what_the_gang_gets_once_it_is_there(
    sharing: LinkSharing, entries: list[Entry], asked: list[Entry]
) -> None:
    """Also that of a move: the others are shared anew without its old flow."""
    traffic, model = book(sharing), perf(sharing)
    entered(traffic, dict(enumerate(entries)))
    name, gpus = asked[0]
    job = gang(name, len(gpus))
    quoted = traffic.quote(job, gpus, without=0)
    moved = {index: entry for index, entry in enumerate(entries) if index} | {99: asked[0]}
    got = entered(book(sharing), moved)[99]
    assert quoted.steps_per_s == pytest.approx(model.speed(job, gpus, Neighbours(bandwidth=got)).steps_per_s)
    assert not traffic.unsettled and traffic.settle() == []


@given(entries=ENTRIES)
def test_links_never_carry_more_than_they_can(entries: list[Entry]) -> None:
    traffic = book()
    entered(traffic, dict(enumerate(entries)))
    assert all(0 < share <= 1 + 1e-9 for share in traffic.load().values())


@given(entries=ENTRIES)
def test_no_gang_gets_more_than_without_the_others(entries: list[Entry]) -> None:
    traffic, model = book(), perf()
    for index, bandwidth in entered(traffic, dict(enumerate(entries))).items():
        assert model.network is not None and bandwidth is not None
        assert 0 < bandwidth <= model.network.route(entries[index][1]).bandwidth * (1 + 1e-9)
