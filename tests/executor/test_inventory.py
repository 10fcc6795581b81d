"""Which nodes and GPUs are found, on machines with and without a driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.profile.command import fake_nvml
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.executor.base import NodeGpu
from trine.executor.local.inventory import chosen_gpus, gpu_type, nodes_of, virtual_nodes

_ASK = """
import dataclasses, json
from trine.executor.local.inventory import discover
print(json.dumps([dataclasses.asdict(node) for node in discover("box")]))
"""


def discovered(variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """In a process of its own, since a driver is loaded once."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK], env={**os.environ, **variables}, capture_output=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_virtual_nodes_have_the_shape_that_was_asked_for() -> None:
    nodes = virtual_nodes("v100=2x2,k80=1x4")
    assert [(node.name, [gpu.type for gpu in node.gpus]) for node in nodes] == [
        ("node0", ["v100", "v100"]),
        ("node1", ["v100", "v100"]),
        ("node2", ["k80"] * 4),
    ]
    assert len({gpu.uuid for node in nodes for gpu in node.gpus}) == 8
    assert all(node.virtual and node.cpus >= 1 and node.memory_bytes > 0 for node in nodes)
    assert [[gpu.index for gpu in node.gpus] for node in virtual_nodes(" 3X1 ")] == [[0], [0], [0]]


def test_virtual_nodes_can_follow_a_described_cluster() -> None:
    nodes = nodes_of(Cluster((Node("a", 1, "t4", "r7"), Node("b", 2))))
    assert [(node.name, node.labels["rack"], len(node.gpus)) for node in nodes] == [("a", "r7", 1), ("b", "rack0", 2)]


@pytest.mark.parametrize(
    "spec",
    ["", "4", "4x", "x2", "0x2", "2x0", "4x2,", "a=2x2,2x2", "a=1x1,a=1x1", "-1x2", "=2x2", "4x2x2", "99999999x1"],
)
def test_bad_shapes_are_refused_with_an_example(spec: str) -> None:
    with pytest.raises(InputError, match=r"--gpus: .*expected"):
        virtual_nodes(spec)


def test_too_many_gpus_are_refused_before_they_are_made() -> None:
    with pytest.raises(InputError, match="at most 1,000,000 GPUs"):
        virtual_nodes("1000000x1000000")


def test_the_gpus_of_this_machine_are_those_that_its_driver_lists(tmp_path: Path) -> None:
    (node,) = discovered(fake_nvml(tmp_path, names="Tesla V100-SXM2-16GB,NVIDIA A100-PCIE-40GB"))
    assert (node["name"], node["up"], node["virtual"]) == ("box", True, False)
    assert [(gpu["index"], gpu["type"], gpu["uuid"], gpu["memory_bytes"]) for gpu in node["gpus"]] == [
        (0, "v100", "GPU-0000-test", 16 << 30),
        (1, "a100", "GPU-0001-test", 16 << 30),
    ]


@pytest.mark.parametrize("wanted", ["3,1", "GPU-0003-test,1", "gpu-0001,GPU-0003"])
def test_cuda_visible_devices_says_which_gpus_are_used_and_they_keep_their_numbers(tmp_path: Path, wanted: str) -> None:
    driver = fake_nvml(tmp_path, names="V100,V100,V100,V100")
    (node,) = discovered(driver | {"CUDA_VISIBLE_DEVICES": wanted})
    assert [gpu["index"] for gpu in node["gpus"]] == [1, 3]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("4", "'4' fits no GPU of 0 (GPU-a), 1 (GPU-b)"),
        ("0,MIG-17", "'MIG-17' fits no GPU"),
        ("-1", "'-1' fits no GPU"),
        ("GPU-", "'GPU-' fits several GPUs"),
        ("", "it is set and empty"),
    ],
)
def test_a_choice_that_fits_no_gpu_is_refused(wanted: str, found: str) -> None:
    gpus = [NodeGpu(0, "v100", "GPU-a"), NodeGpu(1, "v100", "GPU-b")]
    with pytest.raises(InputError) as refused:
        chosen_gpus(gpus, wanted)
    assert found in str(refused.value) and str(refused.value).startswith("CUDA_VISIBLE_DEVICES: ")


@pytest.mark.parametrize("driver", ["broken", "without cards", "missing"])
def test_no_gpus_are_no_error(tmp_path: Path, driver: str) -> None:
    variables = {
        "broken": lambda: fake_nvml(tmp_path, names="V100", broken="1"),
        "without cards": lambda: fake_nvml(tmp_path, names=""),
        "missing": lambda: {"LD_LIBRARY_PATH": str(tmp_path)},
    }[driver]()
    if driver == "missing" and Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    assert discovered(variables) == []


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla K80", "k80"),
        ("Tesla T4", "t4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("Quadro RTX 5000", "rtx5000"),
        ("NVIDIA TITAN Xp", "titan-xp"),
        ("", "gpu"),
    ],
)
def test_cards_get_the_short_names_that_people_use(name: str, short: str) -> None:
    assert gpu_type(name) == short
