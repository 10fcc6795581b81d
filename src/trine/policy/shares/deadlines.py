"""Deadlines as floors under throughputs: which can be kept, alone and together, and what to tell about the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trine.core.errors import InputError
from trine.policy.shares.allocation import Note
from trine.policy.shares.base import Memory
from trine.policy.shares.problem import WHERE, Problem
from trine.policy.shares.program import highest_sum
from trine.policy.shares.solver import linear
from trine.policy.shares.solver.linear import Extra, Worth
from trine.policy.shares.solver.polytope import InfeasibleError, Polytope, Solution
from trine.policy.view import Floats

SLACK = 1e-7
"""Relative shortfall below which a deadline counts as met."""


def best_sum(
    problem: Problem, polytope: Polytope, worth: Worth, memory: Memory, with_deadlines: bool
) -> tuple[Solution, tuple[Note, ...]]:
    """The largest sum that meets every deadline that can be met; the jobs of the others run without a floor."""
    floor = needed_rate(problem) if with_deadlines else np.zeros(len(problem))
    floor, notes = _alone(problem, polytope, floor)
    if not floor.any():
        return highest_sum(polytope, worth, memory), notes
    try:
        return highest_sum(polytope, worth, memory, floor), notes
    except InfeasibleError:
        floor, more = _together(problem, polytope, floor)
        return highest_sum(polytope, worth, memory, floor), notes + more


def has_deadlines(problem: Problem) -> bool:
    return bool(np.isfinite(problem.deadline_s).any())


def needed_rate(problem: Problem) -> Floats:
    """Steps per second that meet each deadline; 0 without one, infinite if it has passed."""
    wanted = np.isfinite(problem.deadline_s)
    unknown = wanted & np.isnan(problem.steps_left)
    if unknown.any():
        job = problem.ids[int(np.argmax(unknown))]
        raise InputError(WHERE, f"job {job} has a deadline but no steps_left", "how many steps are left", "steps_left")
    rate = np.where(wanted & (problem.steps_left > 0), np.inf, 0.0)
    ahead = wanted & (problem.deadline_s > 0)
    return np.divide(problem.steps_left, problem.deadline_s, out=rate, where=ahead)


def _alone(problem: Problem, polytope: Polytope, floor: Floats) -> tuple[Floats, tuple[Note, ...]]:
    """Drops the floors a job could not reach with the cluster to itself."""
    best = polytope.rates.max(axis=1)
    lost = np.flatnonzero(floor > best * (1 + SLACK))
    notes = tuple(Note(int(i), _too_soon(problem, int(i), floor[i], best[i])) for i in lost)
    floor = np.minimum(floor, best)
    floor[lost] = 0.0
    return floor, notes


def _together(problem: Problem, polytope: Polytope, floor: Floats) -> tuple[Floats, tuple[Note, ...]]:
    """Drops the floors that lack something when the sum of relative shortfalls is smallest."""
    wanted = floor > 0
    penalty = np.divide(-1.0, floor, out=np.zeros(len(floor)), where=wanted)
    lack = Extra(1.0, penalty, np.where(wanted, np.inf, 0.0))
    nothing = Worth(np.zeros(len(floor)), np.ones(len(polytope.capacity)))
    found = linear.highest_sum(polytope, nothing, floor, lack)
    lost = np.flatnonzero(found.extra > SLACK * floor)
    reached = _throughput(polytope, found)
    notes = tuple(
        Note(
            int(i),
            f"job {problem.ids[i]} cannot meet its deadline together with the others: it needs {floor[i]:.4g} steps/s "
            f"and {reached[i]:.4g} are left for it",
        )
        for i in lost
    )
    # A hair below what was just shown to be possible, so that rounding cannot make the rest impossible again.
    kept = np.minimum(floor, reached) * (1 - 1e-12)
    kept[lost] = 0.0
    return kept, notes


def _too_soon(problem: Problem, job: int, needed: float, best: float) -> str:
    if not np.isfinite(needed):
        return f"job {problem.ids[job]} cannot meet its deadline: it has passed"
    return (
        f"job {problem.ids[job]} cannot meet its deadline: it needs {needed:.4g} steps/s and makes at most {best:.4g}"
    )


def best_ratio(
    problem: Problem, polytope: Polytope, prices: Floats, memory: Memory, with_deadlines: bool
) -> tuple[Solution, tuple[Note, ...]]:
    """The largest ratio of all throughput to the price of all GPUs held, by Dinkelbach's method.

    Each program maximises throughput less (ratio so far) x price; it ends when nothing is gained, which proves that no
    shares have a higher ratio. The last but one answer is kept: it runs everything that is worth its price.
    """
    ones = np.ones(len(problem))
    ratio = 0.0
    best, notes = best_sum(problem, polytope, Worth(ones, np.ones(len(prices))), memory, with_deadlines)
    while True:
        made, paid = _made_and_paid(polytope, best, prices)
        ratio = made / paid if paid > 0 else 0.0
        worth = Worth(ones, np.ones(len(prices)), ratio * prices)
        found, _ = best_sum(problem, polytope, worth, memory, with_deadlines)
        gain = max(found.bound, 0.0) / max(made, 1e-300)
        if found.value <= SLACK * 1e-3 * made or _made_and_paid(polytope, found, prices)[1] <= 0:
            return replace(best, value=ratio, bound=ratio * (1 + gain), gap=gain, prices=found.prices), notes
        best = found


def _made_and_paid(polytope: Polytope, found: Solution, prices: Floats) -> tuple[float, float]:
    held = polytope.gang @ found.x
    if found.y is not None:
        held = held + polytope.gang[polytope.pairs[:, 0]] @ found.y
    return float(_throughput(polytope, found).sum()), float(held @ prices)


def _throughput(polytope: Polytope, found: Solution) -> Floats:
    """Steps per second of every job."""
    return polytope.throughput(found.x, polytope.pair_rates[:, 0] if found.y is None else found.y)
