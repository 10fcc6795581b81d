"""The accounts of the published mechanism with space sharing: one for any two jobs of equal gangs, share or no share.

Only under ``compat.every_pair``: the accounts grow as jobs squared. Pairs without a share take GPUs that are left, and
who loses its partner gets nothing of the share they had.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trine.policy.shares.rounds.ledger import UNSERVED, Ledger
from trine.policy.shares.rounds.problem import Question
from trine.policy.view import Flags, Floats, Ints, View


@dataclass
class EveryPair(Ledger):
    """A new pair has received nothing, not even the head start, so that its first reset owes it that much."""

    def __post_init__(self) -> None:
        Ledger.__post_init__(self)
        self._met: Ints = np.zeros(0, np.int64)

    def meet(self, view: View, question: Question) -> None:
        """Open accounts for the pairs of new jobs with all others, where the two can run together at all."""
        new = ~np.isin(view.job_indices, self._met)
        self._met = view.job_indices
        at = np.argwhere(np.triu((new[:, None] | new) & (view.gpus[:, None] == view.gpus), 1))
        rates = question.measured_pairs(view, at)
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
