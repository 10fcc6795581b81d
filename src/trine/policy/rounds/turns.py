"""Who runs where while shares are fractions: everybody stays until its accounts say that it is somebody else's turn.

Every unit, a single job or a pair, has an account of seconds by GPU type: its share of the time that passed, less the
time it had. Whoever is furthest behind chooses first; who runs gives way only to those further behind by ``stay_s``.
Accounts move along straight lines between decisions, so that the next turn is known in advance, and until then rounds
repeat themselves.
"""

from __future__ import annotations

import math

import numpy as np

from trine.policy.base import Selection
from trine.policy.rounds.seats import Seats
from trine.policy.view import Flags, Floats, Ints, View


class Turns:
    """Columns by unit: the single jobs in order of arrival, then the pairs that have a share."""

    def __init__(self, types: int, order: list[int], stay_s: float, round_s: float, upgrades: bool) -> None:
        self._order, self._stay_s, self._round_s, self._upgrades = order, stay_s, round_s, upgrades
        self._place = {kind: at for at, kind in enumerate(order)}
        self.seats = Seats()
        self.slots: Ints = np.zeros(0, np.int64)
        self.pairs: Ints = np.zeros((0, 2), np.int64)
        """Job numbers."""
        self.pair_rates: Floats = np.zeros((0, 2, types))
        """Steps per second of either."""
        self.share: Floats = np.zeros((0, types))
        self.lag_s: Floats = np.zeros((0, types))
        """What a unit is owed, by type; negative for what it had too much."""
        self.most_owed_s = stay_s + round_s
        """What goes over to new shares at most: idle GPUs that somebody used are not held against it for long."""
        self.turn_s = math.inf
        """When somebody's turn comes if nothing happens before."""
        self._charged_s = 0.0

    # -- the accounts --------------------------------------------------------------------------------------------

    def follow(self, view: View) -> bool:
        """Jobs came or left; whether any did. Who lost its partner takes over the account of the pair."""
        if view.slots is self.slots or not self.seats.follow(view):
            self.slots = view.slots
            return False
        old, n = self.slots, len(view.slots)
        self.slots = view.slots
        rows = np.minimum(np.searchsorted(old, self.slots), max(len(old) - 1, 0))
        known = old[rows] == self.slots if len(old) else np.zeros(n, np.bool_)
        if len(self.pairs):
            self._dissolve(old)
            whole = np.isin(self.pairs, self.slots).all(axis=1)
            rows = np.concatenate((rows, np.flatnonzero(whole) + len(old)))
            known = np.concatenate((known, whole[whole]))
            self.pairs, self.pair_rates = self.pairs[whole], self.pair_rates[whole]
        self.share, self.lag_s = _taken(self.share, rows, known), _taken(self.lag_s, rows, known)
        return True

    def _dissolve(self, old: Ints) -> None:
        there = np.isin(self.pairs, self.slots)
        for at in np.flatnonzero(there.sum(axis=1) == 1).tolist():
            own = int(np.searchsorted(old, self.pairs[at][there[at]][0]))
            self.share[own] = np.minimum(1.0, self.share[own] + self.share[len(old) + at])
            self.lag_s[own] += self.lag_s[len(old) + at]

    def charge(self, view: View) -> None:
        """Book the time since the last look: what shares promised, and what those that hold GPUs had."""
        past_s = view.now - self._charged_s
        self._charged_s = view.now
        if past_s <= 0 or not len(self.slots):
            return
        self.lag_s += self.share * past_s
        units, kinds = self._seated()
        held = np.flatnonzero((units >= 0) & view.running)
        # Both jobs of a pair point to the same account, which is charged once.
        unit = np.unique(units[held], return_index=True)[1] if self.seats.mates else slice(None)
        self.lag_s[units[held][unit], kinds[held][unit]] -= past_s

    def _seated(self) -> tuple[Ints, Ints]:
        """By job: the unit as which it has GPUs and their type; -1 for none."""
        kind, mates = self.seats.kind, self.seats.mates
        kinds = np.array([kind.get(slot, -1) for slot in self.seats.jobs], np.int64)
        units = np.where(kinds >= 0, np.arange(len(kinds)), -1)
        if mates:
            number = {(a, b): len(kinds) + at for at, (a, b) in enumerate(self.pairs.tolist())}
            position = {slot: at for at, slot in enumerate(self.seats.jobs)}
            for slot, mate in mates.items():
                units[position[slot]] = number[min(slot, mate), max(slot, mate)]
        return units, kinds

    def grant(self, share: Floats, pairs: Ints, pair_share: Floats, pair_rates: Floats) -> None:
        """New shares, by single job and by pair (job numbers, the lower first); accounts go over to them."""
        n = len(self.slots)
        owed = {(a, b): n + at for at, (a, b) in enumerate(self.pairs.tolist())}
        rows = np.array([*range(n), *(owed.get((a, b), -1) for a, b in pairs.tolist())], np.int64)
        self.lag_s = np.clip(_taken(self.lag_s, rows, rows >= 0), -self.most_owed_s, self.most_owed_s)
        self.pairs, self.pair_rates = pairs.reshape(-1, 2), pair_rates.reshape(len(pairs), 2, share.shape[1])
        self.share = np.concatenate((share, pair_share)) if len(pairs) else share
        for slot, mate in list(self.seats.mates.items()):  # pairs that have no share any more end
            if slot < mate and (slot, mate) not in set(map(tuple, self.pairs.tolist())):
                self.seats.leave(mate)

    # -- the choice ----------------------------------------------------------------------------------------------

    def choose(self, view: View, runs: Flags) -> Selection:
        """Everybody chooses, furthest behind first. ``runs``: (jobs, types), where single jobs can run."""
        may = (self.share > 0) & self._able(runs)
        units, kinds = self._seated()
        key = self.lag_s + self.share * self._round_s
        sits = np.flatnonzero(units >= 0)
        bonus = np.zeros_like(key)
        bonus[units[sits], kinds[sits]] = self._stay_s
        key += bonus
        self._serve(view, may, key)
        return self._rest(may)

    def go_on(self) -> Selection:
        """Nobody's turn yet: who has no GPUs takes what is left."""
        self.seats.fill(strict=False)
        if self._upgrades and any(self.seats.left):
            self.seats.upgrade(self._order)
        return self._selection()

    def _able(self, runs: Flags) -> Flags:
        return np.concatenate((runs, (self.pair_rates > 0).all(axis=1))) if len(self.pairs) else runs

    def _serve(self, view: View, may: Flags, key: Floats) -> None:
        """Seats by key; equals by the order of types, then by arrival."""
        rows, kinds = may.nonzero()
        place, seats = self._place, self.seats
        asks = zip((-key[rows, kinds]).tolist(), [place[kind] for kind in kinds.tolist()], rows.tolist(), strict=True)
        seats.clear(view)
        jobs, taken, left, order = list(seats.jobs), seats.kind, seats.left, self._order
        gang = [told[0] for told in seats.jobs.values()]
        n, pairs = len(jobs), self.pairs.tolist()
        for _, at, row in sorted(asks):
            kind = order[at]
            if row < n:
                slot = jobs[row]
                if slot not in taken and gang[row] <= left[kind]:
                    taken[slot] = kind
                    left[kind] -= gang[row]
            else:
                one, other = pairs[row - n]
                if one not in taken and other not in taken and seats.jobs[one][0] <= left[kind]:
                    seats.sit(one, kind, other)

    def _rest(self, may: Flags) -> Selection:
        """What is left over is given out, and the next turn foreseen."""
        self.seats.fill(strict=False)
        if any(self.seats.left):
            if self.seats.mates:
                self._part()
            if self._upgrades:
                self.seats.upgrade(self._order)
        self.turn_s = self._charged_s + self._next_turn_s(may)
        return self._selection()

    def _part(self) -> None:
        """Pairs split where GPUs are left on which one of the two, alone, is no slower than in the pair."""
        seats = self.seats
        for at, (one, other) in enumerate(self.pairs.tolist()):
            if seats.mates.get(one) != other:
                continue
            gang, kind = seats.jobs[one][0], seats.kind[one]
            gains = [
                (rate * seats.jobs[slot][2][to], slot, to)
                for slot, rate in ((one, self.pair_rates[at, 0, kind]), (other, self.pair_rates[at, 1, kind]))
                for to in seats.jobs[slot][1]
                if seats.left[to] >= gang
            ]
            part, slot, to = min(gains, default=(math.inf, -1, -1))
            if part <= 1:
                seats.leave(slot)
                seats.sit(slot, to)

    def _selection(self) -> Selection:
        return Selection(dict(self.seats.kind), dict(self.seats.mates))

    def _next_turn_s(self, may: Flags) -> float:
        """Seconds until a unit is so far behind that its jobs would rather run as it than as they do."""
        units, kinds = self._seated()
        sits = units >= 0
        at = (np.where(sits, units, 0), np.where(sits, kinds, 0))
        seat_s = np.where(sits, self.lag_s[at] + self._stay_s, -np.inf)
        falls = np.where(sits, 1.0 - self.share[at], 0.0)
        rows, types = may.nonzero()
        jobs = self._ahead(rows, seat_s)
        other = (units[jobs] != rows) | (kinds[jobs] != types)
        rows, types, jobs = rows[other], types[other], jobs[other]
        lag_s, rises = self.lag_s[rows, types], self.share[rows, types]
        gap_s = seat_s[jobs] - lag_s
        soon_s = float((gap_s / (rises + falls[jobs]))[gap_s > 0].min(initial=math.inf))
        for i in np.flatnonzero(gap_s <= 0).tolist():
            # It finds no room now: it will try again when it has passed one of those that have.
            there = kinds == types[i]
            ahead_s = seat_s[there] - lag_s[i]
            waits_s = (ahead_s / (rises[i] + falls[there]))[ahead_s > 0]
            soon_s = min(soon_s, float(waits_s.min(initial=math.inf)))
        return soon_s

    def _ahead(self, rows: Ints, seat_s: Floats) -> Ints:
        """The job of each unit; of the two of a pair, the one that is harder to move."""
        n = len(seat_s)
        if not len(self.pairs):
            return rows
        one, other = np.searchsorted(self.slots, self.pairs).T
        harder = np.where(seat_s[other] > seat_s[one], other, one)
        return np.concatenate((np.arange(n), harder))[rows]


def _taken(column: Floats, rows: Ints, known: Flags) -> Floats:
    """``column[rows]``, and 0 where a row is not ``known``."""
    if not len(column):
        return np.zeros((len(rows), column.shape[1]))
    found = column.take(rows, axis=0)
    if not known.all():
        found[~known] = 0.0
    return found
