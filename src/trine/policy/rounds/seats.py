"""Who has GPUs of which type, kept from round to round as plain dictionaries: a round costs what changes in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
        self._revision = 0

    def follow(self, view: View) -> tuple[set[int], list[int]]:
        """Forget jobs that left, take note of new ones; returns both."""
        slots: list[int] = view.slots.tolist()
        jobs = self.jobs
        gone = jobs.keys() - slots
        for slot in gone:
            self.leave(slot)
            del jobs[slot]
        missing = len(slots) - len(jobs)
        if not missing:
            return gone, []
        new = slots[-missing:]
        if not jobs.keys().isdisjoint(new):  # an earlier job stands in line again: back to the order of arrival
            new = [slot for slot in slots if slot not in jobs]
            self.jobs = {slot: jobs[slot] if slot in jobs else view.of(slot) for slot in slots}
            return gone, new
        for slot in new:
            jobs[slot] = view.of(slot)
        return gone, new

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

    def look_up(self, view: View) -> None:
        """Speeds may have changed."""
        if view.revision != self._revision:
            self._revision = view.revision
            self.jobs = {slot: view.of(slot) for slot in self.jobs}

    def clear(self, capacity: list[int]) -> None:
        """Everybody gets up."""
        self.kind, self.mates = {}, {}
        self.capacity, self.left = capacity, list(capacity)

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

    def upgrade(self, order: Iterable[int], before: Mapping[int, int]) -> None:
        """Single jobs move to GPUs nobody has, where they are faster, types in ``order``.

        Those that were there ``before`` first, then those that gain most.
        """
        kind, left, jobs = self.kind, self.left, self.jobs
        slow = [slot for slot, now in kind.items() if now != jobs[slot][1][0] and slot not in self.mates]
        for to in order:
            if not slow or left[to] <= 0:
                continue
            gains = [
                (before.get(slot) != to, step_s[to] / step_s[kind[slot]], slot)
                for slot in slow
                if (step_s := jobs[slot][2])[to] < step_s[kind[slot]] and to in jobs[slot][1]
            ]
            gains.sort()
            for _, _, slot in gains:
                gang = jobs[slot][0]
                if gang <= left[to]:
                    left[kind[slot]] += gang
                    left[to] -= gang
                    kind[slot] = to
