"""First in, first out with whole GPUs, or as an optimisation problem in which earlier jobs weigh more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.shares.allocation import Allocation, allocation, exact, of_solution, take_fastest, whole_shares
from trine.policy.shares.base import Memory, SharePolicy, aware_param, equal_rates, shares_space, sharing_param
from trine.policy.shares.problem import Problem
from trine.policy.shares.program import highest_sum, polytope_of
from trine.policy.shares.solver.linear import Worth
from trine.policy.view import Floats, Ints


@dataclass
class FifoShares(SharePolicy):
    """``greedy``: in order of arrival each job takes the fastest type with room for its gang, and the first job without
    room ends it; with space sharing, jobs left over then join the placed job with which both run best together. Not
    ``aware``, jobs stay where they are and a new one takes a random type with room.

    ``lp``: maximise the sum over jobs of (M - rank) thr(m, X) / (its throughput on the fastest type).
    """

    name: ClassVar[str] = "fifo"
    title: ClassVar[str] = "first in, first out, each job on the fastest type with room"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.2"
    objective: ClassVar[str] = "jobs that run (greedy), rank-weighted throughput (lp)"
    strict: ClassVar[bool] = True

    form: str = param("greedy", "whole GPUs in order of arrival, or the optimisation problem", choices=("greedy", "lp"))
    aware: bool = aware_param()
    space_sharing: bool | None = sharing_param()
    pack_above: float = param(1.5, "join a running job if the two relative throughputs add up to more", minimum=0)

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        if self.form == "lp":
            return self._optimise(problem, memory)
        order = np.argsort(problem.arrival, kind="stable")
        chosen = take_fastest(problem, order, strict=True) if self.aware else _stay_or_draw(problem, order, memory)
        x = whole_shares(problem, chosen)
        pair_x = None
        if self.aware and shares_space(problem, self.space_sharing):
            pair_x = self._pack(problem, order, chosen, x)
        running = x.sum() if pair_x is None else x.sum() + 2 * pair_x.sum()
        return allocation(problem, x, exact(float(running)), pair_x)

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        if self.form == "lp":
            return super().explain(problem, found)
        rank = np.argsort(np.argsort(problem.arrival, kind="stable"))
        total = found.total()
        return [
            f"number {r + 1} by arrival"
            + (f": runs on {problem.columns[row.argmax()]}" if row.any() else ": no room left")
            for r, row in zip(rank, total, strict=True)
        ]

    def _optimise(self, problem: Problem, memory: Memory) -> Allocation:
        rates = problem.rates if self.aware else equal_rates(problem)
        rank = np.argsort(np.argsort(problem.arrival, kind="stable"))
        worth = Worth((len(problem) - rank) / rates.max(axis=1), np.ones(len(problem.types)))
        polytope = polytope_of(problem, rates, self.aware and shares_space(problem, self.space_sharing))
        return of_solution(problem, highest_sum(polytope, worth, memory))

    def _pack(self, problem: Problem, order: Ints, chosen: Ints, x: Floats) -> Floats:
        """Queued jobs join placed ones, in order, until one finds no co-runner. Both jobs of a pair leave ``x``."""
        rows = problem.pair_rows
        pair_x = np.zeros((len(rows), len(problem.types)))
        for job in order[chosen[order] < 0].tolist():
            row, type_index = _best_co_runner(problem, job, chosen, x)
            if row < 0 or _relative(problem, row, type_index) <= self.pack_above:
                break
            pair_x[row, type_index] = 1.0
            x[rows.jobs[row]] = 0.0
        return pair_x


def _best_co_runner(problem: Problem, job: int, chosen: Ints, x: Floats) -> tuple[int, int]:
    """The row of pairs, and the type, on which ``job`` and a job placed alone run best together; -1 for none."""
    rows = problem.pair_rows
    best, found = 0.0, (-1, -1)
    for row in np.flatnonzero((rows.jobs == job).any(axis=1)).tolist():
        other = int(rows.jobs[row].sum()) - job
        type_index = int(chosen[other])
        if type_index >= 0 and x[other, type_index] == 1.0 and (together := _relative(problem, row, type_index)) > best:
            best, found = together, (row, type_index)
    return found


def _relative(problem: Problem, row: int, type_index: int) -> float:
    """Throughputs of a pair relative to running alone, added up."""
    alone = problem.rates[problem.pair_rows.jobs[row], type_index]
    together = problem.pair_rows.rates[row, :, type_index]
    return float(np.divide(together, alone, out=np.zeros(2), where=alone > 0).sum())


def _stay_or_draw(problem: Problem, order: Ints, memory: Memory) -> Ints:
    """Placed jobs stay; new ones take a random type with room, up to the first without room."""
    at = {name: j for j, name in enumerate(problem.types)}
    chosen = np.array([at.get(memory.held.get(job, ""), -1) for job in problem.ids], np.int64)
    left = problem.capacity.copy()
    for job in order.tolist():
        held = chosen[job]
        if held >= 0 and left[held] < problem.gang[job]:
            held = chosen[job] = -1
        if held >= 0:
            left[held] -= problem.gang[job]
    for job in order[chosen[order] < 0].tolist():
        open_types = np.flatnonzero((left >= problem.gang[job]) & (problem.rates[job] > 0)).tolist()
        if not open_types:
            break
        chosen[job] = memory.rng.choice(open_types)
        left[chosen[job]] -= problem.gang[job]
    memory.held = {problem.ids[i]: problem.types[chosen[i]] for i in np.flatnonzero(chosen >= 0)}
    return chosen
