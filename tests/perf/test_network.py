"""What a placement costs in communication: tiers, shapes, types, presets, measured rates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.core.cluster import Cluster, Links, Node, Tier
from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.links import PRESETS
from trine.perf.collectives import Algorithm, all_reduce, other_part, p_norm
from trine.perf.model_families import FAMILIES
from trine.perf.model_traffic import ModelTraffic, shipped_table
from trine.perf.network import Network, measured_spread_ratio, step_at
from trine.perf.throughput import ThroughputTable

CLUSTER = Cluster.uniform(8, 4, "v100", nodes_per_rack=4)
LINKS = Links(20e9, 1e9, uplink_bytes_per_s=2e9)
MODEL = ModelTraffic(gradient_bytes=100e6, compute_s=0.1, overlap=2.0)
ONE_NODE, TWO_NODES, FOUR_NODES = (0, 1, 2, 3), (0, 1, 4, 5), (0, 4, 8, 12)
TWO_RACKS, FOUR_NODES_TWO_RACKS = (0, 1, 16, 17), (0, 4, 16, 20)


def network(links: Links = LINKS, cluster: Cluster = CLUSTER, algorithm: Algorithm = "ring") -> Network:
    return Network(cluster, links, algorithm=algorithm)


def comm_s(gpus: tuple[int, ...], links: Links = LINKS, traffic: ModelTraffic = MODEL) -> float:
    net = network(links)
    return net.comm_s(traffic, net.route(gpus))


# -- routes ----------------------------------------------------------------------------------------------------------


def test_a_route_knows_its_shape_and_the_links_it_shares() -> None:
    net = network()
    route = net.route((0, 1, 2, 4, 16))
    assert (route.gpus, route.per_node, route.nodes, route.racks, route.tier) == (5, 3, (0, 1, 4), (0, 1), Tier.NETWORK)
    assert route.links == (0, 1, 4, 8, 9)
    assert route.bandwidth == 1e9
    assert net.route(ONE_NODE).links == ()
    assert net.route(TWO_NODES).links == (0, 1)


def test_capacities_after_oversubscription_congestion_and_background() -> None:
    links = Links(20e9, 1e9, oversubscription=4.0, congestion=0.5, nic_background=0.2, uplink_background=0.5)
    assert network(links).capacity[0] == pytest.approx(0.4e9)
    assert network(links).capacity[8] == pytest.approx(4 * 1e9 / 4 * 0.5 * 0.5)
    assert network(replace(links, spine_bytes_per_s=6e9)).capacity[-1] == pytest.approx(3e9)


def test_the_spine_is_shared_by_all_gangs_across_racks() -> None:
    net = network(replace(LINKS, spine_bytes_per_s=0.1e9))
    assert net.route(TWO_RACKS).links[-1] == net.route((4, 5, 24, 25)).links[-1]
    assert net.route(TWO_RACKS).bandwidth == 0.1e9


def test_links_by_type() -> None:
    nodes = (Node("a", 4, "v100"), Node("b", 4, "k80"), Node("c", 4, "k80"))
    net = Network(Cluster(nodes, links=LINKS, type_links={"k80": Links(6e9, 0.5e9)}))
    assert net.route((0, 1)).intra_bytes_per_s == 20e9
    assert net.route((4, 5)).intra_bytes_per_s == 6e9
    assert net.route((0, 4)).bandwidth == 0.5e9


@pytest.mark.parametrize(("gpus", "nodes", "tier"), [(3, 1, Tier.NODE), (8, 2, Tier.RACK), (20, 5, Tier.NETWORK)])
def test_the_best_route_takes_the_fewest_nodes(gpus: int, nodes: int, tier: Tier) -> None:
    route = network().best_route(gpus, "v100")
    assert (len(route.nodes), route.tier, route.gpus) == (nodes, tier, gpus)


def test_the_best_route_of_a_type_uses_that_type_and_all_types_if_it_must() -> None:
    nodes = (Node("a", 4, "k80"), Node("b", 2, "v100"), Node("c", 2, "v100"))
    net = Network(Cluster(nodes), LINKS)
    assert net.best_route(4, "v100").nodes == (1, 2)
    assert net.best_route(4, "k80").nodes == (0,)
    assert net.best_route(6, "v100").gpus == 6
    with pytest.raises(InputError, match="at least 9"):
        net.best_route(9, "v100")


def test_routes_by_tier() -> None:
    net = network()
    spans = [net.tier_route(4, "v100", tier) for tier in (Tier.NODE, Tier.RACK, Tier.NETWORK)]
    assert [route and (route.tier, len(route.nodes)) for route in spans] == [
        (Tier.NODE, 1), (Tier.RACK, 2), (Tier.NETWORK, 2)
    ]  # fmt: skip
    assert net.tier_route(8, "v100", Tier.NODE) is None
    assert Network(Cluster.uniform(2, 4), LINKS).tier_route(4, "gpu", Tier.NETWORK) is None


def test_nodes_without_a_nic_cannot_reach_each_other() -> None:
    net = network(Links(20e9))
    assert net.route(ONE_NODE).bandwidth > 0
    with pytest.raises(
        InputError, match=r"node node0 has a link inside, but none to other nodes; expected the key nic"
    ):
        net.route(TWO_NODES)


# -- communication ---------------------------------------------------------------------------------------------------


def test_the_closed_form_of_a_gang_over_two_nodes() -> None:
    inside = 2 * (1 / 2) * 100e6 / 20e9 + 2 * 5e-6
    between = 2 * (1 / 2) * 100e6 / 1e9 + 2 * 20e-6
    assert comm_s(TWO_NODES) == pytest.approx(inside + between)
    assert comm_s((3,)) == 0.0


@given(
    st.floats(1e5, 1e10),
    st.floats(0.0, 1e9),
    st.floats(0.01, 100.0),
    st.sampled_from(["ring", "tree", "auto"]),
)
def test_a_wider_tier_is_never_faster_on_equal_links(
    gradient: float, exchanged: float, factor: float, algorithm: Algorithm
) -> None:
    """Each shape once inside a rack, once across racks; uplinks as fast as NICs."""
    traffic = ModelTraffic(gradient, 0.1, exchanged)
    net = network(Links(20e9 * factor, 1e9 * factor, uplink_bytes_per_s=1e9 * factor), algorithm=algorithm)
    times = [net.comm_s(traffic, net.route(gpus)) for gpus in (ONE_NODE, TWO_NODES, TWO_RACKS)]
    assert times == sorted(times)
    assert net.comm_s(traffic, net.route(FOUR_NODES)) <= net.comm_s(traffic, net.route(FOUR_NODES_TWO_RACKS))


def test_four_nics_beat_two_where_every_gpu_sends_its_own_stream() -> None:
    reduced, own = PRESETS["ethernet-50g"], PRESETS["cloud-tcp"]
    assert comm_s(TWO_NODES, reduced) < comm_s(FOUR_NODES, reduced)
    assert comm_s(TWO_NODES, own) > 1.05 * comm_s(FOUR_NODES, own)
    assert comm_s(TWO_NODES, replace(own, unreduced=1.0)) > 1.9 * comm_s(FOUR_NODES, own)


@given(st.integers(2, 64), st.floats(1.0, 1e10), st.floats(1e-7, 1e-2), st.floats(1e6, 1e12))
def test_auto_is_the_faster_of_ring_and_tree(members: int, size: float, latency_s: float, bytes_per_s: float) -> None:
    ring, tree, auto = (
        all_reduce(members, size, latency_s, algorithm, bytes_per_s).at(bytes_per_s)
        for algorithm in ("ring", "tree", "auto")
    )
    assert auto == min(ring, tree)


def test_a_tree_is_for_small_messages_and_many_nodes() -> None:
    small, large = (all_reduce(64, size, 20e-6, "auto", 1e9) for size in (1e3, 1e9))
    assert small == all_reduce(64, 1e3, 20e-6, "tree")
    assert large == all_reduce(64, 1e9, 20e-6, "ring")


def test_gradients_added_up_inside_racks_cross_the_uplinks_once() -> None:
    """Eight nodes in two racks: 2 x 7/8 S over the uplinks in one ring, S of one stream per rack in three levels."""
    gpus = tuple(range(0, 32, 4))
    narrow = replace(LINKS, uplink_bytes_per_s=0.1e9)
    flat, levels = (Network(CLUSTER, narrow, three_level=three_level) for three_level in (False, True))
    assert levels.comm_s(MODEL, levels.route(gpus)) < flat.comm_s(MODEL, flat.route(gpus))


def test_embedding_models_exchange_more_the_more_lies_outside_the_node() -> None:
    exchange = ModelTraffic(0.0, 0.1, all_to_all_bytes=100e6)
    inside = 2 * (3 / 4 * 100e6 / 20e9 + 3 * 5e-6)
    assert comm_s(ONE_NODE, traffic=exchange) == pytest.approx(inside)
    # A NIC carries what two GPUs send to the other two, or what one GPU sends to the other three.
    assert comm_s(TWO_NODES, traffic=exchange) == pytest.approx(2 * 100e6 / 1e9, rel=0.06)
    assert comm_s(FOUR_NODES, traffic=exchange) == pytest.approx(2 * 75e6 / 1e9, rel=0.01)


def test_an_exchange_across_racks_is_bound_by_the_uplink() -> None:
    """All four nodes of a rack talk to the other rack at once: a ring would send one stream."""
    exchange = ModelTraffic(0.0, 0.1, all_to_all_bytes=100e6)
    wide = tuple(range(32))
    narrow = comm_s(wide, replace(LINKS, uplink_bytes_per_s=1e9), exchange)
    assert narrow == pytest.approx(2 * 16 * 16 / 32 * 100e6 / 1e9, rel=0.01)
    assert comm_s(wide, replace(LINKS, uplink_bytes_per_s=4e9), exchange) < narrow / 2


@given(st.floats(1e-6, 1e3), st.floats(1e-9, 1e3), st.floats(1.0, 10.0))
def test_the_p_norm_lies_between_the_longer_part_and_the_sum_and_can_be_solved(
    compute_s: float, comm: float, overlap: float
) -> None:
    total = p_norm(compute_s, comm, overlap)
    assert max(compute_s, comm) * (1 - 1e-12) <= total <= (compute_s + comm) * (1 + 1e-12)
    if comm > 0.1 * compute_s:
        assert p_norm(compute_s, other_part(total, compute_s, overlap), overlap) == pytest.approx(total)


# -- steps -----------------------------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(FAMILIES)), st.sampled_from(sorted(PRESETS)), st.integers(1, 32))
def test_the_best_place_is_what_step_times_are_stated_for(model: str, preset: str, gpus: int) -> None:
    net = network(PRESETS[preset])
    base = net.baseline(shipped_table().of(model), gpus, "v100")
    step = net.step(base, net.best_route(gpus, "v100"))
    assert step.ratio == pytest.approx(1.0)
    assert 0.0 <= step.exposed < 1.0


def test_chips_slow_compute_and_not_communication() -> None:
    net = network()
    base, route = net.baseline(MODEL, 4, "v100"), net.route(FOUR_NODES)
    slow = net.step(base, route, chip=2.0)
    assert slow.compute_s == pytest.approx(2 * MODEL.compute_s)
    assert slow.comm_s == net.step(base, route).comm_s
    assert slow.ratio < 2 * net.step(base, route).ratio
    assert slow.exposed < net.step(base, route).exposed


def test_half_the_bandwidth_takes_nearly_twice_the_communication() -> None:
    net = network()
    base, route = net.baseline(MODEL, 4, "v100"), net.route(FOUR_NODES)
    alone, half = net.step(base, route), net.step(base, route, bandwidth=route.bandwidth / 2)
    assert half.comm_s == pytest.approx(2 * alone.comm_s, rel=0.01)
    assert half == step_at(base, net.cost(base, route), 1.0, route.bandwidth / 2)


def test_a_faster_type_waits_more_for_the_same_network() -> None:
    """Slow GPUs hide communication: Gavel's K80 lose nothing when spread, its V100 up to 9.6 times."""
    cluster = Cluster(tuple(Node(f"n{i}", 4, "v100" if i < 4 else "k80") for i in range(8)))
    net = Network(cluster, LINKS)
    rates = ThroughputTable({("LM (batch size 20)", 4): {"v100": 10.0, "k80": 1.0}})
    job = Job("1", 0.0, 4, 100, None, model="LM (batch size 20)")
    ratios = {
        t: net.step(net.baseline_of(job, t, rates), net.route(tuple(range(first, first + 16, 4)))).ratio
        for t, first in (("v100", 0), ("k80", 16))
    }
    assert ratios["v100"] > 3
    assert 1 <= ratios["k80"] < 1.5


