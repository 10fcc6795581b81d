"""Processes of this machine as the kernel shows them: identity, parents, how to end them. Light."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import ctypes
import os
import signal
import time

from trine.executor.faults import is_exhausted

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def identity(pid: int) -> dict[str, Any] | None:
    """What tells this process from any other that ever had its number; ``None`` if there is none that runs."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return {"pid": pid, "start_ticks": int(fields[19]), "boot": _boot_id()}


def is_same(known: dict[str, Any] | None) -> bool:
    """Whether the process with this identity still runs."""
    now = identity(int(known["pid"])) if known else None
    return now is not None and known is not None and all(known.get(key) == now[key] for key in now)


def uptime_s() -> float:
    """Seconds on a clock that cannot be set, and that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind, so that none escapes."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def parents() -> dict[int, int]:
    """The parent of every process that runs."""
    found: dict[int, int] = {}
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None and fields[0] != b"Z":
            found[pid] = int(fields[1])
    return found


def descendants(root: int) -> list[int]:
    """Children of a process, their children and so on, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def children(root: int) -> list[int]:
    """Processes whose parent is ``root`` now."""
    return [pid for pid, parent in parents().items() if parent == root]


def session(pid: int) -> int:
    """The session of a process, 0 if it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def marked(marker: str) -> list[int]:
    """Processes that were started with ``marker`` (``NAME=value``) in their environment."""
    wanted = b"\0" + marker.encode() + b"\0"
    return [pid for pid in _pids() if wanted in b"\0" + _read(f"/proc/{pid}/environ") + b"\0"]


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is gone already, or that is not ours to end, is passed over."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the state on: the name before it may hold anything, blanks and brackets too."""
    data = _read(f"/proc/{pid}/stat")
    return data[data.rindex(b")") + 2 :].split() if data else None


def _boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        if is_exhausted(error):
            raise
        return b""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
