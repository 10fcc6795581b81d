"""Which units run in the next round, and on which GPU type: type by type, the highest priority first. Keeps no state.

A unit is a job or a pair of jobs on the same GPUs. This is the greedy selection of Gavel (OSDI'20, section 5,
algorithm 1); what follows it, filling free GPUs by arrival and splitting pairs, is our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trine.policy.base import Selection
from trine.policy.shares.rounds.share_ledger import ShareLedger
from trine.policy.view import Flags, Floats, Ints, View


@dataclass(frozen=True, slots=True)
class Candidates:
    """Units by row, GPU types by column."""

    members: Ints
    """(units, 2): positions of the jobs in the view, -1 for no second; not read if all units are single jobs."""
    gang: Ints
    runs: Flags
    """Every member makes steps there and the gang fits."""
    priority: Floats
    owed_s: Floats
    share: Floats
    rates: Floats
    """Steps per second, by single job."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows of units and the types they run on, aligned."""

    rows: list[int]
    type_indices: list[int]


def select(units: Candidates, may: Flags, free: Sequence[int], order: Sequence[int], one_queue: bool) -> Chosen:
    """Units for the GPUs ``free`` by type, out of those that ``may`` run there; types in ``order``.

    ``one_queue``: one order over all types instead of one per type.
    """
    ranked = _by_priority(units, may, order, one_queue)
    if len(units.members) > len(units.rates):
        return _with_pairs(units, free, ranked)
    left, waiting = list(free), len(units.rates)
    taken = [False] * waiting
    chosen = Chosen([], [])
    gang: list[int] = units.gang.tolist()
    for row, type_index in ranked:
        if taken[row] or gang[row] > left[type_index]:
            continue
        left[type_index] -= gang[row]
        taken[row] = True
        chosen.rows.append(row)
        chosen.type_indices.append(type_index)
        waiting -= 1
        if not waiting or not any(left):
            break
    return chosen


def _with_pairs(units: Candidates, free: Sequence[int], ranked: Iterable[tuple[int, int]]) -> Chosen:
    """As ``select``, where a unit may have two members."""
    left = list(free)
    taken = [False] * (len(units.rates) + 1)
    chosen = Chosen([], [])
    gang: list[int] = units.gang.tolist()
    members = units.members.tolist()
    for row, type_index in ranked:
        one, other = members[row]
        # Position -1, no second member, is the last entry of ``taken``, which stays false.
        if gang[row] > left[type_index] or taken[one] or taken[other]:
            continue
        left[type_index] -= gang[row]
        taken[one] = True
        if other >= 0:
            taken[other] = True
        chosen.rows.append(row)
        chosen.type_indices.append(type_index)
    return chosen


def _by_priority(units: Candidates, may: Flags, order: Sequence[int], one_queue: bool) -> zip[tuple[int, int]]:
    """Units and types: by priority, then by what is owed, then by share; ties in order of arrival."""
    types = np.array(order, np.int64)
    rank, rows = may.T.take(types, axis=0).nonzero()
    type_indices = types.take(rank)
    if len(units.members) > len(units.rates):
        # Among equals a pair comes right after the later of its two jobs.
        first = np.where(units.members[:, 1] < 0, -1, units.members[:, 0])
        later = np.lexsort((first, units.members.max(axis=1)))
        age = np.argsort(later)
        by_age = np.lexsort((age[rows], rank))
        rank, rows, type_indices = rank[by_age], rows[by_age], type_indices[by_age]
    at = rows * may.shape[1] + type_indices
    # ``lexsort`` goes by its last key first, and leaves equal rows as they came: in order of arrival.
    keys: list[Floats | Ints] = [-units.share.take(at), -units.owed_s.take(at), -units.priority.take(at)]
    if not one_queue:
        keys.append(rank)
    found = np.lexsort(keys)
    return zip(rows.take(found).tolist(), type_indices.take(found).tolist(), strict=True)


