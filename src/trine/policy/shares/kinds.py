"""Space sharing for many jobs of few kinds: one small program over kinds instead of one over all pairs of jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trine.policy.shares.allocation import Allocation, allocation, exact
from trine.policy.shares.base import Memory
from trine.policy.shares.problem import KindPairs, Problem
from trine.policy.shares.solver import classes
from trine.policy.shares.solver.concrete import split
from trine.policy.shares.solver.pairs import PairSolver, SharedAnswer, SharingClasses
from trine.policy.view import Floats, Ints


def level_by_kinds(problem: Problem, table: KindPairs, demand: Floats, memory: Memory) -> Allocation:
    """The largest t with throughput >= demand t for every job, pairs of kinds taking part.

    Of all shares that reach it, those with the most throughput over demand: what the worst-off cannot use is not lost.
    """
    alone = _everybody_alone(problem, table)
    if alone is not None:
        level = float(((problem.rates * alone).sum(axis=1) / demand).min())
        return allocation(problem, alone, exact(level))
    groups = _Groups.of(problem, table, demand, memory)
    return groups.allocation(groups.solver.max_min(groups.size, demand[groups.first], richest=True))


def _everybody_alone(problem: Problem, table: KindPairs) -> Floats | None:
    """Everybody on its fastest type all the time, if there are GPUs for that and nobody is faster next to another."""
    fastest, best = problem.rates.argmax(axis=1), problem.rates.max(axis=1)
    if (np.bincount(fastest, problem.gang, len(problem.types)) > problem.capacity).any():
        return None
    of_kind = np.zeros(int(table.kind.max(initial=0)) + 1)
    of_kind[table.kind] = best
    if len(table.pairs) and (table.throughput.max(axis=2) > of_kind[table.pairs]).any():
        return None
    return np.asarray(np.arange(len(problem.types)) == fastest[:, None], np.float64)


def sum_by_kinds(problem: Problem, table: KindPairs, type_worth: Floats, memory: Memory) -> Allocation:
    """The largest sum of throughputs, each counted by the worth of the type."""
    groups = _Groups.of(problem, table, np.ones(len(problem)), memory)
    kinds = groups.solver.kinds
    pair_worth = kinds.pair_rates.sum(axis=2) * type_worth
    return groups.allocation(groups.solver.max_sum(groups.size, kinds.rates * type_worth, pair_worth))


@dataclass(frozen=True)
class _Groups:
    """Jobs of one kind and one demand, in an order that does not depend on who came first."""

    first: Ints
    member_of: Ints
    size: Floats
    solver: PairSolver

    @classmethod
    def of(cls, problem: Problem, table: KindPairs, demand: Floats, memory: Memory) -> _Groups:
        found = classes.find((table.kind.astype(np.float64), demand))
        assert found is not None
        order = np.lexsort((demand[found.first], table.kind[found.first]))
        first, place = found.first[order], np.argsort(order)
        kinds = _sharing(problem, table, first)
        solver: PairSolver | None = memory.warm.get("kinds")
        if solver is None or not _same(solver.kinds, kinds):
            solver = memory.warm["kinds"] = PairSolver(kinds, None if solver is None else solver.session)
        return cls(first, place[found.member_of], found.size[order].astype(np.float64), solver)

    def allocation(self, found: SharedAnswer) -> Allocation:
        pairs = split(found, self.solver.kinds, self.member_of)
        return Allocation(
            shares=np.clip(found.x[self.member_of], 0.0, 1.0),
            pair_jobs=pairs.jobs,
            pair_shares=pairs.shares,
            effective=found.rate[self.member_of],
            objective=found.value,
            bound=found.bound,
            gap=max(found.gap, 0.0),
            solver=found.solver,
            prices=found.prices,
        )


def _sharing(problem: Problem, table: KindPairs, first: Ints) -> SharingClasses:
    """The groups as the solver wants them: every two groups whose kinds may share, once."""
    one, other = np.triu_indices(len(first))
    row, turned = table.rows(table.kind[first[one]], table.kind[first[other]])
    known = row >= 0
    one, other, row, turned = one[known], other[known], row[known], turned[known]
    rates = table.throughput[row]
    rates = np.where(turned[:, None, None], rates[:, ::-1], rates) * problem.fits[first[one]][:, None, :]
    gang = problem.gang[first].astype(np.float64)
    pair = np.stack([one, other], axis=1)
    return SharingClasses(problem.rates[first], gang, problem.capacity, pair, rates.transpose(0, 2, 1))


def _same(one: SharingClasses, other: SharingClasses) -> bool:
    return all(
        np.array_equal(getattr(one, part), getattr(other, part))
        for part in ("rates", "gang", "capacity", "pair", "pair_rates")
    )
