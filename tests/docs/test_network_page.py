"""The figures of the page on the network are those that the model gives."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from trine.core.cluster import Cluster
from trine.inputs.cluster import load_cluster
from trine.inputs.links import PRESETS
from trine.perf.model_traffic import shipped_table
from trine.perf.network import Network

PAGE = ROOT / "docs/network.md"
TOGETHER, APART = (*range(4), *range(8, 12)), tuple(range(0, 64, 8))


def slowdowns(model: str, preset: str) -> str:
    network = Network(Cluster.uniform(8, 8, "v100"), PRESETS[preset])
    base = network.baseline(shipped_table().of(model), 8, "v100")
    return " / ".join(f"{network.step(base, network.route(gpus)).ratio:.2f}" for gpus in (TOGETHER, APART))


def test_the_table_of_slowdowns_is_what_the_model_gives() -> None:
    part = PAGE.read_text().split("## When it matters")[1]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", part, re.MULTILINE)]
    presets = [cell.strip("`") for cell in rows[0][1:]]
    assert sorted(presets) == sorted(PRESETS)
    for model, *cells in rows[2:]:
        assert cells == [slowdowns(model, preset) for preset in presets], model


def test_the_cluster_of_the_page_loads(tmp_path: Path) -> None:
    [text] = blocks(PAGE, "yaml")
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    network = Network(load_cluster(str(path)))
    assert network.capacity[-2] == 8 * 1.8e9 / 4 * 0.8


def test_the_presets_of_the_page_are_those_of_the_code() -> None:
    for name, links in PRESETS.items():
        assert links.intra_node_bytes_per_s and links.nic_bytes_per_s
        inside, nic = links.intra_node_bytes_per_s / 1e9, links.nic_bytes_per_s / 1e9
        assert re.search(rf"^\| `{name}` \| {inside:g} GB/s \| {nic:g} GB/s", PAGE.read_text(), re.MULTILINE)
