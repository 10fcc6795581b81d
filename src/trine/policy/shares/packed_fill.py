"""Water filling with pairs: raise everybody, freeze who cannot rise further, raise the others. By linear programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from trine.policy.shares import packed
from trine.policy.shares.solver.form import InfeasibleError
from trine.policy.shares.solver.highs import Session
from trine.policy.shares.solver.rules import Rule
from trine.policy.view import Flags, Floats

ROOMS = (3e-9, 1e-7, 3e-6)
"""Granted levels are held to within this part of a job's fastest rate, the first that leaves a program room to move."""
RISE = 1e-6
"""A rise below this part of the highest level is rounding."""


@dataclass(frozen=True)
class PackedFilling:
    """Shares that give every job its level, and how exactly the levels are known."""

    x: Floats
    y: Floats
    levels: Floats
    gap: float


def fill(space: packed.Space, rule: Rule, session: Session, finalise_all: bool = False) -> PackedFilling:
    """Levels of normalised throughput, ``space`` holding normalised rates: each pass raises job m by t weight / gang.

    ``finalise_all`` freezes every job that was raised after each pass, as the published code does when its search for
    bottlenecks fails.
    """
    n = len(space.gang)
    levels, done, gap = np.zeros(n), np.zeros(n, bool), 0.0
    while True:
        demand = rule.weights(done) / space.gang
        answer = _with_room(space, levels, partial(packed.level, space, demand, session=session))
        levels = levels + max(answer.value, 0.0) * demand
        unsure = (answer.bound - answer.value) * float(demand.max())
        gap = max(gap, unsure / max(float(levels.max()), 1e-12))
        active = demand > 0
        done |= active if finalise_all else _stuck(space, levels, active, answer, session)
        if done.all():
            return PackedFilling(answer.x, answer.y, levels, gap)


def _stuck(space: packed.Space, levels: Floats, active: Flags, answer: packed.PackedAnswer, session: Session) -> Flags:
    """Active jobs that cannot rise while nobody falls.

    Whoever rises in some program can rise; the others are asked again without them, until nobody of the rest rises.
    """
    stuck = active.copy()
    scale = max(float(levels.max()), 1e-12)
    aim = packed.Aim(np.zeros(len(levels)), np.ones(len(space.capacity)))
    while stuck.any():
        up = packed.Extra(-1.0, stuck.astype(np.float64), np.where(stuck, scale, 0.0))
        found = _with_room(space, levels, partial(packed.total, space, aim, extra=up, session=session))
        risen = stuck & (found.extra > RISE * scale)
        if not risen.any():
            return stuck
        stuck &= ~risen
    # All could rise, against what the level just reached says: rounding. The one that holds it up most is stuck.
    weight = np.where(active, answer.duals, -1.0)
    only: Flags = np.arange(len(levels)) == int(weight.argmax())
    return only


def _with_room(
    space: packed.Space, levels: Floats, solve: Callable[[Floats], packed.PackedAnswer]
) -> packed.PackedAnswer:
    """``solve`` for floors a hair below the levels: rounding must not make what was granted impossible."""
    unit = space.rates.max(axis=1)
    for room in ROOMS:
        try:
            return solve(np.maximum(levels - room * unit, 0.0))
        except InfeasibleError:
            if room == ROOMS[-1]:
                raise
    raise AssertionError("ROOMS is empty")
