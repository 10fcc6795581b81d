"""The state directory of the local executor and how an attempt gets into it: one directory per attempt, made as a
whole or not at all, and one detached supervisor for it. Which job may use which GPU is decided elsewhere.

``jobs/JOB/EPOCH/``: see ``rundir``; ``jobs/JOB/log``: rank 0 of all attempts, ``log.N``: rank N; ``active/JOB@EPOCH``:
an attempt that was not forgotten yet; ``removing/``: what jobs left that takes long to remove."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import signal
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from trine.executor.accounts import find_user
from trine.executor.base import Handle, JobLease
from trine.executor.local import rundir
from trine.executor.local.removal import BackgroundRemoval
from trine.executor.local.supervisor import READY_FD, SIGNALS
from trine.inputs.job_rules import launcher_of

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"),
)
"""What a job sees of the environment of the daemon where it brings none. No more: there may be secrets in it."""
_ONLY_TOGETHER = ("PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Of one environment: a job with its own PATH gets none of the daemon's; libraries of one break programs of another."""

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_PORTS = range(20_000, 30_000)  # below those that the kernel hands out for outgoing connections
_MOST_PROGRESS_FILES = 1_000
_SUPERVISOR = f"""
import sys
sys.path.append({str(Path(__file__).parents[3])!r})
from trine.executor.local.supervisor import main
sys.exit(main(sys.argv[1:]))
"""
"""Starts in half the time of ``python -m``: no site packages are looked through, no variables of ours obeyed."""


class LaunchRefused(Exception):  # noqa: N818 - an outcome, not an error of ours
    """Why an attempt cannot be launched, in a sentence, and whether that is the machine's fault."""

    def __init__(self, reason: str, *, host_fault: bool = False) -> None:
        super().__init__(reason)
        self.host_fault = host_fault


class StateDir:
    """Where attempts lie. The directory of a job can be passed through, not listed, by the user whose job it is."""

    def __init__(self, path: Path) -> None:
        self.jobs, self.active = path.absolute() / "jobs", path.absolute() / "active"
        self.removal = BackgroundRemoval(path.absolute() / "removing")

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

    def exists(self, handle: Handle) -> bool:
        """The attempt has a directory. One that is not the daemon's own is not an attempt, but a trap."""
        path = self.run_dir(handle)
        if not os.path.lexists(path):
            return False
        if not (rundir.is_own_dir(str(path.parent)) and rundir.is_own_dir(str(path))):
            raise LaunchRefused(f"{path} belongs to another user, so nothing in it is run")
        return True

    def check_paths(self, lease: JobLease) -> None:
        """Refuse directories inside the state directory: there the daemon, which may be root, makes and owns all."""
        root, default = self.jobs.parent, checkpoint_dir(self.job_dir(lease.job_id))
        for what, path in (("checkpoint directory", lease.checkpoint_dir), ("working directory", lease.workdir)):
            if path and Path(path) != default and is_below(path, root):
                raise LaunchRefused(f"its {what} {path} is inside the daemon's state directory")

    def prepare(self, lease: JobLease, spec: Mapping[str, Any]) -> None:
        """Make the directory of an attempt, unless another executor was faster. OSError leaves nothing behind."""
        final, marker = self.run_dir(lease.handle), self.marker(lease.handle)
        self.make()
        marker.touch(mode=0o600)
        try:
            _passable(final.parent)
            aside = Path(tempfile.mkdtemp(dir=final.parent, prefix=".new-")) / final.name
            try:
                _fill(aside, lease, spec, final.parent)
                aside.rename(final)
            finally:
                _discard(aside)
        except OSError:
            if self.exists(lease.handle):
                return
            marker.unlink(missing_ok=True)
            raise

    def forget(self, handle: Handle) -> None:
        """Keep how an attempt ended, drop what only a running one needs (its variables may hold secrets)."""
        self.marker(handle).unlink(missing_ok=True)
        run_dir = self.run_dir(handle)
        if not _empty_progress(run_dir / rundir.PROGRESS):
            with suppress(OSError):  # then it goes with the directory of the job
                self.removal.add(run_dir / rundir.PROGRESS)
        for name in (rundir.SPEC, rundir.STOP, rundir.SUPERVISOR_LOG, rundir.LEASE, rundir.STATUS, rundir.PID):
            (run_dir / name).unlink(missing_ok=True)
        with suppress(OSError):
            (run_dir.parent / "checkpoints").rmdir()  # fails, as it should, unless it is empty


def make_spec(lease: JobLease, environ: Mapping[str, str], port: int, api_url: str, cgroup: str) -> dict[str, Any]:
    """All that a supervisor must know."""
    kept = {**_account(), **{name: environ[name] for name in INHERITED if name in environ}}
    if "PATH" in lease.env:
        kept = {name: value for name, value in kept.items() if name not in _ONLY_TOGETHER}
    return {
        "job": lease.job_id,
        "epoch": lease.epoch,
        "command": list(lease.command),
        "launcher": launcher_of(lease.command),
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


def _account() -> dict[str, str]:
    """Whose processes these are, for a daemon that was started with few variables. ``rank`` replaces it for others."""
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        return {}
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell or "/bin/sh"}


