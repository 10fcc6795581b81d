"""Reads a whole small text file, gzip'ed or not, or says in one sentence why not. Traces have their own reader."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from pathlib import Path

from trine.core.errors import InputError

MAX_BYTES = 64_000_000
"""Largest configuration file read, after decompression: keeps a wrong file from filling the memory."""

GZIP_MAGIC = b"\x1f\x8b"
A_COLUMN = "a file with one number per line"


def read_text(path: str | Path, what: str, max_bytes: int = MAX_BYTES) -> str:
    """The text of ``path``; ``what`` names the kind of file that was expected, as in ``"a cluster file"``."""
    data = _decompressed(str(path), _raw_bytes(Path(path), what, max_bytes), max_bytes)
    if len(data) > max_bytes:
        raise _too_large(str(path), what, max_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}", f"byte 0x{data[error.start]:02x} is not UTF-8 text", what) from None


def read_numbers(path: str) -> tuple[float, ...]:
    """All numbers of the file; blank lines are passed over, a first line of text counts as a header."""
    numbers: list[float] = []
    for line, text in enumerate(read_text(path, A_COLUMN).splitlines(), 1):
        word = text.strip().rstrip(",")
        if not word:
            continue
        try:
            value = float(word)
        except ValueError:
            if line == 1:
                continue
            raise InputError(f"{path}:{line}", f"{word[:40]!r}", A_COLUMN) from None
        if not math.isfinite(value):
            raise InputError(f"{path}:{line}", word, "a finite number")
        numbers.append(value)
    if not numbers:
        raise InputError(path, "no numbers", A_COLUMN)
    return tuple(numbers)


def _raw_bytes(path: Path, what: str, max_bytes: int) -> bytes:
    if path.is_dir():
        raise InputError(str(path), "found a directory", what)
    try:
        with path.open("rb") as stream:
            return stream.read(max_bytes + 1)
    except FileNotFoundError:
        raise InputError(str(path), "no such file", what) from None
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise InputError(str(path), f"cannot be read ({cause})", what) from None


def _decompressed(where: str, data: bytes, max_bytes: int) -> bytes:
    """At most ``max_bytes`` + 1 bytes, so that a gzip bomb stays small."""
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            return stream.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error):
        raise InputError(where, "the gzip data is damaged or cut off", "a complete gzip file or plain text") from None


def _too_large(where: str, what: str, max_bytes: int) -> InputError:
    return InputError(where, f"holds more than {max_bytes // 1_000_000} MB of text", what)
