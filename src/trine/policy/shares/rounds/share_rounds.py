"""Any share policy as a policy: shares are computed at resets, and each round runs who is furthest behind its share.

The shares come from ``policy.shares``. They are realised by accounts of seconds (``turns``), by share over time
received (``ratio``) or, where they are whole GPUs in order of arrival, without accounts (``line``).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trine.perf.model import PerfModel
from trine.policy.base import Policy, PolicyError, Selection
from trine.policy.shares.allocation import Allocation
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.problem import Problem
from trine.policy.shares.rounds.accounts import Numbers, memory_state, restore_memory
from trine.policy.shares.rounds.estimates import Estimates
from trine.policy.shares.rounds.every_pair import EveryPair
from trine.policy.shares.rounds.known import Known
from trine.policy.shares.rounds.ledger import Ledger
from trine.policy.shares.rounds.line import Line
from trine.policy.shares.rounds.params import RoundParams, type_order
from trine.policy.shares.rounds.problem import Question, entities_of
from trine.policy.shares.rounds.quirks import HastyGandiva, PassingFifo
from trine.policy.shares.rounds.ratio import Ratio
from trine.policy.shares.rounds.tariff import PRICED, Tariff
from trine.policy.shares.rounds.turns import Turns
from trine.policy.view import Floats, Ints, View

HEAD_OF_LINE = ("fifo",)
"""Policies under which nobody without a share overtakes."""
UNAWARE = ("isolated", "proportional")
"""Policies without a parameter ``aware`` that do not use speeds."""
NO_GANGS = ("allox",)
"""Policies that place single GPUs only: gangs get what is left."""
EXACTING = ("makespan",)
"""Policies under which the last job counts: nobody stays at the cost of others."""
EARLY_ROUNDS = 2.0
"""So many rounds, and those others stay, a job can be behind its share: deadlines are planned that much earlier."""
NOISE = 1e-6
"""Shares this close to 0 or 1 are 0 or 1."""


@dataclass
class ShareRounds(Policy):
    """Gavel's round mechanism around a share policy."""

    shares: SharePolicy
    params: RoundParams = field(default_factory=RoundParams)
    round_s: float = 360.0
    every_pair: bool = False
    """Pairs without a share have accounts too (``compat.every_pair``)."""

    def __post_init__(self) -> None:
        self.name = self.shares.name  # type: ignore[misc]  # each instance stands for another policy
        self.title = self.shares.title  # type: ignore[misc]
        self.problem: Problem | None = None
        self.allocation: Allocation | None = None
        """Question and answer of the last reset."""
        self._entities = entities_of(self.params.entities)
        self._ratio: Ratio | None = None

    def prepare(self, perf: PerfModel) -> None:
        types = perf.cluster.types
        self._tariff = Tariff(self.name, perf.cluster)
        seed = self.params.rounds_seed or 0
        self.memory = Memory(seed)
        sharing = bool(getattr(self.shares, "space_sharing", False)) or self.name == "gandiva"
        wanted, told = sharing and self.params.references > 0, self.params
        self.estimates = Estimates(perf, told.references, told.profiled, seed) if wanted else None
        seen = perf if self.estimates is None else self.estimates.believed
        everywhere = self.name == "gandiva" and not isinstance(self.shares, HastyGandiva)
        self._question = Question(
            seen, sharing, self._entities, self.name == "hierarchical", everywhere, timeless=self.shares.timeless
        )
        self._known = Known(len(types), self._question.columns)
        self._line = Line() if isinstance(self.shares, PassingFifo) else None
        self._types = type_order(self.params.type_order, perf)
        self._no_pairs = (np.zeros((0, 2), np.int64), np.zeros((0, len(types))), np.zeros((0, 2, len(types))))
        self._blind = not getattr(self.shares, "aware", self.name not in UNAWARE)
        ledger = (EveryPair if sharing and self.every_pair else Ledger)(len(types), self.round_s / 2)
        shuffle, strict = random.Random(seed + 5) if self._blind else None, self.name in HEAD_OF_LINE
        self._ratio = Ratio(ledger, self._known, self._question, self._types, told.one_queue, strict, shuffle)
        self._turns: Turns | None = None
        """Where shares are realised by accounts of seconds; those of the ratio are empty then."""
        self._reset_s: float | None = None
        """When shares were computed last."""
        self._capacity: list[int] = []
        self._due = False
        self._whole = False
        """Every share is all or nothing: rounds repeat until something happens."""
        self._told: dict[int, float] = {}
        self._job_indices: Ints = np.zeros(0, np.int64)
        self._last = Selection({})

    def notes(self) -> list[str]:
        if self.estimates is None and self.params.references:
            return [f"references={self.params.references} changed nothing: {self.name} formed no pairs of jobs."]
        return [] if self.estimates is None else self.estimates.notes()

    # -- what the engine asks between rounds ---------------------------------------------------------------------

    @property
    def changes_with_time(self) -> bool:  # type: ignore[override]
        """Not while each round repeats the last until ``wakes_s``."""
        return not self._whole and self._turns is None

    @property
    def wakes_s(self) -> float:
        turn_s = self._tariff.next_s if self._turns is None else min(self._turns.turn_s, self._tariff.next_s)
        if not self._due or self._reset_s is None:
            return turn_s
        return min(turn_s, self._next_reset_s(self._reset_s))

    def _next_reset_s(self, last_s: float) -> float:
        """The first moment that ``_may_reset`` accepts, whatever rounding makes of the sum."""
        soon_s = last_s + self.params.reset_gap_s
        return soon_s if soon_s - last_s >= self.params.reset_gap_s else math.nextafter(soon_s, math.inf)

    def ran(self, job_index: int, seconds: float) -> None:
        self._told[job_index] = seconds
        if seconds <= 0:
            self._due = True

    # -- a round -------------------------------------------------------------------------------------------------

    def rank(self, view: View) -> Selection:
        if self._ratio is None:
            raise PolicyError(f"policy {self.name}: asked to rank before it was prepared")
        if self._reset_s is None:
            self._begin(view)
        self._due |= self._tariff.changed(view.now)
        same = self._same_jobs(view)
        if same and self._repeats(view):
            return self._last
        if view.news is None:
            self._job_indices = view.job_indices
        if self._turns is not None:
            self._last = self._take_turns(view, self._turns, same)
        elif self._line is not None and not view.compat.idle_until_reset:
            self._last = self._in_line(view, self._line)
        else:
            self._last = self._choose_anew(view, self._ratio)
        if self.estimates is not None and self.estimates.watch(view, self._last):
            self._question.forget_pairs()
            self._due = True
        return self._last

    def _begin(self, view: View) -> None:
        """The first round: how shares are realised from now on."""
        self.memory.generous = self.params.leftover == "gain" and not view.compat.centre_of_optima
        if self._line is not None and not view.compat.idle_until_reset:
            return
        if self._by_turns(view):
            stay = self.params.stay_rounds
            stay_s = self.round_s * (float(self.name not in EXACTING) if stay is None else stay)
            self._turns = Turns(len(self._types), self._types, stay_s, self.round_s, upgrades=self.name not in PRICED)
            self._question = replace(self._question, early_s=stay_s + EARLY_ROUNDS * self.round_s)

    def _by_turns(self, view: View) -> bool:
        """Under policies without speeds the ratio serves better: it lets small gangs go first after a reset."""
        if view.compat.ratio_priority or view.compat.idle_until_reset or self.params.rule == "ratio":
            return False
        return self.params.rule == "lag" or not (self._blind or self.name == "gandiva")

    def _take_turns(self, view: View, turns: Turns, same: bool) -> Selection:
        came = not same and turns.follow(view)
        moved = view.gpus_by_type != self._capacity
        self._capacity, self._due = view.gpus_by_type, self._due or came or moved
        turns.charge(view)
        if self._due and self._may_reset(view):
            self._known.learn(view)
            turns.grant(view, *self._new_shares(view))
        elif not moved and view.now < turns.turn_s - NOISE * self.round_s:
            return turns.go_on()
        return turns.choose(view)

    def _in_line(self, view: View, line: Line) -> Selection:
        """FIFO keeps no accounts: only when everybody chooses again is a matter of resets."""
        self._capacity, self._whole = view.gpus_by_type, True
        self._due |= line.follow(view)
        anew = self._reset_s is None or (self._due and self._may_reset(view))
        if anew:
            self._reset_s, self._due = view.now, False
        return line.choose(view, anew)

    def _choose_anew(self, view: View, ratio: Ratio) -> Selection:
        """By share over time received."""
        ratio.charge(view, self._told)
        came, moved = ratio.follow(view), view.gpus_by_type != self._capacity
        if came or moved:
            self._capacity, self._due = view.gpus_by_type, True
            ratio.look_up(view)
        stuck = not came and not moved and ratio.idle
        if self._due and (stuck or self._may_reset(view)):
            ratio.grant(view.now, self._reset_s or 0.0, *self._new_shares(view))
            self._whole = ratio.whole
        return ratio.choose(view)

    def _repeats(self, view: View) -> bool:
        """With the same jobs, the last round is right for this one too; what it gives is booked when that ends."""
        turns = self._turns
        if turns is None:
            quiet = self._whole and not self._told and not view.compat.shuffled_types
        else:
            quiet = view.now < turns.turn_s - NOISE * self.round_s
        if not quiet or view.gpus_by_type != self._capacity:
            return False
        return not (self._due and self._may_reset(view))

    def _same_jobs(self, view: View) -> bool:
        """Nobody came or left since the last round."""
        return view.job_indices is self._job_indices if view.news is None else view.news == ([], [])

    def _may_reset(self, view: View) -> bool:
        if self._reset_s is None or (view.compat.reset_at_zero and self._reset_s == 0):
            return True
        return view.now - self._reset_s >= self.params.reset_gap_s

    def _new_shares(self, view: View) -> tuple[Floats, Ints, Floats, Floats]:
        """Shares by job, pairs (job numbers, the lower first), their shares, and the speed of either."""
        self._reset_s, self._due = view.now, False
        able = self._able(view)
        if not len(able):
            return np.zeros((len(view), len(self._types))), *self._no_pairs
        found = self._solve(view, able)
        noise = 0.0 if found.solver == "embedding" else NOISE  # the published code rounds nothing
        own = self._question.by_cluster(_clean(found.shares, noise))
        if len(able) == len(view):
            share = own
        else:
            share = np.zeros((len(view), len(self._types)))
            share[able] = own
        used = np.flatnonzero((found.pair_shares > noise).any(axis=1)) if len(found.pair_shares) else ()
        if not len(used):
            return share, *self._no_pairs
        at = np.sort(able[found.pair_jobs[used]], axis=1)
        pair_share = self._question.by_cluster(_clean(found.pair_shares[used], noise))
        return share, view.job_indices[at], pair_share, self._question.pair_rates(view, at, self._known)

    def _able(self, view: View) -> Ints:
        """Positions of the jobs that the policy can give a share now; the others get what is left."""
        able = self._known.able(view.job_indices)
        return (able & (view.gpus == 1) if self.name in NO_GANGS else able).nonzero()[0]

    def _solve(self, view: View, able: Ints) -> Allocation:
        self.problem = self._question.problem(view, self._known, able)
        self.allocation = self.shares.allocate(self.problem, self.memory)
        return self.allocation

    def fluid(self, view: View) -> tuple[Floats, Floats]:
        """What the shares mean without rounds: steps per second of each job, and its part of the time on each type."""
        self._known.learn(view)
        self._tariff.changed(view.now)
        rate, total = np.zeros(len(view)), np.zeros((len(view), len(self._types)))
        able = self._able(view)
        if len(able):
            found = self._solve(view, able)
            rate[able], total[able] = found.effective, self._question.by_cluster(found.total())
        return rate, total

    # -- on record -----------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        if self._ratio is None or self._reset_s is None:
            return {}
        found = memory_state(self.memory, view)
        found |= {"due": self._due, "whole": self._whole, "capacity": self._capacity, "reset_s": self._reset_s}
        if self._turns is not None:
            return found | self._turns.state(view)
        if self._line is not None:
            return found | {"line": self._line.state(view) if len(view) else {}}
        return found | self._ratio.state(view)

    def restore(self, kept: dict[str, Any], view: View, stale: bool) -> None:
        numbers = Numbers(view)
        self._begin(view)
        restore_memory(self.memory, kept, numbers)
        self._reset_s, self._capacity = kept["reset_s"], list(kept["capacity"])
        self._due, self._whole = kept["due"] or stale, kept["whole"]
        self._known.learn(view)
        if self._turns is not None:
            left = self._turns.restore(kept, self._capacity, view)
            self._due |= left
            if not left and len(self._turns.accounts) == len(view):  # nothing has happened: the next round may repeat
                self._job_indices, self._last = view.job_indices, self._turns.selection()
        elif self._line is not None:
            self._line.restore(kept["line"], list(self._capacity), view)
            if kept["line"].keys() == {view.name(job_index) for job_index in view.job_indices.tolist()}:
                self._job_indices, self._last = view.job_indices, self._line.choose(view, False)
        elif self._ratio is not None:
            running = self._ratio.restore(kept, view, numbers)
            if running is None:
                self._capacity = []  # the next round looks at everything again
            else:
                self._job_indices, self._last = view.job_indices, running


def _clean(share: Floats, noise: float) -> Floats:
    """Without the noise of a solver, so that whole shares are seen as such."""
    whole = np.rint(share)
    return np.where(np.abs(share - whole) <= noise, whole, share)
