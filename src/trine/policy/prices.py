"""A price for one GPU of each type, at which demand meets capacity, and the assignment of jobs to types at such prices.

The prices are the dual solution of: maximise the total value of the jobs that run, each on one type, within the GPUs of
every type. A job is worth its weight times its speed on the type; it gives way where others would pay more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trine.policy.type_exchange import exchange
from trine.policy.view import Floats, Ints

_SWEEPS = 8
_SAME = 1e-9
"""Relative change of all prices below which sweeping on changes nothing."""


@dataclass
class TypePrices:
    """Prices per GPU and type, kept from round to round: few jobs change, so that one or two sweeps are enough."""

    by_type: Floats = field(default_factory=lambda: np.zeros(0))

    def update(self, value: Floats, gangs: Ints, capacity: Ints) -> Floats:
        """Prices at which the jobs that want a type fill it; ``value``: of each job (row) on each type (column).

        Gauss-Seidel: type by type, each job bids what makes the type as good for it as its best alternative, and the
        price is the bid of the first job that no longer fits.
        """
        if len(self.by_type) != len(capacity):
            self.by_type = np.zeros(len(capacity))
        price = self.by_type.copy()
        for _ in range(_SWEEPS):
            before = price.copy()
            for t in range(len(capacity)):
                price[t] = _clearing_price(value, gangs, price, t, int(capacity[t]))
            if np.abs(price - before).max(initial=0.0) <= _SAME * price.max(initial=0.0):
                break
        self.by_type = price
        return price


def _clearing_price(value: Floats, gangs: Ints, price: Floats, t: int, capacity: int) -> float:
    surplus = value - gangs[:, None] * price
    surplus[:, t] = 0.0  # the alternative is at least not to run at all
    bid = (value[:, t] - surplus.max(axis=1)) / gangs
    wants = np.flatnonzero(bid > 0)
    order = wants[np.argsort(-bid[wants], kind="stable")]
    first_out = int(np.searchsorted(np.cumsum(gangs[order]), capacity, side="right"))
    # A trace above the bid: at that very price the job would be indifferent, and may not take what is not there for it.
    return float(bid[order[first_out]]) * (1.0 + _SAME) if first_out < len(order) else 0.0


def assign_types(value: Floats, gangs: Ints, capacity: Ints, price: Floats, *, exchanges: bool = True) -> Ints:
    """A type for each job, -1 for those that do not run; whole gangs within the GPUs of every type.

    Jobs in order of their surplus per GPU take the type on which it is largest, while that has room. Jobs without any
    surplus take what is left, in order of value per GPU: prices of whole gangs leave some GPUs over, and of equal jobs
    of which not all fit none has a surplus. Then jobs move up to better types that still have room, and, with
    ``exchanges``, jobs at the margin change places where the total is worth more afterwards.
    """
    left: list[int] = capacity.tolist()
    chosen = np.full(len(gangs), -1, dtype=np.int64)
    if not len(gangs):
        return chosen
    per_gpu = value / gangs[:, None]
    surplus = per_gpu - price
    best = surplus.max(axis=1)
    preferred = np.argsort(-surplus, axis=1, kind="stable").tolist()
    size: list[int] = gangs.tolist()
    for job in np.argsort(-best, kind="stable").tolist():
        if best[job] <= 0 or not any(left):
            break
        for t in preferred[job]:
            if surplus[job, t] <= 0:
                break
            if left[t] >= size[job]:
                chosen[job] = t
                left[t] -= size[job]
                break
    _fill_up(chosen, per_gpu, size, left)
    if _upgrade(chosen, per_gpu, size, left):
        _fill_up(chosen, per_gpu, size, left)
    if exchanges and exchange(chosen, value, gangs, left):
        _fill_up(chosen, per_gpu, size, left)
    return chosen


def _upgrade(chosen: Ints, per_gpu: Floats, size: list[int], left: list[int]) -> bool:
    """Jobs take a type that is worth more to them where whole gangs left GPUs over, the largest gain first.

    The price of such a type is that of a gang that does not fit. Without this step jobs would be sent away from it at
    that price, and come back to its idle GPUs in the same round.
    """
    types = np.flatnonzero(np.array(left) > 0)
    jobs = np.flatnonzero(chosen >= 0)
    if not len(types) or not len(jobs):
        return False
    gain = per_gpu[np.ix_(jobs, types)] - per_gpu[jobs, chosen[jobs]][:, None]
    changed = False
    for pair in np.argsort(-gain, axis=None, kind="stable").tolist():
        at, t = pair // len(types), int(types[pair % len(types)])
        job = int(jobs[at])
        if gain[at, pair % len(types)] <= 0:
            break
        if left[t] >= size[job] and per_gpu[job, t] > per_gpu[job, chosen[job]]:
            left[int(chosen[job])] += size[job]
            left[t] -= size[job]
            chosen[job] = t
            changed = True
    return changed


def _fill_up(chosen: Ints, per_gpu: Floats, size: list[int], left: list[int]) -> None:
    """The most valuable pair of a job and a type with room first."""
    waiting = np.flatnonzero(chosen < 0)
    types = np.flatnonzero(np.array(left) > 0)
    if not len(waiting) or not len(types):
        return
    value = per_gpu[np.ix_(waiting, types)]
    for pair in np.argsort(-value, axis=None, kind="stable").tolist():
        job, t = int(waiting[pair // len(types)]), int(types[pair % len(types)])
        if per_gpu[job, t] <= 0:
            break
        if chosen[job] < 0 and left[t] >= size[job]:
            chosen[job] = t
            left[t] -= size[job]
