"""What a running job does to the machine: GPUs as NVML sees them, or its processes as /proc shows them where there is
no GPU. Samplers only; the job is run in ``app_run.py``."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal, Protocol

from trine.profile.kernels import streaming_bytes_per_s
from trine.profile.nvml import GpuSample, Nvml, NvmlGpu, visible_gpus

Source = Literal["gpu", "cpu"]

ACTIVE_UTIL = 0.05
"""A GPU whose utilization never reaches this is taken not to be the job's."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the samplers report of a whole run. Shares are 0 to 1; ``None`` where it is not known."""

    source: Source
    compute_util: float | None
    memory_util: float | None
    power_w: float | None
    details: dict[str, object]
    notes: tuple[str, ...] = ()


class Sampler(Protocol):
    """Looks at a job while it runs."""

    def start(self, pid: int) -> None: ...

    def sample(self) -> None: ...

    def usage(self, seconds: float) -> Usage:
        """The whole run, which took ``seconds``; called after the job has ended."""
        ...


class GpuSampler:
    """Means over time, then over the GPUs that did anything."""

    def __init__(self, nvml: Nvml, gpus: Sequence[NvmlGpu]) -> None:
        self._nvml, self._gpus = nvml, gpus
        self._seen: dict[int, list[GpuSample]] = {gpu.index: [] for gpu in gpus}

    def start(self, pid: int) -> None:
        """Nothing to prepare: NVML reports GPUs, not processes."""

    def sample(self) -> None:
        for index, seen in self._seen.items():
            seen.append(self._nvml.sample(index))

    def usage(self, seconds: float) -> Usage:  # noqa: ARG002
        active = [gpu for gpu in self._gpus if self._peak(gpu) >= ACTIVE_UTIL]
        rows = [self._row(gpu) for gpu in active or self._gpus]
        notes = [f"{len(self._gpus) - len(active)} of {len(self._gpus)} GPUs were idle throughout and are left out."]
        if not active:
            notes = ["No GPU did anything while the job ran: the shares say nothing about it."]
        return Usage(
            source="gpu",
            compute_util=_mean(row["compute_util"] for row in rows),
            memory_util=_mean(row["memory_util"] for row in rows),
            power_w=_mean(row["power_w"] for row in rows),
            details={
                "gpus": [
                    {"uuid": gpu.uuid, "name": gpu.name, **row}
                    for gpu, row in zip(active or self._gpus, rows, strict=True)
                ]
            },
            notes=tuple(notes) if len(active) < len(self._gpus) else (),
        )

    def _peak(self, gpu: NvmlGpu) -> float:
        return max((sample.compute_util or 0.0 for sample in self._seen[gpu.index]), default=0.0)

    def _row(self, gpu: NvmlGpu) -> dict[str, float | None]:
        names = ("compute_util", "memory_util", "power_w", "clock_mhz")
        return {name: _mean(getattr(sample, name) for sample in self._seen[gpu.index]) for name in names}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass(slots=True)
class _Tree:
    """Counters of the job's processes, summed."""

    cpu_s: float = 0.0
    rss_bytes: int = 0
    io_bytes: dict[int, int] = field(default_factory=dict)


class CpuSampler:
    """Processor time, page faults and memory of the job's processes.

    Processor time and page faults are exact: the system counts them and reports them when the job ends. Memory traffic
    is not to be had without hardware counters; ``memory_util`` is a stand-in: the bytes of all pages touched for the
    first time, against what one core can stream. It misses traffic to pages already touched and is a lower bound.
    """

    def __init__(self, cores: int, stream_bytes_per_s: float, proc: Path = Path("/proc")) -> None:
        self._cores, self._stream, self._proc = cores, stream_bytes_per_s, proc
        self._session = 0
        self._before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._rss_peak = 0
        self._cpu_seen_s = 0.0
        self._io: dict[int, int] = {}

    def start(self, pid: int) -> None:
        """``pid`` leads a session of its own, which all its processes are in unless they leave it."""
        self._session = pid
        self._before = resource.getrusage(resource.RUSAGE_CHILDREN)

    def sample(self) -> None:
        tree = read_session(self._session, self._proc)
        self._rss_peak = max(self._rss_peak, tree.rss_bytes)
        self._cpu_seen_s = max(self._cpu_seen_s, tree.cpu_s)
        self._io.update(tree.io_bytes)

    def usage(self, seconds: float) -> Usage:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        counted_s = after.ru_utime + after.ru_stime - self._before.ru_utime - self._before.ru_stime
        # Processes that were not waited for are missing from the system's count, but not from the samples.
        cpu_s = max(counted_s, self._cpu_seen_s)
        faults = after.ru_minflt + after.ru_majflt - self._before.ru_minflt - self._before.ru_majflt
        touched_per_s = faults * resource.getpagesize() / seconds
        return Usage(
            source="cpu",
            compute_util=min(1.0, cpu_s / (seconds * self._cores)),
            memory_util=min(1.0, touched_per_s / self._stream),
            power_w=None,
            details={
                "cores": self._cores,
                "cpu_s": cpu_s,
                "page_faults": faults,
                "rss_peak_bytes": self._rss_peak,
                "io_bytes": sum(self._io.values()),
                "stream_bytes_per_s": self._stream,
            },
            notes=(
                "memory_util is a lower bound, from page faults: there is no GPU and no counter of memory traffic.",
            ),
        )


def read_session(session: int, proc: Path = Path("/proc")) -> _Tree:
    """Counters of all processes of a session. Processes come and go meanwhile: one that is gone is passed over."""
    tree, tick_s = _Tree(), 1 / os.sysconf("SC_CLK_TCK")
    for folder in proc.iterdir() if proc.is_dir() else ():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError, ValueError, IndexError):
            # The name of the program stands in brackets and may hold anything, brackets included.
            cells = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(cells[3]) != session:
                continue
            # utime, stime, and those of the children that have ended and were waited for.
            tree.cpu_s += sum(map(int, cells[11:15])) * tick_s
            tree.rss_bytes += int(cells[21]) * resource.getpagesize()
            tree.io_bytes[int(folder.name)] = _io_bytes(folder / "io")
    return tree


def _io_bytes(path: Path) -> int:
    try:
        pairs = (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines())
        return sum(int(value) for name, _, value in pairs if name in ("rchar", "wchar"))
    except (OSError, ValueError):
        return 0  # another user's process


def sampler_for(nvml: Nvml | None, environment: Mapping[str, str]) -> Sampler:
    """Samples the GPUs that the job may use; its processes where there are none."""
    gpus = [] if nvml is None else visible_gpus(nvml.gpus(), environment)
    if nvml is not None and gpus:
        return GpuSampler(nvml, gpus)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return CpuSampler(cores, streaming_bytes_per_s())
