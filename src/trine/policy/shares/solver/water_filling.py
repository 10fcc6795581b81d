"""Water filling: raise all jobs together, freeze those that cannot rise any further, go on with the others.

A job is a bottleneck when its level cannot rise unless the level of another job falls (Gavel OSDI'20, section 4.3).
Gavel finds bottlenecks by a mixed-integer program in every pass. Without pairs none is needed: the interior point ends
in the middle of the optimal face, where complementary slackness is strict, so a bottleneck has a dual and no slack and
any other job the reverse, and one problem shows them all. With pairs a few linear programs show which jobs can rise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trine.core.sums import columns_times
from trine.policy.shares.solver import linear, presolve
from trine.policy.shares.solver.highs import HighsSession
from trine.policy.shares.solver.interior import Warm
from trine.policy.shares.solver.max_min import solve
from trine.policy.shares.solver.polytope import (
    Array,
    InfeasibleError,
    LevelProblem,
    Mask,
    Polytope,
    Solution,
    UnservableError,
    throughput,
)
from trine.policy.shares.solver.weights import JobWeights, WeightRule

_TOLERANCE = 1e-10
"""Of the programs: bottlenecks and near ties differ in how small duals and slacks are."""
_RATIO = 1000.0
"""A dual must exceed its slack this many times; near ties are left to the next pass, which costs time, not truth."""
_SLACK = 1e-3
_LENIENT = 2e-9
"""Levels already granted are asked for with this much less, so that the next problem has an interior."""
_MORE_LENIENT = 0.25
"""Each pass is this much more lenient than the one before, whose shares are thus well inside."""
_NO_RISE = 1e-7
_PASS_GAP = 1e-5
_TIE = 1e-12
_REACHED = 1e-7
"""Levels count as reached when shares miss them by no more than this."""
_ROUGH = 1e-3
_MOST_PROBLEMS = 30
ROOMS = (3e-9, 1e-7, 3e-6)
"""With pairs: granted levels are held to within this part of a job's fastest rate, the first that leaves a program
room to move."""
RISE = 1e-6
"""With pairs: a rise below this part of the highest level is rounding."""


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

    def problem(self, demand: Array, lenient: float, rows: Mask, capacity: Array) -> LevelProblem:
        """The common rise v, plus a shift that keeps the sought value away from zero when nothing can rise."""
        floor = self.levels * (1.0 - lenient) - demand * self.unit
        return LevelProblem(
            rates=self.rates[rows], demand=demand[rows], floor=floor[rows], gang=self.load[rows], capacity=capacity
        )

    def at_full_speed(self, rows: Mask) -> bool:
        """Whether all of ``rows``, and at least one, have nothing left to gain from any type."""
        full = self.levels[rows] >= self.rates[rows].max(axis=1, initial=0.0) * (1.0 - 1e-7)
        return len(full) > 0 and bool(full.all())

    def granted(self) -> Array:
        """The levels. What was asked for leniently is reported as reached."""
        return np.minimum(self.levels, throughput(self.rates, self.x))

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
    rule: WeightRule | Array,
    *,
    finalise_all: bool = False,
    classes: bool = True,
) -> Solution:
    """Lexicographically highest levels of ``rates @ x``, rising by ``weight / gang`` of each job.

    ``rates`` are throughputs over the normaliser of each job, ``rule`` gives weights to entities or is an array of
    weights of single jobs. ``finalise_all`` freezes every job that took part in a pass, as the published results do.
    Jobs must have a rate. ``value`` is what the first pass raises every weight to; ``gap`` is the worst of all passes.
    """
    rule = JobWeights(np.asarray(rule, dtype=np.float64)) if isinstance(rule, np.ndarray) else rule
    gang = np.asarray(gang, dtype=np.float64)
    found = presolve.equal_rows((rates, gang, *rule.columns()), at_most=len(gang) // 2) if classes else None
    if found is None:
        state = _fill_rows(_state(rates, gang, gang, capacity), rule, finalise_all)
        x, levels = state.x, state.granted()
    else:
        head = found.first
        state = _state(rates[head], gang[head], gang[head] * found.size, capacity)
        state = _fill_rows(state, rule.merged(found), finalise_all)
        x, levels = state.x[found.member_of], state.granted()[found.member_of]
    return _filled(x, None, levels, rule.weights(np.zeros(len(gang), bool)) / gang, state.gap, "ipm", state.passes)


def _filled(x: Array, y: Array | None, levels: Array, first: Array, gap: float, solver: str, passes: int) -> Solution:
    """``first`` is the demand of the first pass: the level of the least of its jobs is the value."""
    raised = first > 0
    value = float((levels[raised] / first[raised]).min())
    none = np.zeros(0)
    return Solution(x, value, value * (1 + gap), gap, none, none, solver, y, levels, iterations=passes)


def _state(rates: Array, gang: Array, load: Array, capacity: Array) -> _State:
    n = len(gang)
    return _State(rates, gang, load, capacity, np.zeros(n), np.zeros(n, dtype=bool), np.zeros_like(rates))


def _fill_rows(state: _State, rule: WeightRule, finalise_all: bool) -> _State:
    warm = Warm()
    while not state.done.all():
        weights = rule.weights(state.done)
        if not (weights > 0).any():
            break
        before = state.done
        _one_pass(state, weights, warm, finalise_all)
        if not (finalise_all or state.done.all()) and state.at_full_speed(state.done & ~before):
            _follow(state, rule)
            warm = Warm()  # what was learnt before is too far away now
    return state


def _one_pass(state: _State, weights: Array, warm: Warm, finalise_all: bool) -> None:
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
    stuck = _bottlenecks(state, answer, demand) | _priced_out(state, answer)
    if not (stuck & ~state.done).any():  # every pass must end the rise of a job
        stuck |= _largest_dual(answer, demand)
    state.done = state.done | stuck
    _finish_if_plenty(state)


def _follow(state: _State, rule: WeightRule) -> None:
    """The last pass ended with jobs at full speed: go on to where GPUs, and not the time of a job, are the limit."""
    start = _Step(state.levels, state.done)
    steps = _path(start, state.rates, state.gang, state.load, float(state.capacity.sum()), rule)
    found = _furthest(steps, state.rates, state.load, state.capacity, Warm())
    if found is not None:
        step, answer = found
        state.levels, state.done, state.x = step.levels, step.done, answer.x
        state.gap, state.passes = max(state.gap, answer.gap), state.passes + 1


def _solve_pass(state: _State, demand: Array, warm: Warm) -> Solution | None:
    pinned = state.pinned()
    rows, capacity = pinned.sum(axis=1) == 0, np.maximum(state.capacity - columns_times(state.load, pinned), 0.0)
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


def _bottlenecks(state: _State, answer: Solution, demand: Array) -> Mask:
    """Active jobs whose dual is large against their slack; if none is clear, the one with the largest dual.

    The centre of the optimal face is strictly complementary: a bottleneck has a dual and no slack, any other job the
    reverse. A vertex (HiGHS) has duals for some of the bottlenecks only; the others are found in later passes.
    """
    active = demand > 0
    share = np.where(active, answer.duals * demand, 0.0)
    if answer.solver.endswith("highs"):
        return share > _NO_RISE
    above = np.maximum(throughput(state.rates, state.x) - state.levels, 0.0)
    slack = above / np.where(active, np.maximum(state.levels, demand * answer.value), 1.0)
    dual = share * np.count_nonzero(active)
    stuck = (dual > _RATIO * slack) & (dual > _NO_RISE) & (slack <= _SLACK)
    return stuck if stuck.any() else _largest_dual(answer, demand)


def _largest_dual(answer: Solution, demand: Array) -> Mask:
    share = np.where(demand > 0, answer.duals * demand, -1.0)
    largest: Mask = share == share.max()
    return largest


def _priced_out(state: _State, answer: Solution) -> Mask:
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
    """When every job that is left can have its fastest type all the time, that is where each of them ends."""
    rest = np.flatnonzero(~state.done)
    fastest = state.rates[rest].argmax(axis=1)
    x = state.x.copy()
    x[rest] = 0.0
    x[rest, fastest] = 1.0
    if (np.einsum("m,mj->j", state.load, x) <= state.capacity).all():
        state.x, state.levels[rest] = x, state.rates[rest, fastest]
        state.done = np.ones(len(x), dtype=bool)


# -- the path of jobs that reach full speed --------------------------------------------------------------------------
# Which job is next at full speed needs no solver while there are GPUs for all: the path of levels is known, and only
# how far it can be followed must be found. Each infeasible point gives a cut that rules out all of the path behind it.


@dataclass(frozen=True)
class _Step:
    """Levels and finished jobs after so many have reached full speed."""

    levels: Array
    done: Mask


def _path(start: _Step, rates: Array, gang: Array, load: Array, gpus: float, rule: WeightRule) -> list[_Step]:
    """All steps from ``start`` on, as if types were no limit, while the GPUs could suffice if all were the fastest."""
    fastest = rates.max(axis=1)
    steps, levels, done, least_gpus = [start], start.levels, start.done, load / fastest
    while not done.all() and float((least_gpus * levels).sum()) <= gpus:
        demand = rule.weights(done) / gang
        active = demand > 0
        if not active.any():
            break
        room = np.where(active, (fastest - levels) / np.where(active, demand, 1.0), np.inf)
        rise = max(float(room.min()), 0.0)
        full = room <= rise * (1.0 + _TIE)
        levels = np.where(full, fastest, levels + demand * rise)
        done = done | full
        steps.append(_Step(levels, done))
    return steps


def _furthest(
    steps: list[_Step], rates: Array, load: Array, capacity: Array, warm: Warm
) -> tuple[_Step, Solution] | None:
    """The last step whose levels can be reached together, with shares that do; None if not even the next one can."""
    last = len(steps) - 1
    for _ in range(_MOST_PROBLEMS):
        if last < 1:
            return None
        problem = LevelProblem(rates=rates, demand=steps[last].levels, gang=load, capacity=capacity)
        answer = solve(problem, warm, classes=False, tolerance=_ROUGH)
        if answer.bound >= 1.0 - _REACHED:
            answer = solve(problem, warm, classes=False)
        if answer.value >= 1.0 - _REACHED:
            return steps[last], answer
        last = _allowed(steps, last, answer.duals, answer.bound)
    return None


def _allowed(steps: list[_Step], beyond: int, duals: Array, bound: float) -> int:
    """The last step before ``beyond`` that weak duality does not rule out: no shares are worth more than the bound."""
    low, high = 0, beyond
    while high - low > 1:
        middle = (low + high) // 2
        allowed = float((duals * steps[middle].levels).sum()) <= bound
        low, high = (middle, high) if allowed else (low, middle)
    return low


# -- with pairs ------------------------------------------------------------------------------------------------------


def fill_pairs(polytope: Polytope, rule: WeightRule, session: HighsSession, finalise_all: bool = False) -> Solution:
    """As ``fill``, over a polytope of normalised rates with pairs. By linear programs."""
    n = len(polytope.gang)
    levels, done, gap, passes = np.zeros(n), np.zeros(n, bool), 0.0, 0
    first = rule.weights(done) / polytope.gang
    while True:
        passes += 1
        demand = rule.weights(done) / polytope.gang
        answer = _with_room(polytope, levels, partial(_level, polytope, demand, session))
        levels = levels + max(answer.value, 0.0) * demand
        unsure = (answer.bound - answer.value) * float(demand.max())
        gap = max(gap, unsure / max(float(levels.max()), 1e-12))
        active = demand > 0
        done |= active if finalise_all else _stuck(polytope, levels, active, answer, session)
        if done.all():
            return _filled(answer.x, answer.y, levels, first, gap, "highs", passes)


def _stuck(polytope: Polytope, levels: Array, active: Mask, answer: Solution, session: HighsSession) -> Mask:
    """Active jobs that cannot rise unless another job falls.

    A job that rises in some program can rise; the next program asks only for the others, until none of them rises.
    """
    stuck = active.copy()
    scale = max(float(levels.max()), 1e-12)
    worth = linear.Worth(np.zeros(len(levels)), np.ones(len(polytope.capacity)))
    while stuck.any():
        up = linear.Extra(-1.0, stuck.astype(np.float64), np.where(stuck, scale, 0.0))
        found = _with_room(polytope, levels, partial(linear.highest_sum, polytope, worth, extra=up, session=session))
        risen = stuck & (found.extra > RISE * scale)
        if not risen.any():
            return stuck
        stuck &= ~risen
    # All could rise, against what the level just reached says: rounding. The one that holds it up most is stuck.
    weight = np.where(active, answer.duals, -1.0)
    only: Mask = np.arange(len(levels)) == int(weight.argmax())
    return only


def _with_room(polytope: Polytope, levels: Array, solve: Callable[[Array], Solution]) -> Solution:
    """``solve`` for floors a hair below the levels: rounding must not make what was granted impossible."""
    unit = polytope.rates.max(axis=1)
    for room in ROOMS:
        try:
            return solve(np.maximum(levels - room * unit, 0.0))
        except InfeasibleError:
            if room == ROOMS[-1]:
                raise
    raise AssertionError("ROOMS is empty")


def _level(polytope: Polytope, demand: Array, session: HighsSession, floor: Array) -> Solution:
    return linear.highest_level(LevelProblem.over(polytope, demand, floor), session)
