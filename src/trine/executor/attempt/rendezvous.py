"""Where the ranks of an attempt meet: on the machine of the first node, at a port that no other attempt uses, over the
interface that the engine names. Light: every supervisor loads this."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import time

from trine.executor.attempt import rundir

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

_PORTS = range(20_000, 30_000)  # below those that the kernel hands out for outgoing connections
_LOOPBACK = "127.0.0.1"
_LOOK_S = 0.05


def address(spec: dict[str, Any]) -> str:
    """Of the machine of the first node, as the others reach it; loopback where all nodes are this machine."""
    known: dict[str, str] = spec.get("addresses") or {}
    return known.get(spec["placement"][0][0], _LOOPBACK)


def interface(spec: dict[str, Any]) -> dict[str, str]:
    """Which interface collectives go over, where the engine says so."""
    name = spec.get("interface", "lo")
    return {"GLOO_SOCKET_IFNAME": name} if name else {}


def port(run_dir: str, spec: dict[str, Any], index: int, stopped: Callable[[], object]) -> int:
    """The port of the attempt; where the engine gave none, the first part finds one on its machine and tells it.

    0 if the attempt is to end before it is known."""
    if spec["port"]:
        return int(spec["port"])
    if index == 0:
        rundir.claim(
            run_dir, {"port": free_port(run_dir, host="" if spec.get("addresses") else _LOOPBACK)}, rundir.PORT
        )
    while not stopped():
        if found := rundir.read_json(os.path.join(run_dir, rundir.PORT)):
            return int(found["port"])
        if any(rundir.read_json(os.path.join(run_dir, name)) for name in (rundir.STOP, rundir.HALT, rundir.EXIT)):
            break
        time.sleep(_LOOK_S)
    return 0


def free_port(run_dir: str, taken: Collection[int] = (), host: str = _LOOPBACK) -> int:
    """A port of no other lease, and one that no program listens on; OSError if there is none.

    Where the search begins depends on the whole path: jobs of another state directory have the same numbers, and two
    that look at the same time must not both find the same port free."""
    import zlib

    first = zlib.crc32(run_dir.encode()) % len(_PORTS)
    for offset in range(len(_PORTS)):
        number = _PORTS[(first + offset) % len(_PORTS)]
        if number not in taken and _can_bind(host, number):
            return number
    raise OSError(f"all ports from {_PORTS.start} to {_PORTS.stop - 1} are in use")


def _can_bind(host: str, number: int) -> bool:
    import _socket  # the module socket takes 5 ms to load

    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        probe.bind((host, number))
    except OSError:
        return False
    finally:
        probe.close()
    return True
