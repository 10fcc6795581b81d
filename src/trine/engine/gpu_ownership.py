"""Which job really holds each GPU. A GPU is given to another job only after its holder was seen to leave it.

Two jobs may hold the same GPUs if each was declared the other's co-runner; a third never joins them.

Starts cannot wait for each other in a circle, although two jobs may swap GPUs: a start waits for holders only, and each
of these has ended or was ordered to stop, in this round or before, whatever becomes of its own next start.
"""

from __future__ import annotations

from trine.core.errors import TrineError


class GpuOwnershipError(TrineError):
    """A GPU would have had more holders than it may have."""


class GpuOwnership:
    """Tracks holders and the starts that wait for them. Jobs are job indices, GPUs are GPU ids."""

    def __init__(self, gpu_count: int) -> None:
        self.holder: list[int] = [-1] * gpu_count
        self.second_holder: dict[int, int] = {}
        """GPU -> its second holder, where two jobs share it."""
        self.holding: dict[int, tuple[int, ...]] = {}
        self._waits_for: dict[int, set[int]] = {}
        """Waiting start -> the holders that must leave first, its own old run among them."""
        self._blocked: dict[int, list[int]] = {}
        """Holder -> the starts that wait for it."""

    def claim(self, job_index: int, gpus: tuple[int, ...], co_runner: int = -1) -> bool:
        """Want ``gpus`` for the job: true if they may be taken at once, else the start is remembered.

        A job does not wait for a co-runner that holds these very GPUs.
        """
        if job_index not in self.holding and max(map(self.holder.__getitem__, gpus)) < 0:
            return True  # all of them are free: no sets to build
        busy = [g for g in gpus if self.holder[g] != -1]
        before = {self.holder[g] for g in busy} | {self.second_holder[g] for g in busy if g in self.second_holder}
        if job_index in self.holding:  # it moves: never on old and new GPUs at once
            before.add(job_index)
        if co_runner >= 0 and self.holding.get(co_runner) == gpus:
            before.discard(co_runner)
        if not before:
            return True
        self._waits_for[job_index] = before
        for holder in before:
            self._blocked.setdefault(holder, []).append(job_index)
        return False

    def waits(self, job_index: int) -> bool:
        """A start of the job waits for GPUs to be released."""
        return job_index in self._waits_for

    def cancel(self, job_index: int) -> None:
        """Forget the start of the job that still waits."""
        for holder in self._waits_for.pop(job_index):
            self._blocked[holder].remove(job_index)

    def take(self, job_index: int, gpus: tuple[int, ...], co_runner: int = -1) -> None:
        if co_runner >= 0 and self.holding.get(co_runner) == gpus:
            self._join(job_index, gpus, co_runner)
            return
        holder = self.holder
        for g in gpus:
            if holder[g] != -1:
                raise GpuOwnershipError(f"GPU {g} is still held by job number {holder[g]}, wanted by {job_index}")
            holder[g] = job_index
        self.holding[job_index] = gpus

    def _join(self, job_index: int, gpus: tuple[int, ...], co_runner: int) -> None:
        for g in gpus:
            if g in self.second_holder:
                both = f"{self.holder[g]} and {self.second_holder[g]}"
                raise GpuOwnershipError(
                    f"GPU {g} is still held by job numbers {both}, wanted by {job_index} next to {co_runner}"
                )
            self.second_holder[g] = job_index
        self.holding[job_index] = gpus

    def co_runner_of(self, job_index: int) -> int:
        """Index of the job that holds the same GPUs now, or -1."""
        gpus = self.holding.get(job_index, ())
        if not gpus or gpus[0] not in self.second_holder:
            return -1
        first, second = self.holder[gpus[0]], self.second_holder[gpus[0]]
        return second if first == job_index else first

    def release(self, job_index: int) -> list[int]:
        """The job left its GPUs; returns the starts that need wait no longer, in the order they were claimed."""
        gpus = self.holding.pop(job_index)
        if self.second_holder:
            self._vacate(job_index, gpus)
        else:
            for g in gpus:
                self.holder[g] = -1
        return [waiter for waiter in self._blocked.pop(job_index, ()) if self._freed(waiter, job_index)]

    def _vacate(self, job_index: int, gpus: tuple[int, ...]) -> None:
        """The job that stays behind is the only holder from now on."""
        for g in gpus:
            second = self.second_holder.pop(g, -1)
            if second != job_index:
                self.holder[g] = second

    def _freed(self, waiter: int, holder: int) -> bool:
        left = self._waits_for[waiter]
        left.discard(holder)
        if left:
            return False
        del self._waits_for[waiter]
        return True
