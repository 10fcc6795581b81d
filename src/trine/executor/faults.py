"""Which errors of the system are the machine's fault and which the job's. Light: every supervisor loads this.

Nothing of a machine's fault is held against a job: it waits and is started again. A full disk or quota is the machine's
fault only where the daemon itself writes; in a directory that the user named it is the job that cannot run."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH118

from __future__ import annotations

import errno
import os

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_MACHINE = _EXHAUSTED | {
    *(errno.EAGAIN, errno.EIO),
    *(errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN),  # file servers that are away
}
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def is_host_fault(error: BaseException, own_dir: str = "") -> bool:
    """The machine could not do it now. ``own_dir`` is where the daemon writes."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, OSError):
        return False
    return error.errno in _MACHINE or (error.errno in _DISK and _is_own(error.filename, own_dir))


def is_exhausted(error: OSError) -> bool:
    """Out of descriptors or memory: a look has shown nothing, which does not mean that nothing is there."""
    return error.errno in _EXHAUSTED


def describe(error: BaseException) -> str:
    """The error in a few words, with the file where there is one."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if not isinstance(error, OSError):
        return str(error) or type(error).__name__
    what = error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {what}" if isinstance(error.filename, str | bytes) else what


def _is_own(path: object, own_dir: str) -> bool:
    """Without a path it was a descriptor, and all that are written to before a job runs are the daemon's."""
    if not isinstance(path, str | bytes):
        return True
    return bool(own_dir) and os.fsdecode(path).startswith(os.path.join(own_dir, ""))
