"""Which devices of this machine can be measured, CUDA devices where PyTorch can use them and CPU cores otherwise, and
the worker processes that run kernels (``kernels``) on them. What is measured when is decided in ``gpu_session``.

PyTorch is asked in a process of its own, so that a broken or slow installation harms nothing here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from trine.core.errors import InputError, TrineError, nearest
from trine.profile.nvml import NvmlGpu, open_nvml, visible_gpus

Kind = Literal["cuda", "cpu"]
KINDS: tuple[Kind, ...] = ("cuda", "cpu")

# NVML counts in PCI bus order; CUDA does too only when asked to.
CUDA_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

# One thread, set before numpy is loaded: a second one would run on a core that is not being measured.
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)

_PROBE = """
import json, torch
def about(i):
    p = torch.cuda.get_device_properties(i)
    return {"name": p.name, "uuid": str(getattr(p, "uuid", ""))}
print(json.dumps([about(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []))
"""
_PROBE_LIMIT_S = 120
_BUSY = 0.05


@dataclass(frozen=True, slots=True)
class Device:
    """Something that runs kernels."""

    id: str
    """What measurement records call it: node and number, which is how a cluster counts its GPUs."""
    kind: Kind
    number: int
    """Number of the GPU in PCI bus order, or of the core."""
    ordinal: int
    """Number to address it by, which CUDA_VISIBLE_DEVICES can make another one."""
    name: str
    node: str
    uuid: str = ""
    pci_bus: str = ""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices to measure, and what a person should know about the choice."""

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()


def find_devices(node: str, wanted: str = "", environment: Mapping[str, str] = os.environ) -> DeviceChoice:
    """The devices of this machine that ``wanted`` names: all CUDA devices or else all cores if it is empty.

    ``wanted`` is ``cuda`` or ``cpu``, or device ids or indices with commas between them.
    """
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    if "cpu" in words:
        return DeviceChoice(_chosen(cpu_devices(node), [word for word in words if word != "cpu"]), _load_note())
    cuda, notes = cuda_devices(node, environment)
    if cuda:
        return DeviceChoice(_chosen(cuda, [word for word in words if word != "cuda"]), notes)
    if "cuda" in words:
        raise TrineError(f"--devices cuda: {notes[0] if notes else 'no CUDA device was found here'}")
    notes = (*notes, "No CUDA device: each CPU core is measured as a device.", *_load_note())
    return DeviceChoice(_chosen(cpu_devices(node), words), notes)


def _load_note() -> tuple[str, ...]:
    """Other programs on the cores are measured along: as noise, or as a slow core if they stay on one."""
    load = os.getloadavg()[0]
    return (f"Other programs are running (load {load:.1f}): an idle machine is measured better.",) if load > 0.5 else ()


def _chosen(devices: Sequence[Device], words: Sequence[str]) -> tuple[Device, ...]:
    if not words:
        return tuple(devices)
    by_word = {str(device.number): device for device in devices} | {device.id: device for device in devices}
    for word in words:
        if word not in by_word:
            expected = ", ".join(f"{device.number} ({device.id})" for device in devices[:8])
            more = " ..." if len(devices) > 8 else ""
            raise InputError("--devices", f"no device {word!r}{nearest(word, by_word)}", f"some of {expected}{more}")
    return tuple(dict.fromkeys(by_word[word] for word in words))


def cpu_devices(node: str) -> list[Device]:
    """The cores that this process may run on, which in a container can be fewer than the machine has."""
    if not hasattr(os, "sched_getaffinity"):
        raise TrineError("this system cannot pin a process to a core, so its cores cannot be measured one by one")
    name = _cpu_name()
    return [Device(f"{node}-cpu{core}", "cpu", core, core, name, node) for core in sorted(os.sched_getaffinity(0))]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "CPU core"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU core")


def cuda_devices(node: str, environment: Mapping[str, str]) -> tuple[list[Device], tuple[str, ...]]:
    """The devices that PyTorch can use, named as NVML names them, and notes: which are busy, or why there are none."""
    with open_nvml() as nvml:
        listed = [] if nvml is None else visible_gpus(nvml.gpus(), environment)
        busy = [] if nvml is None else [gpu for gpu in listed if (nvml.sample(gpu.index).compute_util or 0) >= _BUSY]
    usable = _probe_torch(environment)
    if not usable:
        why = "PyTorch here cannot use them" if _has_torch() else "PyTorch is not installed"
        return [], (f"NVML lists {len(listed)} GPUs, but {why}: they are not measured.",) if listed else ()
    notes = [
        f"{node}-gpu{gpu.index} is busy: what runs there disturbs the measurement, and is disturbed." for gpu in busy
    ]
    return [_cuda_device(ordinal, about, listed, node) for ordinal, about in enumerate(usable)], tuple(notes)


def _cuda_device(ordinal: int, about: Mapping[str, Any], listed: Sequence[NvmlGpu], node: str) -> Device:
    """NVML's entry is found by UUID where PyTorch gives one, by position otherwise."""
    uuid = str(about.get("uuid", "")).removeprefix("GPU-")
    by_uuid = next((gpu for gpu in listed if uuid and gpu.uuid.removeprefix("GPU-") == uuid), None)
    gpu = by_uuid or (listed[ordinal] if not uuid and ordinal < len(listed) else None)
    if gpu is None:
        gpu = NvmlGpu(ordinal, f"GPU-{uuid}" if uuid else "", str(about["name"]))
    return Device(f"{node}-gpu{gpu.index}", "cuda", gpu.index, ordinal, gpu.name, node, gpu.uuid, gpu.pci_bus)


def _has_torch() -> bool:
    return find_spec("torch") is not None


def _probe_torch(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    if not _has_torch():
        return []
    command = [sys.executable, "-c", _PROBE]
    try:
        done = subprocess.run(
            command, env={**environment, **CUDA_ORDER}, capture_output=True, timeout=_PROBE_LIMIT_S, check=True
        )
        return list(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


# -- workers ---------------------------------------------------------------------------------------------------------


class DeviceError(TrineError):
    """A device that could not be measured."""


class WorkerPool:
    """Worker processes, started when first needed: one for all cores, one for each CUDA device."""

    def __init__(self) -> None:
        self._workers: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.wait()
            for stream in (worker.stdin, worker.stdout):
                _close(stream)

    def measure(self, device: Device, kernel: str, seconds: float) -> float:
        """Seconds that one call of ``kernel`` takes on ``device``, measured for about ``seconds``."""
        key = "cpu" if device.kind == "cpu" else device.id
        worker = self._workers.get(key) or self._start(key)
        request = {"kind": device.kind, "ordinal": device.ordinal, "kernel": kernel, "seconds": seconds}
        reply = _exchange(worker, json.dumps(request))
        if reply is None:
            del self._workers[key]
            raise DeviceError(f"{device.id}: the process that measures ended ({_ending(worker)})")
        if "error" in reply:
            raise DeviceError(f"{device.id}: {reply['error']}")
        return float(str(reply["perf_s"]))

    def _start(self, key: str) -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [sys.executable, "-m", "trine.profile.kernels"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD, **CUDA_ORDER},
            process_group=0,  # Ctrl-C at the terminal is for us: the measurement under way is finished first
        )
        self._workers[key] = worker
        return worker


def _exchange(worker: subprocess.Popen[str], request: str) -> dict[str, object] | None:
    """The worker's answer, or ``None`` if it has ended."""
    if worker.stdin is None or worker.stdout is None:
        raise RuntimeError("a worker has pipes")
    try:
        worker.stdin.write(request + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        return None
    return dict(json.loads(line)) if line.endswith("\n") else None


def _ending(worker: subprocess.Popen[str]) -> str:
    for stream in (worker.stdin, worker.stdout):
        _close(stream)
    code = worker.wait()
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _close(stream: object) -> None:
    try:
        getattr(stream, "close", lambda: None)()
    except BrokenPipeError:
        return  # what was still in the buffer is of no interest any more
