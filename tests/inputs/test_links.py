"""Links from presets, from YAML, from ASTRA-sim files; what is refused, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from trine.core.cluster import Cluster, Links
from trine.core.errors import InputError
from trine.inputs.cluster import load_cluster
from trine.inputs.links import PRESETS, load_network
from trine.perf.model_traffic import ModelTraffic
from trine.perf.network import Network

CLUSTER = Cluster.uniform(8, 4, nodes_per_rack=4)
GB = 2.0**30


def write(tmp_path: Path, text: str, name: str = "network.yml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def astra(tmp_path: Path, topology: str, npus: str, bandwidth: str, latency: str) -> str:
    text = f"topology: [{topology}]\nnpus_count: [{npus}]\nbandwidth: [{bandwidth}]  # GB/s\nlatency: [{latency}]\n"
    return write(tmp_path, text)


def test_presets_by_name_are_ordered_by_how_fast_they_are() -> None:
    names = ("cloud-tcp", "ethernet-50g", "ethernet-100g", "dgx-ib")
    nics = [load_network(name, CLUSTER).nic_bytes_per_s or 0.0 for name in names]
    assert nics == sorted(nics)
    assert sorted(PRESETS) == sorted(names)


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        InputError, match=r"unknown network 'dgx_ib' \(did you mean 'dgx-ib'\?\); expected one of cloud-"
    ):
        load_network("dgx_ib", CLUSTER)


def test_every_key_of_links(tmp_path: Path) -> None:
    text = """
shape: 2x4x4
links:
  intra_node: 10 GB/s
  nic: 2 GB/s
  oversubscription: 4
  spine: 3 GB/s
  latency_s: {node: 1e-6, rack: 2e-6, network: 3e-6}
  background: {nic: 0.1, uplink: 0.2, spine: 0.3}
  congestion: 0.5
  unreduced: 1
