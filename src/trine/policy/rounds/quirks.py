"""Share policies as the published code computes them, where that differs from what it means to compute.

Each difference hangs on a flag of ``core.compat``; without flags the policies of ``policy.lp`` are used as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trine.core.compat import Compat
from trine.policy.lp.allocation import Allocation, allocation, exact
from trine.policy.lp.base import Memory, SharePolicy, reference_rates, shares_space
from trine.policy.lp.fifo import Fifo
from trine.policy.lp.greedy import whole_shares
from trine.policy.lp.hierarchical import Hierarchical
from trine.policy.lp.makespan import Makespan
from trine.policy.lp.problem import Problem
from trine.policy.view import Ints

TOLERANCE = 1.05
"""The published bisection ends when its bounds are this close."""
FIRST_GUESS_S, LAST_GUESS_S = 100.0, 1e6


def as_published(policy: SharePolicy, compat: Compat) -> SharePolicy:
    """The policy with the quirks that ``compat`` asks for."""
    if isinstance(policy, Hierarchical) and compat.finalise_all:
        return replace(policy, finalise_all=True)
    if isinstance(policy, Makespan) and compat.makespan_bisection:
        return BisectedMakespan(policy)
    if isinstance(policy, Fifo) and policy.form == "greedy":
        if policy.aware and compat.fifo_passes_over and policy.space_sharing is not True:
            return PassingFifo(policy)
        if not policy.aware and compat.fifo_last_type:
            return LastTypeFifo(policy)
    return policy


@dataclass
class Quirky(SharePolicy):
    """A policy that stands for ``meant`` and computes something else."""

    meant: SharePolicy

    def __post_init__(self) -> None:
        kind = type(self.meant)
        self.name, self.title, self.objective = kind.name, kind.title, kind.objective  # type: ignore[misc]
        self.aware = bool(getattr(self.meant, "aware", True))
        self.space_sharing = getattr(self.meant, "space_sharing", None)

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        return self.meant.compute(problem, memory)


@dataclass
class PassingFifo(Quirky):
    """A job for which the only room left is on types it cannot run on is passed over instead of blocking the others."""

    def compute(self, problem: Problem, memory: Memory) -> Allocation:  # noqa: ARG002
        left = problem.capacity.tolist()
        chosen = np.full(len(problem), -1, np.int64)
        for job in np.argsort(problem.arrival, kind="stable").tolist():
            room = [j for j, free in enumerate(left) if free >= problem.gang[job]]
            if not room:
                break
            best = max(room, key=lambda j: problem.throughput[job, j])
            if problem.throughput[job, best] > 0:
                chosen[job] = best
                left[best] -= problem.gang[job]
        return _whole(problem, chosen)


@dataclass
class LastTypeFifo(Quirky):
    """FIFO without speeds: a new job is given the last type by name that had a GPU left, whether its gang fits or not.

    A type that is used up is struck off the list at the place that was drawn, which may be that of another type.
    """

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        names = sorted(problem.types)
        at = {name: problem.types.index(name) for name in names}
        left = dict(zip(problem.types, problem.capacity.tolist(), strict=True))
        position = {job: i for i, job in enumerate(problem.ids)}
        order = [problem.ids[i] for i in np.argsort(problem.arrival, kind="stable").tolist()]
        queue = [job for job in order if job not in memory.held]
        for job in sorted(memory.held, key=int):
            self._keep_or_replace(problem, memory, job, queue, position, left, at)
        self._draw(problem, memory, queue, position, left, [name for name in names if left[name] > 0], at)
        chosen = np.array([at[memory.held[job]] if job in memory.held else -1 for job in problem.ids], np.int64)
        return _whole(problem, chosen)

    def _keep_or_replace(
        self,
        problem: Problem,
        memory: Memory,
        job: str,
        queue: list[str],
        position: dict[str, int],
        left: dict[str, float],
        at: dict[str, int],
    ) -> None:
        """The first in the queue takes over the type of a job that ended, if it fits there."""
        kind = memory.held[job]
        if job in position:
            left[kind] -= int(problem.gang[position[job]])
            return
        del memory.held[job]
        if queue:
            first = position[queue[0]]
            if problem.gang[first] <= left[kind] and problem.throughput[first, at[kind]] > 0:
                memory.held[queue.pop(0)] = kind
                left[kind] -= int(problem.gang[first])

    def _draw(
        self,
        problem: Problem,
        memory: Memory,
        queue: list[str],
        position: dict[str, int],
        left: dict[str, float],
        open_types: list[str],
        at: dict[str, int],
    ) -> None:
        kind = open_types[-1] if open_types else ""
        while queue and open_types:
            job = queue.pop(0)
            gang = int(problem.gang[position[job]])
            room = [i for i, name in enumerate(open_types) if left[name] >= gang]
            kind = open_types[-1]
            if not room:
                break
            drawn = memory.rng.randrange(len(room))
            if problem.throughput[position[job], at[kind]] > 0:
                memory.held[job] = kind
                left[kind] -= gang
                if left[kind] == 0:
                    open_types.pop(room[drawn])


@dataclass
class BisectedMakespan(Quirky):
    """The makespan to 5 %: the last feasible guess of a bisection, not the optimum."""

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        from trine.policy.lp.program import lowest_makespan, space_of

        meant = self.meant
        assert isinstance(meant, Makespan)
        best = meant.compute(problem, memory)
        if best.objective <= 0:
            return best
        rates = problem.rates if meant.aware else reference_rates(problem, meant.reference_type)
        space = space_of(problem, rates, meant.aware and shares_space(problem, meant.space_sharing))
        found = lowest_makespan(space, problem.steps_left, memory)
        return found.allocation(problem, _last_feasible_s(best.objective), 1.0 / found.bound)


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


def _whole(problem: Problem, chosen: Ints) -> Allocation:
    return allocation(problem, whole_shares(problem, chosen), exact(float((chosen >= 0).sum())))


