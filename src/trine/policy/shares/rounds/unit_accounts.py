"""What units are owed, for ``deficit_scheduler``: an account for each, and the accounts of many as arrays.

Where hundreds of jobs and pairs of jobs take turns, a round costs a few operations on arrays instead of a loop over all
of them. The arithmetic is that of single accounts, to the last bit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from trine.policy.view import Flags, Floats, Ints

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


class _Members(NamedTuple):
    """The jobs of each entry, numbered from 0; the second counts only in entries of two that run ``together``."""

    one: Ints
    other: Ints
    together: Flags
    jobs: int


class UnitArrays:
    """One entry for each unit and each type that it has a share of, in the order in which equals are served."""

    def __init__(self, accounts: Iterable[Account], rank: list[int]) -> None:
        """``rank``: the place of each type in the order in which types are filled."""
        self._rank = rank
        by_unit = sorted(accounts, key=attrgetter("unit"))
        order = sorted(range(len(rank)), key=rank.__getitem__)
        entries = [(account, j) for j in order for account in by_unit if j in account.types]
        self.account_of, self.type_of = [account for account, _ in entries], [j for _, j in entries]
        self._type, self._share, self._deficit_s, self._units = _columns(entries)
        self._entitled = [at for at, (account, j) in enumerate(entries) if account.entitled == j]
        self._elsewhere = [a for a in by_unit if a.entitled >= 0 and a.entitled not in a.types]
        """Units with GPUs of a type that they have no share of any more."""
        self._numbered: _Members | None = None

    def _members(self) -> _Members:
        if self._numbered is None:
            jobs, numbered = np.unique(self._units, return_inverse=True)
            one, other = numbered.reshape(-1, 2).T
            self._numbered = _Members(one.copy(), other.copy(), self._units[:, 1] >= 0, len(jobs))
        return self._numbered

    def take_out(self, units: Set[Unit]) -> None:
        """These units have no entries any more; what they are owed is written into their accounts."""
        out = [at for at, account in enumerate(self.account_of) if account.unit in units]
        self._elsewhere = [account for account in self._elsewhere if account.unit not in units]
        if not out:
            return
        for at, deficit_s in zip(out, self._deficit_s[out].tolist(), strict=True):
            self.account_of[at].deficit_s[self.type_of[at]] = deficit_s
        entitled = np.delete(self._flags(), out)
        for at in reversed(out):
            del self.account_of[at], self.type_of[at]
        self._type, self._units = np.delete(self._type, out), np.delete(self._units, out, axis=0)
        self._share, self._deficit_s = np.delete(self._share, out), np.delete(self._deficit_s, out)
        self._entitled, self._numbered = np.flatnonzero(entitled).tolist(), None

    def put_in(self, accounts: Iterable[Account]) -> None:
        """Entries for the accounts of units that have none."""
        by_unit = sorted(accounts, key=attrgetter("unit"))
        self._elsewhere += [a for a in by_unit if a.entitled >= 0 and a.entitled not in a.types]
        entries = sorted(((a, j) for a in by_unit for j in a.types), key=lambda entry: self._key(*entry))
        if not entries:
            return
        there = range(len(self.account_of))
        places = [bisect_left(there, self._key(*entry), key=self._key_at) for entry in entries]
        entitled = np.insert(self._flags(), places, [account.entitled == j for account, j in entries])
        for at, (account, j) in zip(reversed(places), reversed(entries), strict=True):
            self.account_of.insert(at, account)
            self.type_of.insert(at, j)
        kind, share, deficit_s, units = _columns(entries)
        self._type, self._share = np.insert(self._type, places, kind), np.insert(self._share, places, share)
        self._deficit_s = np.insert(self._deficit_s, places, deficit_s)
        self._units = np.insert(self._units, places, units, axis=0)
        self._entitled, self._numbered = np.flatnonzero(entitled).tolist(), None

    def _key(self, account: Account, type_index: int) -> tuple[int, Unit]:
        return self._rank[type_index], account.unit

    def _key_at(self, at: int) -> tuple[int, Unit]:
        return self._rank[self.type_of[at]], self.account_of[at].unit

    def _flags(self) -> Flags:
        """Entries whose units have GPUs by right."""
        flags = np.zeros(len(self.account_of), np.bool_)
        flags[self._entitled] = True
        return flags

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
        member_one, member_other, together, jobs = self._members()
        of_job, falls_of_job = np.full(jobs, -math.inf), np.zeros(jobs)
        paired = together[held]
        second = member_other[held[paired]]
        of_job[second], falls_of_job[second] = threshold_s[paired], falls[paired]
        first = member_one[held]
        of_job[first], falls_of_job[first] = threshold_s, falls
        one, other = of_job[member_one], np.where(together, of_job[member_other], -math.inf)
        harder = one >= other
        return np.where(harder, one, other), falls_of_job[np.where(harder, member_one, member_other)]


def _columns(entries: list[tuple[Account, int]]) -> tuple[Ints, Floats, Floats, Ints]:
    """Types, shares, deficits and units of the entries."""
    units = np.fromiter(chain.from_iterable([account.unit for account, _ in entries]), np.int64, 2 * len(entries))
    return (
        np.array([j for _, j in entries], np.int64),
        np.array([account.share[j] for account, j in entries], np.float64),
        np.array([account.deficit_s[j] for account, j in entries], np.float64),
        units.reshape(-1, 2),
    )


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