"""
    expected = Links(10e9, 2e9, None, 3e9, 4.0, 1e-6, 2e-6, 3e-6, 0.5, 0.1, 0.2, 0.3, 1.0)
    assert load_cluster(write(tmp_path, text, "c.yaml")).links == expected


def test_a_preset_in_a_cluster_file_with_something_changed(tmp_path: Path) -> None:
    path = write(tmp_path, "shape: 2x4x4\nlinks: {preset: ethernet-50g, oversubscription: 8}\n", "c.yaml")
    links = load_cluster(path).links
    assert links.nic_bytes_per_s == PRESETS["ethernet-50g"].nic_bytes_per_s
    assert links.oversubscription == 8


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ("{nic: 0 GB/s}", ("links.nic", "greater than 0")),
        ("{uplink: -2 GB/s}", ("links.uplink", "a bandwidth such as")),
        ("{spine: 0}", ("links.spine", "greater than 0")),
        ("{nic: 1 GB/s, oversubscription: 0.5}", ("links.oversubscription", "'0.5'", "from 1 to")),
        ("{uplink: 1 GB/s, oversubscription: 2}", ("links.oversubscription", "one of uplink and oversubscription")),
        ("{latency_s: {nodes: 1e-6}}", ("links.latency_s", "did you mean 'node'?")),
        ("{latency_s: {node: -1}}", ("links.latency_s.node", "'-1'")),
        ("{background: {nic: 1}}", ("links.background.nic", "from 0 to 0.99")),
        ("{congestion: 0}", ("links.congestion", "'0'")),
        ("{unreduced: 2}", ("links.unreduced", "from 0 to 1")),
        ("{preset: dgx}", ("links.preset", "did you mean 'dgx-ib'?")),
        ("{oversubscripton: 2}", ("links", "did you mean 'oversubscription'?")),
        ("{by_type: {gpu: {congestion: 2}}}", ("by_type", "unknown key 'congestion'")),
    ],
)
def test_wrong_links_are_refused_in_a_sentence(tmp_path: Path, links: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        load_cluster(write(tmp_path, f"shape: 2x2\nlinks: {links}\n", "c.yaml"))
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_file_of_links(tmp_path: Path) -> None:
    path = write(tmp_path, "links: {nic: 2 GB/s, intra_node: 20 GB/s}\n")
    assert load_network(path, CLUSTER) == Links(20e9, 2e9)
    with pytest.raises(InputError, match=r"network.yml:2: unknown key 'likns'"):
        load_network(write(tmp_path, "links: {nic: 2 GB/s}\nlikns: 1\n"), CLUSTER)


# -- ASTRA-sim -------------------------------------------------------------------------------------------------------


def test_dimensions_become_links_of_nodes_racks_and_the_network(tmp_path: Path) -> None:
    """Four GPUs of a node on a ring, four nodes on a switch, two racks on another; GB is 2^30."""
    path = astra(tmp_path, "Ring, Switch, Switch", "4, 4, 2", "50.0, 12.5, 5", "500, 1000, 2000")
    links = load_network(path, CLUSTER)
    assert links.intra_node_bytes_per_s == 50 * GB
    assert links.nic_bytes_per_s == 4 * 12.5 * GB, "each GPU of a node has its own link"
    assert links.uplink_bytes_per_s == 16 * 5 * GB
    assert (links.node_latency_s, links.rack_latency_s, links.network_latency_s) == (5e-7, 1e-6, 2e-6)


def test_one_ring_through_all_nodes(tmp_path: Path) -> None:
    links = load_network(astra(tmp_path, "Ring", "32", "50.0", "500"), CLUSTER)
    assert links.intra_node_bytes_per_s == links.nic_bytes_per_s == 50 * GB
    assert links.uplink_bytes_per_s is None


def test_fully_connected_gpus_use_all_their_links(tmp_path: Path) -> None:
    assert load_network(astra(tmp_path, "FullyConnected", "4", "10", "0"), CLUSTER).intra_node_bytes_per_s == 30 * GB


def test_several_dimensions_inside_a_node_take_as_long_as_one_after_the_other(tmp_path: Path) -> None:
    """Reduce-scatter, all-reduce, all-gather over 2 x 4 GPUs: the outer ring carries half of the bytes."""
    cluster = Cluster.uniform(1, 8)
    links = load_network(astra(tmp_path, "Ring, Ring", "2, 4", "20, 10", "1000, 3000"), cluster)
    network = Network(cluster, links)
    size = 1e9
    by_hand = 2 * (1 / 2) * size / (20 * GB) + 2 * (3 / 4) * size / 2 / (10 * GB) + 2 * 1e-6 + 2 * 3 * 3e-6
    assert network.comm_s(ModelTraffic(size, 0.1), network.route(range(8))) == pytest.approx(by_hand)


def test_a_file_of_one_node_leaves_nodes_unreachable(tmp_path: Path) -> None:
    network = Network(CLUSTER, load_network(astra(tmp_path, "Ring", "4", "50", "500"), CLUSTER))
    assert network.route((0, 1)).gpus == 2
    with pytest.raises(InputError, match="none to other nodes"):
        network.route((0, 4))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("Ring", "4", "tbd", "1"), ("bandwidth[0]", "'tbd'", "a number greater than 0")),
        (("Ring", "4", "0", "1"), ("bandwidth[0]", "'0'")),
        (("Ring", "4", "5", "-1"), ("latency[0]",)),
        (("Rings", "4", "5", "1"), ("topology[0]", "did you mean 'Ring'?")),
        (("Ring, Ring", "4, 2", "5", "1, 1"), ("bandwidth", "found 1 values", "2, one for each dimension")),
        (("Ring", "0", "5", "1"), ("npus_count[0]", "'0'")),
    ],
)
def test_wrong_astra_sim_files_are_refused(
    tmp_path: Path, columns: tuple[str, str, str, str], words: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        load_network(astra(tmp_path, *columns), CLUSTER)
    assert all(word in str(caught.value) for word in words), caught.value


def test_the_public_examples_of_astra_sim(shared_data: Path) -> None:
    folder = shared_data / "hardware/astra_sim_inputs"
    ring = load_network(str(folder / "examples_network_analytical_Ring_8npus.yml"), Cluster.uniform(2, 8))
    assert (ring.intra_node_bytes_per_s, ring.node_latency_s) == (50 * GB, 5e-7)
    assert load_network(str(folder / "inputs_network_dgx_v100_4gpu.yml"), CLUSTER).intra_node_bytes_per_s == 3.125 * GB
    with pytest.raises(InputError, match="tbd"):
        load_network(str(folder / "inputs_network_dgx_v100_8gpu.yml"), CLUSTER)
