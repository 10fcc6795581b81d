"""Rates alone and in pairs, as policies and the simulator ask for them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.perf.pairs import TYPES, made_up
from trine.perf.throughput import ThroughputTable, pair_kinds
from trine.policy.shares.problem import ClassPairs

TABLE = ThroughputTable(
    {("a", 1): {"v100": 10.0, "k80": 2.0}, ("b", 1): {"v100": 4.0, "k80": 0.0}, ("a", 4): {"v100": 32.0}},
    {("a", "b", 1): {"v100": (6.0, 3.0), "k80": (0.0, 0.0)}, ("a", "a", 1): {"v100": (5.0, 5.0)}},
)


def test_a_pair_is_the_same_whoever_is_named_first() -> None:
    assert TABLE.pair_rate("a", "b", 1, "V100") == (6.0, 3.0)
    assert TABLE.pair_rate("b", "a", 1, "v100") == (3.0, 6.0)
    assert TABLE.pair_rate("b", "a", 1, "k80") == (0.0, 0.0)


@pytest.mark.parametrize(
    "asked", [("b", "b", 1, "v100"), ("a", "a", 1, "k80"), ("a", "b", 4, "v100"), ("a", "x", 1, "v100")]
)
def test_what_was_not_measured_is_not_guessed(asked: tuple[str, str, int, str]) -> None:
    assert TABLE.pair_rate(*asked) is None


def test_a_type_missing_for_one_gang_takes_the_per_gpu_rate_of_another() -> None:
    assert TABLE.rate("a", 4, "k80") == 8.0
    assert TABLE.rate("a", 2, "v100") == 20.0
    assert TABLE.rate("b", 1, "a100") == 0.0
    assert TABLE.rate("nobody", 1, "v100") is None


def test_kinds_tell_the_share_policies_who_may_run_with_whom() -> None:
    jobs = [("b", 1), ("a", 1), ("b", 1), ("a", 4)]
    found = pair_kinds(TABLE, jobs, ("k80", "v100"))
    kinds = ClassPairs(found.kind, found.pairs, found.throughput)
    assert found.kind.tolist() == [0, 1, 0, 2]
    row, turned = kinds.rows(np.array([0, 1, 0, 1]), np.array([1, 1, 0, 2]))
    assert (row >= 0).tolist() == [True, True, False, False]
    assert not turned[0] and kinds.throughput[row[0]].tolist() == [[0.0, 3.0], [0.0, 6.0]]


def test_kinds_are_the_same_when_asked_again() -> None:
    table, jobs = made_up(), [(f"model{i % 12}", 1) for i in range(40)]
    first, again = (pair_kinds(table, jobs, TYPES) for _ in range(2))
    assert len(first.pairs) == 12 * 13 // 2
    assert np.array_equal(first.throughput, again.throughput) and np.array_equal(first.pairs, again.pairs)


def test_no_pairs_at_all() -> None:
    found = pair_kinds(ThroughputTable(), [("a", 1)], TYPES)
    assert found.pairs.shape == (0, 2) and found.throughput.shape == (0, 2, 3)
