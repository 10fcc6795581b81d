"""Bins under ``compat.pal_bins`` are those of the library call of the published code, local optima included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trine.parity.pal import published_bins
from trine.parity.seeded_kmeans import seeded_kmeans
from trine.perf.bins import kmeans, outliers
from trine.profile.draw import draw_table
from trine.profile.measurements import read_records

FOLDER = "hardware/pal_gpu_variability/longhorn"


@pytest.mark.parametrize("seed", range(6))
def test_other_draws_of_chips_get_the_bins_of_the_library(shared_data: Path, seed: int) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    files = {"A": "resnet", "B": "bert", "D": "pagerank"}
    sources = {
        c: read_records(shared_data / FOLDER / f"{name}-longhorn-agg.csv.gz", c).records for c, name in files.items()
    }
    table = draw_table(sources, 64, seed, "record")
    for app_class in table.classes:
        values = np.array(table.slowdown(app_class))
        count = 2 + int(outliers(values).sum())
        model = cluster.KMeans(n_clusters=count, init="k-means++", n_init=10, random_state=1).fit(values[:, None])
        labels, centres = seeded_kmeans(values, count)
        assert centres[labels] == pytest.approx(model.cluster_centers_.ravel()[model.labels_], rel=1e-9)


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
