"""Exact one-dimensional K-means, its silhouette, and the bins made of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from trine.perf.bins import kmeans, outliers, pm_bins, silhouette

numbers = st.lists(st.integers(0, 60).map(lambda i: i / 8), min_size=1, max_size=11)


def squared_error(values: np.ndarray, labels: np.ndarray) -> float:
    return sum(float(((values[labels == k] - values[labels == k].mean()) ** 2).sum()) for k in set(labels.tolist()))


def best_error(values: np.ndarray, clusters: int) -> float:
    """The least error over all ways to cut the sorted values."""
    x = np.sort(values)
    cuts = combinations(range(1, len(x)), clusters - 1)
    return min(float(sum(((p - p.mean()) ** 2).sum() for p in np.split(x, cut))) for cut in cuts)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(numbers, st.integers(1, 5))
def test_kmeans_is_optimal_and_ascends(values: list[float], clusters: int) -> None:
    x = np.array(values)
    labels = kmeans(x, clusters)
    used = min(clusters, len(set(values)))
    assert sorted(set(labels.tolist())) == list(range(used))
    assert squared_error(x, labels) == pytest.approx(best_error(x, used), abs=1e-9)
    order = np.argsort(x, kind="stable")
    assert (np.diff(labels[order]) >= 0).all()
    assert all(labels[i] == labels[j] for i in range(len(x)) for j in range(i) if x[i] == x[j])


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.floats(0.5, 3), min_size=4, max_size=40), st.integers(2, 6))
def test_silhouette_is_the_textbook_one(values: list[float], clusters: int) -> None:
    x = np.array(values)
    labels = kmeans(x, clusters)
    if 2 <= len(set(labels.tolist())) < len(x):
        assert silhouette(x, labels) == pytest.approx(silhouette_score(x[:, None], labels), abs=1e-7)


def test_two_groups_and_an_outlier_come_out_as_two_bins_and_one() -> None:
    values = [1.0, 1.01, 0.99] * 20 + [1.1, 1.11, 1.09] * 20 + [3.0]
    bins = pm_bins(values)
    assert bins.scores == pytest.approx((1.0, 1.1, 3.0))
    assert [g for g, slow in enumerate(bins.outlier) if slow] == [120]
    assert bins.bin_of[120] == 2


def test_all_alike_is_one_bin() -> None:
    bins = pm_bins([1.0] * 16)
    assert set(bins.bin_of) == {0}
    assert bins.scores == (1.0,)
    assert not any(bins.outlier)


def test_one_gpu_has_one_bin() -> None:
    assert pm_bins([1.2]).scores == (1.2,)


def test_outliers_lie_above_the_mean_only() -> None:
    values = np.array([1.0] * 50 + [0.1, 3.0])
    assert np.flatnonzero(outliers(values)).tolist() == [51]


def test_a_large_cluster_is_binned_in_a_moment() -> None:
    values = np.abs(np.random.default_rng(0).normal(1.0, 0.02, 10_240))
    bins = pm_bins(values.tolist())
    assert bins.scores == tuple(sorted(bins.scores))
    assert bins.bin_of == pm_bins(values.tolist()).bin_of
