"""Which devices are found, on machines with and without a driver, PyTorch and cards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.profile.command import fake_nvml, fake_torch, found_devices
from trine.core.errors import InputError, TrineError
from trine.profile.devices import cpu_devices, find_devices
from trine.profile.nvml import NvmlGpu, visible_gpus

GPUS = [NvmlGpu(0, "GPU-aa11", "V100"), NvmlGpu(1, "GPU-aa22", "V100"), NvmlGpu(2, "GPU-bb33", "V100")]


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


def test_gpus_without_pytorch_are_told_and_cores_taken(tmp_path: Path) -> None:
    nvml = fake_nvml(tmp_path, names="V100,V100")
    # A package that cannot be loaded, whatever this machine has.
    (tmp_path / "torch.py").write_text("raise ImportError")
    found = found_devices(nvml | {"PYTHONPATH": str(tmp_path)})
    assert {device["kind"] for device in found["devices"]} == {"cpu"}
    assert found["notes"][0] == "NVML lists 2 GPUs, but PyTorch here cannot use them: they are not measured."


def test_cuda_devices_have_the_names_of_the_driver(tmp_path: Path) -> None:
    """PyTorch sees the second and third as 0 and 1; records count as the driver does, so that they fit a cluster."""
    values = {"names": "V100,P100,A100", "compute": "90,0,70", "memory": "0,0,0"}
    nvml = fake_nvml(tmp_path, **values) | {"CUDA_VISIBLE_DEVICES": "1,2"}
    found = found_devices(nvml | fake_torch(tmp_path, speeds="1,1", uuids="0001-test,0002-test"))
    assert [(d["id"], d["name"], d["uuid"], d["ordinal"]) for d in found["devices"]] == [
        ("n1-gpu1", "P100", "GPU-0001-test", 0),
        ("n1-gpu2", "A100", "GPU-0002-test", 1),
    ]
    assert [note.partition(":")[0] for note in found["notes"]] == ["n1-gpu2 is busy"]


@pytest.mark.parametrize("driver", ["missing", "broken"])
def test_cuda_devices_are_found_without_the_drivers_help(tmp_path: Path, driver: str) -> None:
    nvml = fake_nvml(tmp_path, names="V100", broken="1") if driver == "broken" else {}
    found = found_devices(nvml | fake_torch(tmp_path, speeds="1,1"))
    assert [(d["id"], d["uuid"]) for d in found["devices"]] == [
        ("n1-gpu0", "GPU-0000-test"),
        ("n1-gpu1", "GPU-0001-test"),
    ]


def test_cores_can_be_asked_for_where_there_are_gpus(tmp_path: Path) -> None:
    found = found_devices(fake_torch(tmp_path, speeds="1,1"), "cpu")
    assert {device["kind"] for device in found["devices"]} == {"cpu"}
