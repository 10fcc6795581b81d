"""Whole GPUs in order of arrival, kept from round to round: FIFO that knows speeds, without arrays or programs.

Gives what ``quirks.PassingFifo`` and the general choice of a round give together, for a fraction of the time.
"""

from __future__ import annotations

from trine.policy.base import Selection
from trine.policy.rounds.seats import Seats
from trine.policy.view import View


class Line:
    """Each job takes the fastest type with room; the first gang without room ends it."""

    def __init__(self) -> None:
        self._seats = Seats()

    def rank(self, view: View, anew: bool) -> Selection:
        """``anew``: everybody chooses again; otherwise who has GPUs keeps them and the others take what is left."""
        seats = self._seats
        seats.follow(view)
        if anew or view.gpus_by_type != seats.capacity:
            seats.look_up(view)
            seats.clear(view.gpus_by_type)
        seats.fill(strict=True)
        return Selection(dict(seats.kind))

    def state(self, view: View) -> dict[str, int]:
        """Type, as an index, that each job has GPUs of, by id; -1 for those without."""
        return {view.name(slot): self._seats.kind.get(slot, -1) for slot in self._seats.jobs}

    def restore(self, kept: dict[str, int], capacity: list[int], view: View) -> None:
        """Go on from what ``state`` gave, on ``capacity`` GPUs by type; jobs that are gone have let go of theirs."""
        seats = self._seats
        seats.jobs = {slot: view.of(slot) for slot in view.slots.tolist()}
        seats.clear(capacity)
        for slot in seats.jobs:
            kind = kept.get(view.name(slot), -1)
            if kind >= 0:
                seats.sit(slot, kind)
