"""The kernels that are timed: compute-bound, in between and memory-bound, for numpy on a CPU core and for PyTorch on a
CUDA device. Each maker allocates its data anew and returns a call that does the work once.

Run as a program (``python -m trine.profile.kernels``) it is the worker process of ``devices``: reads one request a line
on stdin, answers one line on stdout, ends with its stdin.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any

Call = Callable[[], object]
Timer = Callable[[Call], float]
"""Runs a call to its end and says how many seconds it took."""

MIN_CALLS = 3
_MIB = 1 << 20
# Three arrays of this size: far beyond the cache of one core, small enough for every machine.
_CPU_STREAM_BYTES = 32 * _MIB
_CUDA_STREAM_BYTES = 256 * _MIB


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel by name, the application class it stands for and what it does."""

    name: str
    app_class: str
    about: str


KERNELS = (
    Kernel("matmul", "A", "dense matrix product: compute-bound"),
    Kernel("attention", "B", "thin matrix product and softmax: in between"),
    Kernel("triad", "D", "a = b + s c over large arrays: memory-bound"),
)
"""Class letters as in the published profiles: A most sensitive to the chip, D least; nothing is measured for C."""


def numpy_kernel(name: str) -> Call:
    """The kernel on the core that this thread runs on, single-threaded as far as the caller set the BLAS up so."""
    import numpy as np

    rng = np.random.default_rng(0)

    def matmul() -> Call:
        a, b = (rng.random((256, 256), dtype=np.float32) for _ in range(2))
        out = np.empty_like(a)
        return lambda: np.matmul(a, b, out=out)

    def attention() -> Call:
        q, k = rng.random((384, 64), dtype=np.float32), rng.random((64, 384), dtype=np.float32)
        out = np.empty((384, 384), dtype=np.float32)

        def call() -> object:
            np.exp(np.matmul(q, k, out=out), out=out)
            return np.divide(out, out.sum(axis=1, keepdims=True), out=out)

        return call

    def triad() -> Call:
        b, c = (np.full(_CPU_STREAM_BYTES // 8, value) for value in (1.0, 2.0))
        out = np.zeros_like(b)
        return lambda: np.add(b, np.multiply(c, 3.0, out=out), out=out)

    return {"matmul": matmul, "attention": attention, "triad": triad}[name]()


def torch_kernel(torch: Any, name: str) -> Call:
    """The kernel on the current CUDA device."""

    def make(*shape: int) -> Any:
        return torch.rand(*shape, device="cuda")

    def matmul() -> Call:
        a, b, out = make(4096, 4096), make(4096, 4096), make(4096, 4096)
        return lambda: torch.matmul(a, b, out=out)

    def attention() -> Call:
        q, k = make(16, 2048, 64), make(16, 64, 2048)
        return lambda: torch.softmax(torch.matmul(q, k), dim=-1)

    def triad() -> Call:
        b, c, out = (make(_CUDA_STREAM_BYTES // 4) for _ in range(3))
        return lambda: torch.add(b, c, alpha=3.0, out=out)

    return {"matmul": matmul, "attention": attention, "triad": triad}[name]()


def wall_timer(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def cuda_timer(torch: Any) -> Timer:
    """Times on the device's own clock, so that the launch from Python is not part of it."""

    def timed(call: Call) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000

    return timed


def typical_s(call: Call, timer: Timer, seconds: float) -> float:
    """Median seconds of one call, over as many calls as fit into ``seconds`` (at least three).

    One call more goes before and is not counted: it touches the memory and wakes the device up. The median keeps a
    call during which the system did something else from counting.
    """
    timer(call)
    times: list[float] = []
    while len(times) < MIN_CALLS or sum(times) < seconds:
        times.append(timer(call))
    return median(times)


def streaming_bytes_per_s(seconds: float = 0.05) -> float:
    """Bytes per second that one core of this machine moves between memory and itself: the triad, five passes a call."""
    return 5 * _CPU_STREAM_BYTES / typical_s(numpy_kernel("triad"), wall_timer, seconds)


# -- the worker process ----------------------------------------------------------------------------------------------

# One process measures all cores, moving itself from core to core: a process per core would mix differences of memory
# layout into those of the cores. Each CUDA device has a process, so that one that fails takes no other along.


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``{"perf_s": seconds}`` of one measurement, or ``{"error": sentence}``."""
    try:
        measure = _on_cuda if request["kind"] == "cuda" else _on_core
        return {"perf_s": measure(request["ordinal"], request["kernel"], request["seconds"])}
    except Exception as error:  # any fault of a device is reported, and ends only this measurement
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"}


def _on_core(core: int, kernel: str, seconds: float) -> float:
    # Pinned before the data are made, so that they lie in memory near the core.
    os.sched_setaffinity(0, {core})
    return typical_s(numpy_kernel(kernel), wall_timer, seconds)


def _on_cuda(ordinal: int, kernel: str, seconds: float) -> float:
    torch = import_module("torch")
    torch.cuda.set_device(ordinal)
    return typical_s(torch_kernel(torch, kernel), cuda_timer(torch), seconds)


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
