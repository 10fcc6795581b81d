"""Gandiva: equal time for everybody; when GPUs are short, random pairs share GPUs as long as that pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.lp.allocation import Allocation, allocation, exact
from trine.policy.lp.base import Memory, SharePolicy
from trine.policy.lp.problem import Problem
from trine.policy.view import Floats, Ints


@dataclass
class Gandiva(SharePolicy):
    """Types are treated alike. While all gangs fit at once every job gets the same time. Otherwise jobs of equal gangs
    are paired at random; a pair persists until one of the two is gone or its throughput, relative to running alone and
    summed over types, is below ``keep_above``. Pairs and single jobs then get equal time.

    The objective reported is the smallest share of time any job gets.
    """

    name: ClassVar[str] = "gandiva"
    title: ClassVar[str] = "equal time, with random pairs on shared GPUs when they are short"
    paper: ClassVar[str] = "Gandiva (OSDI'18); Gavel (OSDI'20), section 7"
    objective: ClassVar[str] = "smallest share of time"

    keep_above: float = param(
        1.0, "relative throughput of a pair, summed over types, below which it is split", minimum=0
    )

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        if problem.gang.sum() <= problem.capacity.sum() or not len(problem.pair_rows):
            return _equal_time(problem, np.zeros(0, np.int64))
        gain = _pair_gain(problem)
        rows = {frozenset(problem.ids[i] for i in jobs): k for k, jobs in enumerate(problem.pair_rows.jobs.tolist())}
        _forget(memory, problem, rows, gain, self.keep_above)
        _draw(memory, problem)
        _forget(memory, problem, rows, gain, self.keep_above)
        kept = {rows[frozenset(pair)] for pair in memory.partners.items()}
        return _equal_time(problem, np.array(sorted(kept), np.int64))

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        partner: dict[int, int] = {}
        for (a, b), row in zip(found.pair_jobs.tolist(), found.pair_shares, strict=True):
            if row.any():
                partner |= {a: b, b: a}
        return [
            f"equal time, on the same GPUs as job {problem.ids[partner[i]]}" if i in partner else "equal time, alone"
            for i in range(len(problem))
        ]


def _equal_time(problem: Problem, rows: Ints) -> Allocation:
    """The same time for every single job and every pair in ``rows``."""
    paired = np.zeros(len(problem), bool)
    paired[problem.pair_rows.jobs[rows].ravel()] = True
    count = len(problem) - len(rows)
    x = np.where(paired[:, None], 0.0, _share(problem, problem.gang, count))
    pair_x = np.zeros((len(problem.pair_rows), len(problem.types)))
    pair_x[rows] = _share(problem, problem.gang[problem.pair_rows.jobs[rows, 0]], count)
    time = x.sum(axis=1)
    np.add.at(time, problem.pair_rows.jobs.ravel(), np.repeat(pair_x.sum(axis=1), 2))
    return allocation(problem, x, exact(float(time.min())), pair_x)


def _share(problem: Problem, gang: Ints, count: int) -> Floats:
    share = problem.capacity / (max(count, 1) * gang[:, None])
    return np.asarray(share / np.maximum(1.0, share.sum(axis=1, keepdims=True)), np.float64)


def _pair_gain(problem: Problem) -> Floats:
    """Throughput of each row of pairs relative to running alone, summed over both jobs and all types."""
    rows = problem.pair_rows
    alone = problem.rates[rows.jobs]
    return np.asarray(np.divide(rows.rates, alone, out=np.zeros_like(rows.rates), where=alone > 0).sum(axis=(1, 2)))


def _forget(memory: Memory, problem: Problem, rows: dict[frozenset[str], int], gain: Floats, keep_above: float) -> None:
    """Splits pairs of which one job is gone, that the problem does not list, or that do not pay."""
    there = set(problem.ids)
    memory.partners = {
        a: b
        for a, b in memory.partners.items()
        if a in there and b in there and (k := rows.get(frozenset((a, b)), -1)) >= 0 and gain[k] >= keep_above
    }


def _draw(memory: Memory, problem: Problem) -> None:
    """As many draws as there are jobs: two jobs without partner that have equal gangs become a pair."""
    alone = [i for i in np.argsort(problem.arrival).tolist() if problem.ids[i] not in memory.partners]
    for _ in range(len(problem)):
        if len(alone) < 2:
            return
        low, high = sorted(memory.rng.sample(range(len(alone)), 2))
        if problem.gang[alone[low]] == problem.gang[alone[high]]:
            a, b = (problem.ids[alone.pop(place)] for place in (high, low))
            memory.partners[a], memory.partners[b] = b, a
