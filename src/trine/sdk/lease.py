"""The lease: how long a job may keep its GPUs. The scheduler renews it by replacing a small file; here it is read.

A look costs one ``stat`` unless the file was replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

StopReason = Literal["signal", "asked", "expired", "superseded"]

LOOK_S = 0.25
"""Seconds between two looks at the file."""


class Lease(NamedTuple):
    """One state of the lease file. ``deadline_s`` is Unix time; ``None`` means for as long as the job likes."""

    deadline_s: float | None = None
    stop: bool = False
    epoch: int | None = None


class LeaseWatch:
    """Tells whether the lease of attempt ``attempt`` is over, looking at the file at most every ``LOOK_S`` seconds."""

    def __init__(
        self,
        path: Path | None,
        attempt: int,
        deadline_s: float | None,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        self._path = path
        self._attempt = attempt
        self._lease = Lease(deadline_s)
        self._clock, self._unix_clock = clock, unix_clock
        self._seen: tuple[int, int, int] | None = None
        self._next_look_s = float("-inf")

    def over(self) -> StopReason | None:
        """Why the job has to leave, or ``None`` while it may stay."""
        now_s = self._clock()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_S
            self._look()
        lease = self._lease
        if self._attempt and lease.epoch is not None and lease.epoch > self._attempt:
            return "superseded"
        if lease.stop:
            return "asked"
        return "expired" if lease.deadline_s is not None and self._unix_clock() >= lease.deadline_s else None

    def _look(self) -> None:
        """Read the file if it was replaced. What cannot be read changes nothing: the last lease known runs on."""
        if self._path is None:
            return
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                return
            lease = _parse(self._path.read_bytes())
        except (OSError, ValueError, TypeError):
            return
        self._seen = seen
        if self._attempt and lease.epoch is not None and lease.epoch < self._attempt:
            return  # left over from the attempt before
        self._lease = lease


def _parse(data: bytes) -> Lease:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("a lease is an object")
    deadline_s, epoch = fields.get("deadline_s"), fields.get("epoch")
    return Lease(
        None if deadline_s is None else float(deadline_s),
        fields.get("stop") is True,
        int(epoch) if isinstance(epoch, int | float) else None,
    )
