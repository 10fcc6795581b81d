"""Sharing of links: nothing above capacity, max-min fair, the same in any order; the rule of the fixed worlds."""

from __future__ import annotations

import random
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.perf.collectives import p_norm
from trine.perf.link_sharing import DutyFlow, Flow, LinkLoad, burst_bandwidth, duty, max_min

Id = TypeVar("Id", int, str)
LINKS = 6
CAPACITIES = st.lists(st.floats(0.1, 100.0), min_size=LINKS, max_size=LINKS)
FLOWS = st.lists(
    st.builds(
        Flow,
        st.sets(st.integers(0, LINKS - 1), max_size=4).map(lambda links: tuple(sorted(links))),
        st.floats(0.0, 200.0),
    ),
    max_size=12,
).map(lambda flows: dict(enumerate(flows)))


def load(flows: dict[int, Flow], rates: dict[int, float], link: int) -> float:
    return sum(rates[i] for i, flow in flows.items() if link in flow.links)


def bursts(flows: dict[Id, Flow], rates: dict[Id, float], capacity: list[float]) -> dict[Id, float]:
    used = {link for flow in flows.values() for link in flow.links}
    loads = {
        link: LinkLoad([rates[i] for i, flow in flows.items() if link in flow.links], capacity[link]) for link in used
    }
    return {i: burst_bandwidth(flow.links, rates[i], loads) for i, flow in flows.items()}


@given(FLOWS, CAPACITIES)
def test_no_link_carries_more_than_it_can_and_no_flow_more_than_it_wants(
    flows: dict[int, Flow], capacity: list[float]
) -> None:
    rates = max_min(flows, capacity)
    assert rates.keys() == flows.keys()
    for link in range(LINKS):
        assert load(flows, rates, link) <= capacity[link] * (1 + 1e-9)
    assert all(0 <= rates[i] <= flow.demand for i, flow in flows.items())


@given(FLOWS, CAPACITIES)
def test_a_flow_below_its_demand_has_a_full_link_on_which_none_gets_more(
    flows: dict[int, Flow], capacity: list[float]
) -> None:
    """The characterisation of max-min fairness: none can rise without lowering one that has no more."""
    rates = max_min(flows, capacity)
    for i, flow in flows.items():
        if rates[i] < flow.demand * (1 - 1e-9):
            assert any(
                load(flows, rates, link) >= capacity[link] * (1 - 1e-9)
                and all(rates[j] <= rates[i] * (1 + 1e-9) for j, other in flows.items() if link in other.links)
                for link in flow.links
            )


@given(FLOWS, CAPACITIES, st.randoms(use_true_random=False))
def test_shares_do_not_depend_on_the_order(flows: dict[int, Flow], capacity: list[float], rng: random.Random) -> None:
    order = list(flows)
    rng.shuffle(order)
    shuffled = max_min({i: flows[i] for i in order}, capacity)
    assert shuffled == pytest.approx(max_min(flows, capacity))


@given(FLOWS, CAPACITIES)
def test_while_it_sends_a_flow_has_an_equal_share_of_its_scarcest_link_at_least(
    flows: dict[int, Flow], capacity: list[float]
) -> None:
    """Never less than capacity / users or than its average rate, never more than the capacity."""
    rates = max_min(flows, capacity)
    users = [sum(link in flow.links for flow in flows.values()) for link in range(LINKS)]
    for i, bandwidth in bursts(flows, rates, capacity).items():
        links = flows[i].links
        if links:
            assert bandwidth >= min(capacity[link] / users[link] for link in links) * (1 - 1e-9)
            assert rates[i] <= bandwidth <= min(capacity[link] for link in links) * (1 + 1e-9)


@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=8), st.floats(0.1, 100.0))
def test_one_that_always_sends_fills_the_link_beside_others_that_keep_to_their_average(
    demands: list[float], capacity: float
) -> None:
    """The others keep their average up to the same level: max-min among those that send."""
    rates = max_min({i: Flow((0,), demand) for i, demand in enumerate(demands)}, [capacity])
    load = LinkLoad(list(rates.values()), capacity)
    for i, rate in rates.items():
        level = load.greedy_share(rate)
        taken = sum(min(other, level) for j, other in rates.items() if j != i)
        assert level + taken == pytest.approx(capacity)


