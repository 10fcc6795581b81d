"""A progress bar on stderr that appears only when something takes longer than two seconds, and only for people."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

_APPEARS_AFTER_S = 2.0
_EVERY_S = 0.1


class ProgressBar:
    """Counts up to ``total``; silent where stderr is not a terminal."""

    def __init__(self, total: int, label: str) -> None:
        self._total, self._label = total, label
        self._count, self._shown = 0, 0
        self._started = self._updated = time.monotonic()
        self._wanted = sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def advance(self, by: int = 1) -> None:
        self._count += by
        if not self._wanted:
            return
        now = time.monotonic()
        if now - self._started < _APPEARS_AFTER_S or now - self._updated < _EVERY_S:
            return
        self._updated = now
        self._show()

    def _show(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._label, total=self._total)
            self._bar.start()
        self._bar.update(self._task, completed=self._count)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
