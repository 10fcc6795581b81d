"""How much work a job still has when nothing says so: learned from the jobs that ended, by the work they took.

Work is in seconds on median GPUs of the job's best type. The estimate is the inverse of the Gittins index: the least
expected work per expected completion over all look-aheads, so that 1 / estimate is how much it pays to serve the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trine.policy.view import Floats, Ints

_BINS_PER_OCTAVE = 4
_FIRST_EDGE_S = 30.0
_OCTAVES = 21
"""From 30 seconds to two years."""
JobSet = tuple[str, ...]
"""A set of jobs by what they have in common, from what most share to what few do; (): all jobs."""
_MOST_SETS = 1000
"""Jobs of further sets count as their larger set: what one user submits must not slow the rounds of all."""


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

    Jobs may belong to nested sets (all, those of one gang size, of these those of one user ...), each known by a row of
    this table. The hazards of a set have those of the larger one as prior, with the same weight: a set of few jobs is
    taken for like the others, one of many speaks for itself.
    """

    prior_scale_s: float = 1800.0
    prior_weight: float = 10.0
    edges: Floats = field(default_factory=work_bins)
    _rows: dict[JobSet, int] = field(default_factory=lambda: {(): 0}, init=False, repr=False)
    """The set of all jobs is row 0; a larger set always comes before those within it."""
    _parents: list[int] = field(default_factory=lambda: [0], init=False, repr=False)
    _ended: Floats = field(init=False, repr=False)
    """Finished jobs by set (row) and by the bin in which they ended."""
    _left: Floats = field(init=False, repr=False)
    """Seconds of work left, by set and by bin of work done."""

    def __post_init__(self) -> None:
        self._ended = np.zeros((1, len(self.edges)))
        self.fit(np.zeros(0))

    def row_of(self, job_set: JobSet) -> int:
        """The row of a set, which is made if it is new and there is room for it; else that of the set around it."""
        row = self._rows.get(job_set)
        if row is not None:
            return row
        parent = self.row_of(job_set[:-1])
        if len(self._parents) >= _MOST_SETS:
            return parent
        self._rows[job_set] = row = len(self._parents)
        self._parents.append(parent)
        self._ended = np.vstack((self._ended, np.zeros(len(self.edges))))
        self._left = np.vstack((self._left, self._left[parent]))
        return row

    def bins_of(self, work_s: Floats) -> Ints:
        """The bin of each amount of work."""
        found: Ints = np.searchsorted(self.edges, work_s, side="right") - 1
        return found

    def add(self, work_s: float, row: int = 0) -> None:
        """A job of this set ended after this much work; counts from the next ``fit`` on."""
        self._ended[row, np.searchsorted(self.edges, work_s, side="right") - 1] += 1.0

    @property
    def count(self) -> int:
        """How many finished jobs it rests on."""
        return int(self._ended.sum())

    @property
    def ended(self) -> dict[JobSet, list[float]]:
        """Finished jobs by set and bin, for the record."""
        return {job_set: self._ended[row].tolist() for job_set, row in self._rows.items()}

    def restore(self, ended: Mapping[JobSet, list[float]]) -> None:
        """Go on from what was on record, instead of what was learned since."""
        self._ended[:] = 0.0
        for job_set, counts in ended.items():
            row = self.row_of(job_set)
            self._ended[row, : len(counts)] += counts[: len(self.edges)]

    def fit(self, running_s: Floats, rows: Ints | None = None) -> None:
        """Compute the estimates anew; ``running_s`` is the work done so far of the jobs that have not ended."""
        edges, count = self.edges, len(self.edges)
        flat = self.bins_of(running_s) + (0 if rows is None else rows * count)
        passed = np.bincount(flat, minlength=self._ended.size).astype(np.float64).reshape(self._ended.shape)
        ended = self._ended.copy()
        for row in range(len(self._parents) - 1, 0, -1):  # a set counts what the sets within it count
            ended[self._parents[row]] += ended[row]
            passed[self._parents[row]] += passed[row]
        # A bin is survived by the jobs that ended in a later one and by those that are in a later one now.
        both = ended + passed
        beyond = np.cumsum(both[:, ::-1], axis=1)[:, ::-1] - both
        hazard = np.empty(ended.shape)
        for row, parent in enumerate(self._parents):
            prior = hazard[parent] if row else pareto_hazard(edges, self.prior_scale_s)
            hazard[row] = (ended[row] + self.prior_weight * prior) / (ended[row] + beyond[row] + self.prior_weight)
        self._left = _least_work_per_end(np.clip(hazard, 1e-6, 1.0), np.append(np.diff(edges), edges[count - 1]))

    def left_s(self, done_s: Floats, rows: Ints | None = None) -> Floats:
        """Seconds of work left of jobs that have done ``done_s`` of it."""
        left: Floats = self._left[0 if rows is None else rows, self.bins_of(done_s)]
        return left


def shrunk(guess_s: Floats) -> Floats:
    """Guesses of work left as they count in an order of jobs: closer to the median one, by a quarter of the logarithm.

    Of two jobs the one that is guessed to be ten times as long is on average less than ten times as long: what is
    learned from few jobs of a heavy-tailed distribution is partly chance (regression towards the mean). Measured on
    drawn worlds, the logarithm of the true rest grows by 0.6 of that of the guess (docs/joint.md). Roots, unlike
    other powers, are rounded alike on all processors.
    """
    middle_s = float(np.median(guess_s))
    ratio = np.sqrt(guess_s / middle_s)
    found: Floats = middle_s * ratio * np.sqrt(ratio)
    return found


def _least_work_per_end(hazard: Floats, width_s: Floats) -> Floats:
    """For each row and bin b: the minimum over k of E[work in bins b..k] / P(end in b..k), given that b was reached.

    A job that ends in a bin has, on average, done half of it.
    """
    left = np.empty(hazard.shape)
    for b in range(hazard.shape[1]):
        survive = np.cumprod(1.0 - hazard[:, b:], axis=1)
        reached = np.hstack((np.ones((len(hazard), 1)), survive[:, :-1]))
        work = np.cumsum(reached * width_s[b:] * (1.0 - hazard[:, b:] / 2.0), axis=1)
        left[:, b] = (work / (1.0 - survive)).min(axis=1)
    return left
