"""The settings of the round mechanism, the same for every share policy, and what their values mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trine.core.errors import InputError, unknown_name
from trine.core.params import param
from trine.perf.model import PerfModel
from trine.policy.shares.problem import RULES, Entity

WHERE = "--set"


@dataclass(frozen=True)
class RoundParams:
    """How shares are turned into rounds."""

    reset_gap_s: float = param(1920.0, "seconds between two computations of the shares, at least", minimum=0)
    type_order: tuple[str, ...] = param((), "GPU types in the order in which they are filled; none = fastest first")
    rule: str = param(
        "auto",
        "which jobs go first: by share over time received, or those furthest behind in seconds; auto = lag with speeds",
        ("auto", "ratio", "lag"),
    )
    stay_rounds: float | None = param(
        None,
        "under the rule lag, a running job gives way only to those further behind by so many rounds; "
        "none = 1, or 0 where the last job counts (makespan)",
        minimum=0,
    )
    leftover: str = param(
        "gain",
        "time that the highest level leaves over: to the jobs that gain most, or the middle of all that reach it",
        ("gain", "centre"),
    )
    one_queue: bool = param(False, "under the rule ratio, one order over all types instead of one per type")
    entities: tuple[str, ...] = param(
        (), "weights and rules of groups: GROUP=WEIGHT or GROUP=WEIGHT:fifo, separated by commas"
    )
    rounds_seed: int | None = param(
        None, "random stream of draws (pairs, types, their order, references); none = the run's seed"
    )
    references: int = param(
        0,
        "0 = rates of pairs are known; otherwise so many models are measured in full and other pairs are estimated",
        minimum=0,
    )
    profiled: float = param(
        0.6, "with references, the part of their pairs with other models that is measured", minimum=0, maximum=1
    )


def type_order(named: tuple[str, ...], perf: PerfModel) -> list[int]:
    """Indices of the types: as named, then from fast to slow over all models of the throughput table."""
    types = [name.lower() for name in perf.cluster.types]
    unknown = [name for name in named if name.lower() not in types]
    if unknown:
        raise unknown_name(WHERE, "GPU type", unknown[0], types, "type_order")
    rates = np.array([[row.get(name, 0.0) for name in types] for row in perf.throughputs.rates.values()])
    rates = rates.reshape(-1, len(types))
    best = rates.max(axis=1, initial=0.0, keepdims=True)
    speed = np.divide(rates, best, out=np.zeros_like(rates), where=best > 0).sum(axis=0)
    first = [types.index(name.lower()) for name in named]
    return list(dict.fromkeys(first + np.argsort(-speed, kind="stable").tolist()))


def entities_of(parts: tuple[str, ...]) -> dict[str, Entity]:
    """``("research=2", "web=1:fifo")``: entities by name."""
    found: dict[str, Entity] = {}
    for part in parts:
        name, _, given = part.partition("=")
        weight, _, rule = given.partition(":")
        try:
            number = float(weight)
        except ValueError:
            number = 0.0
        rule = rule or RULES[0]
        if not name or not 0 < number < np.inf or rule not in RULES:
            hint = f"GROUP=WEIGHT or GROUP=WEIGHT:RULE, with a weight above 0 and the rule {' or '.join(RULES)}"
            raise InputError(WHERE, f"{part!r}", hint, "entities")
        if name in found:
            raise InputError(WHERE, f"group {name!r} twice", "every group once", "entities")
        found[name] = Entity(name, number, rule)
    return found
