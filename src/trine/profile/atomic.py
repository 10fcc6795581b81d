"""Writes a small text file all or nothing: aside first, then renamed, so that no half file is ever seen."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from trine.core.errors import InputError


def write_atomically(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path``, gzip'ed without a time stamp if the name ends in ``.gz``."""
    target = Path(path)
    if not target.name or target.is_dir():
        raise InputError(str(path), "a directory", "the name of a file to write")
    data = _gzip(text.encode()) if target.name.endswith(".gz") else text.encode()
    aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        aside.write_bytes(data)
        aside.replace(target)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise InputError(str(target), f"cannot be written ({error.strerror})", "a writable file name") from None


def _gzip(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data, mtime=0)
