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
        self.revision = 0
        """Of the speeds known here."""
        self._in_step = False
        """The jobs here are those of the last round."""

    def follow(self, view: View) -> tuple[set[int], list[int]]:
        """Forget jobs that left, take note of new ones; returns both."""
        if view.news is not None and self._in_step:
            return self._hear(view, *view.news)
        self._in_step = True
        slots: list[int] = view.slots.tolist()
        jobs, before = self.jobs, len(self.jobs)
        arrived = len(slots) >= before and slots[:before] == list(jobs)  # and nobody left
        gone: set[int] = set() if arrived else jobs.keys() - slots
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

    def _hear(self, view: View, came: list[int], left: list[int]) -> tuple[set[int], list[int]]:
        """As ``follow``, from what the engine tells."""
        jobs = self.jobs
        gone = jobs.keys() & left
        for slot in gone:
            self.leave(slot)
            del jobs[slot]
        new = [slot for slot in came if slot not in left] if left else came
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
        if view.revision != self.revision:
            self.revision = view.revision
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

    def fill(self, strict: bool) -> list[int]:
        """Who has none, in order of arrival, takes GPUs that are left, of the fastest type with room; returns those.

        ``strict``: the first whose gang has no room on any type ends it. Who has room only where it cannot run is
        passed over in any case: nobody takes from it what it could use.
        """
        jobs, kind, left = self.jobs, self.kind, self.left
        seated: list[int] = []
        if len(kind) == len(jobs):
            return seated
        most = max(left)  # at least as much as is left of any type
        for slot in sorted(jobs.keys() - kind.keys()) if kind else list(jobs):
            gang, suits, _ = jobs[slot]
            if gang <= most:
                for j in suits:
                    if left[j] >= gang:
                        kind[slot] = j
                        left[j] -= gang
                        seated.append(slot)
                        break
                else:
                    most = max(left)
            if gang > most and (strict or not max(left)):
                break
        return seated

    @property
    def content(self) -> bool:
        """Everybody has GPUs of the type on which it is fastest."""
        jobs, kind = self.jobs, self.kind
        return len(kind) == len(jobs) and [jobs[slot][1][0] for slot in kind] == list(kind.values())

    def upgrade(self, order: Iterable[int], before: Mapping[int, int]) -> list[int]:
        """Single jobs move to GPUs nobody has, where they are faster, types in ``order``; returns those that do.

        Those that were there ``before`` first, then those that gain most.
        """
        kind, left, jobs = self.kind, self.left, self.jobs
        moved: list[int] = []
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
                    moved.append(slot)
        return moved
