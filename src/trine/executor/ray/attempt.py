"""One attempt as the Ray executor follows it: the files of its parts, and what Ray has for it. What follows from these
is decided in ``executor``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from trine.executor.attempt import rundir
from trine.executor.attempt.heartbeat import Silence
from trine.executor.attempt.leader import why_silent
from trine.executor.attempt.shared_dir import SharedAttempt
from trine.executor.base import Handle


def group_name(state_id: str, handle: Handle) -> str:
    """What the placement group of an attempt is called in Ray; its actors add the node."""
    return f"{state_id}/{handle.job_id}/{handle.epoch}"


def handle_of(group: str) -> Handle | None:
    """The attempt that a group is for."""
    _, _, rest = group.partition("/")
    job_id, _, epoch = rest.rpartition("/")
    return Handle(job_id, int(epoch)) if job_id and epoch.isdecimal() else None


@dataclass
class RayAttempt(SharedAttempt):
    """Times are seconds of this process's monotonic clock."""

    starting: bool = False
    """Ray was asked to start it and has not answered yet."""
    submitted: bool = False
    """Ray said that all parts were started, or all of them are seen to have begun."""
    state: str = ""
    """Of its placement group, as Ray last said; empty: there is none."""
    orphaned: frozenset[int] = frozenset()
    """Parts whose actor is not there."""
    pending_from_s: float | None = None
    actors: list[str] = field(default_factory=list)
    """By part."""
    silence: Silence | None = None
    """How long its parts were not heard of; from when on they are known."""

    def note(self, state: str, actors: Collection[str], now_s: float) -> None:
        """What Ray says of it now."""
        self.state = state
        self.orphaned = frozenset(index for index, name in enumerate(self.actors) if name not in actors)
        if state != "PENDING":
            self.pending_from_s = None
        elif self.pending_from_s is None:
            self.pending_from_s = now_s

    def begun(self) -> list[bool]:
        """Which parts were taken up, or kept from it; OSError if the machine cannot say."""
        return [self.read(rundir.part_file(index)) is not None for index in range(len(self.actors))]

    def abandoned(self) -> bool:
        """A part lost its actor and did not come to an end of its own: its peers wait for it in vain."""
        return any(self._abandoned(index) for index in self.orphaned)

    def why_silent(self) -> str:
        """Why a part whose actor is there counts as gone; empty: it does not. OSError if the machine cannot say."""
        if self.silence is None:
            return ""
        return why_silent(self.silence, (self.read(rundir.LEASE) or {}).get("lease_s"))

    def _abandoned(self, index: int) -> bool:
        end = self.read(rundir.part_file(index, "end"))
        return end is None or (bool(end.get("asked")) and not self.requested)