STEPS = st.lists(
    st.tuples(
        st.sets(st.integers(0, LINKS - 1), min_size=1, max_size=4).map(lambda links: tuple(sorted(links))),
        st.floats(0.01, 100.0),
        st.floats(0.01, 10.0),
        st.sampled_from((1.0, 2.0, 10.0)),
    ),
    min_size=1,
    max_size=12,
)


@given(STEPS, CAPACITIES)
def test_iterations_at_these_bandwidths_send_no_more_than_the_links_carry(
    steps: list[tuple[tuple[int, ...], float, float, float]], capacity: list[float]
) -> None:
    """Over time: bytes of an iteration over its duration, with compute and communication overlapping."""

    def average(i: int, bandwidth: float) -> float:
        _, sent, compute_s, overlap = steps[i]
        return sent / p_norm(compute_s, sent / bandwidth, overlap)

    alone = [min(capacity[link] for link in links) for links, *_ in steps]
    flows = {i: Flow(links, average(i, alone[i])) for i, (links, *_) in enumerate(steps)}
    sending = bursts(flows, max_min(flows, capacity), capacity)
    for link in range(LINKS):
        carried = sum(average(i, sending[i]) for i, flow in flows.items() if link in flow.links)
        assert carried <= capacity[link] * (1 + 1e-9)


def test_two_equal_flows_on_one_uplink_get_halves() -> None:
    flows = {"a": Flow((0, 2), 10.0), "b": Flow((1, 2), 10.0)}
    capacity = [10.0, 10.0, 8.0]
    rates = max_min(flows, capacity)
    assert rates == {"a": 4.0, "b": 4.0}
    assert bursts(flows, rates, capacity) == {"a": 4.0, "b": 4.0}


def test_what_a_light_flow_leaves_goes_to_the_heavy_one() -> None:
    """On average; while the light one sends it has half of the link."""
    flows = {"light": Flow((0,), 1.0), "heavy": Flow((0,), 100.0)}
    rates = max_min(flows, [8.0])
    assert rates == {"light": 1.0, "heavy": 7.0}
    assert bursts(flows, rates, [8.0]) == {"light": 4.0, "heavy": 7.0}


def test_what_flows_below_an_equal_share_leave_is_divided_among_those_that_send() -> None:
    flows = {"light": Flow((0,), 1.0), "medium": Flow((0,), 2.0), "heavy": Flow((0,), 100.0)}
    rates = max_min(flows, [8.0])
    assert rates == {"light": 1.0, "medium": 2.0, "heavy": 5.0}
    assert bursts(flows, rates, [8.0]) == {"light": 3.0, "medium": 3.5, "heavy": 5.0}


def test_flows_that_do_not_fill_a_link_send_faster_than_half_of_it() -> None:
    flows = {"a": Flow((0,), 2.0), "b": Flow((0,), 3.0)}
    assert bursts(flows, max_min(flows, [10.0]), [10.0]) == {"a": 7.0, "b": 8.0}


def test_a_flow_without_links_gets_what_it_wants() -> None:
    flows = {"inside": Flow((), 5.0)}
    assert max_min(flows, []) == {"inside": 5.0}
    assert bursts(flows, {"inside": 5.0}, []) == {"inside": float("inf")}


def test_duty_of_others_divides_a_link() -> None:
    """Two jobs that only communicate: each gets half. One that never sends takes nothing."""
    always = DutyFlow((0,), lambda bandwidth: 1.0, 1.0)
    never = DutyFlow((0,), lambda bandwidth: 0.0, 0.0)
    assert duty({1: always, 2: always}, [10.0]) == {1: (5.0, 1.0), 2: (5.0, 1.0)}
    assert duty({1: always, 2: never}, [10.0]) == {1: (10.0, 1.0), 2: (5.0, 0.0)}


@given(st.integers(1, 6), st.floats(0.01, 10.0), st.floats(0.1, 100.0))
def test_duty_comes_near_its_fixed_point(jobs: int, compute_s: float, sent: float) -> None:
    def duty_at(bandwidth: float) -> float:
        comm_s = sent / bandwidth
        return comm_s / (comm_s + compute_s)

    shares = duty({i: DutyFlow((0,), duty_at, duty_at(10.0)) for i in range(jobs)}, [10.0])
    expected = 10.0 / (1 + (jobs - 1) * duty_at(shares[0].bandwidth))
    assert shares[0].bandwidth == pytest.approx(expected, rel=0.1)
    assert len(set(shares.values())) == 1
