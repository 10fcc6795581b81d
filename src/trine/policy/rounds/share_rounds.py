"""Any share policy as a policy: shares are computed at resets, and each round runs who is furthest behind its share.

The shares come from ``policy.lp``, the accounts are kept in ``ledger``, the choice of a round is made in ``select``.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import numpy as np

from trine.core.errors import InputError, unknown_name
from trine.core.params import param
from trine.core.reason import Why
from trine.perf.model import PerfModel
from trine.policy.base import Policy, PolicyError, Ranking
from trine.policy.lp.allocation import Allocation
from trine.policy.lp.base import Memory, SharePolicy
from trine.policy.lp.problem import Problem
from trine.policy.rounds.known import Known
from trine.policy.rounds.ledger import Ledger
from trine.policy.rounds.line import Line
from trine.policy.rounds.problem import Question, entities_of
from trine.policy.rounds.quirks import PassingFifo
from trine.policy.rounds.select import Candidates, Chosen, apart, faster, in_line, select
from trine.policy.view import Floats, Ints, View

HEAD_OF_LINE = ("fifo",)
"""Policies under which nobody without a share overtakes."""
UNAWARE = ("isolated", "proportional")
"""Policies without a parameter ``aware`` that do not use speeds."""
NO_GANGS = ("allox",)
"""Policies that place single GPUs only: gangs get what is left."""
EXACTING = ("makespan",)
PRICED = ("min-cost",)
NOISE = 1e-6
"""Shares this close to 0 or 1 are 0 or 1."""


@dataclass(frozen=True)
class RoundParams:
    """How shares are turned into rounds."""

    reset_gap_s: float = param(1920.0, "seconds between two computations of the shares, at least", minimum=0)
    type_order: tuple[str, ...] = param((), "GPU types in the order in which they are filled; none = fastest first")
    rule: str = param(
        "auto",
        "who goes first: by share over time received, or those furthest behind in seconds; auto = lag with speeds",
        ("auto", "ratio", "lag"),
    )
    stay_rounds: float | None = param(
        None,
        "under the rule lag, a running job gives way only to those further behind by so many rounds; "
        "none = 1, or 0 where all depends on the shares (makespan)",
        minimum=0,
    )
    one_queue: bool = param(False, "choose by priority over all types at once instead of type by type")
    entities: tuple[str, ...] = param(
        (), "weights and rules of groups: GROUP=WEIGHT or GROUP=WEIGHT:fifo, separated by commas"
    )
    rounds_seed: int | None = param(None, "random stream of draws (pairs, types, their order); none = the run's seed")


@dataclass
class ShareRounds(Policy):
    """Gavel's round mechanism around a share policy."""

    shares: SharePolicy
    params: RoundParams = field(default_factory=RoundParams)
    round_s: float = 360.0

    def __post_init__(self) -> None:
        self.name = self.shares.name  # type: ignore[misc]  # each instance stands for another policy
        self.title = self.shares.title  # type: ignore[misc]
        self.problem: Problem | None = None
        self.allocation: Allocation | None = None
        """Question and answer of the last reset."""
        self._entities = entities_of(self.params.entities)
        self._ledger: Ledger | None = None

    def prepare(self, perf: PerfModel) -> None:
        types = perf.cluster.types
        _check_prices(self.name, perf)
        seed = self.params.rounds_seed or 0
        self.memory = Memory(seed)
        self._shuffle = random.Random(seed + 5)
        self._ledger = Ledger(len(types), self.round_s / 2)
        self._known = Known(len(types))
        sharing = bool(getattr(self.shares, "space_sharing", False)) or self.name == "gandiva"
        self._question = Question(perf, sharing, self._entities, self.name == "hierarchical", self.name == "gandiva")
        self._line = Line() if isinstance(self.shares, PassingFifo) else None
        self._types = _type_order(self.params.type_order, perf)
        stay = self.params.stay_rounds
        self._stay_s = self.round_s * (float(self.name not in EXACTING) if stay is None else stay)
        self._blind = not getattr(self.shares, "aware", self.name not in UNAWARE)
        self._capacity: list[int] = []
        self._due = False
        self._whole = False
        """Every share is all or nothing: rounds repeat until something happens."""
        self._told: dict[int, float] = {}
        self._slots: Ints = np.zeros(0, np.int64)
        nobody = Ranking(self._slots, self._slots, exact=True)
        self._last: tuple[Chosen, Ranking, Floats] = (Chosen([], []), nobody, np.zeros(0))
        """What the last round chose, and the time its jobs had held GPUs by then."""

    # -- what the engine asks between rounds ---------------------------------------------------------------------

    @property
    def changes_with_time(self) -> bool:  # type: ignore[override]
        """Not while every share is all or nothing: then each round repeats the last until ``wakes_s``."""
        return self._ledger is None or not self._whole

    @property
    def wakes_s(self) -> float:
        if self._ledger is None or not self._due or self._ledger.reset_s is None:
            return math.inf
        return self._ledger.reset_s + self.params.reset_gap_s

    def ran(self, slot: int, seconds: float) -> None:
        self._told[slot] = seconds
        if seconds <= 0:
            self._due = True

    # -- a round -------------------------------------------------------------------------------------------------

    def rank(self, view: View) -> Ranking:
        ledger = self._ledger
        if ledger is None:
            raise PolicyError(f"policy {self.name}: asked to rank before it was prepared")
        if self._repeats(view, ledger):
            return self._last[1]
        if self._line is not None and not view.compat.idle_until_reset:
            return self._in_line(view, ledger, self._line)
        self._charge(view, ledger)
        stuck = not self._follow(view, ledger) and not self._last[0].rows
        if self._due and (stuck or self._may_reset(view, ledger)):
            self._reset(view, ledger)
        chosen = self._choose(view, ledger)
        ranking = _ranking(view, ledger, chosen)
        self._last = (chosen, ranking, view.attained_s)
        return ranking

    def _in_line(self, view: View, ledger: Ledger, line: Line) -> Ranking:
        """FIFO keeps no accounts: only when everybody chooses again is a matter of resets."""
        self._slots, self._capacity, self._due = view.slots, view.capacity.tolist(), True
        anew = self._may_reset(view, ledger)
        if anew:
            ledger.reset_s, self._due, self._whole = view.now, False, True
        self._last = (self._last[0], line.rank(view, anew), self._last[2])
        return self._last[1]

    def _repeats(self, view: View, ledger: Ledger) -> bool:
        """The last round is right for this one too; what it gives to whom is booked when that ends."""
        if not self._whole or view.slots is not self._slots or self._told or view.compat.shuffled_types:
            return False
        return bool(view.capacity.tolist() == self._capacity) and not (self._due and self._may_reset(view, ledger))

    def _follow(self, view: View, ledger: Ledger) -> bool:
        """Jobs or GPUs came or went."""
        changed = view.slots is not self._slots and ledger.follow(view.slots)
        self._slots = view.slots
        if changed:
            self._known.learn(view)
        capacity = view.capacity.tolist()
        if self._capacity != capacity:
            self._capacity, changed = capacity, True
        if changed:
            self._due = True
            self._rates = self._known.rates(view.slots)
            self._runs = (self._rates > 0) & (view.gpus[:, None] <= view.capacity)
        return changed

    def _charge(self, view: View, ledger: Ledger) -> None:
        """Book what the units of the last round received since, as far as they are still there."""
        chosen, ranking, before = self._last
        if not chosen.rows:
            return
        rows, kinds = ranking.order, ranking.pools
        if kinds is None or len(ledger) > ledger.singles:
            rows, kinds = np.array(chosen.rows, np.int64), np.array(chosen.kinds, np.int64)
        first = ledger.members[:, 0].take(rows)
        if self._told:
            seconds = np.array([self._told.get(slot, 0.0) for slot in first.tolist()])
            self._told.clear()
        else:
            at = rows if len(ledger) == ledger.singles else np.searchsorted(self._slots, first)
            seconds = _since(view, self._slots, before.take(at), first, at)
        ledger.charge(rows, kinds, seconds)

    def _may_reset(self, view: View, ledger: Ledger) -> bool:
        last_s = ledger.reset_s
        if last_s is None or (view.compat.reset_at_zero and last_s == 0):
            return True
        return view.now - last_s >= self.params.reset_gap_s

    def _reset(self, view: View, ledger: Ledger) -> None:
        ledger.settle(view.now, ledger.reset_s or 0.0)
        types = ledger.types
        share, pairs = np.zeros((len(view), types)), np.zeros((0, 2), np.int64)
        pair_share, pair_rates = np.zeros((0, types)), np.zeros((0, 2, types))
        able = self._able(view)
        if len(able):
            found = self._solve(view, able)
            used = np.flatnonzero((found.pair_shares > NOISE).any(axis=1))
            at = np.sort(able[found.pair_jobs[used]], axis=1)
            share[able] = self._question.by_cluster(_clean(found.shares))
            pair_share = self._question.by_cluster(_clean(found.pair_shares[used]))
            pairs, pair_rates = view.slots[at], self._question.pair_rates(view, at)
        ledger.grant(share, pairs, pair_share, pair_rates)
        self._whole = bool(((ledger.share == 0) | (ledger.share == 1)).all())
        self._due = False

    def _able(self, view: View) -> Ints:
        """Positions of the jobs that the policy can give a share now; the others get what is left."""
        return np.flatnonzero(self._runs.any(axis=1) & ((view.gpus == 1) | (self.name not in NO_GANGS)))

    def _solve(self, view: View, able: Ints) -> Allocation:
        self._known.learn(view)
        self.problem = self._question.problem(view, self._known, able)
        self.allocation = self.shares.allocate(self.problem, self.memory)
        return self.allocation

    def fluid(self, view: View) -> tuple[Floats, Floats]:
        """What the shares mean without rounds: steps per second of each job, and its part of the time on each type."""
        ledger = self._ledger
        assert ledger is not None
        self._follow(view, ledger)
        rate, total = np.zeros(len(view)), np.zeros(self._rates.shape)
        able = self._able(view)
        if len(able):
            found = self._solve(view, able)
            rate[able], total[able] = found.effective, self._question.by_cluster(found.total())
        return rate, total

    # -- the choice ----------------------------------------------------------------------------------------------

    def _choose(self, view: View, ledger: Ledger) -> Chosen:
        units = self._candidates(view, ledger)
        idle, strict = view.compat.idle_until_reset, self.name in HEAD_OF_LINE
        may = units.runs if idle else units.runs & ~ledger.fresh[:, None]
        if strict:
            may = may & (units.priority > 0)
        free: list[int] = view.capacity.tolist()
        order = self._order(view)
        behind_s = self._behind_s(view, ledger, units.members) if self._by_lag(view) else None
        chosen = select(units, may, free, order, self.params.one_queue, behind_s)
        if not idle:
            chosen = apart(units, in_line(units, chosen, free, strict), free, ledger.pair_rates)
            return chosen if behind_s is None else faster(units, chosen, free, order)
        kept = [at for at, row in enumerate(chosen.rows) if not ledger.fresh[row]]
        return Chosen([chosen.rows[at] for at in kept], [chosen.kinds[at] for at in kept])

    def _behind_s(self, view: View, ledger: Ledger, members: Ints) -> Floats:
        """How far behind units would be after this round; those that run stay unless others are clearly worse off."""
        behind_s = ledger.behind_s(view.now + self.round_s)
        (rows,), stay_s = view.running.nonzero(), self._stay_s
        behind_s[rows, view.pool.take(rows)] += stay_s
        if len(members) > ledger.singles:
            pool = np.where(view.running, view.pool, -1)
            one, other = pool[members[ledger.singles :]].T
            rows = np.flatnonzero((one >= 0) & (one == other))
            behind_s[rows + ledger.singles, one[rows]] += stay_s
        return behind_s

    def _by_lag(self, view: View) -> bool:
        """Under policies without speeds the ratio serves better: it lets small gangs go first after a reset."""
        if self._whole or view.compat.ratio_priority or self.params.rule == "ratio":
            return False
        return self.params.rule == "lag" or not (self._blind or self._question.everywhere)

    def _candidates(self, view: View, ledger: Ledger) -> Candidates:
        members, gang, runs = ledger.members, view.gpus, self._runs
        if len(members) > ledger.singles:
            members = _positions(view, members)
            runs = np.concatenate((runs, (ledger.pair_rates > 0).all(axis=1)))
            gang = gang[members[:, 0]]
        return Candidates(members, gang, runs, ledger.priority(runs), ledger.owed_s, ledger.share, self._rates)

    def _order(self, view: View) -> list[int]:
        """Types in the order in which they are filled."""
        if not (view.compat.shuffled_types and self._blind):
            return self._types
        order = list(self._types)
        self._shuffle.shuffle(order)
        return order


