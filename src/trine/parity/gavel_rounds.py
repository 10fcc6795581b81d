"""Rounds as Gavel's published simulator has them, where they differ from ``policy.shares.rounds``.

Each field of ``GavelConventions`` is one flag of ``--set compat.NAME``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

import numpy as np

from trine.parity.flags import Compat
from trine.policy.shares.allocation import Allocation
from trine.policy.shares.rounds.priority_rounds import Queueing, RoundConventions
from trine.policy.shares.rounds.round_selection import Candidates, Chosen, select
from trine.policy.shares.rounds.share_ledger import UNSERVED, PairRates, ShareLedger
from trine.policy.view import Flags, Floats, Ints, View

SHUFFLE_STREAM = 5
"""Added to the seed of the rounds, so that the order of types is drawn apart from pairs and types."""


@dataclass
class GavelConventions(RoundConventions):
    """What the published mechanism does differently."""

    idle_until_reset: bool = False
    """GPUs chosen for a job that arrived since the last reset stay idle."""
    reset_at_zero: bool = False
    """A reset at time 0 counts as none: the next change resets again at once."""
    ratio_priority: bool = False
    """Units are chosen by share over time received under every policy."""
    shuffled_types: bool = False
    """Under policies that do not use speeds, types are filled in random order, another every round."""
    every_pair: bool = False
    """Pairs without a share have accounts too."""
    centre_of_optima: bool = False
    """Of several optima, the middle."""

    def __post_init__(self) -> None:
        self.uses_deficits = not (self.ratio_priority or self.idle_until_reset)
        self.serves_arrivals = not self.idle_until_reset
        self.fills_leftover = not self.centre_of_optima
        self.repeats_whole = not self.shuffled_types
        self._shuffle: random.Random | None = None

    def prepare(self, seed: int, aware: bool) -> None:
        self._shuffle = random.Random(seed + SHUFFLE_STREAM) if self.shuffled_types and not aware else None

    def ledger(self, types: int, head_start_s: float, space_sharing: bool) -> ShareLedger:
        return (EveryPairLedger if space_sharing and self.every_pair else ShareLedger)(types, head_start_s)

    def may_reset(self, now: float, last_s: float, gap_s: float) -> bool:
        return (self.reset_at_zero and last_s == 0) or super().may_reset(now, last_s, gap_s)

    def noise(self, found: Allocation) -> float:
        """The published code rounds nothing: shares of its interior point stay as they are."""
        return 0.0 if found.solver == "embedding" else super().noise(found)

    def type_order(self, order: list[int]) -> list[int]:
        if self._shuffle is None:
            return order
        drawn = list(order)
        self._shuffle.shuffle(drawn)
        return drawn

    def choose(
        self, units: Candidates, ledger: ShareLedger, free: list[int], order: list[int], queueing: Queueing
    ) -> Chosen:
        if not self.idle_until_reset:
            return super().choose(units, ledger, free, order, queueing)
        may = units.runs & (units.priority > 0) if queueing.strict else units.runs
        chosen = select(units, may, free, order, queueing.one_queue)
        kept = [at for at, row in enumerate(chosen.rows) if not ledger.fresh[row]]
        return Chosen([chosen.rows[at] for at in kept], [chosen.type_indices[at] for at in kept])


def round_conventions(compat: Compat) -> RoundConventions:
    """Those that the flags ask for; trine's own without any."""
    flags = {f.name: getattr(compat, f.name) for f in fields(GavelConventions)}
    return GavelConventions(**flags) if any(flags.values()) else RoundConventions()


@dataclass
class EveryPairLedger(ShareLedger):
    """The accounts of the published mechanism with space sharing: one for any two jobs of equal gangs, share or not.

    They grow as jobs squared. Pairs without a share take GPUs that are left, and a job whose co-runner left gets
    nothing of the share they had. A new pair has received nothing, not even the head start, so that its first reset
    owes it that much.
    """

    def __post_init__(self) -> None:
        ShareLedger.__post_init__(self)
        self._met: Ints = np.zeros(0, np.int64)

    def add_pairs(self, view: View, measured: PairRates) -> None:
        """Open accounts for the pairs of new jobs with all others, where the two can run together at all."""
        new = ~np.isin(view.job_indices, self._met)
        self._met = view.job_indices
        at = np.argwhere(np.triu((new[:, None] | new) & (view.gpus[:, None] == view.gpus), 1))
        rates = measured(view, at)
        runs: Flags = np.any((rates > 0).all(axis=1), axis=1)
        at, nothing = at[runs], np.zeros((int(runs.sum()), self.types))
        self.members = np.concatenate((self.members, view.job_indices[at].reshape(-1, 2)))
        self.pair_rates = np.concatenate((self.pair_rates, rates[runs]))
        self.share, self.owed_s, self.received_s = (
            np.concatenate((column, nothing)) for column in (self.share, self.owed_s, self.received_s)
        )
        self.fresh = np.concatenate((self.fresh, np.ones(len(at), np.bool_)))

    def _kept_pairs(self, old: Ints, pairs: Ints, job_indices: Ints) -> Ints:
        del old
        return np.flatnonzero(np.isin(pairs, job_indices).all(axis=1))

    def grant(self, share: Floats, pairs: Ints, pair_share: Floats, pair_rates: Floats) -> None:
        del pair_rates  # all are known since the two met
        self.share = np.zeros(self.share.shape)
        self.share[: self.singles] = share
        row_of = {(a, b): row for row, (a, b) in enumerate(self.members.tolist())}
        for (a, b), part in zip(pairs.tolist(), pair_share, strict=True):
            self.share[row_of[a, b]] = part
        self.fresh = np.zeros(len(self.members), np.bool_)

    def priority(self, runs: Flags) -> Floats:
        part = np.divide(self.received_s, self.given_s, out=np.zeros_like(self.received_s), where=self.given_s > 0)
        priority = np.divide(self.share, part, out=self.share * UNSERVED, where=part > 0)
        return np.where(runs, priority, 0.0)
