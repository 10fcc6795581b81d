"""What is learned by leaving each job out: the hazards of its sets without its own length.

A length that counts in the hazards that it is measured by is never far out: in a small set it makes its own bin likely.
Three things are read off hazards that leave each job out: how alike the jobs of a set are beyond those of the larger
one, how far lengths grow with limits, and where among jobs like it each job ended (``length_correlation``). The first
two are those that make the lengths likely, each given the others (leave-one-out cross-validation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trine.forecast.work_history import (
    CONCENTRATION,
    HIGHEST,
    PARTS,
    Key,
    KnownJob,
    Learned,
    WorkHistory,
    in_parts,
    kinds_of,
    sets_of,
)
from trine.policy.view import Flags, Floats, Ints

_CONCENTRATIONS = (2.0, 5.0, 15.0, 50.0, 150.0, 500.0, math.inf)
"""Jobs that a larger set may count as in a smaller one; infinity: the smaller one says nothing of its own."""
_USUAL = _CONCENTRATIONS.index(CONCENTRATION)
_NOTHING = 1e-9
"""Logarithms of likelihoods that differ by less say nothing."""
_PROPORTIONS: Floats = (np.arange(5) + 0.5) / 5
_LEAST = 1e-6


class LeaveOneOut:
    """Of some jobs that the history counts."""

    def __init__(self, history: WorkHistory, jobs: Sequence[KnownJob]) -> None:
        self.learned = Learned()
        self.log_survival: Floats = np.zeros(len(jobs))
        """By job, the logarithm of the part of jobs like it that do more work than it has done."""
        self.densities: Floats = np.zeros((len(jobs), len(history.edges)))
        """By job, the part of jobs like it that end in each bin."""
        limited = np.array([each.limit_s < math.inf for each in jobs], dtype=np.bool_)
        for some in (np.flatnonzero(limited), np.flatnonzero(~limited)):
            if len(some):
                chain = _Chain(history, [jobs[at] for at in some.tolist()])
                hazards = chain.hazards(self.learned)
                self.log_survival[some], self.densities[some] = chain.log_survival(hazards), _densities(hazards)


class _Chain:
    """The nested sets of jobs that all have a limit, or none: a row for each job, sets of one depth at a time."""

    def __init__(self, history: WorkHistory, jobs: Sequence[KnownJob]) -> None:
        self.history = history
        self.sets, self.kinds = [sets_of(each) for each in jobs], [kinds_of(each) for each in jobs]
        self.ended: Flags = np.array([each.ended for each in jobs], dtype=np.bool_)
        self._work_s: Floats = np.array([each.work_s for each in jobs])
        self.work_bins: Ints = np.searchsorted(history.edges, self._work_s, side="right") - 1
        used = self._work_s / np.array([each.limit_s for each in jobs])
        self.used_bins: Ints = np.searchsorted(PARTS, used, side="right") - 1

    def hazards(self, learned: Learned) -> Floats:
        """Of the smallest set of each job, without the job; what is learned on the way goes into ``learned``."""
        found: Floats = np.zeros((len(self.sets), 0))
        for depth in range(max(map(len, self.sets))):
            level = _Depth(self, depth)
            if depth == 1 and level.parts:
                learned.proportions = self._proportions(found)
            hazards = level.hazards(found[level.rows], learned)
            if hazards.shape[1] != found.shape[1]:
                found = np.zeros((len(self.sets), hazards.shape[1]))
            found[level.rows] = hazards
        return found

    def _proportions(self, of_all: Floats) -> Floats:
        """How likely each proportion is by which lengths grow with limits: by the number of jobs, and by their
        lengths."""
        magnitudes = [keys[1] for keys in self.sets]
        stand_out = {key for key in set(magnitudes) if self.history.stands_out(key)}
        rows = np.array([at for at, key in enumerate(magnitudes) if key in stand_out], dtype=np.int64)
        likely = self.history.limit_steps.log_likelihood(_PROPORTIONS)
        if len(rows):
            levels, plain = [_Depth(self, depth, rows) for depth in (1, 2)], Learned()
            for at, proportion in enumerate(_PROPORTIONS.tolist()):
                hazards = of_all[rows]
                for level in levels:
                    prior = level.prior(hazards, proportion)
                    hazards = _mean(*level.others(), prior, plain.concentration(level.kinds[0]))
                likely[at] += _log_likelihood(hazards, levels[-1].bins, self.ended[rows])
        chances = np.exp(likely - likely.max())
        found: Floats = chances / chances.sum()
        return found

    def log_survival(self, hazards: Floats) -> Floats:
        """At the work that each job has done."""
        edges, log_edges, row = self.history.edges, self.history.log_edges, np.arange(len(hazards))
        log_alive = np.zeros((len(hazards), hazards.shape[1] + 1))
        np.cumsum(np.log1p(-np.minimum(hazards, HIGHEST)), axis=1, out=log_alive[:, 1:])
        at = np.log(np.minimum(self._work_s, edges[-1]) + edges[1])
        within = (at - log_edges[self.work_bins]) / (log_edges[self.work_bins + 1] - log_edges[self.work_bins])
        low, high = log_alive[row, self.work_bins], log_alive[row, self.work_bins + 1]
        found: Floats = low + within * (high - low)
        return found


class _Depth:
    """Sets of one depth, of the jobs that are in any."""

    def __init__(self, chain: _Chain, depth: int, of: Ints | None = None) -> None:
        sets = chain.sets
        some = range(len(sets)) if of is None else of.tolist()
        self.rows: Ints = np.array([at for at in some if len(sets[at]) > depth], dtype=np.int64)
        self.keys = [sets[at][: depth + 1] for at in self.rows.tolist()]
        self.kinds = [chain.kinds[at][depth] for at in self.rows.tolist()]
        self.ended = chain.ended[self.rows]
        self.parts = in_parts(self.keys[0][-1])
        self.bins = (chain.used_bins if self.parts else chain.work_bins)[self.rows]
        self._history = chain.history

    def hazards(self, larger: Floats, learned: Learned) -> Floats:
        """By row; ``larger``: those of the larger set."""
        over, survived = self.others()
        prior = self.prior(larger, learned.proportion)
        found = np.empty(prior.shape)
        kinds = np.array(self.kinds)
        for kind in dict.fromkeys(self.kinds):
            own = kinds == kind
            counts, bins, ended = (over[own], survived[own], prior[own]), self.bins[own], self.ended[own]
            if len(self.keys[0]) > 1:
                likely = [_log_likelihood(_mean(*counts, each), bins, ended) for each in _CONCENTRATIONS]
                best = int(np.argmax(likely))
                if likely[best] > likely[_USUAL] + _NOTHING:
                    learned.concentrations[kind] = _CONCENTRATIONS[best]
                else:
                    learned.concentrations[kind] = CONCENTRATION
            found[own] = _mean(*counts, learned.concentration(kind))
        return found

    def prior(self, larger: Floats, proportion: float) -> Floats:
        """Before the other jobs of each set count."""
        rows: dict[Key, list[int]] = {}
        for at, keys in enumerate(self.keys):
            rows.setdefault(keys[-1], []).append(at)
        if not self.parts and len(self.keys[0]) > 1 and not in_parts(self.keys[0][-2]):
            return larger
        found = np.empty((len(self.keys), len(PARTS) if self.parts else len(self._history.edges)))
        for own in rows.values():
            found[own] = self._history.prior(self.keys[own[0]], lambda _, own=own: larger[own], proportion)  # type: ignore[misc]
        return found

    def others(self) -> tuple[Floats, Floats]:
        """Counts of the set of each row without its job."""
        over, survived = self._history.counts_of_all(keys[-1] for keys in self.keys)
        over[np.arange(len(self.bins)), self.bins] -= self.ended
        survived -= np.arange(over.shape[1]) < self.bins[:, None]
        return np.maximum(over, 0.0), np.maximum(survived, 0.0)


def _densities(hazards: Floats) -> Floats:
    """Part of all that ends in each bin; the last one has what is left."""
    hazards = np.minimum(hazards, HIGHEST)
    alive = np.cumprod(1.0 - hazards, axis=1)
    found = np.empty(hazards.shape)
    found[:, 0], found[:, 1:] = hazards[:, 0], hazards[:, 1:] * alive[:, :-1]
    found[:, -1] += alive[:, -1]
    return found


def _mean(ended: Floats, survived: Floats, prior: Floats, concentration: float) -> Floats:
    if concentration == math.inf:
        return prior
    found: Floats = (ended + concentration * prior) / (ended + survived + concentration)
    return found


def _log_likelihood(hazards: Floats, bins: Ints, ended: Flags) -> float:
    """Of what became of each job: it survived the bins before its own, and ended in that one, or is in it."""
    hazards = np.clip(hazards, _LEAST, 1.0 - _LEAST)
    passed = np.arange(hazards.shape[1]) < bins[:, None]
    own = hazards[np.arange(len(bins)), bins][ended]
    return float(np.log1p(-hazards[passed]).sum() + np.log(own).sum())
