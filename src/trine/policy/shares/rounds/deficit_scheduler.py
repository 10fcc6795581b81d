"""Deficit scheduling: fractional shares of time as whole GPUs, changed only when a job is too far behind its share.

Every unit, a job or a pair of jobs on the same GPUs, has an account by GPU type, in seconds:

    deficit += share * dt - (dt while it has GPUs of that type by right)

Gavel (OSDI'20, section 5) divides share by time received in every round instead (``priority_rounds``); that ratio says
which unit is behind, not by how much time.

*Why deficits stay bounded.* The unit with the largest deficit, counting the round to come, is served first, as in
deficit round robin. The shares of a type use at most all of its GPUs, so while all are in use the deficits of the type,
times the gangs, do not grow in sum: one rises only while others fall, and the one that has risen highest is the next
served. On one type with single GPUs no job falls a round behind. Two things add rounds that do not grow with time: a
job that two types owe time runs on one of them at a time, and a gang waits until enough GPUs come free together
(docs/design/0008 has figures). A unit that runs counts as ``stay_s`` further behind, which bounds how often jobs move,
and lets others fall behind by as much more.

*Why rounds can be skipped.* While no unit changes GPUs, every deficit moves along a straight line: it rises by its
share per second, and for the unit that runs it falls by one minus its share. The first time at which two of these
lines cross such that another unit would be served is therefore known in advance; until then the choice would come out
the same in every round. Crossings that follow soon are waited for and served together (``change_s``). GPUs that no
unit has a right to are given out on top and are not counted, so that filling them in between changes no deficit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from trine.policy.base import Selection
from trine.policy.shares.rounds.job_rates import JobRateCache
from trine.policy.shares.rounds.share_ledger import GONE, GOT, JOIN, UNIT, Shares, unit_names
from trine.policy.shares.rounds.type_assignment import TypeAssignment
from trine.policy.shares.rounds.unit_accounts import Account, Unit, UnitArrays
from trine.policy.view import Floats, Ints, View

SLACK = 0.5
"""Changes within this part of ``stay_s`` are made together, at the end of it."""
ASSIGNED = "seat/"
"""Key of the record of the GPUs a job has. Journals hold it, so it stays."""
AT_LEAST = 0.1
"""Rounds between two changes where decisions are not bound to rounds."""
NOISE = 1e-6
"""Parts of a round by which a change may come early."""
MANY = 64
"""From so many units on that have part of their time, arrays are faster than accounts one by one."""


@dataclass(slots=True)
class _Thresholds:
    """Of the units entitled to GPUs of one type, ascending, and how fast each falls."""

    threshold_s: list[float]
    falls: list[float]
    fastest: float = 0.0

    def append(self, threshold_s: float, falls: float) -> None:
        self.threshold_s.append(threshold_s)
        self.falls.append(falls)
        self.fastest = max(self.fastest, falls)

    def crossed_s(self, behind_s: float, rises: float, soonest_s: float) -> float:
        """Seconds until a unit that is ``behind_s`` and ``rises`` reaches one of them; at most ``soonest_s``.

        They are looked at from the nearest on. None can be reached sooner than if it fell as fast as the fastest: from
        the first that is too far away even so, all others are too, and a search ends after a few.
        """
        thresholds, falls, at_best = self.threshold_s, self.falls, rises + self.fastest
        for at in range(bisect_left(thresholds, behind_s), len(thresholds)):
            ahead_s = thresholds[at] - behind_s
            if ahead_s / at_best >= soonest_s:
                break
            soonest_s = min(soonest_s, ahead_s / (rises + falls[at]))
        return soonest_s


class DeficitScheduler:
    """Accounts and assigned types of the jobs present. One of the schedulers of ``mechanism``."""

    whole = False
    foresees = True
    stuck = False

    def __init__(
        self,
        rates: JobRateCache,
        order: list[int],
        stay_s: float,
        round_s: float,
        upgrades: bool = True,
        many: int = MANY,
    ) -> None:
        """``order``: types in the order in which they are filled. ``upgrades``: jobs move to faster GPUs that are
        free. ``many``: from so many units with part of their time on, their accounts are kept as arrays."""
        self._rates, self._order, self._stay_s, self._round_s = rates, order, stay_s, round_s
        self._upgrades, self._many = upgrades, many
        self._types = len(order)
        self._rank = [order.index(type_index) for type_index in range(self._types)]
        self.assignment = TypeAssignment()
        self._accounts: dict[Unit, Account] = {}
        self._pairs: dict[Unit, Account] = {}
        self._full_time: list[Account] = []
        """Units that have all of their time on one type."""
        self._part_time: list[Account] = []
        """The others that have a share, where they are few."""
        self._arrays: UnitArrays | None = None
        """The same where they are many; deficits are then kept there (``_write_back``)."""
        self._full_time_waits = False
        """Not all units with full time had room at the last choice."""
        self._granted: tuple[list[int], int] = ([], -1)
        """Capacity and revision of speeds that the accounts know of."""
        self._gone: set[int] = set()
        self.change_s = math.inf
        """When the choice comes out otherwise if nothing happens before."""
        self._charged_s = 0.0

    def repeats(self, now: float) -> bool:
        """With the same jobs and GPUs the last round is right for this one too."""
        return now < self.change_s - NOISE * self._round_s

    def ran(self, job_index: int, seconds: float) -> None:
        """Deficits count the time for which jobs are assigned."""

    # -- the accounts --------------------------------------------------------------------------------------------

    @property
    def accounts(self) -> dict[Unit, Account]:
        """Of jobs alone, with what they are owed now."""
        self._write_back()
        return self._accounts

    def _write_back(self) -> None:
        if self._arrays is not None:
            self._arrays.write_back()

    def advance(self, view: View, same_jobs: bool, moved: bool) -> bool:
        """Take note of jobs that came and left and book the time since; whether a reset is due."""
        came = not same_jobs and self.follow(view)
        self.charge(view)
        return came or moved

    def follow(self, view: View) -> bool:
        """Jobs came or left; whether any did."""
        gone, new = self.assignment.follow(view)
        self._gone |= gone
        if gone:
            self._forget(gone)
        for job_index in new:
            self._accounts[job_index, -1] = Account((job_index, -1), [0.0] * self._types, [0.0] * self._types)
        return bool(gone or new)

    def _forget(self, gone: set[int]) -> None:
        """Accounts of jobs that left are closed. Where accounts are many, only those concerned are looked at."""
        pairs = [unit for unit in self._pairs if not gone.isdisjoint(unit)]
        heirs = {(job_index, -1): None for unit in pairs for job_index in unit if job_index not in gone}
        closed = {(job_index, -1) for job_index in gone}
        arrays = self._arrays
        if arrays is not None:
            arrays.take_out(closed.union(pairs, heirs))
        for unit in closed:
            del self._accounts[unit]
        for unit in pairs:
            self._dissolve(unit)
        own = [self._accounts[unit] for unit in heirs]
        if arrays is None or any(1.0 in account.share for account in own):
            self._write_back()
            self._sort_accounts()
        else:
            left = closed.union(pairs)
            self._full_time = [account for account in self._full_time if account.unit not in left]
            arrays.put_in(own)

    def _sort_accounts(self) -> None:
        self._full_time, self._part_time = [], []
        for account in self._all():
            if account.types:
                (self._full_time if 1.0 in account.share else self._part_time).append(account)
        self._full_time_waits, self._arrays = True, None
        if len(self._part_time) >= self._many:
            self._arrays, self._part_time = UnitArrays(self._part_time, self._rank), []

    def _dissolve(self, unit: Unit) -> None:
        """A job whose co-runner left takes over the account and the GPUs of the pair.

        Its share is all of its time at most; what the pair was owed is owed to it alone from now on.
        """
        pair = self._pairs.pop(unit)
        for job_index in unit:
            own = self._accounts.get((job_index, -1))
            if own is not None:
                own.share = [min(1.0, a + b) for a, b in zip(own.share, pair.share, strict=True)]
                own.deficit_s = [a + b for a, b in zip(own.deficit_s, pair.deficit_s, strict=True)]
                own.types = tuple(j for j in self.assignment.jobs[job_index][1] if own.share[j] > 0)
                own.entitled = pair.entitled if own.entitled < 0 else own.entitled

    def charge(self, view: View) -> None:
        """Book the time since the last look: what shares promised, and what units had by right."""
        past_s = view.now - self._charged_s
        self._charged_s = view.now
        if past_s <= 0:
            return
        idle = set() if view.all_run else set(view.job_indices[~view.assigned].tolist())
        # With all of its time on one type a unit gains and loses alike: its deficit moves only while it has no GPUs.
        for account in self._full_time if idle or self._full_time_waits else ():
            if account.entitled < 0 or account.unit[0] in idle:
                account.deficit_s[account.types[0]] += past_s
        if self._arrays is not None:
            self._arrays.charge(past_s, idle)
            return
        for account in self._part_time:
            share, deficit_s = account.share, account.deficit_s
            for type_index in account.types:
                deficit_s[type_index] += share[type_index] * past_s
            if account.entitled >= 0 and account.unit[0] not in idle:
                deficit_s[account.entitled] -= past_s

    def _all(self) -> Iterable[Account]:
        return [*self._accounts.values(), *self._pairs.values()] if self._pairs else self._accounts.values()

    def reset(self, view: View, last_s: float, shares: Callable[[], Shares]) -> None:  # noqa: ARG002
        """New shares; deficits are kept."""
        self._rates.learn(view)
        self.grant(view, *shares())

    def grant(self, view: View, share: Floats, pairs: Ints, pair_share: Floats, pair_rates: Floats) -> None:
        """New shares, by single job and by pair (job indices, the lower first); accounts go over to them."""
        self._write_back()
        self.assignment.update_speeds(view)
        capacity, accounts = view.gpus_by_type, self._accounts
        before, self._granted = self._granted, (list(capacity), view.revision)
        anew = before != self._granted
        for (job_index, (gang, suits, _)), own in zip(self.assignment.jobs.items(), share.tolist(), strict=True):
            account = accounts[job_index, -1]
            if anew or account.share != own:
                account.share = own
                account.types = tuple([j for j in suits if own[j] > 0 and gang <= capacity[j]]) if any(own) else ()
        if self._pairs or len(pairs):
            self._grant_pairs(capacity, zip(pairs.tolist(), pair_share.tolist(), pair_rates.tolist(), strict=True))
        self._sort_accounts()

    def _grant_pairs(
        self, capacity: list[int], rows: Iterable[tuple[list[int], list[float], list[list[float]]]]
    ) -> None:
        before, self._pairs = self._pairs, {}
        for (one, other), share, (first, second) in rows:
            known = before.pop((one, other)) if (one, other) in before else None
            account = known or Account((one, other), share, [0.0] * self._types)
            gang, suits, _ = self.assignment.jobs[one]
            account.share, account.rates = share, (first, second)
            account.types = tuple(
                [j for j in suits if share[j] > 0 and gang <= capacity[j] and first[j] > 0 and second[j] > 0]
            )
            self._pairs[one, other] = account
        for one, other in before:  # pairs without a share from now on
            if self.assignment.co_runners.get(one) == other:
                self.assignment.release(other)  # the first stays on the GPUs until the choice that follows

    # -- the choice ----------------------------------------------------------------------------------------------

    def choose(self, view: View, again: bool) -> Selection:
        """The selection of this round; ``again``: shares or GPUs changed, so that what was foreseen does not hold."""
        return self.keep() if not again and self.repeats(view.now) else self.serve(view)

    def serve(self, view: View) -> Selection:
        """All units choose, those furthest behind first; GPUs left go to other jobs by arrival."""
        before = self.assignment.type_of
        self._serve_by_right(view.gpus_by_type)
        self.assignment.fill(strict=False)
        if any(self.assignment.free):
            if self.assignment.co_runners:
                self._split_pairs()
            if self._upgrades:
                self.assignment.upgrade(self._order, before)
        wait_s = self._next_change_s() + SLACK * self._stay_s
        self.change_s = self._charged_s + max(wait_s, AT_LEAST * self._round_s)
        return self._selected({job_index for job_index, _ in before.items() ^ self.assignment.type_of.items()})

    def keep(self) -> Selection:
        """No change is due yet: jobs without GPUs take what is free."""
        changed = self.assignment.fill(strict=False)
        if self._upgrades and any(self.assignment.free):
            changed += self.assignment.upgrade(self._order, self.assignment.type_of)
        return self._selected(changed)

    def _selected(self, changed: Iterable[int]) -> Selection:
        """The assignment of now, where only jobs that left and ``changed`` differ from the last selection."""
        gone, self._gone = self._gone, set()
        return Selection(dict(self.assignment.type_of), dict(self.assignment.co_runners), gone.union(changed))

    def _serve_by_right(self, capacity: list[int]) -> None:
        """GPUs for units with a share: those furthest behind first, equals by the order of types, then by arrival.

        A unit with all of its time on one type goes before all others: it could never catch up.
        """
        self.assignment.clear(capacity)
        self._serve_full_time()
        if self._arrays is not None:
            self._serve_many(self._arrays)
        else:
            self._serve_few()

    def _serve_many(self, arrays: UnitArrays) -> None:
        taken, free = self.assignment.type_of, self.assignment.free
        for at in arrays.requests(self._round_s, self._stay_s):
            account = arrays.account_of[at]
            job_index, co_runner = account.unit
            if job_index not in taken and co_runner not in taken:
                self._entitle(account, arrays.type_of[at])
                if account.entitled >= 0:
                    arrays.entitle(at)
                    if not any(free):
                        return

    def _serve_few(self) -> None:
        rank, order, round_s, stay_s = self._rank, self._order, self._round_s, self._stay_s
        requests: list[tuple[float, int, Unit, Account]] = []
        for account in self._part_time:
            share, deficit_s, entitled = account.share, account.deficit_s, account.entitled
            for j in account.types:
                behind_s = deficit_s[j] + share[j] * round_s
                requests.append((-behind_s - stay_s if j == entitled else -behind_s, rank[j], account.unit, account))
            account.entitled = -1
        requests.sort()
        taken = self.assignment.type_of
        for _, at, (job_index, co_runner), account in requests:
            if job_index not in taken and co_runner not in taken:
                self._entitle(account, order[at])

    def _serve_full_time(self) -> None:
        assignment, self._full_time_waits = self.assignment, False
        jobs, type_of, free = assignment.jobs, assignment.type_of, assignment.free
        for account in self._full_time:
            (job_index, co_runner), type_index = account.unit, account.types[0]
            gang = jobs[job_index][0]
            if co_runner >= 0 or gang > free[type_index]:
                self._entitle(account, type_index)
                self._full_time_waits |= account.entitled < 0
            else:
                account.entitled = type_of[job_index] = type_index
                free[type_index] -= gang

    def _entitle(self, account: Account, type_index: int) -> None:
        """The unit gets GPUs by right, if there are enough."""
        (job_index, co_runner), assignment = account.unit, self.assignment
        room = assignment.jobs[job_index][0] <= assignment.free[type_index]
        account.entitled = type_index if room else -1
        if room:
            assignment.assign(job_index, type_index, co_runner)

    def _split_pairs(self) -> None:
        """Pairs split where GPUs are left on which one of the two, alone, is no slower than in the pair."""
        assignment = self.assignment
        for (one, other), account in self._pairs.items():
            if account.entitled < 0:
                continue
            gang = assignment.jobs[one][0]
            slowdowns = [
                (rates[account.entitled] * assignment.jobs[job_index][2][to], job_index, to)
                for job_index, rates in zip((one, other), account.rates, strict=True)
                for to in assignment.jobs[job_index][1]
                if assignment.free[to] >= gang
            ]
            slowdown, job_index, to = min(slowdowns, default=(math.inf, -1, -1))
            if slowdown <= 1:
                assignment.release(job_index)
                assignment.assign(job_index, to)

    def selection(self) -> Selection:
        """The assignment of now."""
        return Selection(dict(self.assignment.type_of), dict(self.assignment.co_runners))

    # -- when the next change is due -----------------------------------------------------------------------------

    def _next_change_s(self) -> float:
        """Seconds until a unit is so far behind that it would be served in place of another.

        A unit that rises by ``rises`` passes a threshold that falls by ``falls`` after
        ``(threshold - behind) / (rises + falls)`` seconds. Two cases: its own jobs run as another unit (a pair, or on
        another type), whose threshold it must pass; or it waits, and must pass any unit on a type that it wants.
        """
        if self._arrays is not None:
            return self._arrays.next_change_s(self._round_s, self._stay_s, self._types)
        round_s, soonest_s = self._round_s, math.inf
        by_job, requesting = self._entitled_by_job()
        thresholds = [_Thresholds([], []) for _ in range(self._types)]
        for type_index, threshold_s, falls in sorted([(a.entitled, a.threshold_s, a.falls) for a in by_job.values()]):
            thresholds[type_index].append(threshold_s, falls)
        for account in requesting:
            running = [by_job[job_index] for job_index in account.unit if job_index in by_job]
            hardest = max(running, key=attrgetter("threshold_s")) if running else None
            share, deficit_s, entitled = account.share, account.deficit_s, account.entitled
            for j in account.types:
                if j == entitled:
                    continue
                rises = share[j]
                behind_s = deficit_s[j] + rises * round_s
                if hardest is not None and hardest.threshold_s >= behind_s:
                    soonest_s = min(soonest_s, (hardest.threshold_s - behind_s) / (rises + hardest.falls))
                else:  # it finds no room now
                    soonest_s = thresholds[j].crossed_s(behind_s, rises, soonest_s)
        return soonest_s

    def _entitled_by_job(self) -> tuple[dict[int, Account], list[Account]]:
        """Units with GPUs by right that can lose them, by job, and units that want GPUs they do not have."""
        round_s, stay_s = self._round_s, self._stay_s
        by_job: dict[int, Account] = {}
        requesting = []
        for account in self._part_time:
            entitled = account.entitled
            if entitled >= 0:
                account.threshold_s = account.deficit_s[entitled] + account.share[entitled] * round_s + stay_s
                by_job[account.unit[0]] = account
                if account.unit[1] >= 0:
                    by_job[account.unit[1]] = account
            if len(account.types) > (entitled >= 0):
                requesting.append(account)
        return by_job, requesting

    # -- on record -----------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        """Accounts and assigned types in plain values, by name of the unit (``share_ledger``)."""
        self._write_back()
        type_of, co_runners = self.assignment.type_of, self.assignment.co_runners
        found: dict[str, Any] = {"charged_s": self._charged_s}
        if math.isfinite(self.change_s):
            found["turn_s"] = self.change_s
        for account in self._all() if len(view) else ():
            (name,) = unit_names([account.unit], view)
            found[UNIT + name] = [list(account.share), list(account.types), [list(rates) for rates in account.rates]]
            found[GOT + name] = [list(account.deficit_s), account.entitled]
        for job_index in type_of if len(view) else ():
            found[ASSIGNED + view.name(job_index)] = [
                type_of[job_index],
                view.name(co_runners[job_index]) if job_index in co_runners else "",
            ]
        return found

    def restore(self, kept: dict[str, Any], capacity: list[int], view: View) -> tuple[Selection | None, bool]:
        """Go on from what ``state`` gave, on ``capacity`` GPUs by type.

        Returns the selection that runs, if no job came or left since, and whether jobs left.
        """
        self._charged_s, self.change_s = kept["charged_s"], kept.get("turn_s", math.inf)
        job_indices = {view.name(job_index): job_index for job_index in view.job_indices.tolist()}
        names = dict.fromkeys(name[len(UNIT) :] for name in kept if name.startswith(UNIT))
        present = {name: job_index for name, job_index in job_indices.items() if name in names}
        self.assignment.jobs = {job_index: view.of(job_index) for job_index in present.values()}
        self.assignment.clear(capacity)
        for name, job_index in present.items():
            self._accounts[job_index, -1] = _account((job_index, -1), kept, name)
            type_index, co_runner = kept.get(ASSIGNED + name, (-1, ""))
            if type_index >= 0 and job_index not in self.assignment.type_of:
                self.assignment.assign(job_index, type_index, present.get(co_runner, -1))
        for name in names:
            one, join, other = name.partition(JOIN)
            if join and (one in present or other in present):
                unit = (present.get(one, GONE), present.get(other, GONE))
                self._pairs[unit] = _account(unit, kept, name)
                if GONE in unit:
                    self._dissolve(unit)
        self._sort_accounts()
        left = any(part not in present for name in names for part in name.split(JOIN))
        same_jobs = not left and len(self._accounts) == len(view)
        return self.selection() if same_jobs else None, left


def _account(unit: Unit, kept: dict[str, Any], name: str) -> Account:
    (share, types, rates), (deficit_s, entitled) = kept[UNIT + name], kept[GOT + name]
    return Account(unit, list(share), list(deficit_s), tuple(types), (list(rates[0]), list(rates[1])), entitled)
