"""Whole GPUs in order of arrival, kept from round to round: FIFO that knows speeds, without arrays or programs.

Gives what ``quirks.PassingFifo`` and the general choice of a round give together, for a fraction of the time.
"""

from __future__ import annotations

import numpy as np

from trine.core.reason import Why
from trine.policy.base import Ranking
from trine.policy.view import View


class Line:
    """Who has GPUs of which type. Each job takes the fastest type with room; the first gang without room ends it."""

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[int, tuple[int, ...]]] = {}
        """GPUs and types, fastest first, of the jobs present, in order of arrival."""
        self._kind: dict[int, int] = {}
        self._capacity: list[int] = []
        self._left: list[int] = []

    def rank(self, view: View, anew: bool) -> Ranking:
        """``anew``: everybody chooses again; otherwise who has GPUs keeps them and the others take what is left."""
        self._follow(view)
        capacity: list[int] = view.capacity.tolist()
        if anew or capacity != self._capacity:
            self._kind = {}
            self._capacity, self._left = capacity, list(capacity)
        kind, jobs = self._kind, self._jobs
        if len(kind) < len(jobs) and any(self._left):
            self._fill()
        order = np.arange(len(jobs)) if len(kind) == len(jobs) else np.array(self._served(), np.int64)
        pools = np.array([kind[slot] for slot in jobs if slot in kind], np.int64)
        return Ranking(order, pools, Why.NOT_DECIDED, exact=True)

    def state(self, view: View) -> dict[str, int]:
        """Type, as an index, that each job has GPUs of, by id; -1 for those without."""
        return {view.name(slot): self._kind.get(slot, -1) for slot in self._jobs}

    def restore(self, kept: dict[str, int], capacity: list[int], view: View) -> None:
        """Go on from what ``state`` gave, on ``capacity`` GPUs by type; jobs that are gone have let go of theirs."""
        self._jobs = {slot: (int(view.gpus[at]), view.pools_of(at)) for at, slot in enumerate(view.slots.tolist())}
        kinds = {slot: kept.get(view.name(slot), -1) for slot in self._jobs}
        self._kind = {slot: kind for slot, kind in kinds.items() if kind >= 0}
        self._capacity, self._left = capacity, list(capacity)
        for slot, kind in self._kind.items():
            self._left[kind] -= self._jobs[slot][0]

    def _served(self) -> list[int]:
        """Positions of the jobs that have GPUs."""
        return [at for at, slot in enumerate(self._jobs) if slot in self._kind]

    def _follow(self, view: View) -> None:
        """Forget jobs that left, take note of new ones."""
        slots: list[int] = view.slots.tolist()
        jobs = self._jobs
        for slot in jobs.keys() - slots:
            gang, _ = jobs.pop(slot)
            if slot in self._kind:
                self._left[self._kind.pop(slot)] += gang
        known = len(jobs)
        if known == len(slots):
            return
        for at in range(len(slots)):
            if slots[at] not in jobs:
                jobs[slots[at]] = (int(view.gpus[at]), view.pools_of(at))
                if at < known:  # an earlier job stands in line again: back to the order of arrival
                    self._jobs = jobs = {slot: jobs[slot] for slot in slots if slot in jobs}

    def _fill(self) -> None:
        kind, left = self._kind, self._left
        most = max(left)
        for slot, (gang, pools) in self._jobs.items():
            if slot in kind:
                continue
            if gang > most or not most:
                break
            # Who has room only where it cannot run is passed over: nobody takes from it what it could use.
            for j in pools:
                if left[j] >= gang:
                    kind[slot] = j
                    left[j] -= gang
                    most = max(left)
                    break
