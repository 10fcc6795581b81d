from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from trine.core.cluster import Cluster, Links
from trine.core.errors import InputError
from trine.inputs.cluster import dump_cluster, load_cluster
from trine.inputs.cluster_shape import FORMATS, ShapeFormat

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "clusters").glob("*.yaml"))


def write(tmp_path: Path, text: str, name: str = "c.yaml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def refused(spec: str) -> str:
    with pytest.raises(InputError) as caught:
        load_cluster(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nodes_times_gpus() -> None:
    assert load_cluster("16x4") == Cluster.uniform(16, 4)
    assert load_cluster(" 16X4 ") == Cluster.uniform(16, 4)


def test_racks_times_nodes_times_gpus() -> None:
    assert load_cluster("4x8x2") == Cluster.uniform(32, 2, nodes_per_rack=8)


def test_types() -> None:
    cluster = load_cluster("v100=8x1,p100=16x1,k80=24x1")
    assert cluster.gpus_by_type == {"v100": 8, "p100": 16, "k80": 24}
    assert len(cluster.racks) == 1
    assert len({node.name for node in cluster.nodes}) == 48


def test_types_with_racks_get_racks_of_their_own() -> None:
    cluster = load_cluster("v100=2x4x8,k80=1x2x4")
    assert [len([n for n in cluster.nodes if n.rack == r]) for r in cluster.racks] == [4, 4, 2]
    assert cluster.gpus_by_type == {"v100": 64, "k80": 8}


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("16x", ("GPUs per node", "found nothing")),
        ("x4", ("nodes", "found nothing")),
        ("0x4", ("nodes", "'0'", "at least 1")),
        ("4x0", ("GPUs per node", "'0'")),
        ("-8x4", ("nodes", "'-8'")),
        ("1.5x4", ("nodes", "'1.5'")),
        ("axb", ("neither a cluster shape nor a file",)),
        ("16", ("'16x4'",)),
        ("2x2x2x2", ("racks x nodes x GPUs",)),
        ("v100=8x1,v100=4x1", ("'v100' found twice",)),
        ("v100=8x1,V100=4x1", ("'V100' found twice",)),
        ("8x1,k80=4x4", ("without a GPU type",)),
        ("v100=8x1,", ("nothing after a comma",)),
        ("v100=4x4,k80=1x2x3", ("racks",)),
        ("1000001x1", ("1,000,001 GPUs", "at most 1,000,000")),
        ("99999x99999", ("at most 1,000,000",)),
        ("1x" + "9" * 5000, ("at most 1,000,000",)),
        ("", ("found nothing",)),
        ("absent.yaml", ("absent.yaml: no such file",)),
        ("some/where", ("no such file",)),
    ],
)
def test_bad_shapes_say_what_is_wrong(spec: str, parts: tuple[str, ...]) -> None:
    text = refused(spec)
    for part in parts:
        assert part in text


FULL = """\
name: lab
racks:
  - {count: 2, nodes: 2, gpus: 4, type: v100}
  - name: old
    gpus: 2
    type: k80
    nodes: [n1, {name: n2, gpus: 1}, {count: 2}]
links:
  intra_node: 120 GB/s
  nic: 25 Gb/s
  uplink: 5000000000
  by_type:
    k80: {intra_node: 1 GiB/s}
prices_per_gpu_hour: {v100: 2.5, k80: 0.45}
slowdowns:
  A: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1.5, 1, 1, 1, 1, 1, 0.9]
"""


def test_a_full_yaml_file(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, FULL))
    assert cluster.name == "lab"
    assert cluster.racks == ("rack0", "rack1", "old")
    assert [(n.name, n.gpus, n.gpu_type) for n in cluster.nodes[3:]] == [
        ("node3", 4, "v100"),
        ("n1", 2, "k80"),
        ("n2", 1, "k80"),
        ("node6", 2, "k80"),
        ("node7", 2, "k80"),
    ]
    assert cluster.links == Links(120e9, 25e9 / 8, 5e9)
    assert cluster.type_links == {"k80": Links(2.0**30, None, None)}
    assert cluster.prices_per_gpu_h == {"v100": 2.5, "k80": 0.45}
    assert cluster.scores["A"][16] == 1.5


def test_loose_nodes_may_interleave_racks(tmp_path: Path) -> None:
    text = (
        "nodes:\n - {name: a, gpus: 2, rack: r1}\n - {gpus: 4, rack: r2, count: 2}\n - {name: c, gpus: 2, rack: r1}\n"
    )
    cluster = load_cluster(write(tmp_path, text))
    assert [(n.name, n.rack) for n in cluster.nodes] == [("a", "r1"), ("node1", "r2"), ("node2", "r2"), ("c", "r1")]


