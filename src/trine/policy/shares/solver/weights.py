"""Weights of the jobs that rise in a pass of water filling: of jobs by themselves, or of entities.

An entity is a group of jobs that gets its share as a whole (Gavel OSDI'20, section 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trine.policy.shares.solver.polytope import Array, Index, Mask
from trine.policy.shares.solver.presolve import Classes


class WeightRule(Protocol):
    """Weights of the jobs that rise in the next pass; 0 for those that wait or are done."""

    def weights(self, done: Mask) -> Array: ...

    def columns(self) -> tuple[Array, ...]:
        """What two jobs must have in common, besides rates and gang, to be treated alike."""
        ...

    def merged(self, classes: Classes) -> WeightRule:
        """The same rule over classes of equal jobs."""
        ...


@dataclass(frozen=True)
class JobWeights:
    """Every job counts with its own weight."""

    job_weight: Array

    def weights(self, done: Mask) -> Array:
        return np.where(done, 0.0, self.job_weight)

    def columns(self) -> tuple[Array, ...]:
        return (self.job_weight,)

    def merged(self, classes: Classes) -> JobWeights:
        return JobWeights(self.job_weight[classes.first])


@dataclass(frozen=True)
class EntityWeights:
    """An entity's weight goes to its unfinished jobs by their weights, or (``fifo``) all of it to the first of them.

    ``entity_of`` numbers the entity of each job; jobs are in order of arrival.
    """

    entity_of: Index
    entity_weight: Array
    fifo: Mask
    job_weight: Array
    size: Index | None = None

    def weights(self, done: Mask) -> Array:
        open_weight = np.where(done, 0.0, self.job_weight)
        in_class = open_weight if self.size is None else open_weight * self.size
        total = np.bincount(self.entity_of, weights=in_class, minlength=len(self.entity_weight))
        fair: Array = self.entity_weight[self.entity_of] * open_weight / np.where(total > 0, total, 1.0)[self.entity_of]
        if not self.fifo.any():
            return fair
        out: Array = np.where(self.fifo[self.entity_of], self._first_of_entities(done), fair)
        return out

    def _first_of_entities(self, done: Mask) -> Array:
        out = np.zeros(len(done))
        waiting = np.flatnonzero(~done)
        entities, first = np.unique(self.entity_of[waiting], return_index=True)
        out[waiting[first]] = self.entity_weight[entities]
        return out

    def columns(self) -> tuple[Array, ...]:
        place = np.where(self.fifo[self.entity_of], np.arange(len(self.entity_of)), -1)
        return self.entity_of.astype(np.float64), self.job_weight, place.astype(np.float64)

    def merged(self, classes: Classes) -> EntityWeights:
        head = classes.first
        return EntityWeights(self.entity_of[head], self.entity_weight, self.fifo, self.job_weight[head], classes.size)
