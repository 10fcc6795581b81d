"""Who really holds each GPU. A GPU is given on only after its last holder was seen to let go."""

from __future__ import annotations

from collections.abc import Sequence

from trine.core.errors import TrineError


class HandoverError(TrineError):
    """A GPU would have had two holders."""


class Handover:
    """Tracks holders and the starts that wait for them. Jobs are job numbers, GPUs are GPU ids."""

    def __init__(self, gpu_count: int) -> None:
        self.holder: list[int] = [-1] * gpu_count
        self.holding: dict[int, tuple[int, ...]] = {}
        self._missing: dict[int, int] = {}
        """Waiting start -> how many releases it still waits for (its own old run counts as one)."""
        self._waiter: dict[int, int] = {}
        """GPU -> the start that waits for it."""

    def claim(self, slot: int, gpus: Sequence[int]) -> bool:
        """Want ``gpus`` for ``slot``: true if they may be taken at once, else the start is remembered."""
        busy = [g for g in gpus if self.holder[g] != -1]
        waits_for_itself = slot in self.holding
        if not busy and not waits_for_itself:
            return True
        self._missing[slot] = len(busy) + waits_for_itself
        for g in busy:
            self._waiter[g] = slot
        return False

    def waits(self, slot: int) -> bool:
        """A start of ``slot`` waits for GPUs to be released."""
        return slot in self._missing

    def cancel(self, slot: int) -> None:
        """Forget the start of ``slot`` that still waits."""
        del self._missing[slot]
        for gpu in [g for g, waiter in self._waiter.items() if waiter == slot]:
            del self._waiter[gpu]

    def take(self, slot: int, gpus: tuple[int, ...]) -> None:
        holder = self.holder
        for g in gpus:
            if holder[g] != -1:
                raise HandoverError(f"GPU {g} is still held by job number {holder[g]}, wanted by {slot}")
            holder[g] = slot
        self.holding[slot] = gpus

    def release(self, slot: int) -> list[int]:
        """``slot`` let go of its GPUs; returns the starts that need wait no longer."""
        gpus = self.holding.pop(slot)
        for g in gpus:
            self.holder[g] = -1
        if not self._missing:
            return []
        released = [self._waiter.pop(g) for g in gpus if g in self._waiter]
        if slot in self._missing:
            released.append(slot)
        return [waiter for waiter in released if self._count_down(waiter)]

    def _count_down(self, slot: int) -> bool:
        self._missing[slot] -= 1
        if self._missing[slot]:
            return False
        del self._missing[slot]
        return True