def _type_order(named: tuple[str, ...], perf: PerfModel) -> list[int]:
    """Indices of the types: as named, then from fast to slow over all models of the throughput table."""
    types = [name.lower() for name in perf.cluster.types]
    unknown = [name for name in named if name.lower() not in types]
    if unknown:
        raise unknown_name("--set", "GPU type", unknown[0], types, "type_order")
    rates = np.array([[row.get(name, 0.0) for name in types] for row in perf.throughputs.rates.values()])
    rates = rates.reshape(-1, len(types))
    best = rates.max(axis=1, initial=0.0, keepdims=True)
    speed = np.divide(rates, best, out=np.zeros_like(rates), where=best > 0).sum(axis=0)
    first = [types.index(name.lower()) for name in named]
    return list(dict.fromkeys(first + np.argsort(-speed, kind="stable").tolist()))


def _check_prices(name: str, perf: PerfModel) -> None:
    """A policy that needs prices says so before the first job comes."""
    prices = perf.cluster.prices_per_gpu_h
    missing = [gpu_type for gpu_type in perf.cluster.types if not prices.get(gpu_type, 0.0) > 0]
    if name in PRICED and missing:
        raise InputError(
            "cluster",
            f"no price for {missing[0]}",
            f"a price for every GPU type: {name} needs it",
            "prices_per_gpu_hour",
        )


