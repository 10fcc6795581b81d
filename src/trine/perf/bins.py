"""PM scores: GPUs of similar slowdown share a bin. One-dimensional K-means, solved exactly.

Bins are what PM-First and PAL (SC'24) choose by: GPUs whose slowdowns differ by less than the noise of measuring them
count as equal, so that placements pack gangs instead of chasing the last per mille. Scores only order GPUs; how fast a
job runs is always computed from the raw slowdowns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_BINS = 10
OUTLIER_SD = 3.0
_DENSE = 512
"""Distinct values up to which a table of all costs (n x n) is quicker than the divided search."""


@dataclass(frozen=True)
class Bins:
    """``bin_of`` by GPU id, ascending in score; ``scores`` by bin; ``outlier`` by GPU id."""

    bin_of: tuple[int, ...]
    scores: tuple[float, ...]
    outlier: tuple[bool, ...]


def pm_bins(slowdowns: Sequence[float]) -> Bins:
    """Bulk and outliers in bins apart, the number of each by silhouette; the score is the mean slowdown of the bin.

    Apart, because a few GPUs twice as slow would otherwise take all centres: squared errors of the bulk are small
    beside theirs, and K-means would leave the bulk, on which most placements decide, in one bin.
    """
    values = np.asarray(slowdowns, dtype=np.float64)
    outlier = outliers(values)
    labels = np.zeros(len(values), dtype=np.int64)
    labels[~outlier] = _by_silhouette(values[~outlier])
    if outlier.any():
        labels[outlier] = labels[~outlier].max(initial=-1) + 1 + _by_silhouette(values[outlier])
    return _bins(labels, _centres(values, labels), outlier)


def outliers(values: Floats) -> NDArray[np.bool_]:
    """More than three standard deviations (of the sample) above the mean."""
    if len(values) < 2:
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray(values > values.mean() + OUTLIER_SD * values.std(ddof=1))


def _bins(labels: Ints, scores: Floats, outlier: NDArray[np.bool_]) -> Bins:
    return Bins(tuple(labels.tolist()), tuple(scores.tolist()), tuple(outlier.tolist()))


def _centres(values: Floats, labels: Ints) -> Floats:
    return np.asarray(np.bincount(labels, values) / np.bincount(labels))


def _by_silhouette(values: Floats) -> Ints:
    """Labels for the number of clusters, 2 to 10, with the best silhouette; the smallest such number on a tie."""
    distinct = len(np.unique(values))
    if distinct < 3:
        return kmeans(values, distinct)
    candidates = _kmeans_up_to(values, min(MOST_BINS, distinct - 1))[1:]
    return max(candidates, key=lambda labels: (round(silhouette(values, labels), 12), -labels.max()))


def kmeans(values: Floats, clusters: int) -> Ints:
    """Labels of an optimal K-means of numbers, ascending in value; at most one cluster per distinct value."""
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    return _kmeans_up_to(values, max(1, min(clusters, len(np.unique(values)))))[-1]


def _kmeans_up_to(values: Floats, most: int) -> list[Ints]:
    """Optimal labels for 1, 2 ... ``most`` clusters by dynamic programming over the distinct values.

    On a line, clusters of an optimal K-means are intervals. So the best k clusters of the first j points are the best
    k - 1 clusters of the first i points and one cluster of the rest, for the best i: exact, and without the seeds and
    local optima of Lloyd's iteration (Wang and Song, Ckmeans.1d.dp, The R Journal 3/2, 2011).
    """
    points, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    prefix = _Prefix(points, counts)
    n = len(points)
    best = prefix.cost(np.zeros(n, dtype=np.int64), np.arange(n))
    starts: list[Ints] = [np.zeros(n, dtype=np.int64)]
    answers = [_labels(starts, n)[inverse]]
    one_cluster = prefix.all_costs() if n <= _DENSE else None
    for _ in range(1, most):
        best, start = _next_layer(best, prefix) if one_cluster is None else _next_layer_dense(best, one_cluster)
        starts.append(start)
        answers.append(_labels(starts, n)[inverse])
    return answers


class _Prefix:
    """Sums that give the squared error of any run of the sorted points in constant time."""

    def __init__(self, points: Floats, counts: Ints) -> None:
        # Squared error = sum of squares - (sum)^2 / n: around the mean, where the two terms do not cancel badly.
        shifted = points - points.mean()
        self.weight = np.concatenate(([0], np.cumsum(counts))).astype(np.float64)
        self.first = np.concatenate(([0.0], np.cumsum(shifted * counts)))
        self.second = np.concatenate(([0.0], np.cumsum(shifted**2 * counts)))

    def cost(self, low: Ints, high: Ints) -> Floats:
        """Squared error of the points ``low`` to ``high``, both included, as one cluster."""
        weight = self.weight[high + 1] - self.weight[low]
        first = self.first[high + 1] - self.first[low]
        return np.maximum(self.second[high + 1] - self.second[low] - first**2 / weight, 0.0)

    def all_costs(self) -> Floats:
        """[low, high]: the same for all runs; infinite where the run would be empty."""
        n = len(self.weight) - 1
        low, high = np.triu_indices(n)
        costs = np.full((n, n), np.inf)
        costs[low, high] = self.cost(low, high)
        return costs


def _next_layer_dense(best: Floats, one_cluster: Floats) -> tuple[Floats, Ints]:
    """One more cluster, all starts tried at once: the quicker way for few points."""
    before = np.concatenate(([np.inf], best[:-1]))
    costs = before[:, None] + one_cluster
    start = costs.argmin(axis=0)
    return costs[start, np.arange(len(best))], start


def _next_layer(best: Floats, prefix: _Prefix) -> tuple[Floats, Ints]:
    """One more cluster. The best start of the last cluster grows with the end: halving the ends halves the search.

    Costs of intervals satisfy the quadrangle inequality, which makes the best start monotone in the end. Solving the
    middle end first therefore splits the candidates of the others in two: n log n instead of n^2. All tasks of one
    depth are solved together, to keep the work inside numpy.
    """
    n = len(best)
    cost, start = np.full(n, np.inf), np.zeros(n, dtype=np.int64)
    # Each task: ends from lo to hi (excluded), whose best starts lie between first and last (included).
    tasks = np.array([[0, n, 0, n - 1]], dtype=np.int64)
    while len(tasks):
        lo, hi, first, last = tasks.T
        middle = (lo + hi) // 2
        low, high = np.maximum(first, 1), np.minimum(last, middle)
        found = low <= high
        chosen = first.copy()
        if found.any():
            where, value = _segment_argmin(low[found], high[found], middle[found], best, prefix)
            chosen[found], start[middle[found]], cost[middle[found]] = where, where, value
        left = np.stack((lo, middle, first, chosen), axis=1)
        right = np.stack((middle + 1, hi, chosen, last), axis=1)
        tasks = np.concatenate((left, right))
        tasks = tasks[tasks[:, 0] < tasks[:, 1]]
    return cost, start


def _segment_argmin(low: Ints, high: Ints, end: Ints, best: Floats, prefix: _Prefix) -> tuple[Ints, Floats]:
    """For each task the first start in ``low..high`` with the least cost: best before it, one cluster from it on."""
    sizes = high - low + 1
    offsets = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    starts = np.arange(sizes.sum()) - np.repeat(offsets - low, sizes)
    costs = best[starts - 1] + prefix.cost(starts, np.repeat(end, sizes))
    least = np.minimum.reduceat(costs, offsets)
    hits = np.flatnonzero(costs == np.repeat(least, sizes))
    task_of_hit = np.searchsorted(offsets, hits, side="right") - 1
    _, first_hit = np.unique(task_of_hit, return_index=True)
    return starts[hits[first_hit]], least


def _labels(starts: list[Ints], n: int) -> Ints:
    """Cluster number by point, from the start of the last cluster in each layer."""
    labels = np.zeros(n, dtype=np.int64)
    end = n - 1
    for cluster in range(len(starts) - 1, 0, -1):
        start = int(starts[cluster][end])
        labels[start : end + 1] = cluster
        end = start - 1
    return labels


def silhouette(values: Floats, labels: Ints) -> float:
    """Mean silhouette of clusters that are intervals on a line; 0 for clusters of one point, as is the custom.

    Rousseeuw 1987: (b - a) / max(a, b), a the mean distance to the point's own cluster, b to the nearest other one. On
    a line the distances to all points of a cluster follow from sums, and the nearest other cluster is a neighbour.
    """
    order = np.argsort(values, kind="stable")
    x, cluster = values[order], labels[order]
    count = np.bincount(cluster).astype(np.float64)
    total = np.bincount(cluster, x)
    ends = np.cumsum(count)
    below = np.arange(len(x)) - (ends - count)[cluster]
    sum_below = (
        np.concatenate(([0.0], np.cumsum(x)))[np.arange(len(x))] - np.concatenate(([0.0], np.cumsum(total)))[cluster]
    )
    inside = x * below - sum_below + (total[cluster] - sum_below - x) - x * (count[cluster] - below - 1)
    alone = count[cluster] == 1
    own = inside / np.maximum(count[cluster] - 1, 1)
    means = total / count
    left = np.where(cluster > 0, x - means[np.maximum(cluster - 1, 0)], np.inf)
    right = np.where(cluster < len(count) - 1, means[np.minimum(cluster + 1, len(count) - 1)] - x, np.inf)
    other = np.minimum(left, right)
    widest = np.maximum(own, other)
    score = np.where(alone | (widest == 0), 0.0, (other - own) / np.where(widest == 0, 1.0, widest))
    return float(score.mean())
