"""The one writer of files: content goes to a draft beside the target, which takes the target's name when complete.

A reader, a crash, Ctrl-C or a full disk therefore meets the old file or the new one, never half of one. Directories of
several files are staged in ``report.data_files``; ``executor.attempt.rundir`` and ``sdk`` have writers of their own,
since they must load in a millisecond or without the rest of the package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trine.core.errors import InputError

PRIVATE_MODE = 0o600
_DEFAULT_MODE = 0o666
"""As ``open`` creates files: the umask takes away what the user does not want to give."""


@contextmanager
def atomic_stream(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A stream whose content replaces ``path`` when the block ends; an exception leaves ``path`` as it was.

    ``private`` files have mode 600 whatever the umask, and are on disk before they take the name. ``OSError`` is the
    caller's to explain. A link at ``path`` is replaced, not followed.
    """
    with _draft(path, private, lambda draft: draft.replace(path)) as stream:
        yield stream


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` by a file of mode 600 that holds ``text``, synced to disk."""
    with atomic_stream(path, private=True) as stream:
        stream.write(text.encode())


def create_private(path: Path, text: str) -> None:
    """As ``write_private`` where there is no such file; one that exists, even since a moment ago, stays as it is."""

    def put(draft: Path) -> None:
        try:
            os.link(draft, path)  # unlike a rename, a link never replaces anything
        except FileExistsError:
            pass
        finally:
            draft.unlink()

    with _draft(path, True, put) as stream:
        stream.write(text.encode())


def make_private_dir(path: Path) -> None:
    """A directory of mode 700. What is missing above it is made so that no umask lets others write there."""
    missing = [above for above in path.parents if not above.exists()]
    for above in reversed(missing):
        above.mkdir(exist_ok=True)
        above.chmod(0o755)
    path.mkdir(mode=0o700, exist_ok=True)


def write_output(path: str | Path, content: str | bytes, expected: str = "a writable file name") -> None:
    """Write a file that a user named, gzip'ed if the name ends in ``.gz``; same content, same bytes.

    What prevents it is an ``InputError`` that ends with ``expected``.
    """
    target = Path(path)
    if not target.name or target.is_dir():
        raise InputError(str(path), "a directory", "the name of a file to write")
    data = content.encode() if isinstance(content, str) else content
    try:
        with atomic_stream(target) as stream:
            stream.write(_gzip(data) if target.name.endswith(".gz") else data)
    except OSError as error:
        raise InputError(str(target), f"cannot be written ({error.strerror})", expected) from None


@contextmanager
def _draft(path: Path, private: bool, put: Callable[[Path], object]) -> Iterator[BinaryIO]:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.unlink(missing_ok=True)  # left behind by a process of the same number that was killed
    # Exclusive and without following links: in a directory that others may write to, nothing of theirs is written to.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, PRIVATE_MODE if private else _DEFAULT_MODE)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if private:
                os.fchmod(descriptor, PRIVATE_MODE)
            yield stream
            if private:
                stream.flush()
                os.fsync(descriptor)
        put(draft)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _gzip(data: bytes) -> bytes:
    import gzip

    # No time stamp in the header: equal content, equal bytes.
    return gzip.compress(data, mtime=0)
