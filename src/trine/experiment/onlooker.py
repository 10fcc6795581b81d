"""Keeps the record of a run that goes on: looks at it about once a second and writes down what happened since."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trine.core.cluster import Cluster
from trine.report.running_record import Happened, RunningRecord
from trine.sim.recorder import Life, Recorder

_FIRST_S = 0.5
"""Runs that are over sooner leave no record: it could not be looked at in time."""
_EVERY_S = 1.0
_REST = 20
"""A line that took long to write is followed by a pause of so many times as long."""


@contextmanager
def recorded(out_dir: Path | None) -> Iterator[Recording | None]:
    """Of a run that will write its results to ``out_dir``; the record goes when the block ends, however it ends."""
    if out_dir is None:
        yield None
        return
    record = RunningRecord(out_dir)
    record.claim()
    recording = Recording(record)
    try:
        yield recording
    finally:
        recording.record.remove()


class Recording:
    """The onlooker of ``sim.scenario``."""

    def __init__(
        self, record: RunningRecord, first_s: float = _FIRST_S, every_s: float = _EVERY_S, rest: float = _REST
    ) -> None:
        self.record, self._every_s, self._rest = record, every_s, rest
        self._due_s = time.monotonic() + first_s
        self._header: tuple[dict[str, Any], Cluster] | None = None
        """Not written yet."""
        self._recorder: Recorder | None = None
        self._segments = 0
        self._lives = 0
        self._open: list[Life] = []

    def begin(self, settings: dict[str, Any], cluster: Cluster, recorder: Recorder) -> None:
        self._header, self._recorder = (settings, cluster), recorder

    def look(self, now: float) -> None:
        at_s = time.monotonic()
        if at_s < self._due_s or self._recorder is None:
            return
        if self._header is not None:
            self.record.begin(*self._header)
            self._header = None
        self.record.add(self._since(now, self._recorder))
        ended_s = time.monotonic()
        self._due_s = ended_s + max(self._every_s, self._rest * (ended_s - at_s))

    def _since(self, now: float, recorder: Recorder) -> Happened:
        new = recorder.lives[self._lives :]
        segments = recorder.segments[self._segments :]
        self._lives, self._segments = self._lives + len(new), self._segments + len(segments)
        alive = [*self._open, *new]
        self._open = [life for life in alive if life.finish_s < 0]
        return Happened(
            now,
            [(life.job.id, life.job.submit_s, life.job.gpus, life.job.model, life.job.user) for life in new],
            segments,
            [(life.job.id, life.finish_s) for life in alive if life.finish_s >= 0],
            [
                (life.job.id, life.run.start_s, life.run.gpus, life.run.mean_slowdown(now), life.run.why.value)
                for life in self._open
                if life.run is not None
            ],
        )
