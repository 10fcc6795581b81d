"""The entities of a problem as the rule by which water filling weighs jobs."""

from __future__ import annotations

import numpy as np

from trine.policy.shares.problem import Problem
from trine.policy.shares.solver.rules import Alone, Entities, Rule
from trine.policy.view import Ints


def rule_of(problem: Problem, order: Ints) -> Rule:
    """For the jobs in ``order`` of arrival. A job without an entity counts as one of its own, with its own weight."""
    entity, weight = problem.entity[order], problem.weight[order]
    loose = entity < 0
    if loose.all():
        return Alone(weight)
    count = int(loose.sum())
    entity = entity.copy()
    entity[loose] = len(problem.entities) + np.arange(count)
    return Entities(
        entity,
        np.concatenate([[e.weight for e in problem.entities], weight[loose]]),
        np.concatenate([[e.rule == "fifo" for e in problem.entities], np.zeros(count, bool)]),
        weight,
    )
