"""The Gantt chart shows GPU types, racks and slow chips; where there is nothing to show, there are no strips."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.report.plausible import plausible_run
from trine.core.cluster import Cluster, Node
from trine.core.result import RunResult
from trine.report import gantt
from trine.report.series import busy_by_type, clock_span, time_mean, use_by_type

NODES = (Node("a", 2, "v100", "r0"), Node("b", 2, "v100", "r1"), Node("c", 4, "k80", "r1"))
SLOW = {"A": (1.0, 1.0, 1.45, 1.0, 1.0, 1.0, 1.0, 0.95), "B": (1.0, 1.02, 1.1, 1.0, 1.0, 1.0, 1.0, 1.0)}


def mixed_run(**cluster: Any) -> RunResult:
    """A run on eight GPUs, shown on a cluster with two types, two racks and a slow chip."""
    return replace(plausible_run(jobs=30, nodes=2, gpus_per_node=4), cluster=Cluster(NODES, **cluster))


def drawn(result: RunResult, max_cells: int = 160_000) -> tuple[dict[str, Any], str]:
    found = gantt.map_figure(result, max_cells)
    assert found is not None
    return found


def test_types_have_a_strip_and_a_legend() -> None:
    figure, sentence = drawn(mixed_run())
    strip, *names = figure["data"]
    assert [z for (z,) in strip["z"]] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [n["name"] for n in names] == ["v100 (4 GPUs)", "k80 (4 GPUs)"]
    assert "The first strip is the GPU type." in sentence


def test_slow_chips_have_a_strip_and_are_counted() -> None:
    figure, sentence = drawn(mixed_run(scores=SLOW))
    chips = figure["data"][-1]
    assert [z for (z,) in chips["z"]] == [1.0, 1.02, 1.45, 1.0, 1.0, 1.0, 1.0, 1.0], "the class that suffers most"
    assert "1 GPU at least 1.1 times" in sentence
    assert figure["jobmap"]["gpus"][2] == "GPU 2 on b (v100, r1), chip A 1.4×, B 1.1×"
    assert {"xaxis2", "xaxis3"} <= figure["layout"].keys()


def test_racks_are_parted_by_lines_of_their_own() -> None:
    layout = drawn(mixed_run())[0]["layout"]
    thick = [s["y0"] for s in layout["shapes"] if s["line"]["color"] == "@muted"]
    assert thick == [1.5], "between node a of one rack and node b of the other"


def test_a_cluster_of_equal_gpus_has_no_strips() -> None:
    result = plausible_run(jobs=10, nodes=4)
    alike = replace(result, cluster=Cluster.uniform(4, 4))
    figure, sentence = drawn(alike)
    assert figure["data"] == []
    assert "xaxis2" not in figure["layout"]
    assert "strip" not in sentence
    assert "rack" not in sentence


def test_a_large_cluster_shows_them_by_node() -> None:
    run = plausible_run(jobs=60, nodes=80, gpus_per_node=4)
    nodes = tuple(Node(f"n{i}", 4, "v100" if i < 40 else "k80", f"r{i // 20}") for i in range(80))
    chips = {"A": tuple(1.3 if gpu == 7 else 1.0 for gpu in range(320))}
    figure, _ = drawn(replace(run, cluster=Cluster(nodes, scores=chips)))
    heat, types, *_, chip = figure["data"]
    assert len(heat["z"]) == len(types["z"]) == len(chip["z"]) == 80
    assert [row for row, (z,) in enumerate(chip["z"]) if z > 1] == [1]
    assert types["z"][39] != types["z"][40]


def test_labels_of_rows_have_room() -> None:
    run = plausible_run(jobs=10, nodes=40, gpus_per_node=1)
    layout = drawn(run)[0]["layout"]
    assert 2 <= len(layout["yaxis"]["tickvals"]) <= (layout["height"] - 110) / 15


def test_use_by_type_is_the_mean_of_the_load_by_type() -> None:
    result = mixed_run()
    use, load = use_by_type(result), busy_by_type(result, clock_span(result))
    assert use.keys() == load.keys() == {"v100", "k80"}
    for gpu_type in use:
        assert abs(use[gpu_type].share - time_mean(load[gpu_type])) < 1e-9
    held = sum(len(s.gpus) * (s.end_s - s.start_s) for s in result.segments)
    assert abs(sum(u.held_gpu_s for u in use.values()) - held) < 1e-6 * held
