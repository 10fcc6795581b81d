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
