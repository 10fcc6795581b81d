"""The daemon's state directory: made private, locked by one daemon at a time, and with an identity of its own.

Two daemons with one journal would start the same jobs twice. The lock keeps them apart only while both run on one
machine; the identity, a file of the directory that is also on record in the database, does so as well while the first
is away. A copy of a state directory is another directory: it shares nothing but the past.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trine.core.atomic_file import atomic_stream, make_private_dir
from trine.core.errors import InputError, TrineError

JOURNAL = "journal.db"
FILE = "identity"
_LONGEST_BYTES = 4096
_PLAIN_LOCK = "a plain file that the daemon makes itself; remove it"


class AlreadyUpError(TrineError):
    """Another daemon has the state directory."""


def make_state_directory(state: Path) -> None:
    """The directory of the daemon's state, with a journal that only its owner may read: jobs' variables are in it."""
    try:
        make_private_dir(state)
        os.close(os.open(state / JOURNAL, os.O_RDWR | os.O_CREAT, 0o600))
        (state / JOURNAL).chmod(0o600)
    except OSError as error:
        found = f"cannot be used ({error.strerror})"
        raise InputError(str(state), found, "a directory of your own", "--state") from None


class StateLock:
    """One daemon per state directory; the lock ends with the process, however it ends."""

    def __init__(self, state: Path) -> None:
        self._path = state / "daemon.lock"

    def __enter__(self) -> None:
        self._file = os.fdopen(self._open(), "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            pid = self._file.read().strip() or "unknown"
            self._file.close()
            raise AlreadyUpError(f"another daemon (process {pid}) already runs with {self._path.parent}") from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def _open(self) -> int:
        """A link in its place would have the daemon write into whatever it leads to."""
        try:
            descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
        except OSError as error:
            found = "a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
            raise InputError(str(self._path), found, _PLAIN_LOCK) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise InputError(str(self._path), "not a plain file", _PLAIN_LOCK)
        return descriptor

    def __exit__(self, *_: object) -> None:
        self._file.close()


class CopiedStateError(TrineError):
    """The state directory is a copy of another daemon's."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A state directory: a random id that no other has, and where it is, for people."""

    id: str
    host: str
    state: str

    def __str__(self) -> str:
        return f"{self.state} on host {self.host}"

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Owner:
        body = json.loads(text)
        return cls(str(body["id"]), str(body["host"]), str(body["state"]))


def owner_of(state: Path, take_over: bool = False) -> Owner:
    """The identity of this state directory; made at the first start of a daemon, and by ``take_over`` in a copy.

    Call with the lock on the directory held.
    """
    path = state / FILE
    here = Owner(secrets.token_hex(16), socket.gethostname(), str(state))
    found = _read(path)
    if found is None:
        _create(path, here)
        return here
    known, inode = Owner.from_text(json.dumps(found)), found.get("inode")
    same_place = (known.host, known.state) == (here.host, here.state)
    # A directory that was moved keeps its file, one that was restored from a backup its place; a copy has neither.
    if inode == path.lstat().st_ino or same_place:
        return Owner(known.id, here.host, here.state)
    if not take_over:
        raise CopiedStateError(
            f"{state} is a copy of {known}: two daemons would run the same jobs; if the other one is gone for good, "
            "start once with --take-over"
        )
    path.unlink()
    _create(path, here)
    return here


def _create(path: Path, owner: Owner) -> None:
    """The file names its own inode, by which a copy differs from the original."""
    try:
        with atomic_stream(path, private=True) as stream:
            text = json.dumps(asdict(owner) | {"inode": os.fstat(stream.fileno()).st_ino})
            stream.write(text.encode())
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror})", "a directory of your own") from None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "the file that `trine up` made") from None
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(_LONGEST_BYTES)
    try:
        body: dict[str, Any] = json.loads(data)
        Owner.from_text(data.decode())
    except (ValueError, KeyError, TypeError):
        raise InputError(str(path), "not what `trine up` wrote", "that file, or none and --take-over") from None
    return body
