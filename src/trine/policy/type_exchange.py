"""Exchanges of GPUs between jobs that make an assignment of whole gangs to types worth more.

Prices decide for fractions of jobs. Where whole gangs are assigned by them one after the other, a gang may be sent to a
slower type although moving a few small jobs there would cost less than it gains, and the other way round. What prices
leave is found by looking at the jobs next to the margin: those that gain most per GPU by coming to a type, and those
that lose least by leaving it.

Jobs that wait take no part, unless one is left without a type: which jobs run first is decided by their worth per GPU,
since the most worth at one moment is not the least time in the end. With them average completion times were longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trine.policy.view import Floats, Ints

_TRIED = 12
"""Jobs on either side of the margin that are looked at: the further from it, the less an exchange can bring."""
_PASSES = 4
_WORTHWHILE = 1e-9
"""Relative gain below which an exchange is a rounding error."""


class _Side(NamedTuple):
    """Jobs on one side of an exchange, the best to exchange first."""

    jobs: list[int]
    gangs: list[int]
    change: list[float]
    """Value gained (of those that come) or lost (of those that leave)."""
    goes_to: list[int]
    """Type on which the job runs after the exchange."""


class _Swap(NamedTuple):
    """Jobs that change their type, and the types that they change to."""

    jobs: list[int]
    types: list[int]


def exchange(chosen: Ints, value: Floats, gangs: Ints, left: list[int]) -> bool:
    """Improve ``chosen`` (the type of each job, -1: waits) in place; true if anything changed.

    ``value``: of each job (row) on each type (column), 0 where it cannot run; ``left``: free GPUs by type.
    """
    types = value.shape[1]
    # Waiting is one more type: it is worth nothing, and there is room for all.
    values = np.hstack((value, np.zeros((len(value), 1))))
    room = [*left, int(gangs.sum())]
    place = np.where(chosen < 0, types, chosen)
    changed = False
    for _ in range(_PASSES):
        found = _one_pass(place, values, gangs, room)
        changed |= found
        if not found:
            break
    if changed:
        chosen[:] = np.where(place == types, -1, place)
        left[:] = room[:types]
    return changed


def _one_pass(place: Ints, values: Floats, gangs: Ints, room: list[int]) -> bool:
    """Look at every pair of types once; true if anything changed."""
    changed, waiting = False, values.shape[1] - 1
    gains = _gains(place, values, gangs)
    for t in range(waiting):
        for u in range(waiting):
            if u != t and _may_pay(gains, room, t, u) and _between(place, values, gangs, room, t, u):
                gains, changed = _gains(place, values, gangs), True
    return changed


def _gains(place: Ints, values: Floats, gangs: Ints) -> list[list[float]]:
    """The most per GPU that any job of one type (row) would gain on another (column); minus infinity: it has no job."""
    change = (values - values[np.arange(len(place)), place][:, None]) / gangs[:, None]
    return [change[place == t].max(axis=0, initial=-np.inf).tolist() for t in range(values.shape[1])]


def _may_pay(gains: list[list[float]], room: list[int], t: int, u: int) -> bool:
    """Whether any exchange of jobs of ``u`` for jobs of ``t`` could: most pairs are ruled out by their best jobs.

    Where no GPU of ``t`` is free, the jobs that come take the GPUs of those that leave, so that one of the former has
    to gain more per GPU than one of the latter loses.
    """
    if gains[u][t] <= 0:
        return False
    goes_to = [w for w in range(len(room)) if w != t and (w == u or room[w] > 0)]
    return room[t] > 0 or gains[u][t] > -max(gains[t][w] for w in goes_to)


def _between(place: Ints, values: Floats, gangs: Ints, room: list[int], t: int, u: int) -> bool:
    """Jobs that are on type ``u`` come to type ``t`` in place of jobs there, while that pays."""
    changed = False
    while True:
        coming, leaving = _coming(place, values, gangs, t, u), _leaving(place, values, gangs, room, t, u)
        if not coming.jobs or not leaving.jobs:
            return changed
        if room[t] == 0 and coming.change[0] / coming.gangs[0] <= leaving.change[0] / leaving.gangs[0]:
            return changed  # GPU by GPU, none gains more than any other loses
        swap = _one_for_several(coming, leaving, room, u) or _several_for_one(coming, leaving, room, u)
        if swap is None:
            return changed
        for job, new in zip(*swap, strict=True):
            room[int(place[job])] += int(gangs[job])
            room[new] -= int(gangs[job])
            place[job] = new
        changed = True


def _coming(place: Ints, values: Floats, gangs: Ints, t: int, u: int) -> _Side:
    """Jobs on ``u`` that gain most per GPU by coming to ``t``."""
    jobs = np.flatnonzero(place == u)
    gain = values[jobs, t] - values[jobs, u]
    jobs, gain = jobs[gain > 0], gain[gain > 0]
    order = np.argsort(-gain / gangs[jobs], kind="stable")[:_TRIED]
    return _Side(jobs[order].tolist(), gangs[jobs[order]].tolist(), gain[order].tolist(), [t] * len(order))


def _leaving(place: Ints, values: Floats, gangs: Ints, room: list[int], t: int, u: int) -> _Side:
    """Jobs on ``t`` that lose least per GPU by leaving it: for ``u``, or for another type that has room for them."""
    jobs = np.flatnonzero(place == t)
    open_to = gangs[jobs][:, None] <= np.array(room)
    open_to[:, u], open_to[:, t] = True, False
    elsewhere = np.where(open_to, values[jobs], 0.0)
    goes_to = elsewhere.argmax(axis=1)
    worth = elsewhere[np.arange(len(jobs)), goes_to]
    goes_to[worth <= 0] = values.shape[1] - 1
    loss = values[jobs, t] - worth
    order = np.argsort(loss / gangs[jobs], kind="stable")[:_TRIED]
    return _Side(jobs[order].tolist(), gangs[jobs[order]].tolist(), loss[order].tolist(), goes_to[order].tolist())


def _one_for_several(coming: _Side, leaving: _Side, room: list[int], u: int) -> _Swap | None:
    """One job comes from ``u``, and the jobs that lose least leave."""
    for job, gang, gain, t in zip(*coming, strict=True):
        spare = list(room)
        spare[u] += gang
        swap, lost = _Swap([job], [t]), 0.0
        for other, size, loss, goes_to in zip(*leaving, strict=True):
            if spare[t] >= gang:
                break
            if size <= spare[goes_to]:
                swap.jobs.append(other)
                swap.types.append(goes_to)
                spare[goes_to] -= size
                spare[t] += size
                lost += loss
        if spare[t] >= gang and gain > lost + _WORTHWHILE * gain:
            return swap
    return None


def _several_for_one(coming: _Side, leaving: _Side, room: list[int], u: int) -> _Swap | None:
    """One job leaves, and the jobs of ``u`` that gain most take its GPUs and those that were free."""
    for job, gang, loss, goes_to in zip(*leaving, strict=True):
        swap, used, gained = _Swap([job], [goes_to]), 0, 0.0
        for other, size, gain, t in zip(*coming, strict=True):
            if used + size <= room[t] + gang:
                swap.jobs.append(other)
                swap.types.append(t)
                used += size
                gained += gain
        if gang <= room[goes_to] + (used if goes_to == u else 0) and gained > loss + _WORTHWHILE * gained:
            return swap
    return None
