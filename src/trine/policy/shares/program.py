"""What the optimising policies have in common: the shares a problem allows, and the best of them for an objective.

Chooses between the structured solver and the program with pairs. No policy is stated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trine.policy.shares import packed
from trine.policy.shares.allocation import Allocation, Certificate, Note, allocation
from trine.policy.shares.base import Memory
from trine.policy.shares.problem import Problem
from trine.policy.shares.solver.form import Certified, RateProblem
from trine.policy.shares.solver.rules import Rule
from trine.policy.view import Floats

PROVEN = 1e-6
"""An answer with a larger gap is given to the simplex method."""
VERTEX_ROWS = 300
"""Up to so many jobs a vertex is found in a few milliseconds."""


@dataclass(frozen=True)
class Solved:
    """Shares by type, alone and in rows of pairs, and the proof of how good they are."""

    x: Floats
    y: Floats | None
    value: float
    bound: float
    gap: float
    duals: Floats
    prices: Floats
    solver: str

    @classmethod
    def of_certified(cls, found: Certified) -> Solved:
        return cls(found.x, None, found.value, found.bound, found.gap, found.duals, found.prices, found.solver)

    @classmethod
    def of_packed(cls, found: packed.PackedAnswer) -> Solved:
        y = found.y if len(found.y) else None
        return cls(found.x, y, found.value, found.bound, found.gap, found.duals, found.prices, "highs")

    def allocation(
        self,
        problem: Problem,
        objective: float | None = None,
        bound: float | None = None,
        price_scale: float = 1.0,
        levels: Floats | None = None,
        notes: tuple[Note, ...] = (),
    ) -> Allocation:
        """As the answer of a policy; its objective may be another function of the value, with slope ``price_scale``."""
        certificate = Certificate(
            self.value if objective is None else objective,
            self.bound if bound is None else bound,
            self.solver,
            max(self.gap, 0.0),
            self.prices * price_scale,
        )
        return allocation(problem, self.x, certificate, self.y, levels, notes)


def space_of(problem: Problem, rates: Floats, with_pairs: bool) -> packed.Space:
    """The shares ``problem`` allows when jobs make ``rates`` steps/s alone."""
    gang = problem.gang.astype(np.float64)
    if not with_pairs:
        return packed.Space.alone(rates, gang, problem.capacity)
    return packed.Space(rates, gang, problem.capacity, problem.pair_rows.jobs, problem.pair_rows.rates)


def highest_level(space: packed.Space, demand: Floats, memory: Memory, ids: Sequence[str] = ()) -> Solved:
    """The largest t with throughput >= demand t for every job; ``ids`` name the rows from call to call."""
    if len(space.jobs):
        return Solved.of_packed(packed.level(space, demand, session=memory.session))
    found = _generous_level(space, demand, memory, ids) if memory.generous and ids else None
    if found is None:
        from trine.policy.shares.solver import maxmin

        form = RateProblem(rates=space.rates, demand=demand, gang=space.gang, capacity=space.capacity)
        found = maxmin.solve(form, memory.start)
    return Solved.of_certified(found)


def _generous_level(space: packed.Space, demand: Floats, memory: Memory, ids: Sequence[str]) -> Certified | None:
    """A vertex in which what the level leaves over goes to those who gain most; none where that takes too long."""
    if len(ids) > VERTEX_ROWS or 0.0 in space.capacity.tolist():
        return None
    fair = space.rates @ (space.capacity / np.add.reduce(space.capacity))
    if not np.minimum.reduce(demand * fair) > 0:
        return None
    form = RateProblem.unchecked(space.rates, demand, space.gang, space.capacity)
    return memory.vertices.solve(form, space.rates / fair[:, None], ids)


def lowest_makespan(space: packed.Space, steps_left: Floats, memory: Memory, ids: Sequence[str] = ()) -> Solved:
    """The smallest time in which all steps can be made; the value is its inverse."""
    if len(space.jobs) or (memory.generous and ids):
        return highest_level(space, steps_left, memory, ids)
    from trine.policy.shares.solver.makespan import solve_makespan

    return Solved.of_certified(solve_makespan(space.rates, steps_left, space.gang, space.capacity, memory.start))


def lowest_slowdown(
    space: packed.Space,
    steps_left: Floats,
    elapsed_s: Floats,
    ideal_s: Floats,
    memory: Memory,
    ids: Sequence[str] = (),
) -> Solved:
    """The smallest rho with elapsed + steps / throughput <= rho ideal for every job."""
    from trine.policy.shares.packed_slowdown import Finish, slowdown
    from trine.policy.shares.solver.finish_time import solve_finish_time

    finish = Finish(steps_left, elapsed_s, ideal_s)
    if len(space.jobs):
        return slowdown(space, finish, memory.session)
    found = Solved.of_certified(
        solve_finish_time(space.rates, steps_left, elapsed_s, ideal_s, space.gang, space.capacity, memory.start)
    )
    if found.gap <= PROVEN and memory.generous and ids:
        spare_s = found.value * ideal_s - elapsed_s
        demand = np.divide(steps_left, spare_s, out=np.zeros_like(spare_s), where=spare_s > 0)
        level = _generous_level(space, demand, memory, ids)
        return found if level is None or level.value < 1 - PROVEN else replace(found, x=level.x)
    if found.gap <= PROVEN:
        return found
    return min(found, slowdown(space, finish, memory.session), key=lambda answer: answer.gap)


def highest_sum(space: packed.Space, aim: packed.Aim, memory: Memory, floor: Floats | None = None) -> Solved:
    """The largest sum of what ``aim`` counts; ``InfeasibleError`` if the floors cannot be reached together."""
    if len(space.jobs):
        return Solved.of_packed(packed.total(space, aim, floor, session=memory.session))
    from trine.policy.shares.solver.linear import maximise_sum

    worth = aim.everywhere(space)
    return Solved.of_certified(
        maximise_sum(worth, space.gang, space.capacity, rates=space.rates, floors=floor, session=memory.session)
    )


def highest_levels(space: packed.Space, rule: Rule, memory: Memory, finalise_all: bool) -> tuple[Solved, Floats]:
    """Water filling of normalised rates: shares that give every job its level, and the levels.

    The value is what the first pass raises every weight to.
    """
    demand = rule.weights(np.zeros(len(space.rates), bool)) / space.gang
    first = demand > 0
    y: Floats | None = None
    if len(space.jobs):
        from trine.policy.shares import packed_fill

        both = packed_fill.fill(space, rule, memory.session, finalise_all)
        x, y, levels, gap, solver = both.x, both.y, both.levels, both.gap, "highs"
    else:
        from trine.policy.shares.solver.filling import fill

        there = space.capacity > 0
        found = fill(space.rates[:, there], space.gang, space.capacity[there], rule, finalise_all=finalise_all)
        x, levels, gap, solver = np.zeros(space.rates.shape), found.levels, found.gap, "ipm"
        x[:, there] = found.x
    value = float((levels[first] / demand[first]).min())
    return Solved(x, y, value, value * (1 + gap), gap, np.zeros(0), np.zeros(0), solver), levels
