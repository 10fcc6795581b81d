"""The answer of a share policy: the part of its time each job should spend on each GPU type, how good that provably
is, and sentences on why a job got its share. Whole GPUs, handed out job by job, are shares too. Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.policy.shares.problem import PairRows, Problem
from trine.policy.shares.solver.polytope import Solution
from trine.policy.view import Floats, Ints

NEAR = 1e-4
"""Relative difference below which two levels, or a share and the full time, count as equal."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person should know; ``job`` is a position, or -1 for the whole problem."""

    job: int
    text: str


@dataclass(frozen=True)
class Allocation:
    """Shares of time, aligned with the jobs and columns of the problem."""

    shares: Floats
    """(jobs, columns), each job alone."""
    pair_jobs: Ints
    """(pairs, 2): positions of the jobs; those of the problem, or those chosen where it lists kinds."""
    pair_shares: Floats
    """(pairs, columns), both jobs of a pair together."""
    effective: Floats
    """Steps per second of each job, pairs included."""
    objective: float
    bound: float
    """No allocation can reach a better objective than this."""
    gap: float
    """Relative distance of objective and bound."""
    solver: str
    prices: Floats = field(default_factory=lambda: np.zeros(0))
    """What one more GPU of a type is worth in the objective; empty where the policy solves no program."""
    levels: Floats = field(default_factory=lambda: np.zeros(0))
    """Normalised throughput granted to each job, for policies that fill level by level."""
    notes: tuple[Note, ...] = ()

    def total(self) -> Floats:
        """(jobs, columns): time alone plus time in pairs."""
        total = self.shares.copy()
        for side in (0, 1):
            np.add.at(total, self.pair_jobs[:, side], self.pair_shares)
        return total

    def as_dict(self, problem: Problem) -> dict[str, Any]:
        """Plain values for JSON; notes and levels only where there are any."""
        pairs = zip(self.pair_jobs, self.pair_shares, strict=True)
        result: dict[str, Any] = {
            "shares": {job: _named(problem, row) for job, row in zip(problem.ids, self.shares, strict=True)},
            "pair_shares": [
                {"jobs": [problem.labels[a], problem.labels[b]]} | _named(problem, row) for (a, b), row in pairs
            ],
            "effective_throughput": dict(zip(problem.ids, self.effective.tolist(), strict=True)),
            "objective": self.objective,
            "gap": self.gap,
            "solver": self.solver,
        }
        if len(self.levels):
            result["levels"] = dict(zip(problem.ids, self.levels.tolist(), strict=True))
        if self.notes:
            result["notes"] = [note.text for note in self.notes]
        return result


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good an answer is: its objective, what no shares can beat, and the solver that proved it."""

    objective: float
    bound: float
    solver: str
    gap: float = 0.0
    prices: Floats = field(default_factory=lambda: np.zeros(0))


def exact(objective: float) -> Certificate:
    """For answers given by a formula or an exact algorithm."""
    return Certificate(objective, objective, "closed-form")


def allocation(
    problem: Problem,
    x: Floats,
    certificate: Certificate,
    pair_x: Floats | None = None,
    levels: Floats | None = None,
    notes: tuple[Note, ...] = (),
) -> Allocation:
    """From shares by type (``x``) and by rows of ``problem.pair_rows`` (``pair_x``)."""
    shares = np.minimum(np.maximum(problem.spread(x), 0.0), 1.0)
    effective = np.add.reduce(problem.throughput * shares, axis=1)
    pair_shares = np.zeros((len(problem.pairs), len(problem.columns)))
    if pair_x is not None:
        pair_shares = _pair_shares(problem, problem.pair_rows, np.clip(pair_x, 0.0, 1.0))
        effective += pair_rate(len(problem), problem.pairs.jobs, problem.pairs.throughput, pair_shares)
    return Allocation(
        shares,
        problem.pairs.jobs,
        pair_shares,
        effective,
        float(certificate.objective),
        float(certificate.bound),
        float(certificate.gap),
        certificate.solver,
        certificate.prices,
        np.zeros(0) if levels is None else levels,
        notes,
    )


def of_solution(
    problem: Problem,
    found: Solution,
    objective: float | None = None,
    bound: float | None = None,
    price_scale: float = 1.0,
    notes: tuple[Note, ...] = (),
) -> Allocation:
    """From the solution of a program; the objective may be another function of its value, of slope ``price_scale``."""
    certificate = Certificate(
        found.value if objective is None else objective,
        found.bound if bound is None else bound,
        found.solver,
        max(found.gap, 0.0),
        found.prices * price_scale,
    )
    pair_x = found.y if found.y is not None and len(found.y) else None
    return allocation(problem, found.x, certificate, pair_x, found.levels, notes)


def pair_rate(count: int, jobs: Ints, rates: Floats, shares: Floats) -> Floats:
    """Steps per second each of ``count`` jobs makes in pairs."""
    result = np.zeros(count)
    for side in (0, 1):
        np.add.at(result, jobs[:, side], (rates[:, side, :] * shares).sum(axis=1))
    return result


def _pair_shares(problem: Problem, rows: PairRows, pair_x: Floats) -> Floats:
    shares = np.zeros((len(problem.pairs), len(problem.columns)))
    np.add.at(shares, (rows.pair[:, None], rows.column), pair_x)
    return shares


def _named(problem: Problem, row: Floats) -> dict[str, float]:
    return dict(zip(problem.columns, row.tolist(), strict=True))


# -- whole GPUs ------------------------------------------------------------------------------------------------------


def take_fastest(problem: Problem, order: Ints, strict: bool) -> Ints:
    """The type each job runs on, -1 for none: in ``order``, each takes the fastest type with room for its gang.

    ``strict``: no job overtakes the first one without room. Of equally fast types the first is taken.
    """
    left = problem.capacity.tolist()
    chosen = np.full(len(problem), -1, np.int64)
    fastest = np.argsort(-problem.rates, axis=1, kind="stable").tolist()
    can_run, gang = (problem.rates > 0).tolist(), problem.gang.tolist()
    for job in order.tolist():
        type_index = next((j for j in fastest[job] if can_run[job][j] and left[j] >= gang[job]), -1)
        if type_index >= 0:
            chosen[job] = type_index
            left[type_index] -= gang[job]
        elif strict or not any(left):
            break
    return chosen


def whole_shares(problem: Problem, chosen: Ints) -> Floats:
    """Full time on the chosen types."""
    x = np.zeros((len(problem), len(problem.types)))
    placed = np.flatnonzero(chosen >= 0)
    x[placed, chosen[placed]] = 1.0
    return x


# -- why a job got its share, from the prices and levels that a solver leaves behind ---------------------------------


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
            stand = f"{noun} {level[i]:.4g}, better than the {goal:.4g} that all jobs are held to"
        else:
            stand = f"{noun} {goal:.4g}, the level that all jobs are held to"
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
