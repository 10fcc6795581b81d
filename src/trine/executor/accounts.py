"""Accounts of this machine, as which jobs run: whether one exists, whether it is root, what it can reach. Light: every
supervisor loads this. Which user may submit what is decided in ``server.access``."""

# pathlib takes 5 ms to load, and every job pays for it.

from __future__ import annotations

import os
import pwd
import stat

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from pathlib import Path


def find_user(user: str) -> pwd.struct_passwd:
    """As the system knows the user. KeyError only if it does not, OSError if it cannot be asked.

    Without descriptors the look-up says that there is no such user: it is believed only once a file could be opened."""
    try:
        return pwd.getpwnam(user)
    except KeyError:
        os.close(os.open("/etc/passwd", os.O_RDONLY))
        return pwd.getpwnam(user)


def is_system_user(name: str) -> bool:
    """Whether this machine knows the user. OSError if it cannot be asked now."""
    try:
        return bool(find_user(name))
    except KeyError:
        return False


def has_root_rights(name: str) -> bool:
    """Whether the user is root under this or any other name (some machines have a second one)."""
    try:
        return name == "root" or find_user(name).pw_uid == 0
    except KeyError:
        return False


def blocking_directory(state: Path, user: str) -> str:
    """The first directory on the way to ``state`` that ``user`` may not pass through; empty if there is none."""
    if user == "root":  # passes everywhere, and looking users up takes longer than all else here
        return ""
    try:
        entry = find_user(user)
    except KeyError:
        return ""
    if entry.pw_uid == 0:
        return ""
    groups = os.getgrouplist(user, entry.pw_gid)
    for directory in reversed(state.absolute().parents):
        if not directory.exists():
            break
        found = directory.stat()
        shift = 6 if found.st_uid == entry.pw_uid else 3 if found.st_gid in groups else 0
        if not found.st_mode >> shift & stat.S_IXOTH:
            return str(directory)
    return ""
