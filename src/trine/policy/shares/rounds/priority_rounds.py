"""Rounds by priority = share over time received, the rule of Gavel (OSDI'20, section 5).

Accounts are kept in ``share_ledger``, choices are made in ``round_selection``. ``RoundConventions`` says what other
implementations of the mechanism do differently; those are in ``trine.parity``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.policy.base import Selection
from trine.policy.shares.allocation import Allocation
from trine.policy.shares.rounds.job_rates import JobRateCache
from trine.policy.shares.rounds.round_selection import (
    Candidates,
    Chosen,
    fill_by_arrival,
    held_since,
    positions,
    select,
    selection_of,
    split_pairs,
)
from trine.policy.shares.rounds.share_ledger import JobIdIndex, PairRates, ShareLedger, Shares, unit_names
from trine.policy.view import Flags, Floats, Ints, View

NOISE = 1e-6
"""Shares this close to 0 or 1 are 0 or 1."""


class RoundConventions:
    """How rounds follow from shares, as far as implementations of the mechanism differ. This is what trine does."""

    uses_deficits = True
    """Shares may be realised by deficits in seconds; otherwise always by share over time received."""
    serves_arrivals = True
    """A job that arrived since the last reset may have GPUs that are left."""
    fills_leftover = True
    """Of several optima, shares that leave no time unused which would help a job; otherwise the middle of them."""
    repeats_whole = True
    """While all shares are 0 or 1, a round is the same as the last."""

    def prepare(self, seed: int, aware: bool) -> None:
        """Called before the first round. ``aware``: the policy uses speeds."""

    def ledger(self, types: int, head_start_s: float, space_sharing: bool) -> ShareLedger:  # noqa: ARG002
        return ShareLedger(types, head_start_s)

    def may_reset(self, now: float, last_s: float, gap_s: float) -> bool:
        """Whether shares may be computed again, the last time being ``last_s``."""
        return now - last_s >= gap_s

    def noise(self, found: Allocation) -> float:  # noqa: ARG002
        """Shares of this answer that are so close to 0 or 1 count as 0 or 1."""
        return NOISE

    def type_order(self, order: list[int]) -> list[int]:
        """The order in which types are filled in this round."""
        return order

    def choose(
        self, units: Candidates, ledger: ShareLedger, free: list[int], order: list[int], queueing: Queueing
    ) -> Chosen:
        """Units for the ``free`` GPUs by type: those with a share by priority, then the others by arrival."""
        may = units.runs & ~ledger.fresh[:, None]
        if queueing.strict:
            may = may & (units.priority > 0)
        chosen = select(units, may, free, order, queueing.one_queue)
        return split_pairs(units, fill_by_arrival(units, chosen, free, queueing.strict), free, ledger.pair_rates)


@dataclass(frozen=True, slots=True)
class Queueing:
    """How units queue for GPUs."""

    one_queue: bool
    """One order over all types instead of one per type."""
    strict: bool
    """No unit without a share overtakes a job that waits."""


@dataclass
class PriorityRounds:
    """One choice per round among all units, by the time they received. One of the schedulers of ``mechanism``."""

    ledger: ShareLedger
    rates: JobRateCache
    measured_pairs: PairRates
    order: list[int]
    """Types in the order in which they are filled."""
    queueing: Queueing
    conventions: RoundConventions
    whole: bool = False
    """Every share is 0 or 1: rounds repeat until something happens."""
    stuck: bool = field(default=False, init=False)
    """Nothing changed and the last round chose no unit: only other shares help."""
    change_s: float = field(default=math.inf, init=False)
    _job_indices: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _chosen: Chosen = field(default_factory=lambda: Chosen([], []))
    _held_s: Floats = field(default_factory=lambda: np.zeros(0))
    """Time the jobs had held GPUs by the last round."""
    _ran_s: dict[int, float] = field(default_factory=dict)
    """The world's own count of the time since the last round, by job index, where it keeps one."""
    _stale: bool = False
    """Restored, and jobs came or left meanwhile: the next round looks at everything again."""

    def __post_init__(self) -> None:
        types = len(self.order)
        self._rates: Floats = np.zeros((0, types))
        self._runs: Flags = np.zeros((0, types), np.bool_)

    @property
    def foresees(self) -> bool:
        return self.whole

    def repeats(self, now: float) -> bool:  # noqa: ARG002 - what was received counts, not the time
        """With the same jobs and GPUs the last round is right for this one too; its time is booked when that ends."""
        return self.whole and not self._ran_s and not self._stale and self.conventions.repeats_whole

    def ran(self, job_index: int, seconds: float) -> None:
        self._ran_s[job_index] = seconds

    # -- the accounts --------------------------------------------------------------------------------------------

    def advance(self, view: View, same_jobs: bool, moved: bool) -> bool:  # noqa: ARG002 - follow() looks itself
        """Book the time since the last round, then take note of jobs that came and left; whether a reset is due."""
        self.charge(view)
        changed = self.follow(view) or moved or self._stale
        if changed:
            self.look_up(view)
            self._stale = False
        self.stuck = not changed and not self._chosen.rows
        return changed

    def charge(self, view: View) -> None:
        """Book what the units of the last round received since, as far as they are still there."""
        chosen, ledger = self._chosen, self.ledger
        if not chosen.rows:
            return
        rows, type_indices = np.array(chosen.rows, np.int64), np.array(chosen.type_indices, np.int64)
        first = ledger.members[:, 0].take(rows)
        if self._ran_s:
            seconds = np.array([self._ran_s.get(job_index, 0.0) for job_index in first.tolist()])
            self._ran_s.clear()
        else:
            at = rows if len(ledger) == ledger.singles else np.searchsorted(self._job_indices, first)
            seconds = held_since(view, self._job_indices, self._held_s.take(at), first, at)
        ledger.charge(rows, type_indices, seconds)

    def follow(self, view: View) -> bool:
        """Whether jobs came or left; accounts come and go with them."""
        came = view.job_indices is not self._job_indices and self.ledger.follow(view.job_indices)
        self._job_indices = view.job_indices
        if came:
            self.ledger.add_pairs(view, self.measured_pairs)
        return came

    def look_up(self, view: View) -> None:
        """Speeds of the jobs present, and where they fit."""
        self.rates.learn(view)
        self._rates = self.rates.rates(view.job_indices)
        self._runs = (self._rates > 0) & (view.gpus[:, None] <= view.capacity)

    def reset(self, view: View, last_s: float, shares: Callable[[], Shares]) -> None:
        """New shares, ``last_s`` being when they were new last. What units are owed is carried over."""
        found = shares()
        # Settled by the old shares, which are those that were promised for the time since.
        self.ledger.settle(view.now, last_s)
        self.ledger.grant(*found)
        share = self.ledger.share
        self.whole = bool(((share == 0) | (share == 1)).all())

    # -- the choice ----------------------------------------------------------------------------------------------

    def choose(self, view: View, again: bool) -> Selection:  # noqa: ARG002 - every round is chosen
        order = self.conventions.type_order(self.order)
        units = self._candidates(view)
        self._chosen = self.conventions.choose(units, self.ledger, view.gpus_by_type, order, self.queueing)
        self._held_s = view.attained_s
        return selection_of(view, self.ledger, self._chosen)

    def _candidates(self, view: View) -> Candidates:
        ledger = self.ledger
        members, gang, runs = ledger.members, view.gpus, self._runs
        if len(members) > ledger.singles:
            members = positions(view, members)
            runs = np.concatenate((runs, (ledger.pair_rates > 0).all(axis=1)))
            gang = gang[members[:, 0]]
        return Candidates(members, gang, runs, ledger.priority(runs), ledger.owed_s, ledger.share, self._rates)

    # -- on record -----------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        """Accounts and the last choice in plain values, by name of the unit (``share_ledger``)."""
        members = self.ledger.members[self._chosen.rows if len(view) else []]
        held_s = self._held_s[np.searchsorted(self._job_indices, members[:, 0])].tolist()
        last = zip(unit_names(members.tolist(), view), self._chosen.type_indices, held_s, strict=False)
        return self.ledger.state(view) | {"last": [list(row) for row in last]}

    def restore(
        self,
        kept: dict[str, Any],
        capacity: list[int],  # noqa: ARG002 - the next round compares it
        view: View,
    ) -> tuple[Selection | None, bool]:
        """Go on from what ``state`` gave; the selection that runs, if no job came or left since."""
        ledger = self.ledger
        self.whole = kept["whole"]
        self.look_up(view)
        rows = {name: row for row, name in enumerate(ledger.restore(kept, JobIdIndex(view)))}
        self._job_indices = ledger.members[: ledger.singles, 0]
        last, self._held_s = kept["last"], np.zeros(len(self._job_indices))
        self._chosen = Chosen([rows[name] for name, _, _ in last], [type_index for _, type_index, _ in last])
        at = np.searchsorted(self._job_indices, ledger.members[self._chosen.rows, 0])
        self._held_s[at] = [held_s for _, _, held_s in last]
        self._stale = not np.array_equal(self._job_indices, view.job_indices)
        if self._stale:
            return None, False
        self._job_indices = view.job_indices
        return selection_of(view, ledger, self._chosen), False