def _since(view: View, slots: Ints, was: Floats, first: Ints, at: Ints) -> Floats:
    """Seconds that the jobs ``first``, at the positions ``at`` in ``slots``, held GPUs since they had held them for
    ``was``; 0 for those that left.
    """
    if view.slots is slots:
        return np.asarray(view.attained_s.take(at) - was, np.float64)
    if not len(view):
        return np.zeros(len(first))
    at = np.minimum(view.slots.searchsorted(first), len(view) - 1)
    return np.where(view.slots.take(at) == first, view.attained_s.take(at) - was, 0.0)


def _positions(view: View, members: Ints) -> Ints:
    """Job numbers as positions in the view; -1 stays."""
    return np.where(members >= 0, np.searchsorted(view.slots, members), -1)


def _ranking(view: View, ledger: Ledger, chosen: Chosen) -> Ranking:
    """In the order of choice; the jobs of a pair one after the other."""
    rows, kinds = np.array(chosen.rows, np.int64), np.array(chosen.kinds, np.int64)
    if len(ledger) == ledger.singles:
        return Ranking(rows, kinds, Why.NOT_DECIDED, exact=True)
    members = _positions(view, ledger.members[rows])
    there = members >= 0
    place = np.cumsum(there.ravel()).reshape(-1, 2) - 1
    partners = np.where(there.all(axis=1, keepdims=True), place[:, ::-1], -1)[there]
    return Ranking(members[there], np.repeat(kinds, there.sum(axis=1)), exact=True, partners=partners)


def _clean(share: Floats) -> Floats:
    """Without the noise of a solver, so that whole shares are seen as such."""
    found = np.where(share < NOISE, 0.0, share)
    return np.where(found > 1 - NOISE, 1.0, found)
