"""Who runs where while shares are fractions: everybody stays until its accounts say that it is somebody else's turn.

Every unit, a single job or a pair, has an account of seconds by GPU type: its share of the time that passed, less the
time it had by right. Whoever is furthest behind chooses first; who runs gives way only to those further behind by
``stay_s``. What nobody claims is given out on top, and not counted. Accounts move along straight lines between
decisions, so that the next turn is known in advance, and until then rounds repeat themselves.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trine.policy.base import Selection
from trine.policy.shares.rounds.accounts import GONE, GOT, JOIN, UNIT, unit_names
from trine.policy.shares.rounds.seats import Seats
from trine.policy.view import Floats, Ints, View

SLACK = 0.5
"""Turns within this part of ``stay_s`` are taken together, at the end of it."""
SEAT = "seat/"
"""What is on record of the GPUs a job has."""
AT_LEAST = 0.1
"""Rounds between two turns where decisions are not bound to rounds."""
Unit = tuple[int, int]
"""A job number and that of its partner, the lower first; -1 second for a job alone."""


@dataclass(slots=True)
class Account:
    """Of one unit, by GPU type. Seconds."""

    unit: Unit
    share: list[float]
    lag_s: list[float]
    """What the unit is owed; negative for what it had too much."""
    asks: tuple[int, ...] = ()
    """Types of which it has a share and on which it can run."""
    rates: tuple[list[float], list[float]] = ([], [])
    """Steps per second of either job of a pair."""
    due: int = -1
    """The type it has GPUs of by right; it may be on a faster one that nobody else uses."""
    seat_s: float = 0.0
    """How far behind others must be to take that away."""

    @property
    def falls(self) -> float:
        """How fast it loses its place, in seconds per second."""
        return 1.0 - self.share[self.due]


@dataclass(slots=True)
class _Holders:
    """Units that have GPUs of one type by right: how far behind others must be, ascending, and how fast that falls."""

    seat_s: list[float]
    falls: list[float]
    fastest: float = 0.0

    def add(self, seat_s: float, falls: float) -> None:
        self.seat_s.append(seat_s)
        self.falls.append(falls)
        self.fastest = max(self.fastest, falls)

    def passed_s(self, behind_s: float, rises: float, soon_s: float) -> float:
        """When one who is behind by ``behind_s`` passes one of them, or ``soon_s`` if that is sooner."""
        seats, falls, fastest = self.seat_s, self.falls, rises + self.fastest
        for at in range(bisect_left(seats, behind_s), len(seats)):
            ahead_s = seats[at] - behind_s
            if ahead_s / fastest >= soon_s:
                break
            soon_s = min(soon_s, ahead_s / (rises + falls[at]))
        return soon_s


class Turns:
    """Accounts and seats of the jobs present."""

    def __init__(self, types: int, order: list[int], stay_s: float, round_s: float, upgrades: bool) -> None:
        self._types, self._order, self._stay_s, self._round_s = types, order, stay_s, round_s
        self._upgrades = upgrades
        self._place = [order.index(kind) for kind in range(types)]
        self.seats = Seats()
        self.accounts: dict[Unit, Account] = {}
        self._pairs: dict[Unit, Account] = {}
        self._fixed: list[Account] = []
        """Units that have all of their time on one type."""
        self._open: list[Account] = []
        """The others that have a share."""
        self._short = False
        """Not all of the first had room at the last choice."""
        self._granted: tuple[list[int], int] = ([], -1)
        """Capacity and revision of speeds that the accounts know of."""
        self._gone: set[int] = set()
        self.turn_s = math.inf
        """When somebody's turn comes if nothing happens before."""
        self._charged_s = 0.0

    # -- the accounts --------------------------------------------------------------------------------------------

    def follow(self, view: View) -> bool:
        """Jobs came or left; whether any did."""
        gone, new = self.seats.follow(view)
        self._gone |= gone
        for job_index in gone:
            del self.accounts[job_index, -1]
        if gone and self._pairs:
            for unit in [unit for unit in self._pairs if not gone.isdisjoint(unit)]:
                self._dissolve(unit)
        for job_index in new:
            self.accounts[job_index, -1] = Account((job_index, -1), [0.0] * self._types, [0.0] * self._types)
        if gone:
            self._sort_out()
        return bool(gone or new)

    def _sort_out(self) -> None:
        asking = [account for account in self._all() if account.asks]
        self._fixed = [account for account in asking if 1.0 in account.share]
        self._open = [account for account in asking if 1.0 not in account.share]
        self._short = True

    def _dissolve(self, unit: Unit) -> None:
        """Who is left of a pair takes over its account and its GPUs."""
        pair = self._pairs.pop(unit)
        for job_index in unit:
            own = self.accounts.get((job_index, -1))
            if own is not None:
                own.share = [min(1.0, a + b) for a, b in zip(own.share, pair.share, strict=True)]
                own.lag_s = [a + b for a, b in zip(own.lag_s, pair.lag_s, strict=True)]
                own.asks = tuple(j for j in self.seats.jobs[job_index][1] if own.share[j] > 0)
                own.due = pair.due if own.due < 0 else own.due

    def charge(self, view: View) -> None:
        """Book the time since the last look: what shares promised, and what units had by right."""
        past_s = view.now - self._charged_s
        self._charged_s = view.now
        if past_s <= 0:
            return
        idle = set() if view.all_run else set(view.job_indices[~view.assigned].tolist())
        for account in self._fixed if idle or self._short else ():
            if account.due < 0 or account.unit[0] in idle:
                account.lag_s[account.asks[0]] += past_s
        for account in self._open:
            share, lag_s = account.share, account.lag_s
            for kind in account.asks:
                lag_s[kind] += share[kind] * past_s
            if account.due >= 0 and account.unit[0] not in idle:
                lag_s[account.due] -= past_s

    def _all(self) -> Iterable[Account]:
        return [*self.accounts.values(), *self._pairs.values()] if self._pairs else self.accounts.values()

    def grant(self, view: View, share: Floats, pairs: Ints, pair_share: Floats, pair_rates: Floats) -> None:
        """New shares, by single job and by pair (job numbers, the lower first); accounts go over to them."""
        self.seats.look_up(view)
        capacity, accounts = view.gpus_by_type, self.accounts
        before, self._granted = self._granted, (list(capacity), view.revision)
        anew = before != self._granted
        for (job_index, (gang, suits, _)), own in zip(self.seats.jobs.items(), share.tolist(), strict=True):
            account = accounts[job_index, -1]
            if anew or account.share != own:
                account.share = own
                account.asks = tuple([kind for kind in suits if own[kind] > 0 and gang <= capacity[kind]])
        if self._pairs or len(pairs):
            self._grant_pairs(capacity, zip(pairs.tolist(), pair_share.tolist(), pair_rates.tolist(), strict=True))
        self._sort_out()

    def _grant_pairs(
        self, capacity: list[int], rows: Iterable[tuple[list[int], list[float], list[list[float]]]]
    ) -> None:
        before, self._pairs = self._pairs, {}
        for (one, other), share, (first, second) in rows:
            known = before.pop((one, other)) if (one, other) in before else None
            account = known or Account((one, other), share, [0.0] * self._types)
            gang, suits, _ = self.seats.jobs[one]
            fits = [kind for kind in suits if share[kind] > 0 and gang <= capacity[kind]]
            account.share, account.rates = share, (first, second)
            account.asks = tuple(kind for kind in fits if first[kind] > 0 and second[kind] > 0)
            self._pairs[one, other] = account
        for one, other in before:  # who has no share as a pair any more parts
            if self.seats.co_runners.get(one) == other:
                self.seats.leave(other)

    # -- the choice ----------------------------------------------------------------------------------------------

    def choose(self, view: View) -> Selection:
        """Everybody chooses, furthest behind first."""
        before = self.seats.kind
        self._serve(view.gpus_by_type)
        self.seats.fill(strict=False)
        if any(self.seats.left):
            if self.seats.co_runners:
                self._part()
            if self._upgrades:
                self.seats.upgrade(self._order, before)
        wait_s = self._next_turn_s() + SLACK * self._stay_s
        self.turn_s = self._charged_s + max(wait_s, AT_LEAST * self._round_s)
        return self._selected({job_index for job_index, _ in before.items() ^ self.seats.kind.items()})

    def go_on(self) -> Selection:
        """Nobody's turn yet: who has no GPUs takes what is left."""
        changed = self.seats.fill(strict=False)
        if self._upgrades and any(self.seats.left):
            changed += self.seats.upgrade(self._order, self.seats.kind)
        return self._selected(changed)

    def _selected(self, changed: Iterable[int]) -> Selection:
        """Who has GPUs now, where only those who left and ``changed`` have others than at the last choice."""
        gone, self._gone = self._gone, set()
        return Selection(dict(self.seats.kind), dict(self.seats.co_runners), gone.union(changed))

    def _serve(self, capacity: list[int]) -> None:
        """Seats by right: those furthest behind first, equals by the order of types, then by arrival.

        Who has all of its time on one type goes before everybody: it could never catch up.
        """
        place, order, round_s, stay_s = self._place, self._order, self._round_s, self._stay_s
        self.seats.clear(capacity)
        self._serve_fixed()
        asks: list[tuple[float, int, Unit, Account]] = []
        for account in self._open:
            share, lag_s, due = account.share, account.lag_s, account.due
            for kind in account.asks:
                behind_s = lag_s[kind] + share[kind] * round_s
                asks.append((-behind_s - stay_s if kind == due else -behind_s, place[kind], account.unit, account))
            account.due = -1
        asks.sort()
        taken = self.seats.kind
        for _, at, (job_index, co_runner), account in asks:
            if job_index not in taken and co_runner not in taken:
                self._sit(account, order[at])

    def _serve_fixed(self) -> None:
        jobs, kinds, left, self._short = self.seats.jobs, self.seats.kind, self.seats.left, False
        for account in self._fixed:
            (job_index, co_runner), kind = account.unit, account.asks[0]
            gang = jobs[job_index][0]
            if co_runner >= 0 or gang > left[kind]:
                self._sit(account, kind)
                self._short |= account.due < 0
            else:
                account.due = kinds[job_index] = kind
                left[kind] -= gang

    def _sit(self, account: Account, kind: int) -> None:
        """The unit takes GPUs by right, if there are enough."""
        (job_index, co_runner), seats = account.unit, self.seats
        room = seats.jobs[job_index][0] <= seats.left[kind]
        account.due = kind if room else -1
        if room:
            seats.sit(job_index, kind, co_runner)

    def _part(self) -> None:
        """Pairs split where GPUs are left on which one of the two, alone, is no slower than in the pair."""
        seats = self.seats
        for (one, other), account in self._pairs.items():
            if account.due < 0:
                continue
            gang = seats.jobs[one][0]
            parts = [
                (rates[account.due] * seats.jobs[job_index][2][to], job_index, to)
                for job_index, rates in zip((one, other), account.rates, strict=True)
                for to in seats.jobs[job_index][1]
                if seats.left[to] >= gang
            ]
            part, job_index, to = min(parts, default=(math.inf, -1, -1))
            if part <= 1:
                seats.leave(job_index)
                seats.sit(job_index, to)

    def selection(self) -> Selection:
        """Who has GPUs now."""
        return Selection(dict(self.seats.kind), dict(self.seats.co_runners))

    def _next_turn_s(self) -> float:
        """Seconds until a unit is so far behind that its jobs would rather run as it than as they do."""
        round_s, soon_s = self._round_s, math.inf
        by_job, asking = self._seated()
        holders = [_Holders([], []) for _ in range(self._types)]
        for kind, seat_s, falls in sorted([(held.due, held.seat_s, held.falls) for held in by_job.values()]):
            holders[kind].add(seat_s, falls)
        for account in asking:
            has = [by_job[job_index] for job_index in account.unit if job_index in by_job]
            harder = max(has, key=_seat_s) if has else None
            share, lag_s, due = account.share, account.lag_s, account.due
            for kind in account.asks:
                if kind == due:
                    continue
                rises = share[kind]
                behind_s = lag_s[kind] + rises * round_s
                if harder is not None and harder.seat_s >= behind_s:
                    soon_s = min(soon_s, (harder.seat_s - behind_s) / (rises + harder.falls))
                else:
                    # It finds no room now: it tries again when it has passed one of those that have and can lose it.
                    soon_s = holders[kind].passed_s(behind_s, rises, soon_s)
        return soon_s

    def _seated(self) -> tuple[dict[int, Account], list[Account]]:
        round_s, stay_s = self._round_s, self._stay_s
        by_job: dict[int, Account] = {}
        asking = []
        for account in self._open:
            due = account.due
            if due >= 0:
                account.seat_s = account.lag_s[due] + account.share[due] * round_s + stay_s
                by_job[account.unit[0]] = account
                if account.unit[1] >= 0:
                    by_job[account.unit[1]] = account
            if len(account.asks) > (due >= 0):
                asking.append(account)
        return by_job, asking

    # -- on record -----------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        """Accounts and seats in plain values, by name of the unit (``accounts``)."""
        kind, co_runners = self.seats.kind, self.seats.co_runners
        found: dict[str, Any] = {"charged_s": self._charged_s}
        if math.isfinite(self.turn_s):
            found["turn_s"] = self.turn_s
        for account in self._all() if len(view) else ():
            (name,) = unit_names([account.unit], view)
            found[UNIT + name] = [list(account.share), list(account.asks), [list(rates) for rates in account.rates]]
            found[GOT + name] = [list(account.lag_s), account.due]
        for job_index in kind if len(view) else ():
            found[SEAT + view.name(job_index)] = [
                kind[job_index],
                view.name(co_runners[job_index]) if job_index in co_runners else "",
            ]
        return found

    def restore(self, kept: dict[str, Any], capacity: list[int], view: View) -> bool:
        """Go on from what ``state`` gave, on ``capacity`` GPUs by type; whether somebody left meanwhile."""
        self._charged_s, self.turn_s = kept["charged_s"], kept.get("turn_s", math.inf)
        job_indices = {view.name(job_index): job_index for job_index in view.job_indices.tolist()}
        names = dict.fromkeys(name[len(UNIT) :] for name in kept if name.startswith(UNIT))
        there = {name: job_index for name, job_index in job_indices.items() if name in names}
        self.seats.jobs = {job_index: view.of(job_index) for job_index in there.values()}
        self.seats.clear(capacity)
        for name, job_index in there.items():
            self.accounts[job_index, -1] = _account((job_index, -1), kept, name)
            kind, co_runner = kept.get(SEAT + name, (-1, ""))
            if kind >= 0 and job_index not in self.seats.kind:
                self.seats.sit(job_index, kind, there.get(co_runner, -1))
        for name in names:
            one, join, other = name.partition(JOIN)
            if join and (one in there or other in there):
                unit = (there.get(one, GONE), there.get(other, GONE))
                self._pairs[unit] = _account(unit, kept, name)
                if GONE in unit:
                    self._dissolve(unit)
        self._sort_out()
        return any(part not in there for name in names for part in name.split(JOIN))


def _account(unit: Unit, kept: dict[str, Any], name: str) -> Account:
    (share, asks, rates), (lag_s, due) = kept[UNIT + name], kept[GOT + name]
    return Account(unit, list(share), list(lag_s), tuple(asks), (list(rates[0]), list(rates[1])), due)


def _seat_s(account: Account) -> float:
    return account.seat_s
