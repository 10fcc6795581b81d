"""Water filling: raise everybody together, fix those who cannot rise any further, go on with the rest.

A job is a bottleneck when its level cannot rise while nobody falls. The interior point ends in the middle of the
optimal face, where a bottleneck has a dual and no slack and any other job the reverse, so that one problem shows them
all. The vertex of a simplex method shows only some; ``milp=True`` asks a mixed-integer program instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trine.policy.shares.solver import classes as grouping
from trine.policy.shares.solver.ascent import Step, furthest, path
from trine.policy.shares.solver.bottlenecks import by_milp
from trine.policy.shares.solver.certificate import reached
from trine.policy.shares.solver.form import Array, Certified, InfeasibleError, Mask, RateProblem, UnservableError
from trine.policy.shares.solver.maxmin import solve
from trine.policy.shares.solver.rules import Alone, Rule
from trine.policy.shares.solver.start import Warm

_TOLERANCE = 1e-10
_RATIO = 1000.0
"""A dual must exceed its slack this many times; near ties are left to the next pass, which costs time, not truth."""
_SLACK = 1e-3
_LENIENT = 2e-9
"""Levels already granted are asked for with this much less, so that the next problem has an interior."""
_MORE_LENIENT = 0.25
"""Each pass is this much more lenient than the one before, whose shares are thus well inside."""
_NO_RISE = 1e-7
_PASS_GAP = 1e-5


@dataclass(frozen=True)
class Filling:
    """``levels`` are rates in the unit of ``rates``; shares ``x`` reach them. ``gap`` is the worst of all passes."""

    x: Array
    levels: Array
    passes: int
    gap: float


@dataclass
class _State:
    """Rows are classes: ``gang`` is that of one job, ``load`` of the whole class."""

    rates: Array
    gang: Array
    load: Array
    capacity: Array
    levels: Array
    done: Mask
    x: Array
    unit: float = 0.0
    passes: int = 0
    gap: float = 0.0

    def problem(self, demand: Array, lenient: float, rows: Mask, capacity: Array) -> RateProblem:
        """The common rise v, plus a shift that keeps the sought value away from zero when nothing can rise."""
        floor = self.levels * (1.0 - lenient) - demand * self.unit
        return RateProblem(
            rates=self.rates[rows], demand=demand[rows], floor=floor[rows], gang=self.load[rows], capacity=capacity
        )

    def at_full_speed(self, rows: Mask) -> bool:
        """Whether all of ``rows``, and at least one, have nothing left to gain from any type."""
        full = self.levels[rows] >= self.rates[rows].max(axis=1, initial=0.0) * (1.0 - 1e-7)
        return len(full) > 0 and bool(full.all())

    def pinned(self) -> Array:
        """Shares of the jobs that are done and at full speed: all their time on their one fastest type."""
        fastest = self.rates.max(axis=1)
        best = self.rates >= fastest[:, None] * (1.0 - 1e-6)
        full = self.done & (self.levels >= fastest * (1.0 - 1e-9)) & (best.sum(axis=1) == 1)
        out: Array = np.where(full[:, None] & best, 1.0, 0.0)
        return out


def fill(
    rates: Array,
    gang: Array,
    capacity: Array,
    rule: Rule | Array,
    *,
    finalise_all: bool = False,
    milp: bool = False,
    classes: bool = True,
) -> Filling:
    """Lexicographically highest levels of ``rates @ x``, rising by ``weight / gang`` of each job.

    ``rates`` are throughputs over the normaliser of each job, ``rule`` an ``Entities`` or weights of jobs on their own.
    ``finalise_all`` fixes every job that took part in a pass, as the published results do. Jobs must have a rate.
    """
    rule = Alone(np.asarray(rule, dtype=np.float64)) if isinstance(rule, np.ndarray) else rule
    gang = np.asarray(gang, dtype=np.float64)
    found = grouping.find((rates, gang, *rule.columns()), at_most=len(gang) // 2) if classes else None
    if found is None:
        return _fill_rows(_state(rates, gang, gang, capacity), rule, finalise_all, milp)
    head = found.first
    state = _state(rates[head], gang[head], gang[head] * found.size, capacity)
    filled = _fill_rows(state, rule.merged(found), finalise_all, milp)
    return Filling(filled.x[found.member_of], filled.levels[found.member_of], filled.passes, filled.gap)


def _state(rates: Array, gang: Array, load: Array, capacity: Array) -> _State:
    n = len(gang)
    return _State(rates, gang, load, capacity, np.zeros(n), np.zeros(n, dtype=bool), np.zeros_like(rates))


def _fill_rows(state: _State, rule: Rule, finalise_all: bool, milp: bool) -> Filling:
    warm = Warm()
    while not state.done.all():
        weights = rule.weights(state.done)
        if not (weights > 0).any():
            break
        before = state.done
        _one_pass(state, weights, warm, finalise_all, milp)
        if not (finalise_all or milp or state.done.all()) and state.at_full_speed(state.done & ~before):
            _follow(state, rule)
            warm = Warm()  # what was learnt before is too far away now
    # What was asked for leniently is reported as reached.
    levels = np.minimum(state.levels, reached(state.rates, state.x))
    return Filling(state.x, levels, state.passes, state.gap)


def _one_pass(state: _State, weights: Array, warm: Warm, finalise_all: bool, milp: bool) -> None:
    active, demand = weights > 0, weights / state.gang
    answer = _solve_pass(state, demand, warm)
    state.passes += 1
    if answer is None:  # nothing is left to hand out
        state.done = state.done | active
        return
    rise = max(answer.value - state.unit, 0.0)
    state.unit = state.unit or answer.value
    state.gap, state.x = max(state.gap, answer.gap), answer.x
    state.levels = state.levels + demand * rise
    if finalise_all:
        state.done = state.done | active
        return
    stuck = _by_milp(state, active) if milp else _bottlenecks(state, answer, demand)
    stuck = stuck | _priced_out(state, answer)
    if not (stuck & ~state.done).any():  # every pass must end somebody's rise
        stuck |= _largest_dual(answer, demand)
    state.done = state.done | stuck
    _finish_if_plenty(state)


def _by_milp(state: _State, active: Mask) -> Mask:
    everyone = np.ones(len(active), dtype=bool)
    problem = state.problem(active.astype(np.float64), 0.0, everyone, state.capacity)
    return by_milp(problem, np.minimum(state.levels, reached(state.rates, state.x)), active)


def _follow(state: _State, rule: Rule) -> None:
    """The last pass ended with jobs at full speed: go on to where GPUs, and not the time of a job, are the limit."""
    start = Step(state.levels, state.done)
    steps = path(start, state.rates, state.gang, state.load, float(state.capacity.sum()), rule)
    found = furthest(steps, state.rates, state.load, state.capacity, Warm())
    if found is not None:
        step, answer = found
        state.levels, state.done, state.x = step.levels, step.done, answer.x
        state.gap, state.passes = max(state.gap, answer.gap), state.passes + 1


def _solve_pass(state: _State, demand: Array, warm: Warm) -> Certified | None:
    pinned = state.pinned()
    rows, capacity = pinned.sum(axis=1) == 0, np.maximum(state.capacity - state.load @ pinned, 0.0)
    least = _LENIENT * (1.0 + _MORE_LENIENT * state.passes)
    for lenient in (least, 10.0 * least, 100.0 * least):
        try:
            answer = solve(state.problem(demand, lenient, rows, capacity), warm, classes=False, tolerance=_TOLERANCE)
        except (InfeasibleError, UnservableError):
            continue
        if answer.gap <= _PASS_GAP:
            duals = np.zeros(len(rows))
            pinned[rows], duals[rows] = answer.x, answer.duals
            return replace(answer, x=pinned, duals=duals)
    return None


def _bottlenecks(state: _State, answer: Certified, demand: Array) -> Mask:
    """Active jobs whose dual is large against their slack; if none is clear, the one with the largest dual."""
    active = demand > 0
    share = np.where(active, answer.duals * demand, 0.0)
    if answer.solver.endswith("highs"):
        return share > _NO_RISE
    above = np.maximum(reached(state.rates, state.x) - state.levels, 0.0)
    slack = above / np.where(active, np.maximum(state.levels, demand * answer.value), 1.0)
    dual = share * np.count_nonzero(active)
    stuck = (dual > _RATIO * slack) & (dual > _NO_RISE) & (slack <= _SLACK)
    return stuck if stuck.any() else _largest_dual(answer, demand)


def _largest_dual(answer: Certified, demand: Array) -> Mask:
    share = np.where(demand > 0, answer.duals * demand, -1.0)
    largest: Mask = share == share.max()
    return largest


def _priced_out(state: _State, answer: Certified) -> Mask:
    """Jobs, waiting ones too, that could use only types whose GPUs all go into levels that are granted by now.

    The same prices, however large, prove it: with the floors raised to the new levels the bound on any rise is zero.
    """
    used = np.einsum("m,mj->j", state.load, state.x)
    spare = np.maximum(state.capacity - used, 0.0) / state.capacity
    worth = answer.prices * state.capacity / max(abs(answer.value), 1e-300)
    scarce = (worth > _RATIO * spare) & (spare <= _SLACK) & (worth > _NO_RISE)
    free: Mask = ((state.rates > 0) & ~scarce).any(axis=1)
    return ~free


def _finish_if_plenty(state: _State) -> None:
    """When everybody who is left can have its fastest type all the time, that is where each of them ends."""
    rest = np.flatnonzero(~state.done)
    fastest = state.rates[rest].argmax(axis=1)
    x = state.x.copy()
    x[rest] = 0.0
    x[rest, fastest] = 1.0
    if (np.einsum("m,mj->j", state.load, x) <= state.capacity).all():
        state.x, state.levels[rest] = x, state.rates[rest, fastest]
        state.done = np.ones(len(x), dtype=bool)
