from __future__ import annotations

from pathlib import Path

import pytest

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.inputs.cluster import load_cluster
from trine.inputs.variability import load_variability
from trine.profile.draw import DRAWS, draw_table, write_table
from trine.profile.measurements import MeasurementRecord, read_records

FILES = {"A": "resnet", "B": "bert", "C": "bert", "D": "pagerank"}


def source(app_class: str, times: dict[str, list[float]]) -> list[MeasurementRecord]:
    return [MeasurementRecord(g, app_class, t, i) for g, runs in times.items() for i, t in enumerate(runs)]


@pytest.fixture(scope="module")
def longhorn(shared_data: Path) -> dict[str, tuple[MeasurementRecord, ...]]:
    folder = shared_data / "hardware/pal_gpu_variability/longhorn"
    return {c: read_records(folder / f"{name}-longhorn-agg.csv.gz", c).records for c, name in FILES.items()}


@pytest.mark.parametrize("count", [64, 256])
def test_single_records_give_the_published_clusters(
    shared_data: Path, longhorn: dict[str, tuple[MeasurementRecord, ...]], count: int
) -> None:
    path = shared_data / f"hardware/pal_gpu_variability/realised/gpus-{count}.csv"
    published = load_variability(path, load_cluster(f"{count // 4}x4"))
    drawn = draw_table(longhorn, count, 42, "record")
    for c in FILES:
        assert drawn.slowdown(c) == pytest.approx(published.slowdown(c), abs=1e-12, rel=0)


def test_whole_gpus_have_no_one_off_slow_runs(longhorn: dict[str, tuple[MeasurementRecord, ...]]) -> None:
    drawn = draw_table(longhorn, 256, 42, "gpu-median")
    assert max(drawn.slowdown("A")) <= 1.13
    assert drawn.slowdown("B") == drawn.slowdown("C")  # the same GPUs from the same file


def test_a_gpu_measured_in_all_classes_keeps_its_values_together() -> None:
    a = source("A", {"x": [1, 1, 9], "y": [2, 2, 2], "z": [3, 3, 3]})
    b = source("B", {"x": [30, 30], "y": [20, 20], "z": [10, 10]})
    drawn = draw_table({"A": a, "B": b}, 50, 7)
    pairs = set(zip(drawn.slowdown("A"), drawn.slowdown("B"), strict=True))
    assert pairs == {(0.5, 1.5), (1.0, 1.0), (1.5, 0.5)}


def test_classes_without_common_gpus_are_drawn_apart() -> None:
    a, b = source("A", {"x": [1.0], "y": [2.0]}), source("B", {"u": [1.0], "v": [2.0]})
    drawn = draw_table({"A": a, "B": b}, 50, 7)
    assert len(set(zip(drawn.slowdown("A"), drawn.slowdown("B"), strict=True))) == 4


@pytest.mark.parametrize("how", DRAWS)
def test_draws_repeat_and_seeds_differ(how: str) -> None:
    sources = {"A": source("A", {f"g{i}": [1 + i / 10, 1 + i / 9] for i in range(10)})}
    assert draw_table(sources, 30, 1, how) == draw_table(sources, 30, 1, how)
    assert draw_table(sources, 30, 1, how) != draw_table(sources, 30, 2, how)


@pytest.mark.parametrize("how", DRAWS)
def test_written_tables_are_read_back_exactly(tmp_path: Path, how: str) -> None:
    cluster = Cluster.uniform(3, 4)
    drawn = draw_table({"A": source("A", {"x": [1.0, 1.1], "y": [1.3]})}, 12, 3, how)
    write_table(drawn, cluster, tmp_path / "gpus.csv")
    assert load_variability(tmp_path / "gpus.csv", cluster).slowdown("A") == drawn.slowdown("A")


def test_bad_draws_get_one_sentence() -> None:
    records = {"A": source("A", {"x": [1.0]})}
    with pytest.raises(InputError, match="did you mean 'record'"):
        draw_table(records, 4, 1, "records")
    with pytest.raises(InputError, match="class B: no records"):
        draw_table({**records, "B": []}, 4)
    with pytest.raises(InputError, match="at least 1 GPU"):
        draw_table(records, 0)
