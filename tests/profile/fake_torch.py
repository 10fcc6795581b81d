"""Stands in for PyTorch with CUDA devices, for tests: copied to a folder as ``torch.py``. Nothing is computed; the time
of every call is a table's value by device and kernel, times a drift and a jitter that are the same in every test.

FAKE_TORCH_SPEEDS and FAKE_TORCH_UUIDS: slowdowns and names by device; FAKE_TORCH_BROKEN: the device that fails;
FAKE_TORCH_INTERRUPT_AT: the timed call at which the parent process is sent Ctrl-C."""

from __future__ import annotations

import os
import random
import signal
from types import SimpleNamespace

_SLOWDOWNS = [float(text) for text in os.environ.get("FAKE_TORCH_SPEEDS", "").split(",") if text]
_UUIDS = os.environ.get("FAKE_TORCH_UUIDS", "0000-test,0001-test,0002-test,0003-test,0004-test").split(",")
_BASE_MS = {"matmul": 4.0, "softmax": 2.0, "add": 8.0}
_state = SimpleNamespace(device=0, kernel="", timed=0, jitter=random.Random(1))


def rand(*shape: int, device: str) -> object:
    return object()


def _kernel(name: str) -> object:
    _state.kernel = name
    return object()


def matmul(a: object, b: object, out: object = None) -> object:
    return _kernel("matmul")


def softmax(values: object, dim: int) -> object:
    return _kernel("softmax")


def add(a: object, b: object, alpha: float, out: object) -> object:
    return _kernel("add")


class _Event:
    def __init__(self, enable_timing: bool) -> None:
        pass

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: object) -> float:
        _state.timed += 1
        if _state.timed == int(os.environ.get("FAKE_TORCH_INTERRUPT_AT", "0")):
            os.kill(os.getppid(), signal.SIGINT)
        base_ms = _BASE_MS[_state.kernel] * _SLOWDOWNS[_state.device]
        return float(base_ms * (1 + 1e-4 * _state.timed) * _state.jitter.lognormvariate(0, 0.005))


def _set_device(ordinal: int) -> None:
    if str(ordinal) == os.environ.get("FAKE_TORCH_BROKEN"):
        raise RuntimeError("CUDA error: uncorrectable ECC error\nencountered")
    _state.device = ordinal


cuda = SimpleNamespace(
    is_available=lambda: bool(_SLOWDOWNS),
    device_count=lambda: len(_SLOWDOWNS),
    get_device_properties=lambda i: SimpleNamespace(name=f"Fake {i}", uuid=_UUIDS[i]),
    set_device=_set_device,
    Event=_Event,
)
