"""The decision log: one JSON line per start and stop; a run that fails leaves no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from trine.core.errors import InputError


@contextmanager
def decision_log(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A function that writes one decision to ``path``, or ``None`` if no log is wanted."""
    import json

    from trine.core.atomic_file import atomic_stream

    if path is None:
        yield None
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(atomic_stream(path))
        except OSError as error:
            found = f"cannot be written ({error.strerror})"
            raise InputError(str(path), found, "a file in a folder that exists") from None

        def log(entry: dict[str, Any]) -> None:
            stream.write(f"{json.dumps(entry)}\n".encode())

        yield log
