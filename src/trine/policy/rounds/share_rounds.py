"""Any share policy as a policy: shares are computed at resets, and each round runs who is furthest behind its share.

The shares come from ``policy.lp``, the accounts are kept in ``ledger``, the choice of a round is made in ``select``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trine.core.params import param
from trine.core.reason import Why
from trine.perf.model import PerfModel
from trine.policy.base import Policy, Ranking
from trine.policy.lp.allocation import Allocation
from trine.policy.lp.base import Memory, SharePolicy
from trine.policy.lp.problem import Problem
from trine.policy.rounds.ledger import Ledger
from trine.policy.rounds.problem import Question, entities_of
from trine.policy.rounds.select import Candidates, Chosen, in_line, select
from trine.policy.view import Flags, Floats, Ints, View

HEAD_OF_LINE = ("fifo",)
"""Policies under which nobody without a share overtakes."""
UNAWARE = ("isolated", "proportional")
NOISE = 1e-6
"""Shares this close to 0 or 1 are 0 or 1."""


@dataclass(frozen=True)
class RoundParams:
    """How shares are turned into rounds."""

    reset_gap_s: float = param(1920.0, "seconds between two computations of the shares, at least", minimum=0)
    type_order: tuple[str, ...] = param(
        (), "GPU types in the order in which they are filled; none = fastest first"
    )
    one_queue: bool = param(False, "choose by priority over all types at once instead of type by type")
    entities: tuple[str, ...] = param(
        (), "weights and rules of groups: GROUP=WEIGHT or GROUP=WEIGHT:fifo, separated by commas"
    )
    rounds_seed: int = param(0, "random stream of the order of types and of policies that draw")


@dataclass
class ShareRounds(Policy):
    """Gavel's round mechanism around a share policy."""

    shares: SharePolicy
    params: RoundParams = field(default_factory=RoundParams)
    round_s: float = 360.0

    def __post_init__(self) -> None:
        self.name = self.shares.name  # type: ignore[misc]  # each instance stands for another policy
        self.title = self.shares.title  # type: ignore[misc]
        self.memory = Memory(self.params.rounds_seed)
        self._shuffle = random.Random(self.params.rounds_seed + 5)
        self._perf: PerfModel | None = None
        self._steady = False
        self._due = False
        self._capacity: Ints = np.zeros(0, np.int64)
        self._told: dict[int, float] = {}
        self._last: tuple[Chosen, Floats] | None = None
        """What the last round chose, and the time its jobs had held GPUs by then."""
        self._entities = entities_of(self.params.entities)
        self.problem: Problem | None = None
        self.allocation: Allocation | None = None
        """Question and answer of the last reset."""

    def prepare(self, perf: PerfModel) -> None:
        self._perf = perf
        types = perf.cluster.types
        self._ledger = Ledger(len(types), self.round_s / 2)
        sharing = bool(getattr(self.shares, "space_sharing", False)) or self.name == "gandiva"
        self._question = Question(perf, sharing, self._entities, self.name == "hierarchical")
        self._by_name = {name.lower(): index for index, name in enumerate(types)}

    @property
    def changes_with_time(self) -> bool:  # type: ignore[override]
        """No only while every share is all or nothing and no reset is due: then each round repeats the last."""
        return not self._steady

    def ran(self, slot: int, seconds: float) -> None:
        self._told[slot] = seconds
        if seconds <= 0:
            self._due = True

    # -- a round -------------------------------------------------------------------------------------------------

    def rank(self, view: View) -> Ranking:
        self._charge(view)
        if self._ledger.follow(view.slots):
            self._due = True
            self._rates = view.rates()
        if not np.array_equal(self._capacity, view.capacity):
            self._capacity, self._due = view.capacity, True
        if self._due and self._may_reset(view):
            self._reset(view)
        chosen = self._choose(view)
        self._last = (chosen, view.attained_s)
        self._told.clear()
        self._steady = not self._due and bool(((self._ledger.share == 0) | (self._ledger.share == 1)).all())
        return self._ranking(view, chosen)

    def _charge(self, view: View) -> None:
        """Book what the units of the last round received since, as far as they are still there."""
        if self._last is None:
            return
        (chosen, before), ledger = self._last, self._ledger
        first = ledger.members[chosen.rows, 0]
        slots = ledger.members[: ledger.singles, 0]
        at = np.minimum(np.searchsorted(view.slots, first), max(len(view) - 1, 0))
        there = view.slots[at] == first if len(view) else np.zeros(len(first), np.bool_)
        seconds = np.zeros(len(first))
        was = before[np.searchsorted(slots, first)]
        seconds[there] = view.attained_s[at[there]] - was[there]
        if self._told:
            seconds = np.array([self._told.get(s, 0.0) for s in first.tolist()])
        ledger.charge(chosen.rows, chosen.kinds, seconds)

    def _may_reset(self, view: View) -> bool:
        last_s = self._ledger.reset_s
        never = last_s is None or (view.compat.reset_at_zero and last_s == 0)
        return never or view.now - (last_s or 0.0) >= self.params.reset_gap_s

    def _reset(self, view: View) -> None:
        ledger = self._ledger
        ledger.settle(view.now, ledger.reset_s or 0.0)
        self._rates = view.rates()
        self.problem = self._question.problem(view, self._rates)
        found = self.allocation = self.shares.allocate(self.problem, self.memory)
        used = np.flatnonzero((found.pair_shares > NOISE).any(axis=1))
        pairs = np.sort(view.slots[found.pair_jobs[used]], axis=1)
        by_cluster = self._question.by_cluster
        ledger.grant(by_cluster(_clean(found.shares)), pairs, by_cluster(_clean(found.pair_shares[used])))
        self._due = False

    # -- the choice ----------------------------------------------------------------------------------------------

    def _choose(self, view: View) -> Chosen:
        units = self._candidates(view)
        idle = view.compat.idle_until_reset
        served_only = self.name in HEAD_OF_LINE
        chosen = select(units, view.capacity.tolist(), self._order(view), served_only, self.params.one_queue)
        if idle:
            kept = ~self._ledger.fresh[chosen.rows]
            return Chosen(chosen.rows[kept], chosen.kinds[kept])
        return in_line(units, chosen, view.capacity.tolist(), served_only)

    def _candidates(self, view: View) -> Candidates:
        ledger = self._ledger
        members = np.searchsorted(view.slots, ledger.members)
        members[: ledger.singles, 1] = -1
        gang = view.gpus[members[:, 0]]
        runs = (self._rates > 0) & (view.gpus[:, None] <= view.capacity)
        if len(members) > ledger.singles:
            runs = np.concatenate((runs, ledger.share[ledger.singles :] > 0))
        waits = ledger.fresh & (not view.compat.idle_until_reset)
        return Candidates(
            members, gang, runs, ledger.priority(runs), ledger.owed_s, ledger.share, waits, self._rates
        )

    def _order(self, view: View) -> list[int]:
        """Types in the order in which they are filled."""
        named = [self._by_name[t.lower()] for t in self.params.type_order if t.lower() in self._by_name]
        rest = [j for j in self._fastest_first() if j not in named]
        order = named + rest
        if view.compat.shuffled_types and not getattr(self.shares, "aware", self.name not in UNAWARE):
            self._shuffle.shuffle(order)
        return order

    def _fastest_first(self) -> Sequence[int]:
        best = self._rates.max(axis=1, initial=0.0, keepdims=True)
        relative = np.divide(self._rates, best, out=np.zeros_like(self._rates), where=best > 0).sum(axis=0)
        order: list[int] = np.argsort(-relative, kind="stable").tolist()
        return order

    def _ranking(self, view: View, chosen: Chosen) -> Ranking:
        """Gangs from large to small within a type; the jobs of a pair one after the other."""
        members = np.searchsorted(view.slots, self._ledger.members[chosen.rows])
        members[self._ledger.members[chosen.rows, 1] < 0, 1] = -1
        big_first = np.argsort(-view.gpus[members[:, 0]], kind="stable") if len(members) else np.zeros(0, np.int64)
        members, kinds = members[big_first], chosen.kinds[big_first]
        paired = members[:, 1] >= 0
        if not paired.any():
            return Ranking(members[:, 0], kinds, Why.NOT_DECIDED, exact=True)
        there = np.stack((np.ones(len(members), np.bool_), paired), axis=1)
        place = np.cumsum(there.ravel()).reshape(-1, 2) - 1
        partners = np.where(paired[:, None], place[:, ::-1], -1)[there]
        return Ranking(members[there], np.repeat(kinds, 1 + paired), Why.NOT_DECIDED, exact=True, partners=partners)


def _clean(share: Floats) -> Floats:
    """Without the noise of a solver, so that whole shares are seen as such."""
    found = np.where(share < NOISE, 0.0, share)
    return np.where(found > 1 - NOISE, 1.0, found)


