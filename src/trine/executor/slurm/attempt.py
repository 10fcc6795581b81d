"""One attempt as the Slurm executor follows it: its files, and the jobs that Slurm has for it. What follows from the
states of those is decided in ``executor``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trine.executor.attempt import rundir
from trine.executor.attempt.shared_dir import SharedAttempt
from trine.executor.base import Handle
from trine.executor.slurm.commands import BatchJob

_UNPROVEN = frozenset({"NODE_FAIL", "BOOT_FAIL", "REVOKED"})
"""Ends that Slurm concludes from silence: a node that does not answer may still run what it ran."""


@dataclass
class SlurmAttempt(SharedAttempt):
    """Times are seconds of this process's monotonic clock."""

    jobs: tuple[BatchJob, ...] = ()
    """What Slurm last said of it. More than one: a heterogeneous job, or a submission that was repeated."""
    submitted_s: float | None = None
    """When Slurm took it; ``None``: it did not yet, or its answer was lost."""
    pending_from_s: float | None = None
    withdrawn: str = ""
    """Why it was taken back before it started."""

    @property
    def active(self) -> bool:
        return any(job.active for job in self.jobs)

    @property
    def pending(self) -> bool:
        """All of it waits in Slurm."""
        return bool(self.jobs) and all(job.state == "PENDING" for job in self.jobs if job.active) and self.active

    @property
    def ids(self) -> list[str]:
        """What to cancel: a part of a heterogeneous job cannot be cancelled alone."""
        return list(dict.fromkeys(job.id.partition("+")[0] for job in self.jobs if job.active))

    @property
    def claimed(self) -> bool:
        """A leader took it up, or it was withdrawn; OSError if the machine cannot say."""
        return self.read(rundir.PID) is not None

    def note_jobs(self, jobs: Sequence[BatchJob], now_s: float) -> None:
        """What Slurm says of it now."""
        self.jobs = tuple(jobs)
        if jobs and self.submitted_s is None:
            self.submitted_s = now_s  # the answer to the submission was lost
        if not self.pending:
            self.pending_from_s = None
        elif self.pending_from_s is None:
            self.pending_from_s = now_s
        if self.active:
            self.over_from_s = None

    def ended_in_slurm(self, silent_nodes: set[str]) -> bool:
        """Slurm itself saw the end of all its processes: all jobs are over, and every node of it answers."""
        proven = bool(self.jobs) and not self.active and not any(job.state in _UNPROVEN for job in self.jobs)
        return proven and not self.nodes & silent_nodes

    def why_over(self) -> str:
        """What Slurm says of the end, in words."""
        states = ", ".join(dict.fromkeys(job.state for job in self.jobs))
        return f"Slurm ended it: {states}" if states else "Slurm knows nothing of it any more"

    def withdraw(self) -> bool:
        """Keep any leader from taking it up; False if one did already."""
        return rundir.claim(str(self.run_dir), {"pid": 0, "withdrawn": True})


def handle_of(comment: str, prefix: str) -> Handle | None:
    """The attempt that a comment names, if it is of the state directory with this prefix."""
    if not comment.startswith(prefix):
        return None
    job_id, _, epoch = comment[len(prefix) :].rpartition("/")
    return Handle(job_id, int(epoch)) if job_id and epoch.isdecimal() else None
