"""Who stands in line or runs: job numbers in order of arrival, put together when somebody looks at all of them."""

from __future__ import annotations

import numpy as np

from trine.engine.table import JobTable
from trine.policy.view import Ints

News = tuple[list[int], list[int]]
"""Numbers of jobs that came, and of those that left."""


class ActiveJobs:
    """Counts at once; the array of all is made again only when it is read."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._job_indices: Ints = np.zeros(0, dtype=np.int64)
        self._came: list[int] = []
        self._ended = False
        """Some of ``_slots`` have finished."""
        self._count = 0
        self._away: set[int] = set()
        """Jobs that were taken out."""
        self._news: News | None = None

    def __len__(self) -> int:
        return self._count

    def job_indices(self) -> Ints:
        """Ascending; the same object as long as nobody comes or leaves."""
        if self._came:
            self._job_indices = np.concatenate((self._job_indices, np.array(self._came, dtype=np.int64)))
            self._came.clear()
        if self._ended:
            self._job_indices = self._job_indices[~self._table.finished[self._job_indices]]
            self._ended = False
        return self._job_indices

    def arrive(self, job_index: int) -> None:
        """The latest job."""
        self._came.append(job_index)
        self._count += 1
        if self._news is not None:
            self._news[0].append(job_index)

    def end(self, job_index: int) -> None:
        """The job is over, by the table too; one that was taken out is not missed any more."""
        if job_index in self._away:
            self._away.remove(job_index)
            return
        self._ended = True
        self._count -= 1
        if self._news is not None:
            self._news[1].append(job_index)

    def take_out(self, job_index: int) -> None:
        """Until ``put_back`` or ``end``."""
        job_indices = self.job_indices()
        self._job_indices, self._news = job_indices[job_indices != job_index], None
        self._count = len(self._job_indices)
        self._away.add(job_index)

    def put_back(self, job_index: int) -> None:
        """To the place it had."""
        job_indices = self.job_indices()
        at = int(np.searchsorted(job_indices, job_index))
        if at == len(job_indices) or job_indices[at] != job_index:
            self._job_indices = np.insert(job_indices, at, job_index)
        self._news, self._count = None, len(self._job_indices)
        self._away.discard(job_index)

    def news(self) -> News | None:
        """What happened since this was asked last; ``None`` if somebody came or left out of turn."""
        found, self._news = self._news, ([], [])
        return found
