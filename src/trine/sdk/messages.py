"""Writes a sentence to stderr, which is the job's log. No training ends because the disk of the log is full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def say(sentence: str) -> None:
    """One line, or nothing.

    Not by ``print``: what could not be written would stay in its buffer, and fail the process once more at its end.
    """
    if sys.stderr is None:
        return
    try:
        descriptor = sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # a notebook, or a test
        print(f"trine.sdk: {sentence}", file=sys.stderr, flush=True)
        return
    with suppress(OSError):
        sys.stderr.flush()
        os.write(descriptor, f"trine.sdk: {sentence}\n".encode(errors="replace"))
