"""From pairs of classes to pairs of jobs, and the program over all pairs of jobs as a reference for small cases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trine.policy.shares.solver.form import Array, Index
from trine.policy.shares.solver.pairs import PairSolver, SharedAnswer, SharingClasses


@dataclass(frozen=True)
class JobPairs:
    """``jobs`` (pair, 2) with first < second, and their time together per type."""

    jobs: Index
    shares: Array


def split(answer: SharedAnswer, kinds: SharingClasses, member_of: Index, smallest: float = 1e-12) -> JobPairs:
    """Time of two classes spread evenly over all pairs of their jobs; pairs with less than ``smallest`` are left out.

    ``member_of`` is the class of every job. Even is what the published formula gives when equal jobs are equal.
    """
    members = [np.flatnonzero(member_of == kind) for kind in range(len(kinds.gang))]
    jobs, shares = [np.zeros((0, 2), dtype=np.intp)], [np.zeros((0, answer.shared.shape[1]))]
    for pair in np.flatnonzero(answer.shared.sum(axis=1) > smallest).tolist():
        (first, second), time = kinds.pair[pair].tolist(), answer.shared[pair]
        one, two = _all_pairs(members[first], members[second], same=first == second)
        jobs.append(np.stack((np.minimum(one, two), np.maximum(one, two)), axis=1))
        shares.append(np.tile(time / len(one), (len(one), 1)))
    return JobPairs(np.concatenate(jobs), np.concatenate(shares))


def _all_pairs(one: Index, two: Index, same: bool) -> tuple[Index, Index]:
    if same:
        first, second = np.triu_indices(len(one), 1)
        return one[first], one[second]
    return np.repeat(one, len(two)), np.tile(two, len(one))


def unmerged(kinds: SharingClasses, member_of: Index) -> PairSolver:
    """The same problem with every job a class of its own; its columns grow as jobs squared."""
    allowed = {(int(a), int(b)): k for k, (a, b) in enumerate(kinds.pair)}
    pair, rates = [], []
    for one in range(len(member_of)):
        for two in range(one + 1, len(member_of)):
            a, b = int(member_of[one]), int(member_of[two])
            number = allowed.get((min(a, b), max(a, b)))
            if number is None:
                continue
            pair.append((one, two))
            made = kinds.pair_rates[number]
            rates.append(
                made.mean(axis=1, keepdims=True).repeat(2, axis=1) if a == b else made if a < b else made[:, ::-1]
            )
    return PairSolver(
        SharingClasses(
            kinds.rates[member_of],
            kinds.gang[member_of],
            kinds.capacity,
            np.array(pair, dtype=np.intp).reshape(-1, 2),
            np.array(rates, dtype=np.float64).reshape(-1, len(kinds.capacity), 2),
        )
    )
