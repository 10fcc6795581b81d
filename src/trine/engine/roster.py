"""Who stands in line or runs: job numbers in order of arrival, put together when somebody looks at all of them."""

from __future__ import annotations

import numpy as np

from trine.engine.table import JobTable
from trine.policy.view import Ints

News = tuple[list[int], list[int]]
"""Numbers of jobs that came, and of those that left."""


class Roster:
    """Counts at once; the array of all is made again only when it is read."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._slots: Ints = np.zeros(0, dtype=np.int64)
        self._came: list[int] = []
        self._ended = False
        """Some of ``_slots`` have finished."""
        self._count = 0
        self._away: set[int] = set()
        """Jobs that were taken out."""
        self._news: News | None = None

    def __len__(self) -> int:
        return self._count

    def slots(self) -> Ints:
        """Ascending; the same object as long as nobody comes or leaves."""
        if self._came:
            self._slots = np.concatenate((self._slots, np.array(self._came, dtype=np.int64)))
            self._came.clear()
        if self._ended:
            self._slots = self._slots[~self._table.finished[self._slots]]
            self._ended = False
        return self._slots

    def arrive(self, slot: int) -> None:
        """The latest job."""
        self._came.append(slot)
        self._count += 1
        if self._news is not None:
            self._news[0].append(slot)

    def end(self, slot: int) -> None:
        """The job is over, by the table too; one that was taken out is not missed any more."""
        if slot in self._away:
            self._away.remove(slot)
            return
        self._ended = True
        self._count -= 1
        if self._news is not None:
            self._news[1].append(slot)

    def take_out(self, slot: int) -> None:
        """Until ``put_back`` or ``end``."""
        slots = self.slots()
        self._slots, self._news = slots[slots != slot], None
        self._count = len(self._slots)
        self._away.add(slot)

    def put_back(self, slot: int) -> None:
        """To the place it had."""
        slots = self.slots()
        at = int(np.searchsorted(slots, slot))
        if at == len(slots) or slots[at] != slot:
            self._slots = np.insert(slots, at, slot)
        self._news, self._count = None, len(self._slots)
        self._away.discard(slot)

    def news(self) -> News | None:
        """What happened since this was asked last; ``None`` if somebody came or left out of turn."""
        found, self._news = self._news, ([], [])
        return found
