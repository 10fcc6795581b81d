"""GPUs as the NVIDIA driver reports them, through NVML. No driver, no library or no card means no GPUs, never an error;
what the driver cannot report is ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One GPU as NVML lists it; ``index`` counts in PCI bus order."""

    index: int
    uuid: str
    name: str
    pci_bus: str = ""
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One look at a GPU. Shares are 0 to 1: time with a kernel running, time with the memory being read or written."""

    compute_util: float | None
    memory_util: float | None
    power_w: float | None
    clock_mhz: float | None


class Nvml:
    """An open NVML session. Use ``open_nvml``."""

    def __init__(self, library: Any) -> None:
        self._library = library
        count = self._ask(library.nvmlDeviceGetCount) or 0
        handles = [self._ask(library.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        self._handles = {index: handle for index, handle in enumerate(handles) if handle is not None}

    def gpus(self) -> list[NvmlGpu]:
        return [self._info(index, handle) for index, handle in self._handles.items()]

    def _info(self, index: int, handle: Any) -> NvmlGpu:
        library = self._library
        pci = self._ask(library.nvmlDeviceGetPciInfo, handle)
        memory = self._ask(library.nvmlDeviceGetMemoryInfo, handle)
        return NvmlGpu(
            index=index,
            uuid=_text(self._ask(library.nvmlDeviceGetUUID, handle)) or f"gpu{index}",
            name=_text(self._ask(library.nvmlDeviceGetName, handle)) or "unknown GPU",
            pci_bus=_text(getattr(pci, "busId", "")).lower(),
            memory_bytes=None if memory is None else int(memory.total),
        )

    def sample(self, index: int) -> GpuSample:
        """What the GPU does now; NVML averages the shares over up to a second itself."""
        library, handle = self._library, self._handles[index]
        rates = self._ask(library.nvmlDeviceGetUtilizationRates, handle)
        power_mw = self._ask(library.nvmlDeviceGetPowerUsage, handle)
        clock_mhz = self._ask(library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_SM)
        return GpuSample(
            compute_util=None if rates is None else rates.gpu / 100,
            memory_util=None if rates is None else rates.memory / 100,
            power_w=None if power_mw is None else power_mw / 1000,
            clock_mhz=None if clock_mhz is None else float(clock_mhz),
        )

    def _ask(self, question: Callable[..., Any], *args: Any) -> Any:
        try:
            return question(*args)
        except self._library.NVMLError:
            return None


@contextmanager
def open_nvml() -> Iterator[Nvml | None]:
    """A session with the driver, or ``None`` where there is none."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield Nvml(pynvml)
    finally:
        _close(pynvml)


def _close(library: Any) -> None:
    try:
        library.nvmlShutdown()
    except library.NVMLError:
        return  # an old driver without the call; the process ends soon anyway


def visible_gpus(gpus: Sequence[NvmlGpu], environment: Mapping[str, str]) -> list[NvmlGpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; all of them where it is not set.

    As in CUDA, an entry is an index or the start of a UUID, and the first entry that fits no GPU ends the list.
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(gpus)
    found: list[NvmlGpu] = []
    for entry in wanted.split(","):
        gpu = _named(gpus, entry.strip())
        if gpu is None:
            break
        if gpu not in found:
            found.append(gpu)
    return found


def _named(gpus: Sequence[NvmlGpu], entry: str) -> NvmlGpu | None:
    if entry.isdecimal():
        return next((gpu for gpu in gpus if gpu.index == int(entry)), None)
    return next((gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)), None)


def _text(value: Any) -> str:
    """Old versions of the binding answer with bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
