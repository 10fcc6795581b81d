"""How much work a job still has when nothing says so: learned from the jobs that ended, by the work they took.

Work is in seconds on median GPUs of the job's best type. The estimate is the inverse of the Gittins index: the least
expected work per expected completion over all look-aheads, so that 1 / estimate is how much it pays to serve the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trine.policy.view import Floats, Ints

_BINS_PER_OCTAVE = 4
_FIRST_EDGE_S = 30.0
_OCTAVES = 21
"""From 30 seconds to two years."""


def work_bins() -> Floats:
    """Edges of the bins, seconds of work: 0, 30, and four in each doubling from there on."""
    octaves = np.arange(_OCTAVES * _BINS_PER_OCTAVE + 1) / _BINS_PER_OCTAVE
    return np.concatenate(([0.0], _FIRST_EDGE_S * 2.0**octaves))


def pareto_hazard(edges: Floats, scale_s: float) -> Floats:
    """Hazard by bin of a Pareto distribution whose expected rest is age + ``scale_s``; the last bin is left by all."""
    shifted = edges + scale_s
    hazard: Floats = np.append(1.0 - shifted[:-1] / shifted[1:], 1.0)
    return hazard


@dataclass
class WorkDistribution:
    """Hazard of ending, by bin of work done (Kaplan and Meier 1958), and what follows from it for the work left.

    Jobs that still run count as censored: they are known to have passed the bins that they have passed. A Pareto prior
    (expected rest = age + ``prior_scale_s``) counts as ``prior_weight`` jobs in every bin, so that the first decisions
    of an empty cluster are those of a heavy-tailed workload and later ones those of its history.
    """

    prior_scale_s: float = 1800.0
    prior_weight: float = 10.0
    edges: Floats = field(default_factory=work_bins)
    _ended: Floats = field(init=False, repr=False)
    """Finished jobs by the bin in which they ended."""
    _left: Floats = field(init=False, repr=False)
    """Seconds of work left, by bin of work done."""

    def __post_init__(self) -> None:
        self._ended = np.zeros(len(self.edges))
        self.fit(np.zeros(0))

    def bins_of(self, work_s: Floats) -> Ints:
        """The bin of each amount of work."""
        found: Ints = np.searchsorted(self.edges, work_s, side="right") - 1
        return found

    def add(self, work_s: float) -> None:
        """A job ended after this much work; counts from the next ``fit`` on."""
        self._ended[np.searchsorted(self.edges, work_s, side="right") - 1] += 1.0

    @property
    def ended(self) -> list[float]:
        """Finished jobs by bin, for the record."""
        found: list[float] = self._ended.tolist()
        return found

    @ended.setter
    def ended(self, counts: list[float]) -> None:
        self._ended[: len(counts)] = counts[: len(self._ended)]

    def fit(self, running_s: Floats) -> None:
        """Compute the estimates anew; ``running_s`` is the work done so far of the jobs that have not ended."""
        edges, prior = self.edges, pareto_hazard(self.edges, self.prior_scale_s)
        passed = np.bincount(self.bins_of(running_s), minlength=len(edges)).astype(np.float64)
        # A bin is survived by the jobs that ended in a later one and by those that are in a later one now.
        beyond = np.cumsum((self._ended + passed)[::-1])[::-1] - (self._ended + passed)
        at_risk = self._ended + beyond + self.prior_weight
        hazard = np.clip((self._ended + self.prior_weight * prior) / at_risk, 1e-6, 1.0)
        self._left = _least_work_per_end(hazard, np.append(np.diff(edges), edges[-1]))

    def left_s(self, done_s: Floats) -> Floats:
        """Seconds of work left of jobs that have done ``done_s`` of it."""
        left: Floats = self._left[self.bins_of(done_s)]
        return left


def _least_work_per_end(hazard: Floats, width_s: Floats) -> Floats:
    """For each bin b: the minimum over k of E[work in bins b..k] / P(end in b..k), given that b was reached.

    A job that ends in a bin has, on average, done half of it.
    """
    count = len(hazard)
    left = np.empty(count)
    for b in range(count):
        survive = np.concatenate(([1.0], np.cumprod(1.0 - hazard[b:])))
        work = np.cumsum(survive[:-1] * width_s[b:] * (1.0 - hazard[b:] / 2.0))
        left[b] = float((work / (1.0 - survive[1:])).min())
    return left
