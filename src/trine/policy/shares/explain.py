"""Sentences on why a job got its share, from the prices and levels a solver leaves behind. Decides nothing."""

from __future__ import annotations

import numpy as np

from trine.policy.shares.allocation import Allocation
from trine.policy.shares.problem import Problem
from trine.policy.view import Floats

NEAR = 1e-4
"""Relative difference below which two levels, or a share and the full time, count as equal."""


def by_prices(problem: Problem, found: Allocation) -> list[str]:
    """How much of its time a job runs, and which scarce type holds it back."""
    return [_time(problem, found, i, total) for i, total in enumerate(found.total())]


def by_level(problem: Problem, found: Allocation, level: Floats, noun: str, lower_is_better: bool = False) -> list[str]:
    """Where each job stands against the level that all jobs are held to."""
    goal = found.objective
    sentences = []
    for i, total in enumerate(found.total()):
        better = (goal - level[i] if lower_is_better else level[i] - goal) / max(abs(goal), 1e-300)
        if better > NEAR:
            stand = f"{noun} {level[i]:.4g}, better than the {goal:.4g} everybody is held to"
        else:
            stand = f"{noun} {goal:.4g}, the level everybody is held to"
        sentences.append(f"{stand}; {_time(problem, found, i, total)}")
    return with_notes(found, sentences)


def with_notes(found: Allocation, sentences: list[str]) -> list[str]:
    """The notes on a job take the place of its sentence's beginning."""
    noted = list(sentences)
    for note in found.notes:
        if note.job >= 0:
            noted[note.job] = f"{note.text}; {sentences[note.job]}"
    return noted


def _time(problem: Problem, found: Allocation, job: int, total: Floats) -> str:
    time = float(total.sum())
    if time <= NEAR:
        return f"no time: {_scarce(problem, found, job) or 'others make more of it'}"
    if time >= 1 - NEAR:
        used = _scarce_of(problem, found, total)
        return "runs all the time" + (f", though {used} is scarce" if used else "")
    return f"runs {time:.0%} of the time: {_scarce(problem, found, job) or 'that is all it needs'}"


def _scarce_of(problem: Problem, found: Allocation, total: Floats) -> str:
    """A scarce type that the job does use."""
    if not len(found.prices):
        return ""
    by_type = np.zeros(len(problem.types))
    np.add.at(by_type, problem.column_type, total)
    scarce = np.where(by_type > NEAR, found.prices, 0.0)
    best = int(scarce.argmax())
    return _priced(problem, found, best) if scarce[best] > _floor(found) else ""


def _scarce(problem: Problem, found: Allocation, job: int) -> str:
    """The dearest type the job could run on."""
    if not len(found.prices):
        return ""
    prices = np.where(problem.rates[job] > 0, found.prices, 0.0)
    best = int(prices.argmax())
    return f"{_priced(problem, found, best)} is scarce" if prices[best] > _floor(found) else ""


def _priced(problem: Problem, found: Allocation, type_index: int) -> str:
    return f"{problem.types[type_index]} (one more GPU is worth {found.prices[type_index]:.3g} of the objective)"


def _floor(found: Allocation) -> float:
    """Below this a price is rounding."""
    return 1e-7 * max(float(found.prices.max(initial=0.0)), abs(found.objective))
