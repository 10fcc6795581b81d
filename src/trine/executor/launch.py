"""The state directory of the local executor and how an attempt gets into it: one directory per attempt, made as a
whole or not at all, and one detached supervisor for it. Who may use which GPU is decided elsewhere.

``jobs/JOB/EPOCH/``: see ``rundir``; ``jobs/JOB/log``: rank 0 of all attempts, ``log.N``: rank N; ``active/JOB@EPOCH``:
an attempt that was not forgotten yet."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import signal
import socket
import sys
import tempfile
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trine.executor import rundir
from trine.executor.base import Handle, Lease
from trine.executor.supervisor import READY_FD, SIGNALS

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"),
)
"""What a job sees of the environment of the daemon. Nothing else: there may be secrets in it."""

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_PORTS = range(20_000, 30_000)  # below those that the kernel hands out for outgoing connections
_SUPERVISOR = f"""
import sys
sys.path.append({str(Path(__file__).parents[2])!r})
from trine.executor.supervisor import main
sys.exit(main(sys.argv[1:]))
"""
"""Starts in half the time of ``python -m``: no site packages are looked through, no variables of ours obeyed."""


class Refused(Exception):  # noqa: N818 - an outcome, not an error of ours
    """Why an attempt cannot be launched, in a sentence."""


class StateDir:
    """Where attempts lie. The directory of a job can be passed through, not listed, by the user whose job it is."""

    def __init__(self, path: Path) -> None:
        self.jobs, self.active = path.absolute() / "jobs", path.absolute() / "active"

    def make(self) -> None:
        self.active.mkdir(parents=True, exist_ok=True, mode=0o700)
        _passable(self.jobs)

    def job_dir(self, job_id: str) -> Path:
        return self.jobs / job_id

    def run_dir(self, handle: Handle) -> Path:
        return self.jobs / handle.job_id / str(handle.epoch)

    def marker(self, handle: Handle) -> Path:
        return self.active / f"{handle.job_id}@{handle.epoch}"

    def active_handles(self) -> list[Handle]:
        """Attempts that were launched and not forgotten, in a stable order."""
        found = []
        for path in sorted(self.active.iterdir()) if self.active.is_dir() else ():
            job_id, _, epoch = path.name.rpartition("@")
            if job_id and epoch.isdecimal():
                found.append(Handle(job_id, int(epoch)))
        return found

    def prepare(self, lease: Lease, spec: Mapping[str, Any]) -> bool:
        """Make the directory of an attempt; False if there is one already. OSError leaves nothing behind."""
        final, marker = self.run_dir(lease.handle), self.marker(lease.handle)
        self.make()
        marker.touch(mode=0o600)
        try:
            _passable(final.parent)
            with tempfile.TemporaryDirectory(dir=final.parent, prefix=".new-", ignore_cleanup_errors=True) as aside:
                _fill(Path(aside) / final.name, lease, spec, final.parent)
                return _put(Path(aside) / final.name, final)
        except OSError:
            if not final.exists():
                marker.unlink(missing_ok=True)
            raise

    def forget(self, handle: Handle) -> None:
        """Keep the record of an attempt, drop what only a running one needs (its variables may hold secrets)."""
        self.marker(handle).unlink(missing_ok=True)
        run_dir = self.run_dir(handle)
        shutil.rmtree(run_dir / rundir.PROGRESS, ignore_errors=True)
        for name in (rundir.SPEC, rundir.STOP, rundir.SUPERVISOR_LOG):
            (run_dir / name).unlink(missing_ok=True)


def make_spec(lease: Lease, environ: Mapping[str, str], port: int, api_url: str, cgroup: str) -> dict[str, Any]:
    """All that a supervisor must know."""
    kept = {name: environ[name] for name in INHERITED if name in environ}
    return {
        "job": lease.job_id,
        "epoch": lease.epoch,
        "command": list(lease.command),
        "env": {"PATH": _DEFAULT_PATH, **kept, **lease.env},
        "workdir": lease.workdir or "/",
        "checkpoint_dir": lease.checkpoint_dir,
        "run_as": lease.run_as,
        "grace_s": lease.grace_s,
        "placement": [[node, list(gpus)] for node, gpus in lease.placement],
        "ranks": _ranks(lease),
        "port": port,
        "api": api_url,
        "cgroup": cgroup,
    }


def _ranks(lease: Lease) -> list[dict[str, Any]]:
    """Every rank sees all GPUs of the job on its node and picks the one of its local rank, as under torchrun."""
    return [
        {"node": node, "gpus": list(gpus)}
        for node, gpus in lease.placement
        for _ in range(len(gpus) if lease.ranks == "gpu" else 1)
    ]


def check_user(user: str | None) -> None:
    """Refuse a user that does not exist or that this process cannot become."""
    if user is None:
        return
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise Refused(f"there is no user {user!r} on this machine") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise Refused(f"the daemon runs as another user and is not root, so it cannot run a job as {user}")


def check_form(lease: Lease) -> None:
    """Refuse what no executor could run."""
    if not JOB_ID.fullmatch(lease.job_id):
        raise Refused(f"job id {lease.job_id[:40]!r} cannot be the name of a directory")
    if lease.epoch < 0:
        raise Refused(f"epoch {lease.epoch} is negative")
    if not lease.command or not lease.command[0]:
        raise Refused("there is no command to run")
    if not lease.placement or not all(gpus for _, gpus in lease.placement):
        raise Refused("there is no GPU in the placement")
    if len({node for node, _ in lease.placement}) < len(lease.placement):
        raise Refused("a node is named twice in the placement")


def free_port(handle: Handle, taken: Collection[int]) -> int:
    """A port for the ranks to meet at, of no other lease, and one that nobody listens on."""
    first = zlib.crc32(f"{handle.job_id}@{handle.epoch}".encode()) % len(_PORTS)
    for offset in range(len(_PORTS)):
        port = _PORTS[(first + offset) % len(_PORTS)]
        if port not in taken and _can_bind(port):
            return port
    raise Refused(f"all ports from {_PORTS.start} to {_PORTS.stop - 1} are in use")


def cgroup_name(run_dir: Path) -> str:
    """Of this attempt of this state directory only: others may use the same job ids."""
    digest = hashlib.blake2b(str(run_dir).encode(), digest_size=6).hexdigest()
    return f"trine-{run_dir.parent.name}-{run_dir.name}-{digest}"


def spawn_supervisor(run_dir: Path) -> tuple[int, int]:
    """Start a supervisor that outlives this process: its pid, and a pipe on which it says that the job has started."""
    ready, told = os.pipe()
    log = str(run_dir / rundir.SUPERVISOR_LOG)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _SUPERVISOR, str(run_dir)],
            {"PATH": _DEFAULT_PATH},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, told, READY_FD),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            # A wish to stop that comes before the supervisor is ready waits for it instead of ending it.
            setsigmask=SIGNALS,
        )
    except OSError:
        os.close(ready)
        raise
    finally:
        os.close(told)
    return pid, ready


def _fill(aside: Path, lease: Lease, spec: Mapping[str, Any], job_dir: Path) -> None:
    _passable(aside)
    rundir.write_json(str(aside / rundir.SPEC), dict(spec))
    first = {"job": lease.job_id, "epoch": lease.epoch, "deadline_s": lease.deadline_s, "stop": False}
    if lease.shares_with:
        first["shares_with"] = lease.shares_with
    rundir.write_json(str(aside / rundir.LEASE), first, 0o644)
    rundir.reserve_exit(str(aside))
    _own_dir(aside / rundir.PROGRESS, lease.run_as)
    checkpoints = Path(lease.checkpoint_dir) if lease.checkpoint_dir else None
    if checkpoints and checkpoints.parent == job_dir:
        _own_dir(checkpoints, lease.run_as)


def _put(aside: Path, final: Path) -> bool:
    try:
        aside.rename(final)
    except OSError:
        if final.is_dir():
            return False
        raise
    return True


def _passable(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o711)


def _own_dir(path: Path, user: str | None) -> None:
    """A directory for the user whose job it is; only below our own directories, where no link can lead elsewhere."""
    path.mkdir(exist_ok=True, mode=0o700)
    if user and os.geteuid() == 0:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def _can_bind(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def send_signal(pidfd: int, number: int) -> None:
    """To exactly the process that the descriptor stands for, if it still runs."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)
