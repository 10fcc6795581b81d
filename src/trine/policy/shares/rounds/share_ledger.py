"""What each job (or pair of jobs) should get, what it received since the last reset, and what it is owed from before.

One row per schedulable unit: the single jobs by job index, then the pairs that have a share. No selection here. These
are the accounts of the priority rule (Gavel, OSDI'20, section 5); the deficit rule keeps its own. Either writes its
accounts down by job id: job indices differ between two engines, ids do not. A pair is named by both ids: ``7+12``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trine.policy.view import Flags, Floats, Ints, View

Value = TypeVar("Value", bound=np.generic)
PairRates = Callable[[View, Ints], Floats]
"""(pairs, 2, types): steps per second of the jobs at pairs of positions in the view, together on the same GPUs."""
Shares = tuple[Floats, Ints, Floats, Floats]
"""(jobs, types): shares by single job; pairs as job indices, the lower first; their shares; the steps/s of either."""

UNSERVED = 1e9
"""Priority per share of a unit that received nothing yet: before all that did, but still by share."""
JOIN = "+"
GONE = 1 << 40
"""Job indices from here on stand for jobs that are gone."""
UNIT, GOT = "unit/", "got/"
"""What a unit is due, and what it got; apart, because most rounds change only the second."""


class JobIdIndex:
    """Ids to job indices of the present engine.

    Jobs that are gone get indices that no job ever has: the next round sees that they left, and closes their accounts
    as it does for any job that leaves.
    """

    def __init__(self, view: View) -> None:
        self._known = {view.name(job_index): job_index for job_index in range(view.beyond)}
        self._next = GONE

    def __contains__(self, job_id: str) -> bool:
        return self._known.get(job_id, GONE) < GONE

    def __getitem__(self, job_id: str) -> int:
        if job_id not in self._known:
            self._known[job_id] = self._next
            self._next += 1
        return self._known[job_id]

    def members(self, unit: str) -> tuple[int, int]:
        """Job indices of a unit; the second is -1 for a single job."""
        one, _, other = unit.partition(JOIN)
        return self[one], self[other] if other else -1


def unit_names(members: Sequence[Sequence[int]], view: View) -> list[str]:
    """Of units, each with the job indices of its members; the second is -1 for a single job."""
    name = {
        job_index: view.name(job_index)
        for job_index in {job_index for pair in members for job_index in pair}
        if job_index >= 0
    }
    return [name[one] if other < 0 else f"{name[one]}{JOIN}{name[other]}" for one, other in members]


@dataclass
class ShareLedger:
    """Columns by GPU type, in seconds and shares of time."""

    types: int
    head_start_s: float
    """Time every job is taken to have received at a reset, so that first rounds do not count too much."""

    def __post_init__(self) -> None:
        self.members: Ints = np.zeros((0, 2), np.int64)
        """Job indices; the second is -1 for a single job."""
        self.share: Floats = np.zeros((0, self.types))
        self.received_s: Floats = np.zeros((0, self.types))
        self.owed_s: Floats = np.zeros((0, self.types))
        self.fresh: Flags = np.zeros(0, np.bool_)
        """Arrived after the last reset: no share was computed yet."""
        self.pair_rates: Floats = np.zeros((0, 2, self.types))
        """Steps per second of either job of each pair."""
        self.singles = 0
        self.given_s: Floats = np.zeros(self.types)
        """Time all units received by type."""
        self._named: tuple[Ints, list[str]] | None = None
        """Names of the units, made when first asked for."""

    def __len__(self) -> int:
        return len(self.members)

    def follow(self, job_indices: Ints) -> bool:
        """Forget jobs that left, open accounts for new ones; whether anything changed. ``job_indices`` ascend."""
        old = self.members[: self.singles, 0]
        if len(old) == len(job_indices) and (old == job_indices).all():
            return False
        rows = _rows_of(old, job_indices)
        pairs, self.members = self.members[self.singles :], np.full((len(job_indices), 2), -1, np.int64)
        self.members[:, 0] = job_indices
        if len(pairs):
            kept = self._kept_pairs(old, pairs, job_indices)
            rows = np.concatenate((rows, kept + len(old)))
            self.members, self.pair_rates = np.concatenate((self.members, pairs[kept])), self.pair_rates[kept]
        self.singles = len(job_indices)
        new = np.flatnonzero(rows < 0)
        self.share, self.owed_s = _taken(self.share, rows, new, 0.0), _taken(self.owed_s, rows, new, 0.0)
        self.received_s = _taken(self.received_s, rows, new, self.head_start_s)
        self.fresh = _taken(self.fresh, rows, new, True)
        return True

    def add_pairs(self, view: View, measured: PairRates) -> None:
        """Jobs came: for ledgers in which pairs have accounts before they have a share."""

    def _kept_pairs(self, old: Ints, pairs: Ints, job_indices: Ints) -> Ints:
        """Positions of the pairs of which both jobs are still present.

        A job whose co-runner left takes over the share of the pair, and the time it received with it.
        """
        there = np.isin(pairs, job_indices)
        for at in np.flatnonzero(there.sum(axis=1) == 1).tolist():
            left = int(pairs[at][there[at]][0])
            own, row = int(np.searchsorted(old, left)), len(old) + at
            self.share[own] = np.minimum(1.0, self.share[own] + self.share[row])
            self.received_s[own] += np.maximum(0.0, self.received_s[row] - self.head_start_s)
        return np.flatnonzero(there.all(axis=1))

    def charge(self, rows: Ints, type_indices: Ints, seconds: Floats) -> None:
        """Time that units, each once, received since the last look."""
        self.received_s[rows, type_indices] += seconds
        self.given_s += np.bincount(type_indices, seconds, self.types)

    def settle(self, now: float, since_s: float) -> None:
        """A reset: carry over what is owed since ``since_s``, and count from the head start again.

        Gavel (OSDI'20, section 5) orders units of equal priority by these deficits; the priority itself forgets.
        """
        self.owed_s += self.share * (now - since_s) - (self.received_s - self.head_start_s)
        self.received_s[:] = self.head_start_s
        self.given_s[:] = len(self) * self.head_start_s

    def grant(self, share: Floats, pairs: Ints, pair_share: Floats, pair_rates: Floats) -> None:
        """New shares, by single job and by pair (job indices); what pairs are owed is kept where they stay."""
        self.pair_rates = pair_rates.reshape(-1, 2, self.types)
        n = self.singles
        if not len(pairs) and len(self.members) == n:
            self.share, self.fresh = share, np.zeros(n, np.bool_)
            return
        before = {(a, b): row for row, (a, b) in enumerate(self.members.tolist()) if b >= 0}
        rows = np.array([before.get((a, b), -1) for a, b in pairs.tolist()], np.int64)
        owed = _taken(self.owed_s, rows, np.flatnonzero(rows < 0), 0.0)
        self.members = np.concatenate((self.members[:n], pairs.reshape(-1, 2)))
        self.share = np.concatenate((share, pair_share.reshape(-1, self.types)))
        self.owed_s = np.concatenate((self.owed_s[:n], owed))
        self.received_s = np.full((len(self.members), self.types), self.head_start_s)
        self.fresh = np.zeros(len(self.members), np.bool_)

    def priority(self, runs: Flags) -> Floats:
        """Share over the part of the type's time received; 0 without share or where a unit cannot run.

        At its share every unit of a type would come out at the same value, so that the largest is furthest behind in
        proportion, not in seconds (which is what ``deficit_scheduler`` counts).
        """
        if self.head_start_s > 0 and self.given_s.all():  # then every unit has received something
            return np.where(runs, self.share / (self.received_s / self.given_s), 0.0)
        part = np.divide(self.received_s, self.given_s, out=np.zeros_like(self.received_s), where=self.given_s > 0)
        served = part > 0
        priority = np.divide(self.share, part, out=self.share * UNSERVED, where=served)
        return np.where(runs, priority, 0.0)

    def state(self, view: View) -> dict[str, Any]:
        """All of it in plain values, by name of the unit; types in the cluster's order."""
        if not len(view):  # all jobs are gone
            return {"pairs": [], "pair_rates": [], "given_s": [0.0] * self.types}
        if self._named is None or self._named[0] is not self.members:
            self._named = (self.members, unit_names(self.members.tolist(), view))
        names = self._named[1]
        due = zip(self.share.tolist(), self.owed_s.tolist(), self.fresh.tolist(), strict=True)
        found: dict[str, Any] = {UNIT + name: list(row) for name, row in zip(names, due, strict=True)}
        found |= {GOT + name: row for name, row in zip(names, self.received_s.tolist(), strict=True)}
        found |= {"pairs": names[self.singles :], "pair_rates": self.pair_rates.tolist()}
        return found | {"given_s": self.given_s.tolist()}

    def restore(self, kept: dict[str, Any], ids: JobIdIndex) -> list[str]:
        """Go on from what ``state`` gave; returns the names of the units by row."""
        pairs: list[str] = kept["pairs"]
        singles = {name[len(UNIT) :] for name in kept if name.startswith(UNIT)}.difference(pairs)
        names = [*sorted(singles, key=lambda name: ids[name]), *pairs]
        self.singles, shape = len(singles), (len(names), self.types)
        self.members = np.array([ids.members(name) for name in names], np.int64).reshape(-1, 2)
        self.share = np.array([kept[UNIT + name][0] for name in names], np.float64).reshape(shape)
        self.owed_s = np.array([kept[UNIT + name][1] for name in names], np.float64).reshape(shape)
        self.fresh = np.array([kept[UNIT + name][2] for name in names], np.bool_)
        self.received_s = np.array([kept[GOT + name] for name in names], np.float64).reshape(shape)
        self.pair_rates = np.array(kept["pair_rates"], np.float64).reshape(-1, 2, self.types)
        self.given_s = np.array(kept["given_s"], np.float64)
        return names


def _rows_of(old: Ints, job_indices: Ints) -> Ints:
    """Position of each of ``job_indices`` in ``old``, -1 where it is not; both ascend."""
    if not len(old):
        return np.full(len(job_indices), -1, np.int64)
    at = np.minimum(old.searchsorted(job_indices), len(old) - 1)
    return np.where(old[at] == job_indices, at, -1)


def _taken(column: NDArray[Value], rows: Ints, new: Ints, fill: float) -> NDArray[Value]:
    """``column[rows]``, and ``fill`` at the positions ``new``."""
    if not len(column):
        return np.full((len(rows), *column.shape[1:]), fill, column.dtype)
    found = column.take(rows, axis=0)
    if len(new):
        found[new] = fill
    return found
