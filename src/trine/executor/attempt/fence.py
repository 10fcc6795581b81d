"""When an attempt that cannot be observed has ended for certain: every part of it ends itself when its lease is over,
after TERM and its grace with KILL, on the clock of its own machine. Here is the same time on the clock of the executor.

A part counts its lease from before the moment of the renewal, the executor from after it. So whatever the clocks say,
and however late a renewal was seen, a part is gone when its fence is over."""

from __future__ import annotations

import time
from collections.abc import Callable

from trine.executor.base import Handle

KILL_S = 5.0
"""How long KILL may take to end all of a part, after its grace."""
_CLOCKS_DIFFER = 1.01
"""By how much one monotonic clock may run faster than another."""


class Fences:
    """The time after which each attempt is over, whatever is known of it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._over_s: dict[Handle, float] = {}

    def renewed(self, handle: Handle, lease_s: float | None, grace_s: float) -> None:
        """The lease was written just now, or may have been; ``None``: it holds for ever.

        After a restart of the executor, too: it cannot have been renewed later than now."""
        if lease_s is None:
            self._over_s.pop(handle, None)
        else:
            self._over_s[handle] = self._monotonic() + (lease_s + grace_s) * _CLOCKS_DIFFER + KILL_S

    def over(self, handle: Handle) -> bool:
        """No process of the attempt can be left, unless its part was kept from running."""
        return self._monotonic() >= self._over_s.get(handle, float("inf"))

    def forget(self, handle: Handle) -> None:
        self._over_s.pop(handle, None)
