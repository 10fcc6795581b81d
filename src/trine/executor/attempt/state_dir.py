"""The state directory of an executor and how an attempt gets into it: one directory per attempt, made as a whole or
not at all. What runs it, and which job may use which GPU, is decided elsewhere.

``jobs/JOB/EPOCH/``: see ``rundir``; ``jobs/JOB/log``: rank 0 of all attempts, ``log.N``: rank N; ``active/JOB@EPOCH``:
an attempt that was not forgotten yet; ``removing/``: what jobs left that takes long to remove."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from trine.core.atomic_file import write_private
from trine.executor.accounts import find_user
from trine.executor.attempt import rundir
from trine.executor.attempt.removal import BackgroundRemoval
from trine.executor.attempt.spec import LaunchRefused
from trine.executor.base import Handle, JobLease

_MOST_PROGRESS_FILES = 1_000


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
        """Make the directory of an attempt, unless another executor was faster. OSError leaves nothing behind.

        The marker comes first: a crash between the two leaves a marker without an attempt, which the next start of the
        executor clears, and never an attempt that no executor knows of. The directory appears by one rename, complete.
        """
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


def own_id(state_dir: Path, name: str, size: int = 6) -> str:
    """What tells this state directory from others that use the same engine: ``size`` random bytes in hexadecimal
    digits, made once, kept in the file ``name``."""
    path = state_dir / name
    try:
        found = path.read_text().strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = secrets.token_hex(size)
        write_private(path, found)
    return found


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
