"""What keeps this machine from starting jobs now: room on the disk of the state directory, open files, memory. Looks
only; which error of the system is the machine's fault is said in ``faults``."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

RESERVE_BYTES = 64 << 20
"""Room that is left for what runs already: progress, ends, logs, the journal."""
_RESERVE_INODES = 1_000
_RESERVE_PART = 0.01
"""Of a small file system no more than this is kept free."""
_RESERVE_FILES = 64
_RESERVE_MEMORY_BYTES = 64 << 20
_LOOK_AGAIN_S = 1.0
_MEMINFO = Path("/proc/meminfo")


class Host:
    """This machine as seen from a state directory. Looks at most once a second."""

    def __init__(
        self, state_dir: Path, reserve_bytes: int | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._state_dir, self._reserve_bytes, self._monotonic = state_dir.absolute(), reserve_bytes, monotonic
        self._looked_s = float("-inf")
        self._trouble = ""

    def trouble(self) -> str:
        """Why nothing can be started now (a sentence), empty if it can."""
        now = self._monotonic()
        if not 0.0 <= now - self._looked_s < _LOOK_AGAIN_S:
            self._trouble = self._short_of_disk() or _short_of_files() or _short_of_memory()
            self._looked_s = now
        return self._trouble

    def _short_of_disk(self) -> str:
        try:
            disk = os.statvfs(_existing(self._state_dir))
        except OSError as error:
            return f"the state directory {self._state_dir} cannot be reached: {error.strerror}"
        if disk.f_flag & os.ST_RDONLY:
            return f"the disk of {self._state_dir} can only be read; jobs are started again when it can be written"
        root = os.geteuid() == 0
        left = (disk.f_bfree if root else disk.f_bavail) * disk.f_frsize
        smaller = min(RESERVE_BYTES, int(disk.f_blocks * disk.f_frsize * _RESERVE_PART))
        needed = smaller if self._reserve_bytes is None else self._reserve_bytes
        if left < needed:
            return (
                f"the disk of {self._state_dir} has {_amount(left)} left; "
                f"jobs are started again when there are {_amount(needed)}"
            )
        inodes = disk.f_ffree if root else disk.f_favail
        needed = min(_RESERVE_INODES, int(disk.f_files * _RESERVE_PART) + 1) if disk.f_files else 0
        if inodes < needed:
            return (
                f"the disk of {self._state_dir} has room for {inodes:,} more files; "
                f"jobs are started again when there is room for {needed:,}"
            )
        return ""


def _existing(path: Path) -> Path:
    """The directory, or the one in which it will be made."""
    return next((one for one in (path, *path.parents) if one.is_dir()), path)


def _short_of_files() -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return ""
    try:
        opened = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - counts without making paths
    except OSError:
        opened = limit  # not even this one could be opened
    left, needed = max(limit - opened, 0), min(_RESERVE_FILES, limit // 2)
    if left >= needed:
        return ""
    return (
        f"the daemon may open {left:,} more files of {limit:,} (RLIMIT_NOFILE); "
        f"jobs are started again when it may open {needed:,}"
    )


def _short_of_memory() -> str:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return ""
    left = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
    if left is None or left >= _RESERVE_MEMORY_BYTES:
        return ""
    return (
        f"the machine has {_amount(left)} of memory left; "
        f"jobs are started again when there are {_amount(_RESERVE_MEMORY_BYTES)}"
    )


def _amount(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count // size:,} {unit}"
    return f"{count} bytes"