def test_a_shape_in_a_file_can_have_links(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, "shape: v100=2x2x4\nlinks: {nic: 10 GB/s}\n"))
    assert (cluster.gpu_count, len(cluster.racks), cluster.links.nic_bytes_per_s) == (16, 2, 10e9)


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("name: x\n", 1, ("shape, racks, nodes, topology",)),
        ("name: x\nrakcs: []\n", 2, ("'rakcs'", "did you mean 'racks'?")),
        ("shape: 2x2\nracks: [{nodes: 1, gpus: 1}]\n", 2, ("racks", "only one of")),
        ("racks: []\n", 1, ("racks", "at least one")),
        ("racks:\n - {nodes: 2}\n", 2, ("racks[0].nodes", "gpus")),
        ("racks:\n - {nodes: 2, gpus: 0}\n", 2, ("racks[0].gpus", "'0'")),
        ("racks:\n - {nodes: [], gpus: 1}\n", 2, ("racks[0].nodes", "at least one node")),
        ("racks:\n - {nodes: 2, gpus: 4, tpye: v100}\n", 2, ("racks[0]", "did you mean 'type'?")),
        ("racks:\n - {name: a, nodes: 1, gpus: 1}\n - {name: a, nodes: 1, gpus: 1}\n", 3, ("'a' found twice",)),
        ("racks:\n - gpus: 1\n   nodes: [a, b]\n - gpus: 1\n   nodes:\n    - a\n", 6, ("'a' found twice",)),
        ("racks:\n - {nodes: 1000000, gpus: 1, count: 1000000}\n", 2, ("at most 1,000,000 GPUs",)),
        ("nodes: 16\n", 1, ("nodes", "a list")),
        ("shape: 16x\n", 1, ("GPUs per node",)),
        ("shape: 2x2\nlinks: {nic: 25}\n", 2, ("links.nic", "without a unit")),
        ("shape: 2x2\nlinks: {nic: 25 gb/s}\n", 2, ("links.nic", "'25 Gb/s' (bits)")),
        ("shape: 2x2\nlinks: {nic: -1 GB/s}\n", 2, ("links.nic",)),
        ("shape: 2x2\nlinks: {nic: 0 GB/s}\n", 2, ("links.nic", "greater than 0")),
        ("shape: 2x2\nlinks: {nics: 1 GB/s}\n", 2, ("links", "did you mean 'nic'?")),
        ("shape: v100=2x2\nprices_per_gpu_hour:\n  v10: 2\n", 3, ("'v10'", "did you mean 'v100'?")),
        ("shape: v100=2x2\nprices_per_gpu_hour:\n  v100: -2\n", 3, ("prices_per_gpu_hour.v100", "at least 0")),
        ("shape: 2x2\nslowdowns:\n  A: [1, 1, 1]\n", 3, ("slowdowns.A", "3 values", "expected 4")),
        ("shape: 2x2\nslowdowns:\n  A: [1, 1, 1, 0]\n", 3, ("slowdowns.A[3]", "greater than 0")),
        ("- 1\n", 1, ("a list",)),
    ],
)
def test_bad_yaml_names_line_and_key(tmp_path: Path, text: str, line: int, parts: tuple[str, ...]) -> None:
    path = write(tmp_path, text)
    found = refused(path)
    assert found.startswith(f"{path}:{line}: ")
    for part in parts:
        assert part in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "job_id,num_gpus,submit_time,duration,model\n0,1,0,100,resnet\n"),
        ("t.csv", "timestamp,duration,num_gpus\n1,2,3\n"),
        ("t.trace", "ResNet\tpython x\t/tmp\t--steps\t0\t100\t1\t0\n"),
    ],
)
def test_a_trace_is_recognised(tmp_path: Path, name: str, text: str) -> None:
    assert "looks like a job trace" in refused(write(tmp_path, text, name))


