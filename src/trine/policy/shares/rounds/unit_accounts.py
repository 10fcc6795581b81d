"""What units are owed, for ``deficit_scheduler``: an account for each, and the accounts of many as arrays.

Where hundreds of jobs and pairs of jobs take turns, a round costs a few operations on arrays instead of a loop over all
of them. The arithmetic is that of single accounts, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from trine.policy.view import Floats, Ints

Unit = tuple[int, int]
"""A job index and that of its co-runner, the lower first; -1 second for a job alone."""


@dataclass(slots=True)
class Account:
    """Of one unit, by GPU type. Seconds."""

    unit: Unit
    share: list[float]
    deficit_s: list[float]
    """What the unit is owed; negative for what it had too much."""
    types: tuple[int, ...] = ()
    """Types of which it has a share and on which it can run."""
    rates: tuple[list[float], list[float]] = ([], [])
    """Steps per second of either job of a pair."""
    entitled: int = -1
    """The type it has GPUs of by right, -1 for none; it may run on a faster one that is free."""
    threshold_s: float = 0.0
    """While it is entitled: another unit takes its GPUs when it is further behind than this."""

    @property
    def falls(self) -> float:
        """How fast the threshold falls while the unit runs, in seconds per second."""
        return 1.0 - self.share[self.entitled]


class UnitArrays:
    """One entry for each unit and each type that it has a share of, in the order in which equals are served."""

    def __init__(self, accounts: Sequence[Account], rank: list[int]) -> None:
        """``rank``: the place of each type in the order in which types are filled."""
        at = np.repeat(np.arange(len(accounts)), [len(account.types) for account in accounts])
        kind = np.array([j for account in accounts for j in account.types], np.int64)
        units = np.array([account.unit for account in accounts], np.int64).reshape(-1, 2)
        order = np.lexsort((units[at, 1], units[at, 0], np.array(rank)[kind]))
        at, self._type = at[order], kind[order]
        self.account_of, self.type_of = [accounts[i] for i in at.tolist()], self._type.tolist()
        self._share = np.array([account.share for account in accounts]).reshape(-1, len(rank))[at, self._type]
        self._deficit_s = np.array([account.deficit_s for account in accounts]).reshape(-1, len(rank))[at, self._type]
        jobs, numbered = np.unique(units, return_inverse=True)
        self._members, self._jobs = numbered.reshape(-1, 2)[at], len(jobs)
        self._alone = units[at, 1] < 0
        entitled = np.array([account.entitled for account in accounts], np.int64)
        self._entitled: list[int] = np.flatnonzero(entitled[at] == self._type).tolist()
        self._elsewhere = [a for a in accounts if a.entitled >= 0 and a.entitled not in a.types]
        """Units with GPUs of a type that they have no share of any more."""

    def charge(self, past_s: float, idle: Set[int]) -> None:
        """Book ``past_s`` seconds: what shares promised, and what units had by right; ``idle`` jobs had nothing."""
        self._deficit_s += self._share * past_s
        held = self._entitled
        if idle:
            held = [at for at in held if self.account_of[at].unit[0] not in idle]
        self._deficit_s[held] -= past_s
        for account in self._elsewhere:
            if account.unit[0] not in idle:
                account.deficit_s[account.entitled] -= past_s

    def write_back(self) -> None:
        """The deficits of now, into the accounts."""
        for account, j, deficit_s in zip(self.account_of, self.type_of, self._deficit_s.tolist(), strict=True):
            account.deficit_s[j] = deficit_s

    def requests(self, round_s: float, stay_s: float) -> list[int]:
        """All entries, those furthest behind first; no unit is entitled to anything from now on."""
        behind_s = self._deficit_s + self._share * round_s
        behind_s[self._entitled] += stay_s
        for at in self._entitled:
            self.account_of[at].entitled = -1
        for account in self._elsewhere:
            account.entitled = -1
        self._entitled, self._elsewhere = [], []
        order: list[int] = np.argsort(-behind_s, kind="stable").tolist()
        return order

    def entitle(self, at: int) -> None:
        """The unit of this entry has GPUs by right."""
        self._entitled.append(at)

    def next_change_s(self, round_s: float, stay_s: float, types: int) -> float:
        """As ``DeficitScheduler`` foresees it for single accounts: seconds until a unit would be served in place of
        another."""
        held, behind_s = np.array(self._entitled, np.int64), self._deficit_s + self._share * round_s
        threshold_s, falls = behind_s[held] + stay_s, 1.0 - self._share[held]
        waits = np.ones(len(behind_s), np.bool_)
        waits[held] = False
        hardest_s, its_falls = self._own_thresholds(held, threshold_s, falls)
        own = waits & (hardest_s >= behind_s)
        ahead_s = hardest_s[own] - behind_s[own]
        soonest_s = float(np.min(ahead_s / (self._share[own] + its_falls[own]), initial=math.inf))
        others = waits & ~own
        for j in range(types):
            asking, holding = others & (self._type == j), self._type[held] == j
            if asking.any() and holding.any():
                thresholds = (threshold_s[holding], falls[holding])
                soonest_s = _crossed_s(behind_s[asking], self._share[asking], thresholds, soonest_s)
        return soonest_s

    def _own_thresholds(self, held: Ints, threshold_s: Floats, falls: Floats) -> tuple[Floats, Floats]:
        """By entry: the higher threshold of the units as which its own jobs run, and how fast that falls."""
        of_job, falls_of_job = np.full(self._jobs, -math.inf), np.zeros(self._jobs)
        for side in (1, 0):
            there = held[~self._alone[held]] if side else held
            part = ~self._alone[held] if side else slice(None)
            of_job[self._members[there, side]] = threshold_s[part]
            falls_of_job[self._members[there, side]] = falls[part]
        one, other = of_job[self._members[:, 0]], of_job[self._members[:, 1]]
        other = np.where(self._alone, -math.inf, other)
        first = one >= other
        of_entry = np.where(first, self._members[:, 0], self._members[:, 1])
        return np.where(first, one, other), falls_of_job[of_entry]


def _crossed_s(behind_s: Floats, rises: Floats, thresholds: tuple[Floats, Floats], soonest_s: float) -> float:
    """Seconds until one of the units that are ``behind_s`` and ``rises`` reaches one of the ``thresholds``, each with
    how fast it falls; at most ``soonest_s``.

    For all units at once the next higher threshold is looked at, again and again; a unit for which even the fastest
    could not be reached sooner drops out.
    """
    order = np.lexsort((thresholds[1], thresholds[0]))
    threshold_s, falls = thresholds[0][order], thresholds[1][order]
    at_best = rises + falls.max()
    at = threshold_s.searchsorted(behind_s, "left")
    while True:
        kept = at < len(threshold_s)
        at, behind_s, rises, at_best = at[kept], behind_s[kept], rises[kept], at_best[kept]
        ahead_s = threshold_s[at] - behind_s
        near = ahead_s / at_best < soonest_s
        if not near.any():
            return soonest_s
        at, behind_s, rises, at_best = at[near], behind_s[near], rises[near], at_best[near]
        soonest_s = min(soonest_s, float((ahead_s[near] / (rises + falls[at])).min()))
        at = at + 1
