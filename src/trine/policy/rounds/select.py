"""Who runs in the next round, and on which GPU type: type by type, the highest priority first. Keeps no state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trine.policy.view import Flags, Floats, Ints


@dataclass(frozen=True)
class Candidates:
    """Units by row, GPU types by column."""

    members: Ints
    """(units, 2): positions of the jobs in the view; the second is -1 for a single job."""
    gang: Ints
    runs: Flags
    """Every member makes steps there and the gang fits."""
    priority: Floats
    owed_s: Floats
    share: Floats
    waits: Flags
    """Takes no part in the choice by priority."""
    rates: Floats
    """Steps per second, by single job."""

    @property
    def plain(self) -> bool:
        """Single jobs of one GPU each."""
        return len(self.members) == len(self.rates) and bool((self.gang == 1).all())


@dataclass(frozen=True)
class Chosen:
    """Rows of units and the types they run on, aligned."""

    rows: Ints
    kinds: Ints


def select(units: Candidates, free: Sequence[int], order: Sequence[int], served_only: bool, queue: bool) -> Chosen:
    """Units for the GPUs ``free`` by type; types in ``order``.

    ``served_only``: units without priority are left out. ``queue``: one order over all types instead of one per type.
    """
    left = list(free)
    taken = np.zeros(len(units.rates) + 1, np.bool_)
    rows: list[int] = []
    kinds: list[int] = []
    may = units.runs & ~units.waits[:, None]
    for row, kind in _one_queue(units, order) if queue else ():
        if left[kind] > 0 and may[row, kind] and not (served_only and units.priority[row, kind] <= 0):
            if _take(units, taken, left, row, kind):
                rows.append(row)
                kinds.append(kind)
    for kind in () if queue else order:
        if left[kind] > 0:
            found = _of_type(units, taken, left, kind, served_only)
            rows += found
            kinds += [kind] * len(found)
    return Chosen(np.array(rows, np.int64), np.array(kinds, np.int64))


def in_line(units: Candidates, chosen: Chosen, free: Sequence[int], strict: bool) -> Chosen:
    """``chosen`` and, on the GPUs left, the other single jobs in order of arrival, each on the fastest type with room.

    ``strict``: the first whose gang has no room on any type ends it; who has room only where it cannot run is passed
    over in any case.
    """
    left = np.array(free, np.int64)
    np.subtract.at(left, chosen.kinds, units.gang[chosen.rows])
    taken = np.zeros(len(units.rates) + 1, np.bool_)
    taken[units.members[chosen.rows].ravel()] = True
    taken[-1] = False
    rows, kinds = chosen.rows.tolist(), chosen.kinds.tolist()
    for row in np.flatnonzero(~taken[:-1]).tolist() if left.any() else ():
        room = left >= units.gang[row]
        if not room.any():
            if strict or not left.any():
                break
            continue
        kind = int(np.where(room & units.runs[row], units.rates[row], 0.0).argmax())
        if room[kind] and units.runs[row, kind]:
            rows.append(row)
            kinds.append(kind)
            left[kind] -= units.gang[row]
    return Chosen(np.array(rows, np.int64), np.array(kinds, np.int64))


def _of_type(units: Candidates, taken: Flags, left: list[int], kind: int, served_only: bool) -> list[int]:
    may = units.runs[:, kind] & ~units.waits & ~taken[units.members[:, 0]] & ~_second_taken(units, taken)
    if served_only:
        may &= units.priority[:, kind] > 0
    rows = np.flatnonzero(may)
    rows = rows[_order(units, rows, kind)]
    if units.plain:
        rows = rows[: left[kind]]
        taken[units.members[rows, 0]] = True
        left[kind] -= len(rows)
        return list(rows.tolist())
    found = []
    for row in rows.tolist():
        if left[kind] <= 0:
            break
        if _take(units, taken, left, row, kind):
            found.append(row)
    return found


def _second_taken(units: Candidates, taken: Flags) -> Flags:
    # Position -1, no second member, is the last entry of ``taken``, which stays false.
    return taken[units.members[:, 1]]


def _order(units: Candidates, rows: Ints, kind: int) -> Ints:
    """By priority, then what is owed, then share; ties in order of arrival."""
    keys = (-units.share[rows, kind], -units.owed_s[rows, kind], -units.priority[rows, kind])
    return np.lexsort(keys)


def _one_queue(units: Candidates, order: Sequence[int]) -> list[tuple[int, int]]:
    """Every unit on every type, highest priority first."""
    kinds = np.repeat(np.array(order, np.int64), len(units.members))
    rows = np.tile(np.arange(len(units.members)), len(order))
    keys = (-units.share[rows, kinds], -units.owed_s[rows, kinds], -units.priority[rows, kinds])
    found = np.lexsort(keys)
    return list(zip(rows[found].tolist(), kinds[found].tolist(), strict=True))


def _take(units: Candidates, taken: Flags, left: list[int], row: int, kind: int) -> bool:
    one, other = units.members[row].tolist()
    if taken[one] or (other >= 0 and taken[other]) or units.gang[row] > left[kind]:
        return False
    taken[one] = True
    if other >= 0:
        taken[other] = True
    left[kind] -= int(units.gang[row])
    return True
