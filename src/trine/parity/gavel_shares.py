"""What Gavel's published code computes as shares, where that differs from what the policy means to compute.

Each variant stands for a policy under its name and belongs to one flag of ``--set compat.NAME``. Programs are stated as
the published code states them: a share for any two jobs of equal gangs, good together or not, and of all optima the one
that its interior point (``hsd_ipm``) ends at.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from trine.core.sums import columns_times
from trine.parity.flags import Compat
from trine.parity.hsd_ipm import ConeProgram, walk
from trine.policy.shares.allocation import Allocation, Certificate, allocation, exact, whole_shares
from trine.policy.shares.base import Memory, PolicyVariant, SharePolicy, equal_rates, reference_rates, shares_space
from trine.policy.shares.fifo import FifoShares
from trine.policy.shares.gandiva import Gandiva, draw, equal_time, fits_at_once, forget, pair_numbers, relative_rates
from trine.policy.shares.hierarchical import Hierarchical
from trine.policy.shares.makespan import Makespan
from trine.policy.shares.max_min_fairness import MaxMinFairness
from trine.policy.shares.problem import Problem, proportional
from trine.policy.shares.rounds import fifo_rounds
from trine.policy.shares.solver.polytope import Polytope
from trine.policy.view import Floats, Ints

TOLERANCE = 1.05
"""The published bisection ends when its bounds are this close."""
FIRST_GUESS_S, LAST_GUESS_S = 100.0, 1e6
PROVEN = 1e-6
"""Relative distance from the optimum up to which the centre is used."""


def for_rounds(policy: SharePolicy, compat: Compat) -> SharePolicy:
    """The policy as rounds use it, with the quirks that ``compat`` asks for."""
    if isinstance(policy, Gandiva) and compat.draws_stand:
        return HastyGandiva(policy)
    if isinstance(policy, FifoShares):
        last_type = compat.fifo_last_type and policy.form == "greedy" and not policy.aware
        return LastTypeFifo(policy) if last_type else fifo_rounds.for_rounds(policy)
    found = _program(policy, compat)
    # Policies that never use speeds give time on all types anyway: only those set not to use them change.
    can_be_aware = "aware" in {f.name for f in fields(policy)}  # type: ignore[arg-type]
    return AnyType(found) if compat.any_type and can_be_aware and not policy.aware else found


def _program(policy: SharePolicy, compat: Compat) -> SharePolicy:
    if isinstance(policy, Hierarchical) and compat.finalise_all:
        return replace(policy, finalise_all=True)
    if isinstance(policy, Makespan) and compat.makespan_bisection:
        return BisectedMakespan(policy, compat.centre_of_optima)
    if isinstance(policy, MaxMinFairness) and compat.centre_of_optima:
        return CentredMaxMin(policy)
    return policy


@dataclass
class LastTypeFifo(PolicyVariant):
    """FIFO without speeds: a new job is given the last type by name that had a GPU left, whether its gang fits or not.

    A type that is used up is struck off the list at the place that was drawn, which may be that of another type.
    """

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        types = _LastTypes(problem, memory)
        for job in sorted(memory.held, key=int):
            types.keep_or_replace(job)
        types.draw()
        chosen = [problem.types.index(memory.held[job]) if job in memory.held else -1 for job in problem.ids]
        shares = whole_shares(problem, np.array(chosen, np.int64))
        return allocation(problem, shares, exact(float(shares.sum())))


class _LastTypes:
    """One computation of that rule: which type each job holds."""

    def __init__(self, problem: Problem, memory: Memory) -> None:
        self.memory = memory
        self.left: dict[str, float] = dict(zip(problem.types, problem.capacity.tolist(), strict=True))
        self.gang: dict[str, int] = dict(zip(problem.ids, problem.gang.tolist(), strict=True))
        self.rate = {
            job: dict(zip(problem.types, row, strict=True))
            for job, row in zip(problem.ids, problem.throughput, strict=True)
        }
        order = np.argsort(problem.arrival, kind="stable").tolist()
        self.queue = [job for job in (problem.ids[i] for i in order) if job not in memory.held]

    def keep_or_replace(self, job: str) -> None:
        """The first in the queue takes over the type of a job that ended, if it fits there."""
        gpu_type = self.memory.held[job]
        if job in self.gang:
            self.left[gpu_type] -= self.gang[job]
            return
        del self.memory.held[job]
        if self.queue and self.gang[self.queue[0]] <= self.left[gpu_type] and self.rate[self.queue[0]][gpu_type] > 0:
            self._take(self.queue.pop(0), gpu_type)

    def draw(self) -> None:
        open_types = sorted(name for name, free in self.left.items() if free > 0)
        while self.queue and open_types:
            job, gpu_type = self.queue.pop(0), open_types[-1]
            room = [i for i, name in enumerate(open_types) if self.left[name] >= self.gang[job]]
            if not room:
                break
            drawn = self.memory.rng.randrange(len(room))
            if self.rate[job][gpu_type] > 0:
                self._take(job, gpu_type)
                if self.left[gpu_type] == 0:
                    open_types.pop(room[drawn])

    def _take(self, job: str, gpu_type: str) -> None:
        self.memory.held[job] = gpu_type
        self.left[gpu_type] -= self.gang[job]


@dataclass
class HastyGandiva(PolicyVariant):
    """A pair that was drawn gets its time, good or bad; only the next computation splits it, and draws again.

    What a pair is worth is summed over types, so that any pair which runs on all of them is kept.
    """

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        assert isinstance(self.meant, Gandiva)
        part = relative_rates(problem)
        worth = np.where((part > 0).all(axis=(1, 2)), part.sum(axis=(1, 2)), 0.0)
        forget(memory, problem, pair_numbers(problem), worth, self.meant.keep_above)
        if not fits_at_once(problem):
            draw(memory, problem, good=lambda _: True)
        return equal_time(problem, {} if fits_at_once(problem) else memory.co_runners, for_both=False)


@dataclass
class AnyType(PolicyVariant):
    """Not using speeds, the policy does not even see where a job cannot run, and gives it time there."""

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        fastest = problem.throughput.max(axis=1, keepdims=True)
        seen = replace(problem, throughput=np.where(problem.throughput > 0, problem.throughput, fastest))
        found = self.meant.compute(seen, memory)
        return replace(found, effective=(problem.throughput * found.shares).sum(axis=1))


@dataclass
class CentredMaxMin(PolicyVariant):
    """Of the shares with the highest level those that an interior point ends at."""

    takes_classes: ClassVar[bool] = True

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        policy = self.meant
        assert isinstance(policy, MaxMinFairness)
        best, listed = policy.compute(problem, memory), problem.listed()
        rates = problem.rates if policy.aware else equal_rates(problem)
        demand = problem.weight * proportional(rates, problem.capacity) / problem.gang
        sharing = policy.aware and shares_space(problem, policy.space_sharing)
        centre, reached = of_level(listed, rates, demand, sharing)
        if reached < best.objective * (1 - PROVEN):
            return best
        return centre.allocation(listed, best, reached)


@dataclass
class BisectedMakespan(PolicyVariant):
    """The makespan to 5 %: shares that reach the last guess a bisection found possible, not the optimum.

    ``centred``: those that an interior point ends at; else the best ones, scaled down.
    """

    centred: bool = False

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        best = self.meant.compute(problem, memory)
        if best.objective <= 0:
            return best
        guess_s = _last_feasible_s(best.objective)
        if self.centred and (found := self._centre(problem, guess_s)):
            return found.allocation(problem, best, guess_s)
        part = best.objective / guess_s
        return replace(
            best,
            shares=best.shares * part,
            pair_shares=best.pair_shares * part,
            effective=best.effective * part,
            objective=guess_s,
        )

    def _centre(self, problem: Problem, guess_s: float) -> Centre | None:
        policy = self.meant
        assert isinstance(policy, Makespan)
        sharing = policy.aware and shares_space(problem, policy.space_sharing)
        rates = problem.rates if policy.aware else reference_rates(problem, policy.reference_type)
        return of_need(problem, rates, problem.steps_left / guess_s, sharing)


def _last_feasible_s(smallest_s: float) -> float:
    """The last guess at or above the smallest makespan that the published bisection tries."""
    low, high, found = FIRST_GUESS_S, LAST_GUESS_S, 0.0
    while not found:
        while TOLERANCE * low < high:
            guess = (low + high) / 2
            if guess >= smallest_s:
                found = high = guess
            else:
                low = guess
        low, high = high, high * 10
    return found


# -- the optimum that the published interior point ends at -----------------------------------------------------------


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
    used = columns_times(space.gang, alone) + columns_times(space.gang[space.pairs[:, 0]], pairs)
    time = alone.sum(axis=1)
    np.add.at(time, space.pairs.ravel(), np.repeat(pairs.sum(axis=1), 2))
    if not ((used <= space.capacity * (1 + PROVEN)).all() and (time <= 1 + PROVEN).all()):
        return 0.0
    return float(space.throughput(alone, pairs).min())


def _listed(problem: Problem, space: Polytope, shares: Floats, sharing: bool) -> Centre:
    alone, pairs = np.split(np.clip(shares, 0.0, 1.0), [len(problem)])
    return Centre(alone, pairs[_rows(problem, space.pairs)] if sharing else pairs)