def test_other_tables_are_refused_with_the_known_formats(tmp_path: Path) -> None:
    text = refused(write(tmp_path, "a,b\n1,2\n", "t.csv"))
    for kind in FORMATS:
        assert kind.name in text


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "directory" in refused(str(tmp_path))


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
class TestShapeFormats:
    """What every public shape format must do; a format added to ``FORMATS`` is tested as it is."""

    def test_plain_and_gzip_give_the_same(self, kind: ShapeFormat, tmp_path: Path) -> None:
        plain = load_cluster(write(tmp_path, kind.sample, "shape.csv"))
        packed = tmp_path / "shape.csv.gz"
        packed.write_bytes(gzip.compress(kind.sample.encode()))
        assert load_cluster(str(packed)) == plain
        assert plain.gpu_count > 0
        assert all(node.gpus > 0 and node.gpu_type for node in plain.nodes)

    def test_dump_loads_back(self, kind: ShapeFormat, tmp_path: Path) -> None:
        cluster = load_cluster(write(tmp_path, kind.sample, "shape.csv"))
        assert load_cluster(write(tmp_path, dump_cluster(cluster))) == cluster

    def test_a_short_line_is_refused(self, kind: ShapeFormat, tmp_path: Path) -> None:
        path = write(tmp_path, kind.sample.rstrip("\n") + "\nx\n", "shape.csv")
        assert f"{path}:{kind.sample.rstrip().count(chr(10)) + 2}: " in refused(path)

    def test_a_header_alone_is_refused(self, kind: ShapeFormat, tmp_path: Path) -> None:
        assert kind.name in refused(write(tmp_path, kind.sample.partition("\n")[0], "shape.csv"))

    def test_gpus_per_node_only_where_the_file_is_silent(self, kind: ShapeFormat, tmp_path: Path) -> None:
        write(tmp_path, kind.sample, "shape.csv")
        spec = write(tmp_path, "topology: {file: shape.csv, gpus_per_node: 3, type: h100}\n")
        if kind.states_gpus:
            assert "gpus_per_node" in refused(spec)
        else:
            assert {(n.gpus, n.gpu_type) for n in load_cluster(spec).nodes} == {(3, "h100")}


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind.node_column], ids=lambda kind: kind.name)
def test_a_node_twice_is_refused(kind: ShapeFormat, tmp_path: Path) -> None:
    lines = kind.sample.splitlines()
    assert "found twice" in refused(write(tmp_path, "\n".join([*lines, lines[1]]), "shape.csv"))


@pytest.mark.parametrize(
    "bad", ["sn,gpu,model\nn0,-1,T4\n", "sn,gpu,model\nn0,two,T4\n", "sn,gpu,model\nn0,²,T4\n", "sn,gpu,model\nn0,2,\n"]
)
def test_bad_cells_name_line_and_column(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path, bad, "nodes.csv")
    assert refused(path).startswith((f"{path}:2: gpu: ", f"{path}:2: model: "))


def test_nodes_without_gpus_are_left_out_and_noted(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, "sn,gpu,model\nn0,2,T4\nn1,0,\n", "nodes.csv"))
    assert [node.name for node in cluster.nodes] == ["n0"]
    assert "1 of 2 nodes have no GPU" in " ".join(cluster.notes)


def test_lingjun(shared_data: Path) -> None:
    cluster = load_cluster(str(shared_data / "traces/cluster_shapes/lingjun2023_topo.csv.gz"))
    sizes = Counter(node.rack for node in cluster.nodes).values()
    assert (len(cluster.nodes), len(cluster.racks), min(sizes), max(sizes)) == (847, 48, 3, 24)
    assert cluster.gpu_count == 847 * 8
    assert "8 per host assumed" in cluster.notes[0]


@pytest.mark.parametrize(
    ("file", "gpus", "nodes", "racks"),
    [
        ("tiresias/cluster_spec.csv", 64, 16, 1),
        ("tiresias/n160g8.csv", 1280, 160, 5),
        ("tiresias/n256g8.csv", 2048, 256, 8),
        ("tiresias/n32g4.csv", 128, 32, 1),
        ("tiresias/n1g4.csv", 4, 1, 1),
        ("philly_flat/philly_revised_machine_list.csv", 3205, 539, 1),
        ("alibaba_openb_2023/openb_node_list_gpu_node.csv", 6212, 1213, 1),
        ("alibaba_openb_2023/openb_node_list_all_node.csv.gz", 6212, 1213, 1),
    ],
)
def test_public_shapes(shared_data: Path, file: str, gpus: int, nodes: int, racks: int) -> None:
    cluster = load_cluster(str(shared_data / "traces" / file))
    assert (cluster.gpu_count, len(cluster.nodes), len(cluster.racks)) == (gpus, nodes, racks)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_shipped_examples_load_and_round_trip(path: Path, tmp_path: Path) -> None:
    cluster = load_cluster(str(path))
    assert load_cluster(write(tmp_path, dump_cluster(cluster))) == cluster


def test_the_example_in_the_documentation_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text(encoding="utf-8")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    assert load_cluster(write(tmp_path, example)).gpus_by_type == {"v100": 256, "k80": 18}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
