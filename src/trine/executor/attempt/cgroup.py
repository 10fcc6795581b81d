"""One control group per job where this user may make one: what it holds can be ended as a whole, even after the
supervisor is gone. Version 2 (also beside version 1) or the freezer of version 1; no rights means none. Light."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH102, PTH106, PTH110, PTH118, PTH123

from __future__ import annotations

import os
import signal

from trine.executor.attempt.processes import send
from trine.executor.faults import is_exhausted

ROOT = "/sys/fs/cgroup"


class Cgroup:
    """A control group by its directory; an empty path stands for none, and every method does nothing then."""

    def __init__(self, path: str) -> None:
        self.path = path

    def enter(self) -> None:
        """Move this process there."""
        if self.path:
            _write(os.path.join(self.path, "cgroup.procs"), "0")

    def pids(self) -> list[int]:
        if not self.path:
            return []
        try:
            with open(os.path.join(self.path, "cgroup.procs")) as file:
                return [int(line) for line in file]
        except OSError as error:
            if is_exhausted(error):
                raise
            return []

    def kill(self) -> None:
        """SIGKILL for all of it; nothing in it can fork itself out of reach meanwhile."""
        if not self.pids() or self._write("cgroup.kill", "1"):
            return
        self._write("freezer.state", "FROZEN")
        for pid in self.pids():
            send(pid, signal.SIGKILL)
        self._write("freezer.state", "THAWED")

    def remove(self) -> None:
        if self.path:
            try:
                os.rmdir(self.path)
            except OSError:
                return  # gone already, or the kernel has not removed the last process yet

    def _write(self, name: str, text: str) -> bool:
        try:
            _write(os.path.join(self.path, name), text)
        except OSError:
            return False
        return True


def make_cgroup(name: str, root: str = ROOT) -> Cgroup:
    """A new control group below that of this process, or none where it may not be made."""
    for parent in _candidates(root):
        path = os.path.join(parent, name)
        try:
            os.mkdir(path)
        except FileExistsError:
            pass  # left by a supervisor that was killed; it is empty or what is in it is ours
        except OSError:
            continue
        return Cgroup(path)
    return Cgroup("")


def _candidates(root: str) -> list[str]:
    """Our own group in every hierarchy that can be used, best first."""
    own = _own_groups()
    mounts = [(root, ""), (os.path.join(root, "unified"), ""), (os.path.join(root, "freezer"), "freezer")]
    return [
        os.path.join(mount, own[name].lstrip("/"))
        for mount, name in mounts
        if name in own and os.path.exists(os.path.join(mount, own[name].lstrip("/"), "cgroup.procs"))
    ]


def _own_groups() -> dict[str, str]:
    """Path of this process's group by controller; that of version 2 has the empty name."""
    try:
        with open("/proc/self/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return {}
    return {name: path for _, names, path in lines for name in names.split(",")}


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
