"""Bins under ``compat.pal_bins`` are those of the library call of the published code, local optima included."""

from __future__ import annotations

import numpy as np
import pytest

from trine.parity.pal import published_bins
from trine.parity.seeded_kmeans import seeded_kmeans
from trine.perf.bins import kmeans, outliers


def test_the_local_optimum_is_kept_where_it_is_not_the_best() -> None:
    """Drawn until the two differ: what the published code schedules by is not the exact optimum."""
    stream = np.random.default_rng(0)
    for _ in range(200):
        values = np.concatenate((stream.normal(1.0, 0.05, 60), stream.uniform(1.5, 3.0, 4)))
        count = 2 + int(outliers(values).sum())
        exact, (seeded, _) = kmeans(values, count), seeded_kmeans(values, count)
        if not np.array_equal(exact, seeded):
            assert published_bins(values.tolist()).bin_of == tuple(seeded.tolist())
            return
    pytest.fail("the seeded iteration always found the best")


def test_equal_chips_are_one_bin() -> None:
    assert published_bins([1.0] * 8).bin_of == (0,) * 8
