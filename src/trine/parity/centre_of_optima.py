"""Programs as the published code states and solves them: a share for any two jobs of equal gangs, good together or
not, and of all optima the one its interior point ends at. For ``compat.centre_of_optima`` only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trine.parity.hsd_ipm import ConeProgram, walk
from trine.policy.shares.allocation import Allocation, Certificate, allocation
from trine.policy.shares.problem import Problem
from trine.policy.shares.solver.polytope import Polytope
from trine.policy.view import Floats, Ints

PROVEN = 1e-6
"""Relative distance from the optimum up to which the centre is used."""


@dataclass(frozen=True)
class Centre:
    """Shares alone (jobs, types) and of the pairs that the problem lists."""

    alone: Floats
    pairs: Floats

    def allocation(self, problem: Problem, best: Allocation, objective: float) -> Allocation:
        """In place of ``best``, whose proof it keeps."""
        gap = abs(objective - best.bound) / max(abs(best.bound), 1e-12)
        certificate = Certificate(objective, best.bound, "embedding", gap, best.prices)
        return allocation(problem, self.alone, certificate, self.pairs if len(self.pairs) else None)


def of_level(problem: Problem, rates: Floats, demand: Floats, sharing: bool) -> tuple[Centre, float]:
    """Shares with the highest level, and that level: throughput over ``demand`` of the worst-off job."""
    space = _stated(problem, rates, sharing).divided(demand)
    found = walk(ConeProgram.raising(space.rates, space.gang, space.capacity, space.pairs, space.pair_rates)).shares
    return _listed(problem, space, found, sharing), _reached(space, found)


def of_need(problem: Problem, rates: Floats, need: Floats, sharing: bool) -> Centre | None:
    """Shares that give every job the throughput it needs, and aim at nothing else; nothing if they were not found."""
    space = _stated(problem, rates, sharing)
    found = walk(ConeProgram.of(space.rates, space.gang, space.capacity, space.pairs, space.pair_rates, need)).shares
    if _reached(space.divided(need), found) < 1 - PROVEN:
        return None
    return _listed(problem, space, found, sharing)


def _stated(problem: Problem, rates: Floats, sharing: bool) -> Polytope:
    gang = problem.gang.astype(np.float64)
    if not sharing:
        return Polytope(rates, gang, problem.capacity)
    jobs = _partners(problem)
    pair_rates = np.zeros((len(jobs), 2, rates.shape[1]))
    pair_rates[_rows(problem, jobs)] = problem.pair_rows.rates
    # The published arrays of pairs have single precision.
    return Polytope(_single(rates), gang, problem.capacity, jobs, _single(pair_rates))


def _partners(problem: Problem) -> Ints:
    one, other = np.triu_indices(len(problem), 1)
    equal = problem.gang[one] == problem.gang[other]
    return np.stack((one[equal], other[equal]), axis=1)


def _rows(problem: Problem, jobs: Ints) -> Ints:
    """Which of ``jobs``, in order, each pair of the problem is."""
    n = len(problem)
    one, other = problem.pair_rows.jobs.T
    return np.asarray(np.searchsorted(jobs[:, 0] * n + jobs[:, 1], one * n + other), np.int64)


def _single(rates: Floats) -> Floats:
    return rates.astype(np.float32).astype(np.float64)


def _reached(space: Polytope, shares: Floats) -> float:
    """The smallest throughput; nothing if the shares are more than there is."""
    alone, pairs = np.split(np.clip(shares, 0.0, 1.0), [len(space.rates)])
    used = space.gang @ alone + space.gang[space.pairs[:, 0]] @ pairs
    time = alone.sum(axis=1)
    np.add.at(time, space.pairs.ravel(), np.repeat(pairs.sum(axis=1), 2))
    if not ((used <= space.capacity * (1 + PROVEN)).all() and (time <= 1 + PROVEN).all()):
        return 0.0
    return float(space.throughput(alone, pairs).min())


def _listed(problem: Problem, space: Polytope, shares: Floats, sharing: bool) -> Centre:
    alone, pairs = np.split(np.clip(shares, 0.0, 1.0), [len(problem)])
    return Centre(alone, pairs[_rows(problem, space.pairs)] if sharing else pairs)
