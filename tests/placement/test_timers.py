"""Timers learnt from waits: percentile, censored samples, window; and why the mean of successes does not do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.core.cluster import Tier
from trine.placement.timers import DEFAULT_S, HOUR_S, LONGEST_S, Timers

RACK_S, NODE_S = DEFAULT_S[Tier.RACK], DEFAULT_S[Tier.NODE]


def got_nodes(waits_s: list[float], rule: str = "auto") -> Timers:
    timers = Timers(rule)
    for at_s, wait_s in enumerate(waits_s):
        timers.observe(float(at_s), 4, Tier.NODE, Tier.NODE, wait_s)
    return timers


def test_before_anything_is_known() -> None:
    assert (NODE_S, RACK_S) == (3 * HOUR_S, 6 * HOUR_S)
    assert Timers().timer_s(4, Tier.NODE) == NODE_S and Timers().timer_s(64, Tier.RACK) == RACK_S


def test_the_default_counts_until_twenty_samples_are_there() -> None:
    assert got_nodes([0.0] * 18).timer_s(4, Tier.NODE) == NODE_S
    assert got_nodes([0.0] * 20).timer_s(4, Tier.NODE) == 0.0
    assert got_nodes([5 * HOUR_S]).timer_s(4, Tier.NODE) == 5 * HOUR_S


def test_it_is_the_95th_percentile_of_the_last_fifty() -> None:
    assert got_nodes([float(i) for i in range(1, 41)]).timer_s(4, Tier.NODE) == 38.0
    assert got_nodes([9e4] * 30 + [7.0] * 50).timer_s(4, Tier.NODE) == 7.0


def test_samples_older_than_a_day_are_dropped_when_another_comes() -> None:
    timers = got_nodes([9_000.0] * 30)
    for i in range(25):
        timers.observe(25 * HOUR_S + i, 4, Tier.NODE, Tier.NODE, 60.0)
    assert timers.timer_s(4, Tier.NODE) == 60.0


def test_demands_and_tiers_are_apart() -> None:
    timers = got_nodes([0.0] * 30)
    assert timers.timer_s(8, Tier.NODE) == NODE_S and timers.timer_s(4, Tier.RACK) == RACK_S


def test_a_renounced_tier_counts_with_twice_the_wait() -> None:
    timers = got_nodes([100.0] * 20)
    for i in range(5):
        timers.observe(100.0 + i, 4, Tier.NODE, Tier.RACK, 7_000.0)
    assert timers.timer_s(4, Tier.NODE) == 14_000.0
    assert timers.timer_s(4, Tier.RACK) == RACK_S, "five of them got a rack; the default is longer"
    for i in range(30):
        timers.observe(200.0 + i, 4, Tier.NODE, Tier.NETWORK, 20 * HOUR_S)
    assert timers.timer_s(4, Tier.NODE) == timers.timer_s(4, Tier.RACK) == LONGEST_S


def test_what_cannot_be_better_is_no_sample() -> None:
    """16 GPUs never fit a node: that is nothing they renounced."""
    timers = Timers()
    timers.observe(0.0, 16, Tier.RACK, Tier.NETWORK, 50.0)
    assert list(timers.state()) == ["16/rack"]


def play(rule: str) -> float:
    """Jobs that wait for a node, which one in three gets within the hour, the others after ten; returns the timer."""
    timers = Timers(rule)
    for i in range(400):
        offer_s = HOUR_S / 2 if i % 3 == 0 else 10 * HOUR_S
        timer_s = timers.timer_s(4, Tier.NODE)
        if offer_s <= timer_s:
            timers.observe(60.0 * i, 4, Tier.NODE, Tier.NODE, offer_s)
        else:
            timers.observe(60.0 * i, 4, Tier.NODE, Tier.RACK, timer_s)
    return timers.timer_s(4, Tier.NODE)


def test_the_mean_of_successes_collapses_and_the_percentile_does_not() -> None:
    assert play("mean") == HOUR_S / 2
    assert play("auto") >= 10 * HOUR_S


def test_a_timer_of_nothing_recovers_when_nodes_become_scarce() -> None:
    timers = got_nodes([0.0] * 50)
    assert timers.timer_s(4, Tier.NODE) == 0.0
    for i in range(10):
        timers.observe(100.0 + i, 4, Tier.NODE, Tier.RACK, timers.timer_s(4, Tier.NODE))
    assert timers.timer_s(4, Tier.NODE) >= 1_200.0


waits = st.lists(st.tuples(st.floats(0, 2e5), st.booleans()), min_size=1, max_size=60)


def learnt(told: list[tuple[float, bool]]) -> Timers:
    timers = Timers()
    for at_s, (wait_s, renounced) in enumerate(told):
        timers.observe(float(at_s), 4, Tier.NODE, Tier.RACK if renounced else Tier.NODE, wait_s)
    return timers


@given(waits, st.data())
def test_longer_waits_never_make_a_timer_shorter(told: list[tuple[float, bool]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(told) - 1))
    longer = [*told]
    longer[at] = (told[at][0] + data.draw(st.floats(0, 1e5)), told[at][1] or data.draw(st.booleans()))
    before, after = learnt(told), learnt(longer)
    assert 0.0 <= before.timer_s(4, Tier.NODE) <= after.timer_s(4, Tier.NODE) <= LONGEST_S
    assert before.expected_s(4, Tier.NODE) <= after.expected_s(4, Tier.NODE) * (1 + 1e-12)


@given(waits)
def test_state_and_restore(told: list[tuple[float, bool]]) -> None:
    timers, other = learnt(told), Timers()
    other.restore(json.loads(json.dumps(timers.state())))
    for tier in DEFAULT_S:
        assert other.timer_s(4, tier) == timers.timer_s(4, tier)
        assert other.expected_s(4, tier) == timers.expected_s(4, tier)
    assert other.state() == timers.state()


def test_expected_wait_is_time_waited_by_successes() -> None:
    timers = Timers()
    assert timers.expected_s(4, Tier.NODE) == HOUR_S
    timers.observe(0.0, 4, Tier.NODE, Tier.NODE, 600.0)
    timers.observe(1.0, 4, Tier.NODE, Tier.RACK, 1_200.0)
    assert timers.expected_s(4, Tier.NODE) == pytest.approx((HOUR_S + 1_800.0) / 2)


def test_changes_are_kept_for_the_report() -> None:
    timers = got_nodes([0.0] * 25)
    assert [tuple(change) for change in timers.changes] == [(18.0, 4, Tier.NODE, 0.0)]