def _ranks(lease: JobLease) -> list[dict[str, Any]]:
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
        entry = find_user(user)
    except (KeyError, ValueError):
        raise LaunchRefused(f"there is no user {user!r} on this machine") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise LaunchRefused(f"the daemon runs as another user and is not root, so it cannot run a job as {user}")


def check_form(lease: JobLease) -> None:
    """Refuse what no executor could run."""
    if not JOB_ID.fullmatch(lease.job_id):
        raise LaunchRefused(f"job id {lease.job_id[:40]!r} cannot be the name of a directory")
    if lease.epoch < 0:
        raise LaunchRefused(f"epoch {lease.epoch} is negative")
    if not lease.command or not lease.command[0]:
        raise LaunchRefused("there is no command to run")
    if not lease.placement or not all(gpus for _, gpus in lease.placement):
        raise LaunchRefused("there is no GPU in the placement")
    if len({node for node, _ in lease.placement}) < len(lease.placement):
        raise LaunchRefused("a node is named twice in the placement")


def free_port(run_dir: Path, taken: Collection[int]) -> int:
    """A port for the ranks to meet at, of no other lease, and one that no program listens on.

    Where the search begins depends on the whole path: jobs of another state directory have the same numbers, and two
    that look at the same time must not both find the same port free."""
    first = zlib.crc32(str(run_dir).encode()) % len(_PORTS)
    for offset in range(len(_PORTS)):
        port = _PORTS[(first + offset) % len(_PORTS)]
        if port not in taken and _can_bind(port):
            return port
    raise LaunchRefused(f"all ports from {_PORTS.start} to {_PORTS.stop - 1} are in use", host_fault=True)


def cgroup_name(run_dir: Path) -> str:
    """Of this attempt of this state directory only: others may use the same job ids."""
    digest = hashlib.blake2b(str(run_dir).encode(), digest_size=6).hexdigest()
    return f"trine-{run_dir.parent.name}-{run_dir.name}-{digest}"


def spawn_supervisor(run_dir: Path) -> tuple[int, int]:
    """Start a supervisor that outlives this process: its pid, and a pipe on which it says that the job has started."""
    ready, report = os.pipe()
    log = str(run_dir / rundir.SUPERVISOR_LOG)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _SUPERVISOR, str(run_dir)],
            {"PATH": _DEFAULT_PATH},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, report, READY_FD),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            # A request to stop that comes before the supervisor is ready waits for it instead of ending it.
            setsigmask=SIGNALS,
        )
    except OSError:
        os.close(ready)
        raise
    finally:
        os.close(report)
    return pid, ready


def _fill(aside: Path, lease: JobLease, spec: Mapping[str, Any], job_dir: Path) -> None:
    _passable(aside)
    rundir.write_json(str(aside / rundir.SPEC), dict(spec))
    held = rundir.lease_time(lease.lease_s, 0, time.time())
    first = {"job": lease.job_id, "epoch": lease.epoch, **held, "stop": False}
    if lease.shares_with:
        first["shares_with"] = lease.shares_with
    rundir.write_json(str(aside / rundir.LEASE), first, 0o644)
    rundir.reserve_exit(str(aside), time.time())
    _own_dir(aside / rundir.PROGRESS, lease.run_as)
    # Only the directory that trine itself names; one that the user names is made by the job, with the user's rights.
    default = checkpoint_dir(job_dir)
    if lease.checkpoint_dir == str(default):
        _own_dir(default, lease.run_as)


def _discard(aside: Path) -> None:
    """Remove a directory that did not come to be, and what it was made in; without descriptors, as rmtree cannot."""
    for path in (aside / rundir.SPEC, aside / rundir.LEASE, aside / f"{rundir.EXIT}.tmp"):
        with suppress(OSError):
            path.unlink()
    for path in (aside / rundir.PROGRESS, aside, aside.parent):
        with suppress(OSError):
            path.rmdir()


def checkpoint_dir(job_dir: Path) -> Path:
    """Where a job that names no directory keeps its checkpoints."""
    return job_dir / "checkpoints"


def _empty_progress(path: Path) -> bool:
    """Remove what the SDK puts there, and say whether nothing else was in it. The directory is the job's: whatever it
    holds, in whatever number or depth, must not hold up the daemon."""
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        with suppress(OSError):
            path.unlink()  # a pipe, or a link, in its place
        return True
    except OSError:
        return not os.path.lexists(path)
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MOST_PROGRESS_FILES)]
        for name in names:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        path.rmdir()
    except OSError:
        return False
    return True


def is_below(path: str | Path, root: Path) -> bool:
    """``path`` is ``root`` or inside it, as written.

    Users name ``path``, so nothing is looked up on the way there: that could take for ever (a file server that is away,
    links without end) or show what the user may not see. Processes that go there later do so with the user's rights."""
    return f"{os.path.normpath(path)}/".startswith(_spellings(str(root)))


@lru_cache(maxsize=8)
def _spellings(root: str) -> tuple[str, str]:
    """A directory of the daemon as it is written, and where that leads; looked up once."""
    return f"{os.path.normpath(root)}/", f"{os.path.realpath(root)}/"


def _passable(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o711)


def _own_dir(path: Path, user: str | None) -> None:
    """A directory for the user whose job it is; only below our own directories, where no link can lead elsewhere."""
    path.mkdir(exist_ok=True, mode=0o700)
    if user and os.geteuid() == 0:
        entry = find_user(user)
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
