"""Which devices are found, on machines with and without a driver, PyTorch and cards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.profile.command import fake_nvml, fake_torch, json_of, trine_profile
from trine.core.errors import InputError, TrineError
from trine.profile.devices import cpu_devices, find_devices
from trine.profile.nvml import GpuInfo, visible_gpus

GPUS = [GpuInfo(0, "GPU-aa11", "V100"), GpuInfo(1, "GPU-aa22", "V100"), GpuInfo(2, "GPU-bb33", "V100")]
QUICK = ("--repeats", "2", "--seconds", "0.001")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-bb", [2]),
        ("1,1", [1]),
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        (" 1 , GPU-aa11", [1, 0]),
    ],
)
def test_visible_gpus_follow_the_rules_of_cuda(visible: str | None, expected: list[int]) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [gpu.index for gpu in visible_gpus(GPUS, environment)] == expected


def test_cores_are_those_that_this_process_may_use() -> None:
    devices = cpu_devices("box")
    assert {device.ordinal for device in devices} == os.sched_getaffinity(0)
    assert all(device.id == f"box-cpu{device.number}" and device.name for device in devices)


def test_devices_are_chosen_by_number_or_id() -> None:
    first = cpu_devices("box")[0]
    for wanted in (f"cpu,{first.number}", f"cpu,{first.id}", f"cpu, {first.number},{first.id}"):
        assert find_devices("box", wanted).devices == (first,)


def test_an_unknown_device_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InputError, match=r"--devices: no device 'box-cpu9999'.*expected some of \d+ \(box-cpu\d+\)"):
        find_devices("box", "cpu,box-cpu9999")


def test_asking_for_cuda_where_there_is_none_fails() -> None:
    with pytest.raises(TrineError, match="--devices cuda: no CUDA device"):
        find_devices("box", "cuda", {"CUDA_VISIBLE_DEVICES": ""})


def test_gpus_without_pytorch_are_told_and_cores_measured(tmp_path: Path) -> None:
    nvml = fake_nvml(tmp_path, names="V100,V100")
    # A package that cannot be loaded stands for one that is not there, whatever this machine has.
    (tmp_path / "torch.py").write_text("raise ImportError")
    done = trine_profile(
        "gpus", *QUICK, "--out", tmp_path / "p", "--json", environment=nvml | {"PYTHONPATH": str(tmp_path)}
    )
    assert {device["kind"] for device in json_of(done)["devices"]} == {"cpu"}
    assert "NVML lists 2 GPUs, but PyTorch here cannot use them" in done.stderr


def test_cuda_devices_have_the_names_of_the_driver(tmp_path: Path) -> None:
    """Numbers are the driver's, so that the profile fits the cluster."""
    environment = fake_nvml(tmp_path, names="V100,P100,A100") | fake_torch(tmp_path, speeds="1,1,1")
    done = trine_profile("gpus", *QUICK, "--out", tmp_path / "p", "--node", "n1", "--json", environment=environment)
    found = [(d["id"], d["name"], d["uuid"], d["ordinal"]) for d in json_of(done)["devices"]]
    assert found == [
        ("n1-gpu0", "V100", "GPU-0000-test", 0),
        ("n1-gpu1", "P100", "GPU-0001-test", 1),
        ("n1-gpu2", "A100", "GPU-0002-test", 2),
    ]


def test_cuda_devices_are_measured_without_the_driver_library(tmp_path: Path) -> None:
    environment = fake_torch(tmp_path, speeds="1,1")
    done = trine_profile("gpus", *QUICK, "--out", tmp_path / "p", "--node", "n1", "--json", environment=environment)
    assert [d["id"] for d in json_of(done)["devices"]] == ["n1-gpu0", "n1-gpu1"]


def test_a_driver_that_does_not_answer_means_no_gpus(tmp_path: Path) -> None:
    environment = fake_nvml(tmp_path, names="V100", broken="1")
    done = trine_profile(
        "gpus", *QUICK, "--out", tmp_path / "p", "--devices", "cpu,0", "--json", environment=environment
    )
    assert [d["kind"] for d in json_of(done)["devices"]] == ["cpu"]
