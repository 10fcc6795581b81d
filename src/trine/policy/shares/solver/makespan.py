"""Smallest makespan: the time T in which everybody can finish is 1/t of one problem of form (P), exactly."""

from __future__ import annotations

from trine.policy.shares.solver.form import Array, Certified, RateProblem
from trine.policy.shares.solver.maxmin import solve
from trine.policy.shares.solver.start import Warm


def solve_makespan(
    rates: Array, steps_left: Array, gang: Array, capacity: Array, warm: Warm | None = None
) -> Certified:
    """Shares with which the last job finishes as early as possible; ``value`` is 1/T, T in seconds.

    ``rates`` in steps per second; jobs without steps left get no share.
    """
    return solve(RateProblem(rates=rates, demand=steps_left, gang=gang, capacity=capacity), warm)
