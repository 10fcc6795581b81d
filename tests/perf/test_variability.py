from __future__ import annotations

import dataclasses

import pytest

from trine.core.cluster import Cluster
from trine.perf.variability import VariabilityTable

TABLE = VariabilityTable(2, {"B": (1.0, 1.1), "A": (0.9, 1.3)})


def test_each_class_has_its_own_slowdowns() -> None:
    assert TABLE.classes == ("A", "B")
    assert TABLE.slowdown("A") == [0.9, 1.3]
    assert TABLE.slowdown("B") == [1.0, 1.1]


@pytest.mark.parametrize("app_class", ["", "Z"])
def test_an_unknown_class_counts_as_the_most_sensitive(app_class: str) -> None:
    assert TABLE.slowdown(app_class) == TABLE.slowdown("A")


@pytest.mark.parametrize("app_class", ["", "A"])
def test_without_a_table_all_gpus_are_alike(app_class: str) -> None:
    flat = VariabilityTable.flat(3)
    assert flat.classes == ()
    assert flat.slowdown(app_class) == [1.0, 1.0, 1.0]


def test_slowdowns_come_from_the_cluster_description() -> None:
    cluster = Cluster.uniform(1, 2)
    assert VariabilityTable.of_cluster(cluster) == VariabilityTable.flat(2)
    scored = dataclasses.replace(cluster, scores={"A": (1.0, 2.0)})
    assert VariabilityTable.of_cluster(scored).slowdown("A") == [1.0, 2.0]


def test_a_table_of_the_wrong_size_is_a_bug() -> None:
    with pytest.raises(ValueError, match="2 slowdowns for 3 GPUs"):
        VariabilityTable(3, {"A": (1.0, 1.0)})
