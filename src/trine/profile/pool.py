"""Runs measurements on real devices in worker processes (``kernels``). What is measured when is decided in
``gpu_session``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import TracebackType

from trine.core.errors import TrineError
from trine.profile.devices import CUDA_ORDER, Device

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
