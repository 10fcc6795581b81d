"""Who has GPUs of which type, kept from round to round as plain dictionaries: a round costs what changes in it."""

from __future__ import annotations

from collections.abc import Iterable

from trine.policy.view import View


class Seats:
    """Jobs by job number, in order of arrival; types by index."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, tuple[int, ...], tuple[float, ...]]] = {}
        """GPUs, types that suit (fastest first) and seconds per step by type, of the jobs present."""
        self.kind: dict[int, int] = {}
        """The type a job has GPUs of."""
        self.mates: dict[int, int] = {}
        """Who shares GPUs with whom, both ways."""
        self.capacity: list[int] = []
        self.left: list[int] = []

    def follow(self, view: View) -> bool:
        """Forget jobs that left, take note of new ones; whether there were any."""
        slots: list[int] = view.slots.tolist()
        jobs = self.jobs
        gone = jobs.keys() - slots
        for slot in gone:
            self.leave(slot)
            del jobs[slot]
        missing = len(slots) - len(jobs)
        if not missing:
            return bool(gone)
        new = slots[-missing:]
        if jobs.keys().isdisjoint(new):
            for slot in new:
                jobs[slot] = view.of(slot)
        else:  # an earlier job stands in line again: back to the order of arrival
            self.jobs = {slot: jobs[slot] if slot in jobs else view.of(slot) for slot in slots}
        return True

    def leave(self, slot: int) -> None:
        """Give up the GPUs; a partner keeps them."""
        kind = self.kind.pop(slot, None)
        if kind is None:
            return
        mate = self.mates.pop(slot, None)
        if mate is None:
            self.left[kind] += self.jobs[slot][0]
        else:
            del self.mates[mate]

    def clear(self, view: View) -> None:
        """Everybody gets up; what is known of the jobs is looked up again."""
        self.jobs = {slot: view.of(slot) for slot in self.jobs}
        self.kind, self.mates = {}, {}
        self.capacity = view.gpus_by_type
        self.left = list(self.capacity)

    def sit(self, slot: int, kind: int, mate: int = -1) -> None:
        self.kind[slot] = kind
        self.left[kind] -= self.jobs[slot][0]
        if mate >= 0:
            self.kind[mate] = kind
            self.mates[slot], self.mates[mate] = mate, slot

    def fill(self, strict: bool) -> None:
        """Who has none, in order of arrival, takes GPUs that are left, of the fastest type with room.

        ``strict``: the first whose gang has no room on any type ends it. Who has room only where it cannot run is
        passed over in any case: nobody takes from it what it could use.
        """
        kind, left = self.kind, self.left
        if len(kind) == len(self.jobs):
            return
        most = max(left)
        for slot, (gang, suits, _) in self.jobs.items():
            if slot in kind:
                continue
            if gang > most:
                if strict or not most:
                    return
                continue
            for j in suits:
                if left[j] >= gang:
                    kind[slot] = j
                    left[j] -= gang
                    most = max(left)
                    break

    def upgrade(self, order: Iterable[int]) -> None:
        """Single jobs move to GPUs nobody has, where they are faster; most gain first, types in ``order``."""
        kind, left, jobs, mates = self.kind, self.left, self.jobs, self.mates
        for to in order:
            room = left[to]
            if room <= 0:
                continue
            gains: list[tuple[float, int, int]] = []
            for slot, now in kind.items():
                gang, _, step_s = jobs[slot]
                if now != to and step_s[to] < step_s[now] and gang <= room and slot not in mates:
                    gains.append((step_s[now] / step_s[to], slot, gang))
            gains.sort(key=_most_gain)
            for _, slot, gang in gains:
                if gang <= left[to] and to in jobs[slot][1]:
                    left[kind[slot]] += gang
                    left[to] -= gang
                    kind[slot] = to


def _most_gain(gain: tuple[float, int, int]) -> float:
    return -gain[0]
