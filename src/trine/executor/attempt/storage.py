"""What jobs leave below the state directory: logs, attempts, checkpoints that name no directory of their own. Read and
removed here on behalf of the daemon; how an attempt gets there is in ``state_dir``."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import replace
from pathlib import Path

from trine.executor.attempt import rundir
from trine.executor.attempt.rank import newest_epoch
from trine.executor.attempt.removal import remove_tree
from trine.executor.attempt.state_dir import checkpoint_dir, is_below
from trine.executor.base import JobLease


class LogFile:
    """An open log of one rank."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, offset)

    def close(self) -> None:
        os.close(self._descriptor)


def open_log_file(path: str | Path) -> LogFile | None:
    """``None`` if there is none. A job may own its log: a link or a pipe put in its place is not opened as a log."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return LogFile(descriptor)
    os.close(descriptor)
    return None


class DirectoryStorage:
    """``executor.base.JobStorage`` in ``jobs/`` of a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir.absolute()
        self.jobs = self._state_dir / "jobs"

    def job_dir(self, job_id: str) -> Path:
        return self.jobs / job_id

    def with_directories(self, lease: JobLease) -> JobLease:
        """The lease with the directories that it leaves open: checkpoints beside the logs, and work done there."""
        checkpoints = lease.checkpoint_dir or str(checkpoint_dir(self.job_dir(lease.job_id)))
        return replace(lease, checkpoint_dir=checkpoints, workdir=lease.workdir or checkpoints)

    def is_reserved(self, path: str) -> bool:
        return is_below(path, self._state_dir)

    def open_log(self, job_id: str, rank: int = 0) -> LogFile | None:
        return open_log_file(self.job_dir(job_id) / (f"{rundir.LOG}.{rank}" if rank else rundir.LOG))

    def newest_epoch(self, job_id: str) -> int:
        return newest_epoch(str(self.job_dir(job_id)))

    def job_ids(self) -> list[str]:
        try:
            return [entry.name for entry in self.jobs.iterdir()]
        except OSError:
            return []

    def changed_s(self) -> dict[str, float]:
        try:
            with os.scandir(self.jobs) as entries:
                return {
                    entry.name: entry.stat(follow_symlinks=False).st_mtime
                    for entry in entries
                    if entry.name.isdecimal() and entry.is_dir(follow_symlinks=False)
                }
        except OSError:
            return {}

    def has_checkpoints(self, job_id: str) -> bool:
        try:
            with os.scandir(checkpoint_dir(self.job_dir(job_id))) as entries:
                return any(True for _ in entries)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a directory that cannot be read may hold all that is left of a long training

    def used_bytes(self, job_id: str) -> int:
        total = 0
        for folder, _, names in os.walk(self.job_dir(job_id)):  # links are not followed
            for name in names:
                with contextlib.suppress(OSError):
                    total += Path(folder, name).lstat().st_size
        return total

    def remove(self, job_id: str) -> None:
        remove_tree(self.jobs, job_id)
