"""The decision log: one JSON line per start and stop, written beside its place and moved there when the run is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trine.core.errors import InputError


@contextmanager
def decision_log(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Something to tell decisions to, or nothing if no log is wanted. A run that fails leaves no file."""
    import json

    if path is None:
        yield None
        return
    part = path.with_name(f".{path.name}.part")
    try:
        stream = part.open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror})", "a file in a folder that exists") from None
    try:
        with stream:
            yield lambda entry: print(json.dumps(entry), file=stream)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
