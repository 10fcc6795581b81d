"""The one form of allocation problem the interior-point solver knows, and the certified answer to it. No algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class UnservableError(ValueError):
    """Some rows can never reach a positive rate; ``rows`` are their indices."""

    def __init__(self, rows: list[int], why: str) -> None:
        self.rows, self.why = rows, why
        super().__init__(f"{why}: rows {rows}")


class InfeasibleError(ValueError):
    """No shares reach all the floors, whatever the level of the others."""


@dataclass(frozen=True, kw_only=True)
class RateProblem:
    """Maximise t over shares x >= 0 with ``rates[m] @ x[m] >= demand[m] * t + floor[m]``, ``sum_j x[m, j] <= 1`` and
    ``sum_m gang[m] * x[m, j] <= capacity[j]``.
    """

    rates: Array
    demand: Array
    gang: Array
    capacity: Array
    floor: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        for name in ("rates", "demand", "gang", "capacity", "floor"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if not self.floor.size:
            object.__setattr__(self, "floor", np.zeros(len(self.demand)))
        self._check()

    @classmethod
    def unchecked(cls, rates: Array, demand: Array, gang: Array, capacity: Array) -> RateProblem:
        """From arrays known to be good, without floors, for callers in a hurry."""
        made = object.__new__(cls)
        floor = np.zeros(len(demand))
        made.__dict__.update(rates=rates, demand=demand, gang=gang, capacity=capacity, floor=floor)
        return made

    def _check(self) -> None:
        rows = (self.n_jobs,)
        if self.rates.ndim != 2 or self.capacity.shape != (self.n_types,):
            raise ValueError(f"rates {self.rates.shape} and capacity {self.capacity.shape} do not match")
        if not self.demand.shape == self.gang.shape == self.floor.shape == rows:
            raise ValueError(f"demand, gang and floor must hold one value for each of {rows[0]} rows")
        # One sum sees every NaN and infinity, without an array of marks.
        total = self.rates.sum() + self.demand.sum() + self.gang.sum() + self.capacity.sum() + self.floor.sum()
        if not np.isfinite(total):
            raise ValueError("rates, demand, gang, capacity and floor must be finite")
        if self.n_jobs and min(self.rates.min(initial=0.0), self.demand.min(), self.capacity.min(initial=0.0)) < 0:
            raise ValueError("rates, demand and capacity must not be negative")
        if self.n_jobs and self.gang.min() <= 0:
            raise ValueError("gang must be positive")

    @property
    def n_jobs(self) -> int:
        return len(self.rates)

    @property
    def n_types(self) -> int:
        return int(self.rates.shape[1])


@dataclass(frozen=True)
class Certified:
    """Feasible shares and the proof of how good they are.

    ``bound`` is an upper bound on the value of any feasible shares, from ``duals`` (per row, ``duals @ demand == 1``)
    and ``prices`` (per GPU type); ``gap`` the relative distance between ``value`` and ``bound``.
    """

    x: Array
    value: float
    bound: float
    gap: float
    duals: Array
    prices: Array
    solver: str
    iterations: int = 0
    cpu_s: float = 0.0
