"""Whose journal it is: the identity of a state directory, kept in a file of it and on record in the database.

Two daemons with one journal would start the same jobs twice. A lock keeps them apart only while both are connected; the
identity does so as well while the first is away. A copy of a state directory is another directory: it shares nothing
but the past.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trine.core.atomic_file import atomic_stream
from trine.core.errors import InputError, TrineError

FILE = "identity"
_LONGEST_BYTES = 4096


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
        told = json.loads(text)
        return cls(str(told["id"]), str(told["host"]), str(told["state"]))


def owner_of(state: Path, take_over: bool = False) -> Owner:
    """Who the daemon of this state directory is; made up at its first start, and by ``take_over`` in a copy.

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
    """The file names its own inode, by which a copy of it is told from itself."""
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
        told: dict[str, Any] = json.loads(data)
        Owner.from_text(data.decode())
    except (ValueError, KeyError, TypeError):
        raise InputError(str(path), "not what `trine up` wrote", "that file, or none and --take-over") from None
    return told
