"""Reports to the scheduler how far a rank is: one small file per rank, replaced at most about once per second.

Reports are best effort: a full disk or a folder that is gone never disturbs the training.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

REPORT_S = 1.0
"""Seconds between two reports."""


class Progress:
    """Steps done so far by one rank, and the file that says so. Without a folder it only keeps the numbers."""

    def __init__(
        self, folder: Path | None, rank: int, clock: Callable[[], float], unix_clock: Callable[[], float]
    ) -> None:
        self._path = os.fspath(folder / f"progress-{rank}.json") if folder else ""
        self._aside = os.fspath(folder / f".progress-{rank}.{os.getpid()}.tmp") if folder else ""
        self._clock, self._unix_clock = clock, unix_clock
        self._window_s: float | None = None
        self._window_step = 0
        self._reported_s = 0.0
        self._steps_per_s = 0.0
        self.step = 0
        self.total: int | None = None
        self.checkpoint_step: int | None = None

    def begin(self, step: int, total: int | None) -> None:
        """A loop starts here; rates count from now on."""
        self.step, self.total = step, total
        self._window_s, self._window_step = self._clock(), step
        self._write()

    def at(self, step: int, total: int | None) -> None:
        """``step`` steps are done; reported if the last report is old enough."""
        self.step = step
        self.total = self.total if total is None else total
        if self._window_s is None or step < self._window_step:
            self.begin(step, self.total)
        elif self._clock() - self._reported_s >= REPORT_S:
            self.flush()

    def flush(self) -> None:
        """Report now. Less than half a second is too short to say how fast it goes, unless nothing better is known."""
        now_s = self._clock()
        window_s = 0.0 if self._window_s is None else now_s - self._window_s
        if self.step > self._window_step and window_s > (REPORT_S / 2 if self._steps_per_s else 0.0):
            self._steps_per_s = (self.step - self._window_step) / window_s
            self._window_s, self._window_step = now_s, self.step
        self._write()

    def pause(self, seconds: float) -> None:
        """Leave out time in which no step was made, such as that of a checkpoint."""
        if self._window_s is not None:
            self._window_s += seconds

    def _write(self) -> None:
        self._reported_s = self._clock()
        if not self._path:
            return
        report = {
            "t": round(self._unix_clock(), 3),
            "step": self.step,
            "total": self.total,
            "steps_per_s": round(self._steps_per_s, 6),
            "checkpoint_step": self.checkpoint_step,
        }
        with suppress(OSError):
            _replace(self._path, self._aside, json.dumps(report).encode())


def _replace(path: str, aside: str, data: bytes) -> None:
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, data)
    finally:
        os.close(file)
    os.replace(aside, path)  # noqa: PTH105
