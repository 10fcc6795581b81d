"""Whole GPUs in order of arrival, kept from round to round: FIFO that knows speeds, without arrays or programs.

Gives what ``quirks.PassingFifo`` and the general choice of a round give together, for a fraction of the time.
"""

from __future__ import annotations

from trine.policy.base import Selection
from trine.policy.shares.rounds.seats import Seats
from trine.policy.view import View


class Line:
    """Each job takes the fastest type with room; the first gang without room ends it."""

    def __init__(self) -> None:
        self._seats = Seats()
        self._gone: set[int] = set()
        self._newest = -1

    def follow(self, view: View) -> bool:
        """Jobs came or left; whether those who stayed might choose otherwise now.

        Whoever comes chooses last, and who has what is best for it would choose the same again.
        """
        seats = self._seats
        self._gone, new = seats.follow(view)
        back = bool(new) and new[0] < self._newest  # an earlier job stands in line again
        self._newest = max(self._newest, *new) if new else self._newest
        return seats.revision != view.revision or ((back or bool(self._gone)) and not seats.content)

    def choose(self, view: View, anew: bool) -> Selection:
        """``anew``: everybody chooses again; otherwise who has GPUs keeps them and the others take what is left."""
        seats, before = self._seats, self._seats.kind
        if not anew and view.gpus_by_type == seats.capacity:
            seated = seats.fill(strict=True)
            return Selection(dict(seats.kind), changed=self._gone.union(seated))
        seats.look_up(view)
        seats.clear(view.gpus_by_type)
        seats.fill(strict=True)
        others = {job_index for job_index, _ in before.items() ^ seats.kind.items()}
        return Selection(dict(seats.kind), changed=others | self._gone)

    def state(self, view: View) -> dict[str, int]:
        """Type, as an index, that each job has GPUs of, by id; -1 for those without."""
        return {view.name(job_index): self._seats.kind.get(job_index, -1) for job_index in self._seats.jobs}

    def restore(self, kept: dict[str, int], capacity: list[int], view: View) -> None:
        """Go on from what ``state`` gave, on ``capacity`` GPUs by type; jobs that are gone have let go of theirs."""
        seats = self._seats
        seats.jobs = {job_index: view.of(job_index) for job_index in view.job_indices.tolist()}
        self._newest = max(seats.jobs, default=-1)
        seats.clear(capacity)
        for job_index in seats.jobs:
            kind = kept.get(view.name(job_index), -1)
            if kind >= 0:
                seats.sit(job_index, kind)
