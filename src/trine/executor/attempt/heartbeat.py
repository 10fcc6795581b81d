"""Signs of life of the parts of an attempt: a file per part whose content changes while its part goes on, and how long
a reader has waited for a change. Light: every supervisor loads this.

A part that was killed outright says nothing, and the engine that started it may not say so either. Readers compare
contents and time by their own clock: clocks of machines differ. Only the time in which they were looking counts, so
that a reader that was suspended, or kept from its files, does not take its own absence for that of others."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import time

from trine.executor.attempt import rundir
from trine.executor.attempt.processes import uptime_s

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable

_BEAT_S = 1.0
"""Between two signs of life, and between two looks at them."""
_LONGEST_STEP_S = 2.0
"""More than this between two looks was not spent looking."""
_LEAST_SILENCE_S = 10.0
"""A machine that is short of everything may take this long between two signs, however short the lease is."""


class Heartbeat:
    """The signs of life of one part, in ``path``. Called often; writes now and then."""

    def __init__(self, path: str) -> None:
        self._path, self._count, self._next_s = path, 0, 0.0

    def beat(self) -> None:
        """In a thread that may wait for the files: one that is kept from them shall count as silent."""
        now_s = uptime_s()
        if now_s >= self._next_s:
            self._next_s, self._count = now_s + _BEAT_S, self._count + 1
            try:
                rundir.write_beat(self._path, self._count)
            except OSError:
                return  # what others make of that is theirs


def silence_limit_s(lease_s: float) -> float:
    """A part that is silent for this long is given up. One that only cannot reach its files has not seen a renewal for
    as long, so it has ended its ranks already."""
    return max(lease_s, _LEAST_SILENCE_S)


class Silence:
    """For how long parts that began, and have not ended, were not heard of. ``count`` parts."""

    def __init__(self, run_dir: str, count: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._run_dir, self._monotonic = run_dir, monotonic
        self._silent_s = dict.fromkeys(range(count), 0.0)
        """By part; those that have ended are taken out."""
        self._marks: dict[int, object] = {}
        self._looked_s = monotonic()

    def longest_s(self) -> float:
        """Looks for news first, unless that was done just now. OSError if the machine cannot say: nothing counts."""
        now_s = self._monotonic()
        passed_s = now_s - self._looked_s
        if passed_s >= _BEAT_S:
            self._looked_s = now_s
            for index in list(self._silent_s):
                self._look(index, min(passed_s, _LONGEST_STEP_S))
        return max(self._silent_s.values(), default=0.0)

    def _look(self, index: int, passed_s: float) -> None:
        if self._exists(rundir.part_file(index, "end")):
            del self._silent_s[index]
            return
        mark = rundir.read_beat(os.path.join(self._run_dir, rundir.beat_file(index)))
        is_news = index not in self._marks or mark != self._marks[index]
        # One that was not begun yet is not waited for here: whether its engine will start it is not known.
        if is_news or (mark is None and not self._exists(rundir.part_file(index))):
            passed_s, self._silent_s[index] = 0.0, 0.0
        self._marks[index] = mark
        self._silent_s[index] += passed_s

    def _exists(self, name: str) -> bool:
        return rundir.read_json(os.path.join(self._run_dir, name), raising=True) is not None
