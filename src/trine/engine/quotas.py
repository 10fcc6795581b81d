"""Limits on the GPUs that the jobs of a group (queue) or of a user may hold together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trine.core.cached import cached_property
from trine.core.job import Job
from trine.policy.view import Flags


@dataclass(frozen=True)
class Quotas:
    """GPUs by group and by user; groups and users that are not named have no limit."""

    by_group: Mapping[str, int] = field(default_factory=dict)
    by_user: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def limiting(self) -> bool:
        """There are quotas at all."""
        return bool(self.by_group or self.by_user)

    def __bool__(self) -> bool:
        return self.limiting

    def kept(self, jobs: Sequence[Job], job_indices: Sequence[int], running: Flags, leaving: Iterable[int]) -> Flags:
        """Which jobs exceed no quota if served in the order of ``job_indices``; those that run do not.

        ``running`` is by job index; jobs in ``leaving`` hold GPUs that were given to others already.
        """
        waits = [at for at, job_index in enumerate(job_indices) if not running[job_index]]
        holding = [jobs[job_index] for job_index in [*(i for i in job_indices if running[i]), *leaving]]
        over = self.exceeded(holding, [jobs[job_indices[at]] for at in waits])
        kept = np.ones(len(job_indices), dtype=np.bool_)
        kept[np.array(waits, np.int64)[over]] = False
        return kept

    def exceeded(self, running: Iterable[Job], waiting: Iterable[Job]) -> list[bool]:
        """For each waiting job, in order of rank: it would exceed a quota. Jobs that run are never touched."""
        groups = dict(self.by_group)
        users = dict(self.by_user)
        for job in running:
            _charge(job, groups, users)
        return [self._refuse(job, groups, users) for job in waiting]

    def _refuse(self, job: Job, groups: dict[str, int], users: dict[str, int]) -> bool:
        if groups.get(job.group, job.gpus) < job.gpus or users.get(job.user, job.gpus) < job.gpus:
            return True
        _charge(job, groups, users)
        return False


def _charge(job: Job, groups: dict[str, int], users: dict[str, int]) -> None:
    if job.group in groups:
        groups[job.group] -= job.gpus
    if job.user in users:
        users[job.user] -= job.gpus
