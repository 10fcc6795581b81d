"""The lease: how long a job may keep its GPUs. The scheduler renews it by replacing a small file; here it is read.

A lease is a duration, not a moment: it is over when ``lease_s`` seconds have passed on this process's own monotonic
clock since it last saw a renewal. So it needs no agreement of clocks between machines, and a wall clock that is stepped
ends no job. A look costs one ``stat`` unless the file was replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

StopReason = Literal["signal", "asked", "expired", "superseded"]

LOOK_S = 0.25
"""Seconds between two looks at the file."""


class Lease(NamedTuple):
    """One state of the lease file. Two with the same ``renewal`` are the same lease, whatever else was replaced."""

    lease_s: float | None = None
    """Seconds it holds from its start or its last renewal; ``None``: for as long as the job likes."""
    stop: bool = False
    epoch: int | None = None
    renewal: tuple[object, ...] = ()
    """Differs after every renewal."""


class LeaseWatch:
    """Watches whether the lease of attempt ``attempt`` is over, looking at the file at most every ``LOOK_S`` seconds.

    ``lease_s`` is how long it holds where there is no file.
    """

    def __init__(self, path: Path | None, attempt: int, lease_s: float | None, clock: Callable[[], float]) -> None:
        self._path = path
        self._attempt = attempt
        self._lease = Lease(lease_s)
        self._clock = clock
        self._renewed_s = clock()
        self._seen: tuple[int, int, int] | None = None
        self._next_look_s = float("-inf")

    def over(self) -> StopReason | None:
        """Why the job has to leave, or ``None`` while it may stay."""
        now_s = self._clock()
        # A process that was stopped for long wakes with its time used up, and may have been renewed all the while:
        # nothing is concluded from the clock before the file was looked at.
        if now_s >= self._next_look_s or self._expired(now_s):
            self._next_look_s = now_s + LOOK_S
            self._look(now_s)
        lease = self._lease
        if self._attempt and lease.epoch is not None and lease.epoch > self._attempt:
            return "superseded"
        if lease.stop:
            return "asked"
        return "expired" if self._expired(now_s) else None

    def _expired(self, now_s: float) -> bool:
        return self._lease.lease_s is not None and now_s - self._renewed_s >= self._lease.lease_s

    def _look(self, now_s: float) -> None:
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
        if lease.renewal != self._lease.renewal:
            self._renewed_s = now_s
        self._lease = lease


def _parse(data: bytes) -> Lease:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("a lease is an object")
    lease_s, epoch = fields.get("lease_s"), fields.get("epoch")
    if lease_s is not None and math.isnan(lease_s := float(lease_s)):
        raise ValueError("a lease holds for a number of seconds")
    return Lease(
        lease_s,
        fields.get("stop") is True,
        int(epoch) if isinstance(epoch, int | float) else None,
        (fields.get("renewal"), lease_s, fields.get("deadline_s")),
    )
