"""Gandiva: equal time for every job; when GPUs are short, random pairs share GPUs as long as that pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.shares.allocation import Allocation, allocation, exact
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.problem import Problem
from trine.policy.view import Floats, Ints


@dataclass
class Gandiva(SharePolicy):
    """Types are treated alike. While all gangs fit at once every job gets the same time. Otherwise jobs of equal gangs
    are paired at random, where the two together make more than one alone: their throughputs relative to running alone,
    averaged over types, add up to ``keep_above`` or more. A pair persists until one of the two is gone. Every job gets
    equal time, and two that share GPUs get the time of both.

    The objective reported is the smallest share of time any job gets.
    """

    name: ClassVar[str] = "gandiva"
    title: ClassVar[str] = "equal time, with random pairs on shared GPUs when they are short"
    paper: ClassVar[str] = "Gandiva (OSDI'18); Gavel (OSDI'20), section 7"
    objective: ClassVar[str] = "smallest share of time"
    space_sharing = True
    needs_pairs_on_all_types: ClassVar[bool] = True
    prefers_ratio: ClassVar[bool] = True

    keep_above: float = param(
        1.0, "least relative throughput of a pair, both jobs together, averaged over types", minimum=0
    )

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        if fits_at_once(problem) or not len(problem.pair_rows):
            return equal_time(problem, {}, for_both=True)
        rows, gain = pair_numbers(problem), _pair_gain(problem)
        forget(memory, problem, rows, gain, self.keep_above)
        good = {pair for pair, row in rows.items() if gain[row] >= self.keep_above}
        draw(memory, problem, good.__contains__)
        return equal_time(problem, memory.co_runners, for_both=True)

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        co_runner: dict[int, int] = {}
        for (a, b), row in zip(found.pair_jobs.tolist(), found.pair_shares, strict=True):
            if row.any():
                co_runner |= {a: b, b: a}
        return [
            f"equal time, on the same GPUs as job {problem.ids[co_runner[i]]}"
            if i in co_runner
            else "equal time, alone"
            for i in range(len(problem))
        ]


def fits_at_once(problem: Problem) -> bool:
    """No job needs to share: there are as many GPUs as all jobs ask for."""
    return bool(problem.gang.sum() <= problem.capacity.sum())


def pair_numbers(problem: Problem) -> dict[frozenset[str], int]:
    """The row of each two jobs that can share GPUs somewhere."""
    return {frozenset(problem.ids[i] for i in jobs): k for k, jobs in enumerate(problem.pair_rows.jobs.tolist())}


def equal_time(problem: Problem, co_runners: dict[str, str], for_both: bool) -> Allocation:
    """The same time for every job alone, and for every pair that of one job or, ``for_both``, of two.

    Two that cannot share keep theirs in vain.
    """
    number = pair_numbers(problem)
    rows = np.array(sorted({number[pair] for pair in map(frozenset, co_runners.items()) if pair in number}), np.int64)
    paired = np.array([job in co_runners for job in problem.ids])
    units = len(problem) - len(co_runners) / 2
    count, of_pairs = (len(problem), len(problem) / 2) if for_both else (units, units)
    x = np.where(paired[:, None], 0.0, _share(problem, problem.gang, count))
    pair_x = np.zeros((len(problem.pair_rows), len(problem.types)))
    pair_x[rows] = _share(problem, problem.gang[problem.pair_rows.jobs[rows, 0]], of_pairs)
    time = x.sum(axis=1)
    np.add.at(time, problem.pair_rows.jobs.ravel(), np.repeat(pair_x.sum(axis=1), 2))
    return allocation(problem, x, exact(float(time.min())), pair_x)


def _share(problem: Problem, gang: Ints, count: float) -> Floats:
    """One part in ``count`` of every type, no unit above full time."""
    share = problem.capacity / (max(count, 1.0) * gang[:, None])
    return np.asarray(share / np.maximum(1.0, share.sum(axis=1, keepdims=True)), np.float64)


def relative_rates(problem: Problem) -> Floats:
    """(rows, 2, types): throughput of either job of each row of pairs relative to running alone."""
    rows = problem.pair_rows
    alone = problem.rates[rows.jobs]
    return np.divide(rows.rates, alone, out=np.zeros_like(rows.rates), where=alone > 0)


def _pair_gain(problem: Problem) -> Floats:
    """What each row of pairs makes, relative to running alone: both jobs together, mean over types where both run."""
    part = relative_rates(problem)
    runs = (part > 0).all(axis=1)
    return np.asarray((part.sum(axis=1) * runs).sum(axis=1) / np.maximum(runs.sum(axis=1), 1))


def forget(memory: Memory, problem: Problem, rows: dict[frozenset[str], int], gain: Floats, keep_above: float) -> None:
    """Splits pairs of which one job is gone, that the problem does not list, or that do not pay."""
    there = set(problem.ids)
    memory.co_runners = {
        a: b
        for a, b in memory.co_runners.items()
        if a in there and b in there and (k := rows.get(frozenset((a, b)), -1)) >= 0 and gain[k] >= keep_above
    }


def draw(memory: Memory, problem: Problem, good: Callable[[frozenset[str]], bool]) -> None:
    """As many draws as jobs without co-runner: two of equal gangs that are ``good`` together become a pair."""
    waiting = [i for i in np.argsort(problem.arrival).tolist() if problem.ids[i] not in memory.co_runners]
    for _ in range(len(waiting)):
        if len(waiting) < 2:
            return
        low, high = sorted(memory.rng.sample(range(len(waiting)), 2))
        a, b = problem.ids[waiting[low]], problem.ids[waiting[high]]
        if problem.gang[waiting[low]] == problem.gang[waiting[high]] and good(frozenset((a, b))):
            del waiting[high], waiting[low]
            memory.co_runners[a], memory.co_runners[b] = b, a
