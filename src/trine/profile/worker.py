"""The process that runs kernels: reads one request a line on stdin, answers one line on stdout, ends with its stdin.

One process measures all cores, moving itself from core to core: a process per core would mix differences of memory
layout into those of the cores. Each CUDA device has a process, so that one that fails takes none along."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

from trine.profile.kernels import cuda_timer, numpy_kernel, torch_kernel, typical_s, wall_timer


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``{"perf_s": seconds}`` of one measurement, or ``{"error": sentence}``."""
    try:
        measure = _on_cuda if request["kind"] == "cuda" else _on_core
        return {"perf_s": measure(request["ordinal"], request["kernel"], request["seconds"])}
    except Exception as error:  # whatever a device does wrong is told, and ends nothing but this measurement
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
