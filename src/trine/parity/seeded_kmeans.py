"""K-means of numbers as the published simulator of PAL computes it: seeded centres and Lloyd's iteration.

It calls a library that draws the first centres (k-means++, greedy), iterates, starts over ten times and keeps the best:
a local optimum, which for some chips is another than the exact one of ``perf.bins``. The same draws from the same
stream lead to the same optimum here, without that library (scikit-learn before 1.3: later ones draw otherwise).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SEED, STARTS, MOST_STEPS = 1, 10, 300
TOLERANCE = 1e-4
"""Centres that together move by less than this part of the variance have arrived."""


@dataclass(frozen=True)
class _Clustering:
    labels: Ints
    centres: Floats
    error: float
    """Sum of squared distances to the centres."""


def seeded_kmeans(values: Floats, clusters: int) -> tuple[Ints, Floats]:
    """Labels of ``values``, ascending in their centres, and these centres."""
    stream, middle = np.random.RandomState(SEED), float(values.mean())
    points = values - middle
    best = _iterated(points, _first_centres(points, clusters, stream))
    for _ in range(STARTS - 1):
        found = _iterated(points, _first_centres(points, clusters, stream))
        if found.error < best.error and not _same(found.labels, best.labels):
            best = found
    order = np.argsort(best.centres, kind="stable")
    return np.argsort(order)[best.labels], best.centres[order] + middle


def _first_centres(points: Floats, clusters: int, stream: np.random.RandomState) -> Floats:
    """Points drawn by their squared distance to the nearest centre so far; of several draws the one that helps most."""
    n, draws = len(points), 2 + int(np.log(clusters))
    chosen = [int(stream.randint(n))]
    nearest = (points - points[chosen[0]]) ** 2
    for _ in range(1, clusters):
        wanted = stream.uniform(size=draws) * nearest.sum()
        drawn = np.minimum(np.searchsorted(np.cumsum(nearest), wanted), n - 1)
        distances = np.minimum(nearest, (points[drawn][:, None] - points) ** 2)
        best = int(distances.sum(axis=1).argmin())
        nearest = distances[best]
        chosen.append(int(drawn[best]))
    return points[chosen]


def _iterated(points: Floats, centres: Floats) -> _Clustering:
    """Lloyd's iteration until no point changes its centre, or the centres hardly move."""
    before = np.full(len(points), -1)
    least = TOLERANCE * float(points.var())
    for _ in range(MOST_STEPS):
        labels = _nearest(points, centres)
        moved = _means(points, labels, centres)
        shift, centres = float(((moved - centres) ** 2).sum()), moved
        if np.array_equal(labels, before):
            break
        if shift <= least:
            labels = _nearest(points, centres)
            break
        before = labels
    return _Clustering(labels, centres, float(((points - centres[labels]) ** 2).sum()))


def _nearest(points: Floats, centres: Floats) -> Ints:
    return np.asarray(np.abs(points[:, None] - centres).argmin(axis=1), np.int64)


def _means(points: Floats, labels: Ints, centres: Floats) -> Floats:
    """A centre without points takes the point farthest from its own, which leaves its cluster."""
    count = np.bincount(labels, minlength=len(centres)).astype(np.float64)
    total = np.bincount(labels, points, len(centres))
    empty = np.flatnonzero(count == 0)
    if len(empty):
        farthest = np.argsort(-((points - centres[labels]) ** 2), kind="stable")[: len(empty)]
        for centre, point in zip(empty.tolist(), farthest.tolist(), strict=True):
            total[labels[point]] -= points[point]
            count[labels[point]] -= 1
            total[centre], count[centre] = points[point], 1
    return np.asarray(total / np.maximum(count, 1.0), np.float64)


def _same(one: Ints, other: Ints) -> bool:
    """Equal up to the names of the clusters."""
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