def fill_by_arrival(units: Candidates, chosen: Chosen, free: Sequence[int], strict: bool) -> Chosen:
    """``chosen`` and, on the GPUs left, the other single jobs in order of arrival, each on the fastest type with room.

    ``strict``: the first gang without room on any type ends it; a job that has room only where it cannot run is
    passed over in any case.
    """
    left = list(free)
    gang: list[int] = units.gang.tolist()
    for row, type_index in zip(chosen.rows, chosen.type_indices, strict=True):
        left[type_index] -= gang[row]
    if not any(left):
        return chosen
    alone = len(units.members) == len(units.rates)
    taken = set(chosen.rows if alone else units.members[chosen.rows].ravel().tolist())
    waiting = [row for row in range(len(units.rates)) if row not in taken]
    if not waiting:
        return chosen
    rates, runs = units.rates.tolist(), units.runs.tolist()
    rows, type_indices = list(chosen.rows), list(chosen.type_indices)
    for row in waiting:
        type_index = _fastest(rates[row], runs[row], left, gang[row])
        if type_index >= 0:
            rows.append(row)
            type_indices.append(type_index)
            left[type_index] -= gang[row]
        elif (strict and max(left) < gang[row]) or not any(left):
            break
    return Chosen(rows, type_indices)


def _fastest(rates: list[float], runs: list[bool], left: list[int], gang: int) -> int:
    """The fastest type with room, the first of equals; -1 if there is none."""
    found, best = -1, 0.0
    for j, rate in enumerate(rates):
        if rate > best and runs[j] and left[j] >= gang:
            found, best = j, rate
    return found


def split_pairs(units: Candidates, chosen: Chosen, free: Sequence[int], pair_rates: Floats) -> Chosen:
    """``chosen`` with pairs split where GPUs are left on which one of the two, alone, is no slower than in the pair.

    ``pair_rates``: steps per second of either, (pairs, 2, types).
    """
    singles = len(units.rates)
    if len(units.members) == singles:
        return chosen
    left = list(free)
    for row, type_index in zip(chosen.rows, chosen.type_indices, strict=True):
        left[type_index] -= int(units.gang[row])
    rows, type_indices = list(chosen.rows), list(chosen.type_indices)
    for at, (row, type_index) in enumerate(zip(chosen.rows, chosen.type_indices, strict=True)):
        if row < singles or not any(left):
            continue
        gains = _gains(units, row, type_index, left, pair_rates[row - singles])
        side, elsewhere = (int(i) for i in np.unravel_index(int(gains.argmax()), gains.shape))
        if gains[side, elsewhere] >= 1 and units.runs[units.members[row, 1 - side], type_index]:
            rows[at] = int(units.members[row, 1 - side])
            rows.append(int(units.members[row, side]))
            type_indices.append(elsewhere)
            left[elsewhere] -= int(units.gang[row])
    return Chosen(rows, type_indices)


def _gains(units: Candidates, row: int, type_index: int, left: list[int], rates: Floats) -> Floats:
    """(2, types): speed of either job of a pair, alone on GPUs that are left, over its speed in the pair."""
    room = np.array(left) >= units.gang[row]
    alone = np.where(room & units.runs[units.members[row]], units.rates[units.members[row]], 0.0)
    return np.asarray(alone / rates[:, type_index][:, None])


# -- between units, positions and job indices --------------------------------------------------------------------


def held_since(view: View, job_indices: Ints, was: Floats, first: Ints, at: Ints) -> Floats:
    """Seconds that the jobs ``first``, at the positions ``at`` in ``job_indices``, held GPUs since they had held them
    for ``was``; 0 for those that left.
    """
    if view.job_indices is job_indices:
        return np.asarray(view.attained_s.take(at) - was, np.float64)
    if not len(view):
        return np.zeros(len(first))
    at = np.minimum(view.job_indices.searchsorted(first), len(view) - 1)
    return np.where(view.job_indices.take(at) == first, view.attained_s.take(at) - was, 0.0)


def positions(view: View, members: Ints) -> Ints:
    """Job indices as positions in the view; -1 stays."""
    return np.where(members >= 0, np.searchsorted(view.job_indices, members), -1)


def selection_of(view: View, ledger: ShareLedger, chosen: Chosen) -> Selection:
    """In the order of choice; the jobs of a pair one after the other."""
    if len(ledger) == ledger.singles:
        job_indices: list[int] = view.job_indices.tolist()
        return Selection(
            {job_indices[row]: type_index for row, type_index in zip(chosen.rows, chosen.type_indices, strict=True)}
        )
    members: list[list[int]] = ledger.members[chosen.rows].tolist()
    wanted: dict[int, int] = {}
    co_runners: dict[int, int] = {}
    for (one, other), type_index in zip(members, chosen.type_indices, strict=True):
        wanted[one] = type_index
        if other >= 0:
            wanted[other] = type_index
            co_runners |= {one: other, other: one}
    return Selection(wanted, co_runners)
