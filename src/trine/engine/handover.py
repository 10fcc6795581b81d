"""Who really holds each GPU. A GPU is given on only after its last holder was seen to let go.

Two jobs may hold the same GPUs if each was declared the other's partner; a third never joins them.
"""

from __future__ import annotations

from trine.core.errors import TrineError


class HandoverError(TrineError):
    """A GPU would have had a holder too many."""


class Handover:
    """Tracks holders and the starts that wait for them. Jobs are job numbers, GPUs are GPU ids."""

    def __init__(self, gpu_count: int) -> None:
        self.holder: list[int] = [-1] * gpu_count
        self.guests: dict[int, int] = {}
        """GPU -> its second holder, where two jobs share it."""
        self.holding: dict[int, tuple[int, ...]] = {}
        self._waits_for: dict[int, set[int]] = {}
        """Waiting start -> the holders that must let go first, its own old run among them."""
        self._blocked: dict[int, list[int]] = {}
        """Holder -> the starts that wait for it."""

    def claim(self, slot: int, gpus: tuple[int, ...], partner: int = -1) -> bool:
        """Want ``gpus`` for ``slot``: true if they may be taken at once, else the start is remembered.

        Nobody waits for a partner that holds these very GPUs.
        """
        busy = [g for g in gpus if self.holder[g] != -1]
        if not busy and slot not in self.holding:
            return True
        before = {self.holder[g] for g in busy} | {self.guests[g] for g in busy if g in self.guests}
        if slot in self.holding:
            before.add(slot)
        if partner >= 0 and self.holding.get(partner) == gpus:
            before.discard(partner)
        if not before:
            return True
        self._waits_for[slot] = before
        for holder in before:
            self._blocked.setdefault(holder, []).append(slot)
        return False

    def waits(self, slot: int) -> bool:
        """A start of ``slot`` waits for GPUs to be released."""
        return slot in self._waits_for

    def cancel(self, slot: int) -> None:
        """Forget the start of ``slot`` that still waits."""
        for holder in self._waits_for.pop(slot):
            self._blocked[holder].remove(slot)

    def take(self, slot: int, gpus: tuple[int, ...], partner: int = -1) -> None:
        if partner >= 0 and self.holding.get(partner) == gpus:
            self._join(slot, gpus, partner)
            return
        holder = self.holder
        for g in gpus:
            if holder[g] != -1:
                raise HandoverError(f"GPU {g} is still held by job number {holder[g]}, wanted by {slot}")
            holder[g] = slot
        self.holding[slot] = gpus

    def _join(self, slot: int, gpus: tuple[int, ...], partner: int) -> None:
        for g in gpus:
            if g in self.guests:
                both = f"{self.holder[g]} and {self.guests[g]}"
                raise HandoverError(f"GPU {g} is still held by job numbers {both}, wanted by {slot} next to {partner}")
            self.guests[g] = slot
        self.holding[slot] = gpus

    def beside(self, slot: int) -> int:
        """The job number that holds the same GPUs as ``slot`` now, or -1."""
        gpus = self.holding.get(slot, ())
        if not gpus or gpus[0] not in self.guests:
            return -1
        first, second = self.holder[gpus[0]], self.guests[gpus[0]]
        return second if first == slot else first

    def release(self, slot: int) -> list[int]:
        """``slot`` let go of its GPUs; returns the starts that need wait no longer, in the order they were claimed."""
        gpus = self.holding.pop(slot)
        if self.guests:
            self._vacate(slot, gpus)
        else:
            for g in gpus:
                self.holder[g] = -1
        return [waiter for waiter in self._blocked.pop(slot, ()) if self._freed(waiter, slot)]

    def _vacate(self, slot: int, gpus: tuple[int, ...]) -> None:
        """Whoever stays behind is the only holder from now on."""
        for g in gpus:
            guest = self.guests.pop(g, -1)
            if guest != slot:
                self.holder[g] = guest

    def _freed(self, waiter: int, holder: int) -> bool:
        left = self._waits_for[waiter]
        left.discard(holder)
        if left:
            return False
        del self._waits_for[waiter]
        return True
