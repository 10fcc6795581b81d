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
        self._kind: dict[int, int] = {}
        self._gang: dict[int, int] = {}
        self._capacity: list[int] = []
        self._left: list[int] = []

    def rank(self, view: View, anew: bool) -> Ranking:
        """``anew``: everybody chooses again; otherwise who has GPUs keeps them and the others take what is left."""
        slots: list[int] = view.slots.tolist()
        capacity: list[int] = view.capacity.tolist()
        if anew or capacity != self._capacity:
            self._kind, self._gang = {}, {}
            self._capacity, self._left = capacity, list(capacity)
        else:
            self._drop_those_gone(set(slots))
        self._fill(view, slots)
        kind = self._kind
        order = [at for at, slot in enumerate(slots) if slot in kind]
        pools = [kind[slots[at]] for at in order]
        return Ranking(np.array(order, np.int64), np.array(pools, np.int64), Why.NOT_DECIDED, exact=True)

    def _drop_those_gone(self, present: set[int]) -> None:
        for slot in [slot for slot in self._kind if slot not in present]:
            self._left[self._kind.pop(slot)] += self._gang.pop(slot)

    def _fill(self, view: View, slots: list[int]) -> None:
        kind, left = self._kind, self._left
        most = max(left)
        if not most:
            return
        gangs: list[int] = view.gpus.tolist()
        for at, slot in enumerate(slots):
            if slot in kind:
                continue
            gang = gangs[at]
            if gang > most:
                break
            # Who has room only where it cannot run is passed over: nobody takes from it what it could use.
            for j in view.pools_of(at):
                if left[j] >= gang:
                    kind[slot], self._gang[slot] = j, gang
                    left[j] -= gang
                    most = max(left)
                    break
            if not most:
                break
