"""When something happened, on a clock that all parts of an attempt share, although each runs on a machine of its own:
a part takes the clock of the file system that keeps their directory, an agent in a pod that of the daemon. Light: every
supervisor loads this."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH116

from __future__ import annotations

import os
import time

from trine.executor.attempt.processes import uptime_s

_FILE_TICK_S = 0.02
"""Times of files are those of a clock that ticks a hundred times in a second, or oftener."""


def difference_s(before_s: float, theirs_s: float, after_s: float, tick_s: float = 0.0) -> float:
    """How far another clock is ahead of ours, by what it said at some moment between two times of ours.

    A difference that this cannot tell from none is none: clocks that are kept by NTP agree better than a request or a
    file can show."""
    if before_s - tick_s <= theirs_s <= after_s + tick_s:
        return 0.0
    return theirs_s - (before_s + after_s) / 2


class SharedClock:
    """Unix time as the file system at ``path``, a file that this process has just written, has it. It goes by the clock
    that cannot be set: what happens to the machine's time later changes nothing."""

    def __init__(self, path: str = "", before_s: float | None = None) -> None:
        self._ahead_s = time.time() - uptime_s()
        if path and before_s is not None:
            self._ahead_s += difference_s(before_s, os.stat(path).st_mtime, time.time(), _FILE_TICK_S)

    def now_s(self) -> float:
        return uptime_s() + self._ahead_s