def test_compute_is_solved_from_a_stated_step_and_never_nothing() -> None:
    net = network()
    comm = net.comm_s(MODEL, net.best_route(4, "v100"))
    base = net.baseline(MODEL, 4, "v100", stated_s=0.3)
    assert base.iteration_s == pytest.approx(0.3)
    assert p_norm(base.compute_s, comm, MODEL.overlap) == pytest.approx(0.3)
    hopeless = net.baseline(MODEL, 4, "v100", stated_s=comm / 2)
    assert hopeless.compute_s > 0
    assert net.step(hopeless, net.best_route(4, "v100")).ratio == pytest.approx(1.0)


def test_measured_rates_of_spread_gangs_win_over_the_formula() -> None:
    spread = ThroughputTable({("m", 4): {"v100": 4.0}, ("m", 2): {"v100": 12.0}})
    table = ThroughputTable({("m", 4): {"v100": 10.0}, ("m", 2): {"v100": 6.0}}, spread=spread)
    assert measured_spread_ratio(table, "m", 4, "V100") == 2.5
    assert measured_spread_ratio(table, "m", 2, "v100") == 1.0, "below 1 is noise"
    assert measured_spread_ratio(table, "m", 8, "v100") is None
    net = network()
    base = net.baseline_of(Job("1", 0.0, 4, 100, None, model="m"), "v100", table)
    assert net.step(base, net.route(ONE_NODE)).ratio == pytest.approx(1.0)
    for gpus in (TWO_NODES, FOUR_NODES):
        assert net.step(base, net.route(gpus)).ratio == pytest.approx(2.5)
    contended = net.step(base, net.route(TWO_NODES), bandwidth=0.25e9).ratio
    assert contended > 5


