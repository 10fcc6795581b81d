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
        self.co_runners: dict[int, int] = {}
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
        job_indices: list[int] = view.job_indices.tolist()
        jobs, before = self.jobs, len(self.jobs)
        arrived = len(job_indices) >= before and job_indices[:before] == list(jobs)  # and nobody left
        gone: set[int] = set() if arrived else jobs.keys() - job_indices
        for job_index in gone:
            self.leave(job_index)
            del jobs[job_index]
        missing = len(job_indices) - len(jobs)
        if not missing:
            return gone, []
        new = job_indices[-missing:]
        if not jobs.keys().isdisjoint(new):  # an earlier job stands in line again: back to the order of arrival
            new = [job_index for job_index in job_indices if job_index not in jobs]
            self.jobs = {
                job_index: jobs[job_index] if job_index in jobs else view.of(job_index) for job_index in job_indices
            }
            return gone, new
        for job_index in new:
            jobs[job_index] = view.of(job_index)
        return gone, new

    def _hear(self, view: View, came: list[int], left: list[int]) -> tuple[set[int], list[int]]:
        """As ``follow``, from what the engine tells."""
        jobs = self.jobs
        gone = jobs.keys() & left
        for job_index in gone:
            self.leave(job_index)
            del jobs[job_index]
        new = [job_index for job_index in came if job_index not in left] if left else came
        for job_index in new:
            jobs[job_index] = view.of(job_index)
        return gone, new

    def leave(self, job_index: int) -> None:
        """Give up the GPUs; a partner keeps them."""
        kind = self.kind.pop(job_index, None)
        if kind is None:
            return
        co_runner = self.co_runners.pop(job_index, None)
        if co_runner is None:
            self.left[kind] += self.jobs[job_index][0]
        else:
            del self.co_runners[co_runner]

    def look_up(self, view: View) -> None:
        """Speeds may have changed."""
        if view.revision != self.revision:
            self.revision = view.revision
            self.jobs = {job_index: view.of(job_index) for job_index in self.jobs}

    def clear(self, capacity: list[int]) -> None:
        """Everybody gets up."""
        self.kind, self.co_runners = {}, {}
        self.capacity, self.left = capacity, list(capacity)

    def sit(self, job_index: int, kind: int, co_runner: int = -1) -> None:
        self.kind[job_index] = kind
        self.left[kind] -= self.jobs[job_index][0]
        if co_runner >= 0:
            self.kind[co_runner] = kind
            self.co_runners[job_index], self.co_runners[co_runner] = co_runner, job_index

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
        for job_index in sorted(jobs.keys() - kind.keys()) if kind else list(jobs):
            gang, suits, _ = jobs[job_index]
            if gang <= most:
                for j in suits:
                    if left[j] >= gang:
                        kind[job_index] = j
                        left[j] -= gang
                        seated.append(job_index)
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
        return len(kind) == len(jobs) and [jobs[job_index][1][0] for job_index in kind] == list(kind.values())

    def upgrade(self, order: Iterable[int], before: Mapping[int, int]) -> list[int]:
        """Single jobs move to GPUs nobody has, where they are faster, types in ``order``; returns those that do.

        Those that were there ``before`` first, then those that gain most.
        """
        kind, left, jobs = self.kind, self.left, self.jobs
        moved: list[int] = []
        slow = [
            job_index
            for job_index, now in kind.items()
            if now != jobs[job_index][1][0] and job_index not in self.co_runners
        ]
        for to in order:
            if not slow or left[to] <= 0:
                continue
            gains = [
                (before.get(job_index) != to, step_s[to] / step_s[kind[job_index]], job_index)
                for job_index in slow
                if (step_s := jobs[job_index][2])[to] < step_s[kind[job_index]] and to in jobs[job_index][1]
            ]
            gains.sort()
            for _, _, job_index in gains:
                gang = jobs[job_index][0]
                if gang <= left[to]:
                    left[kind[job_index]] += gang
                    left[to] -= gang
                    kind[job_index] = to
                    moved.append(job_index)
        return moved
