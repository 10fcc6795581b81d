"""What speed is worth where the last job to end counts: prices of the makespan program, and who may wait.

The linear program is that of ``shares/makespan.py``: maximise z so that every job runs at z x work left or faster,
within the GPUs of every type and the time of every job; all can have ended after 1 / z. Its dual says what a second on
a GPU of each type costs, and a second of a job that must run all the time. That decides on which type a job runs. Which
jobs run first it leaves open, as long as none gets late: short ones, so that most jobs need not wait for the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.policy.view import Floats, Ints

_SOLVE_EVERY = 10
"""Rounds between two programs while jobs and GPUs are the same: prices change slowly."""
_LEAST_PRICE = 1e-3
"""Of a GPU, over the mean price of all time: where the longest job alone decides the end, the program gives GPUs away,
and those on which jobs are fast must still be the dearer ones."""
_LEAST_TIME_PRICE = 1e-2
"""Of the time of a job, for each of its GPUs, likewise: where GPUs cost nothing, the fastest is the best."""
_LATE = 2.0
"""Exponent by which a type costs more on which the job would not end in time, by how late it would be."""
_SLACK = 0.1
"""A job that must run all the time is worth 1 / _SLACK times one that has all the time."""


@dataclass
class CommonEnd:
    """The program from round to round."""

    ends_s: float = field(default=0.0, init=False)
    """When all jobs can have ended, on the clock of the rounds."""
    part: Floats = field(default_factory=lambda: np.zeros(0), init=False, repr=False)
    """By job of the last round: the part of the time until then for which it must run, at most 1."""
    _price: Floats = field(default_factory=lambda: np.zeros(0), init=False, repr=False)
    """Of a second on a GPU, by type."""
    _own_price: Floats = field(default_factory=lambda: np.zeros(0), init=False, repr=False)
    """Of a second of each job that was there."""
    _solved_for: tuple[Ints, Ints] | None = field(default=None, init=False, repr=False)
    """Job indices, and GPUs by type."""
    _age: int = field(default=0, init=False, repr=False)
    """Rounds since then."""

    def update(self, now: float, job_indices: Ints, speed: Floats, left_s: Floats, gangs: Ints, capacity: Ints) -> None:
        """Solve anew where jobs or GPUs came or went, and now and then in between.

        Always from the beginning: a scheduler that was restarted must find the same prices.
        """
        self._age += 1
        asked = (job_indices, capacity)
        same = self._solved_for is not None and all(map(np.array_equal, self._solved_for, asked))
        if same and self._age < _SOLVE_EVERY:
            return
        self._solved_for, self._age = asked, 0
        rates = np.where(gangs[:, None] <= capacity, speed, 0.0)
        able = np.flatnonzero(rates.max(axis=1, initial=0.0) > 0)
        own, total = np.zeros(len(gangs)), max(1, int(capacity.sum()))
        price, z = np.zeros(len(capacity)), 0.0
        if len(able):
            own[able], price, z = _solved(rates[able], left_s[able], gangs[able].astype(np.float64), capacity)
            self.ends_s = now + 1.0 / z
        mean = rates.mean(axis=0) / max(float(rates.mean()), 1e-300) if len(able) else np.ones(len(capacity))
        self._price = np.maximum(price, _LEAST_PRICE * max(z, 1e-300) / total * np.maximum(mean, 1e-3))
        self._own_price = np.maximum(own, _LEAST_TIME_PRICE * max(z, 1e-300) / total * gangs)

    def worth(self, now: float, speed: Floats, left_s: Floats, gangs: Ints) -> tuple[Floats, Floats]:
        """What a unit of speed is worth to each job (row), and what a second on each type (column) costs its gang.

        Worth is the least cost of a unit of work: equal to the price on the types that suit the job, below it on all
        others. It is raised for jobs with little to do, by a factor of two at most, and for those that must run
        nearly all the time until the end, by up to ten.
        """
        runs = speed > 0
        must_run = np.where(runs, left_s[:, None] / np.maximum(speed, 1e-300), np.inf) / max(self.ends_s - now, 1.0)
        cost_s = self._own_price[:, None] + gangs[:, None] * self._price
        cost_s *= np.clip(must_run, 1.0, 1e3) ** _LATE
        per_work = np.where(runs, cost_s / np.maximum(speed, 1e-300), np.inf)
        rows, best = np.arange(len(gangs)), per_work.argmin(axis=1)
        self.part = part = np.minimum(must_run[rows, best], 1.0)
        raised = np.maximum(1.0 / (1.0 + _SLACK - part), 1.0 + (1.0 - part) ** 2)
        return np.where(runs.any(axis=1), per_work[rows, best] * raised, 0.0), cost_s

    def explain(self, job_index: int) -> str:
        """How much of the time until the common end a job has to run; nothing of one that was not there."""
        job_indices = self._solved_for[0] if self._solved_for is not None else np.zeros(0, dtype=np.int64)
        at = int(np.searchsorted(job_indices, job_index))
        if at >= len(self.part) or at >= len(job_indices) or job_indices[at] != job_index:
            return ""
        return f"It has to run for {self.part[at]:.0%} of the time until all jobs can have ended."

    # -- across restarts -------------------------------------------------------------------------------------------

    def state(self, names: Mapping[int, str]) -> dict[str, Any]:
        """Plain values; ``names``: ids of the active jobs by index. A job that has left counts as a change."""
        if self._solved_for is None:
            return {}
        job_indices, capacity = self._solved_for
        own = {names.get(i, ""): p for i, p in zip(job_indices.tolist(), self._own_price.tolist(), strict=True)}
        price, gpus = self._price.tolist(), capacity.tolist()
        return {"ends_s": self.ends_s, "price": price, "own": own, "gpus": gpus, "age": self._age}

    def restore(self, kept: Mapping[str, Any], indices: Mapping[str, int]) -> None:
        """Go on from ``state``; ``indices`` of the active jobs by id."""
        if not kept:
            return
        self.ends_s, self._age = float(kept["ends_s"]), int(kept["age"])
        self._price = np.array(kept["price"], dtype=np.float64)
        own = sorted((indices.get(name, -1), float(p)) for name, p in kept["own"].items())
        self._own_price = np.array([p for _, p in own])
        self._solved_for = np.array([i for i, _ in own], dtype=np.int64), np.array(kept["gpus"], dtype=np.int64)


def _solved(rates: Floats, left_s: Floats, gangs: Floats, capacity: Ints) -> tuple[Floats, Floats, float]:
    """Prices of the time of each job and of each type, and z; without prices where the numbers defeat the solver."""
    # The solver is loaded where it is asked: most runs never turn the dial to makespan.
    from trine.policy.shares.solver import max_min
    from trine.policy.shares.solver.polytope import InfeasibleError, LevelProblem

    gpus = capacity.astype(np.float64)
    try:
        found = max_min.solve(LevelProblem(rates=rates, demand=left_s, gang=gangs, capacity=gpus))
    except InfeasibleError:
        least_s = left_s / rates.max(axis=1)
        ends_s = max(float(least_s.max()), float((least_s * gangs).sum() / gpus.sum()))
        return np.zeros(len(gangs)), np.zeros(len(gpus)), 1.0 / ends_s
    profit = found.duals[:, None] * rates - gangs[:, None] * found.prices
    return profit.max(axis=1, initial=0.0), found.prices, found.value