def test_a_measured_slowdown_grows_across_narrow_uplinks() -> None:
    spread = ThroughputTable({("m", 4): {"v100": 4.0}})
    table = ThroughputTable({("m", 4): {"v100": 10.0}}, spread=spread)
    net = network(replace(LINKS, uplink_bytes_per_s=0.5e9))
    base = net.baseline_of(Job("1", 0.0, 4, 100, None, model="m"), "v100", table)
    assert net.step(base, net.route(TWO_RACKS)).ratio > 3.5


def test_the_demand_of_a_flow_is_below_what_its_links_carry() -> None:
    net = network()
    base, route = net.baseline(MODEL, 4, "v100"), net.route(FOUR_NODES)
    assert 0 < net.demand(base, route) < route.bandwidth
    assert net.demand(base, net.route(ONE_NODE)) == 0.0
    assert net.comm_cost(MODEL, route).sent_bytes == pytest.approx(150e6)


@pytest.mark.parametrize("gpus", [8, 16])
def test_on_infiniband_machines_spreading_costs_nearly_nothing(gpus: int) -> None:
    """The worst are embedding models and one with 9 ms of compute; half of the families are within 1 %."""
    net = network(PRESETS["dgx-ib"], Cluster.uniform(32, 8, "v100", 8))
    table, spread = shipped_table(), net.route(tuple(range(0, 8 * gpus, 8)))
    ratios = sorted(net.step(net.baseline(table.of(m), gpus, "v100"), spread).ratio for m in FAMILIES)
    assert ratios[len(ratios) // 2] < 1.01
    assert ratios[-1] < 1.25
    slow = network(PRESETS["ethernet-50g"], Cluster.uniform(32, 8, "v100", 8))
    cost = slow.comm_s(table.of("LM (batch size 20)"), slow.route(tuple(range(0, 8 * gpus, 8))))
    assert cost > 10 * net.comm_s(table.of("LM (batch size 20)"), spread)
