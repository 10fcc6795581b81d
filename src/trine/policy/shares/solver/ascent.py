"""Water filling past jobs that reach full speed one after another, without a problem for each of them.

Which job is next at full speed needs no solver while there are GPUs for all: the path of levels is known, and only how
far it can be followed must be found. Each infeasible point gives a cut that rules out all of the path behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trine.policy.shares.solver.form import Array, Certified, Mask, RateProblem
from trine.policy.shares.solver.maxmin import solve
from trine.policy.shares.solver.rules import Rule
from trine.policy.shares.solver.start import Warm

_TIE = 1e-12
_REACHED = 1e-7
"""Levels count as reached when shares miss them by no more than this."""
_ROUGH = 1e-3
_MOST_PROBLEMS = 30


@dataclass(frozen=True)
class Step:
    """Levels and finished jobs after so many have reached full speed."""

    levels: Array
    done: Mask


def path(start: Step, rates: Array, gang: Array, load: Array, gpus: float, rule: Rule) -> list[Step]:
    """All steps from ``start`` on, as if types were no limit, while the GPUs could suffice if all were the fastest."""
    fastest = rates.max(axis=1)
    steps, levels, done, least_gpus = [start], start.levels, start.done, load / fastest
    while not done.all() and float((least_gpus * levels).sum()) <= gpus:
        demand = rule.weights(done) / gang
        active = demand > 0
        if not active.any():
            break
        room = np.where(active, (fastest - levels) / np.where(active, demand, 1.0), np.inf)
        rise = max(float(room.min()), 0.0)
        full = room <= rise * (1.0 + _TIE)
        levels = np.where(full, fastest, levels + demand * rise)
        done = done | full
        steps.append(Step(levels, done))
    return steps


def furthest(
    steps: list[Step], rates: Array, load: Array, capacity: Array, warm: Warm
) -> tuple[Step, Certified] | None:
    """The last step whose levels can be reached together, with shares that do; None if not even the next one can."""
    last = len(steps) - 1
    for _ in range(_MOST_PROBLEMS):
        if last < 1:
            return None
        problem = RateProblem(rates=rates, demand=steps[last].levels, gang=load, capacity=capacity)
        answer = solve(problem, warm, classes=False, tolerance=_ROUGH)
        if answer.bound >= 1.0 - _REACHED:
            answer = solve(problem, warm, classes=False)
        if answer.value >= 1.0 - _REACHED:
            return steps[last], answer
        last = _allowed(steps, last, answer.duals, answer.bound)
    return None


def _allowed(steps: list[Step], beyond: int, duals: Array, bound: float) -> int:
    """The last step before ``beyond`` that weak duality does not rule out: no shares are worth more than the bound."""
    low, high = 0, beyond
    while high - low > 1:
        middle = (low + high) // 2
        allowed = float((duals * steps[middle].levels).sum()) <= bound
        low, high = (middle, high) if allowed else (low, middle)
    return low
