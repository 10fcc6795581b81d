"""Limits on the GPUs that the jobs of a group (queue) or of a user may hold together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trine.core.job import Job


@dataclass(frozen=True)
class Quotas:
    """GPUs by group and by user; whoever is not named has no limit."""

    by_group: Mapping[str, int] = field(default_factory=dict)
    by_user: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_group or self.by_user)

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
