"""Which simulated jobs have to wait for others to end; a job is eligible when all of them have.

How a predecessor ended makes no difference here: simulated jobs do not fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from trine.core.job import Job


class Eligibility:
    """Who waits for whom, by job number and job id."""

    def __init__(self) -> None:
        self.used = False
        """Some job waits for others, or did: until then nothing has to be kept."""
        self._present: set[str] = set()
        """Ids of jobs that were submitted and have not ended."""
        self._left: dict[int, int] = {}
        """How many jobs a job still waits for."""
        self._dependents: dict[str, list[int]] = {}

    def begin(self, present: Iterable[Job]) -> None:
        """The first job with predecessors arrives, while these are present; each that comes or ends is told now."""
        self.used = True
        self._present.update(job.id for job in present)

    def submitted(self, job_index: int, job: Job) -> bool:
        """A job arrives; whether it has to wait for others."""
        unfinished = self._present.intersection(job.after) if job.after else ()
        self._present.add(job.id)
        for job_id in unfinished:
            self._dependents.setdefault(job_id, []).append(job_index)
        if unfinished:
            self._left[job_index] = len(unfinished)
        return bool(unfinished)

    def ended(self, job: Job) -> list[int]:
        """Jobs that waited for this one last, in order of arrival."""
        self._present.discard(job.id)
        eligible = []
        for job_index in self._dependents.pop(job.id, ()):
            self._left[job_index] -= 1
            if not self._left[job_index]:
                del self._left[job_index]
                eligible.append(job_index)
        return eligible
