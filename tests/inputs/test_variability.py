from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.inputs.cluster import load_cluster
from trine.inputs.variability import load_variability

GOOD = "gpu,node,slowdown_A,slowdown_big\n0,0,1.0,2\n1,0,1.1,1\n3,1,1.3,1\n2,1,1.2,1\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gpus.csv"
    path.write_text(text)
    return path


def test_own_format_any_order_any_class(tmp_path: Path) -> None:
    table = load_variability(write(tmp_path, GOOD), load_cluster("2x2"))
    assert table.classes == ("A", "big")
    assert table.slowdown("A") == [1.0, 1.1, 1.2, 1.3]
    assert table.slowdown("big") == [2.0, 1.0, 1.0, 1.0]


def test_published_format_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "gpus.csv.gz"
    path.write_bytes(gzip.compress(b"GPU_ID,Node_ID,PerfVar_classA,PerfVar_classB\r\n0,0,1.5,1\r\n1,1,0.5,1\r\n"))
    table = load_variability(path, load_cluster("2x1"))
    assert table.classes == ("A", "B")
    assert table.slowdown("A") == [1.5, 0.5]


def test_nodes_by_name_and_extra_columns(tmp_path: Path) -> None:
    text = "gpu,node,rack,type,slowdown_A\n0,1,r,v100,1\n1,0,r,v100,2\n"
    cluster = Cluster((Node("1", 1), Node("0", 1)))
    assert load_variability(write(tmp_path, text), cluster).slowdown("A") == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("", 1, ("gpu", "no such column")),
        ("gpu,slowdown_A\n", 1, ("node", "no such column")),
        ("gpu,gpu_id,node,slowdown_A\n", 1, ("gpu", "found twice")),
        ("gpu,node\n", 1, ("no column of slowdowns",)),
        ("gpu,node,slowdown_A,slowdown_A\n", 1, ("class 'A' found twice",)),
        ("gpu,node,slowdwn_A\n", 1, ("did you mean 'slowdown_A'?",)),
        (GOOD.replace("1.1", "nan"), 3, ("slowdown_A", "'nan'", "finite")),
        (GOOD.replace("1.1", "inf"), 3, ("slowdown_A", "'inf'")),
        (GOOD.replace("1.1", "0"), 3, ("slowdown_A", "greater than 0")),
        (GOOD.replace("1.1", "-1"), 3, ("slowdown_A",)),
        (GOOD.replace("1.1", ""), 3, ("slowdown_A", "''")),
        (GOOD.replace("1.1,", ""), 3, ("3 columns", "4 columns")),
        (GOOD.replace("\n3,1", "\n1,1"), 4, ("gpu", "GPU 1 found twice", ":3")),
        (GOOD.replace("\n3,1", "\n4,1"), 5, ("no row for GPU 3",)),
        (GOOD.replace("\n3,1", "\nx,1"), 4, ("gpu", "'x'")),
        (GOOD.replace("3,1,1.3,1\n", ""), 4, ("3 GPUs", "expected 4")),
        (GOOD + "4,2,1,1\n", 6, ("5 GPUs", "expected 4")),
        (GOOD.replace("\n2,1", "\n2,0"), 5, ("node", "GPU 2 is on node '0'", "node '1'")),
    ],
)
def test_bad_tables_name_line_and_field(tmp_path: Path, text: str, line: int, parts: tuple[str, ...]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_variability(path, load_cluster("2x2"))
    assert str(caught.value).startswith(f"{path}:{line}: ")
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(("gpus", "spec"), [(64, "16x4"), (256, "64x4")])
def test_realised_clusters(shared_data: Path, gpus: int, spec: str) -> None:
    path = shared_data / f"hardware/pal_gpu_variability/realised/gpus-{gpus}.csv"
    table = load_variability(path, load_cluster(spec))
    assert table.classes == ("A", "B", "C", "D")
    assert len(table.slowdown("A")) == gpus
    with pytest.raises(InputError, match="is on node"):
        load_variability(path, load_cluster(f"{gpus // 8}x8"))


def test_worlds(shared_data: Path) -> None:
    for world in sorted((shared_data / "worlds").iterdir()):
        shape = json.loads((world / "cluster.json").read_text())
        cluster = load_cluster(f"{288 // shape['gpus_per_node']}x{shape['gpus_per_node']}")
        assert load_variability(world / "gpus.csv.gz", cluster).gpu_count == 288
