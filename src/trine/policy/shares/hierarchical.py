"""Hierarchical fairness: entities share by weight, their jobs by fairness or in order of arrival. By water filling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.shares.allocation import NEAR, Allocation, of_solution
from trine.policy.shares.base import Memory, SharePolicy, aware_param, equal_rates, shares_space, sharing_param
from trine.policy.shares.problem import Problem, proportional
from trine.policy.shares.program import highest_levels, polytope_of
from trine.policy.shares.solver.weights import EntityWeights, JobWeights, WeightRule
from trine.policy.view import Ints


@dataclass
class Hierarchical(SharePolicy):
    """All jobs rise together in normalised throughput thr(m, X) / Tn_m, by weight / gang. A job that cannot rise unless
    another falls stays, its weight goes to the others of its entity, and the rest rises on, until no job can.

    Within an entity the rule ``fairness`` divides its weight by the weights of the jobs, ``fifo`` gives it to the first
    that can still rise. Jobs without entity count for themselves, so that without entities this is weighted max-min
    fairness at every level.
    """

    name: ClassVar[str] = "hierarchical"
    title: ClassVar[str] = "entities share by weight, their jobs by fairness or FIFO, level by level"
    paper: ClassVar[str] = "Gavel (OSDI'20), section 4.3"
    objective: ClassVar[str] = "level of the first pass, which every weight is held to"
    uses_groups: ClassVar[bool] = True

    aware: bool = aware_param()
    space_sharing: bool | None = sharing_param()
    finalise_all: bool = param(False, "freeze every job that was raised after each pass, as the published runs did")

    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        rates = problem.rates if self.aware else equal_rates(problem)
        normal = proportional(rates, problem.capacity)
        polytope = polytope_of(problem, rates, self.aware and shares_space(problem, self.space_sharing)).divided(normal)
        order = np.argsort(problem.arrival, kind="stable")
        rule = weights_of(problem, order)
        found = highest_levels(polytope.reordered(order), rule, memory, self.finalise_all)
        back = np.argsort(order)
        return of_solution(problem, replace(found, x=found.x[back], levels=found.levels[back]))

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        fastest = problem.spread((problem.rates == problem.rates.max(axis=1, keepdims=True)).astype(np.float64))
        at_best = (found.shares * fastest).sum(axis=1) >= 1 - NEAR
        sentences = []
        for i, level in enumerate(found.levels):
            entity = problem.entities[problem.entity[i]] if problem.entity[i] >= 0 else None
            group = f"entity {entity.name} ({entity.rule} inside)" if entity else "no entity"
            why = "all the time on its fastest type" if at_best[i] else "it cannot rise unless another job falls"
            sentences.append(f"{group}, level {level:.4g} of its proportional throughput: {why}")
        return sentences


def weights_of(problem: Problem, order: Ints) -> WeightRule:
    """How water filling weighs the jobs in ``order`` of arrival.

    A job without an entity counts as one of its own, with its own weight.
    """
    entity, weight = problem.entity[order], problem.weight[order]
    loose = entity < 0
    if loose.all():
        return JobWeights(weight)
    count = int(loose.sum())
    entity = entity.copy()
    entity[loose] = len(problem.entities) + np.arange(count)
    return EntityWeights(
        entity,
        np.concatenate([[e.weight for e in problem.entities], weight[loose]]),
        np.concatenate([[e.rule == "fifo" for e in problem.entities], np.zeros(count, bool)]),
        weight,
    )
