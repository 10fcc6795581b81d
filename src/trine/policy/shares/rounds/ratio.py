"""Who goes first by share over time received: the published rule. Accounts are kept in ``ledger``, choices are made in
``select``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.policy.base import Selection
from trine.policy.shares.rounds.accounts import Numbers, unit_names
from trine.policy.shares.rounds.every_pair import EveryPair
from trine.policy.shares.rounds.known import Known
from trine.policy.shares.rounds.ledger import Ledger
from trine.policy.shares.rounds.problem import Question
from trine.policy.shares.rounds.select import (
    Candidates,
    Chosen,
    apart,
    held_since,
    in_line,
    positions,
    select,
    selection_of,
)
from trine.policy.view import Flags, Floats, Ints, View


@dataclass
class Ratio:
    """One choice per round among all units."""

    ledger: Ledger
    known: Known
    question: Question
    order: list[int]
    """Types in the order in which they are filled."""
    one_queue: bool
    strict: bool
    """Nobody without a share overtakes."""
    shuffle: random.Random | None
    """Draws the order of types in each round, where that is published."""
    _job_indices: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _chosen: Chosen = field(default_factory=lambda: Chosen([], []))
    _held_s: Floats = field(default_factory=lambda: np.zeros(0))
    """Time the jobs had held GPUs by the last round."""

    def __post_init__(self) -> None:
        types = len(self.order)
        self._rates: Floats = np.zeros((0, types))
        self._runs: Flags = np.zeros((0, types), np.bool_)

    @property
    def idle(self) -> bool:
        """The last round chose nobody."""
        return not self._chosen.rows

    @property
    def whole(self) -> bool:
        """Every share is all or nothing."""
        share = self.ledger.share
        return bool(((share == 0) | (share == 1)).all())

    # -- the accounts --------------------------------------------------------------------------------------------

    def charge(self, view: View, told: dict[int, float]) -> None:
        """Book what the units of the last round received since, as far as they are still there.

        ``told``: the world's own count by job number, where it keeps one; used up here.
        """
        chosen, ledger = self._chosen, self.ledger
        if not chosen.rows:
            return
        rows, kinds = np.array(chosen.rows, np.int64), np.array(chosen.kinds, np.int64)
        first = ledger.members[:, 0].take(rows)
        if told:
            seconds = np.array([told.get(job_index, 0.0) for job_index in first.tolist()])
            told.clear()
        else:
            at = rows if len(ledger) == ledger.singles else np.searchsorted(self._job_indices, first)
            seconds = held_since(view, self._job_indices, self._held_s.take(at), first, at)
        ledger.charge(rows, kinds, seconds)

    def follow(self, view: View) -> bool:
        """Whether jobs came or left; accounts come and go with them."""
        came = view.job_indices is not self._job_indices and self.ledger.follow(view.job_indices)
        self._job_indices = view.job_indices
        if came and isinstance(self.ledger, EveryPair):
            self.ledger.meet(view, self.question)
        return came

    def look_up(self, view: View) -> None:
        """Speeds of the jobs present, and where they fit."""
        self.known.learn(view)
        self._rates = self.known.rates(view.job_indices)
        self._runs = (self._rates > 0) & (view.gpus[:, None] <= view.capacity)

    def grant(
        self, now: float, last_s: float, shares: Floats, pairs: Ints, pair_shares: Floats, pair_rates: Floats
    ) -> None:
        """New shares, ``last_s`` being when they were new last."""
        self.ledger.settle(now, last_s)
        self.ledger.grant(shares, pairs, pair_shares, pair_rates)

    # -- the choice ----------------------------------------------------------------------------------------------

    def choose(self, view: View) -> Selection:
        self._chosen, self._held_s = self._choice(view), view.attained_s
        return selection_of(view, self.ledger, self._chosen)

    def _choice(self, view: View) -> Chosen:
        ledger, units = self.ledger, self._candidates(view)
        idle, free = view.compat.idle_until_reset, view.gpus_by_type
        may = units.runs if idle else units.runs & ~ledger.fresh[:, None]
        if self.strict:
            may = may & (units.priority > 0)
        chosen = select(units, may, free, self._types(view), self.one_queue)
        if not idle:
            return apart(units, in_line(units, chosen, free, self.strict), free, ledger.pair_rates)
        kept = [at for at, row in enumerate(chosen.rows) if not ledger.fresh[row]]
        return Chosen([chosen.rows[at] for at in kept], [chosen.kinds[at] for at in kept])

    def _candidates(self, view: View) -> Candidates:
        ledger = self.ledger
        members, gang, runs = ledger.members, view.gpus, self._runs
        if len(members) > ledger.singles:
            members = positions(view, members)
            runs = np.concatenate((runs, (ledger.pair_rates > 0).all(axis=1)))
            gang = gang[members[:, 0]]
        return Candidates(members, gang, runs, ledger.priority(runs), ledger.owed_s, ledger.share, self._rates)

    def _types(self, view: View) -> list[int]:
        if self.shuffle is None or not view.compat.shuffled_types:
            return self.order
        order = list(self.order)
        self.shuffle.shuffle(order)
        return order

    # -- on record -----------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        """Accounts and the last choice in plain values, by name of the unit (``accounts``)."""
        members = self.ledger.members[self._chosen.rows if len(view) else []]
        held_s = self._held_s[np.searchsorted(self._job_indices, members[:, 0])].tolist()
        last = zip(unit_names(members.tolist(), view), self._chosen.kinds, held_s, strict=False)
        return self.ledger.state(view) | {"last": [list(row) for row in last]}

    def restore(self, kept: dict[str, Any], view: View, numbers: Numbers) -> Selection | None:
        """Go on from what ``state`` gave; the selection that runs, if nothing has happened since."""
        ledger = self.ledger
        self.look_up(view)
        rows = {name: row for row, name in enumerate(ledger.restore(kept, numbers))}
        self._job_indices = ledger.members[: ledger.singles, 0]
        last, self._held_s = kept["last"], np.zeros(len(self._job_indices))
        self._chosen = Chosen([rows[name] for name, _, _ in last], [kind for _, kind, _ in last])
        at = np.searchsorted(self._job_indices, ledger.members[self._chosen.rows, 0])
        self._held_s[at] = [held_s for _, _, held_s in last]
        if not np.array_equal(self._job_indices, view.job_indices):
            return None
        self._job_indices = view.job_indices
        return selection_of(view, ledger, self._chosen)
