"""Time on record. Durations are measured on the machine's monotonic clock, so that a wall clock that is set, or wrong
at first, makes no job older or younger; across restarts of the daemon by what is on record.

The journal's time runs on from its last record if the wall clock is behind it. Within one boot of the machine, and
while jobs hold GPUs, it runs on by the monotonic clock whatever the wall clock says meanwhile; otherwise it is the
wall clock's again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trine.server.state import LiveState

REPORTED_S = 5.0
"""A difference between wall clock and journal that changes by more than this is reported."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Changes with every boot; empty where the system does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


@dataclass
class JournalClock:
    """Unix seconds that never step while the daemon runs."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    boot: str = field(default_factory=boot_id)

    def __post_init__(self) -> None:
        self._base_s = self.wall() - self.monotonic()
        self._reported_s = 0.0

    def __call__(self) -> float:
        return self._base_s + self.monotonic()

    def mark(self) -> dict[str, Any]:
        """What the next start needs to go on from here, for the record."""
        return {"boot": self.boot, "monotonic_s": self.monotonic()}

    def go_on_from(self, state: LiveState) -> None:
        """Continue the time of what is on record."""
        known, busy = state.clock, any(True for _ in state.holders())
        if known is not None and busy and self.boot and known.get("boot") == self.boot:
            self._base_s = known["at_s"] - known["monotonic_s"]
        else:
            self._base_s = self.wall() - self.monotonic()
        self._base_s += max(state.last_s - self(), 0.0)

    @property
    def skew_s(self) -> float:
        """By how much the wall clock is ahead of the journal's time."""
        return self.wall() - self()

    def news(self, busy: bool) -> float | None:
        """The skew, if it has changed noticeably since this was asked last.

        While no job holds GPUs nothing is measured, so that time may step forward to the wall clock's."""
        skew_s = self.skew_s
        if abs(skew_s - self._reported_s) <= REPORTED_S:
            return None
        if skew_s > 0 and not busy:
            self._base_s += skew_s
            self._reported_s = 0.0
        else:
            self._reported_s = skew_s
        return skew_s
