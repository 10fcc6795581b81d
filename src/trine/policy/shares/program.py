"""What the optimising policies have in common: the polytope of a problem, and its best shares for an objective.

Chooses the solver: the structured interior point without pairs, a vertex where leftover time should be used, linear
programs with pairs, and linear programs over classes of jobs where the problem lists pairs by class. Deadlines are
floors under throughputs: which can be kept, alone and together, is found here. No policy is stated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trine.core.errors import InputError
from trine.core.sums import columns_times, dot, rows_times
from trine.policy.shares.allocation import Allocation, Note, allocation, exact
from trine.policy.shares.base import Memory
from trine.policy.shares.problem import WHERE, ClassPairs, Problem
from trine.policy.shares.solver import class_pairs, finish_time, linear, max_min, pair_split, presolve, water_filling
from trine.policy.shares.solver.linear import Extra, Worth
from trine.policy.shares.solver.polytope import InfeasibleError, LevelProblem, Polytope, Solution
from trine.policy.shares.solver.weights import WeightRule
from trine.policy.view import Floats, Ints

PROVEN = 1e-6
"""A solution with a larger gap is given to the simplex method."""
VERTEX_ROWS = 300
"""Up to so many jobs a vertex is found in a few milliseconds."""
SLACK = 1e-7
"""Relative shortfall below which a deadline counts as met."""


def polytope_of(problem: Problem, rates: Floats, with_pairs: bool) -> Polytope:
    """The shares ``problem`` allows when jobs make ``rates`` steps/s alone."""
    gang = problem.gang.astype(np.float64)
    if not with_pairs:
        return Polytope.alone(rates, gang, problem.capacity)
    return Polytope(rates, gang, problem.capacity, problem.pair_rows.jobs, problem.pair_rows.rates)


def highest_level(polytope: Polytope, demand: Floats, memory: Memory, ids: Sequence[str] = ()) -> Solution:
    """The largest t with throughput >= demand t for every job; ``ids`` name the rows from call to call."""
    if len(polytope.pairs):
        return linear.highest_level(LevelProblem.over(polytope, demand), memory.session)
    found = _vertex(polytope, demand, memory, ids) if memory.fills_leftover and ids else None
    if found is None:
        problem = LevelProblem(rates=polytope.rates, demand=demand, gang=polytope.gang, capacity=polytope.capacity)
        found = max_min.solve(problem, memory.start)
    return found


def _vertex(polytope: Polytope, demand: Floats, memory: Memory, ids: Sequence[str]) -> Solution | None:
    """A vertex in which what the level leaves over goes to the jobs that gain most; none where that takes too long."""
    if len(ids) > VERTEX_ROWS or 0.0 in polytope.capacity.tolist():
        return None
    fair = rows_times(polytope.rates, polytope.capacity / np.add.reduce(polytope.capacity))
    if not np.minimum.reduce(demand * fair) > 0:
        return None
    problem = LevelProblem.unchecked(polytope.rates, demand, polytope.gang, polytope.capacity)
    return memory.vertices.solve(problem, polytope.rates / fair[:, None], ids)


def lowest_slowdown(
    polytope: Polytope,
    steps_left: Floats,
    elapsed_s: Floats,
    ideal_s: Floats,
    memory: Memory,
    ids: Sequence[str] = (),
) -> Solution:
    """The smallest rho with elapsed + steps / throughput <= rho ideal for every job."""
    finish = finish_time.Finish(steps_left, elapsed_s, ideal_s)
    if len(polytope.pairs):
        return finish_time.solve_finish_time_pairs(polytope, finish, memory.session)
    rates, gang, capacity = polytope.rates, polytope.gang, polytope.capacity
    found = finish_time.solve_finish_time(rates, steps_left, elapsed_s, ideal_s, gang, capacity, memory.start)
    if found.gap > PROVEN:
        by_simplex = finish_time.solve_finish_time_pairs(polytope, finish, memory.session)
        return min(found, by_simplex, key=lambda one: one.gap)
    if not (memory.fills_leftover and ids):
        return found
    spare_s = found.value * ideal_s - elapsed_s
    demand = np.divide(steps_left, spare_s, out=np.zeros_like(spare_s), where=spare_s > 0)
    level = _vertex(polytope, demand, memory, ids)
    return found if level is None or level.value < 1 - PROVEN else replace(found, x=level.x)


def highest_sum(polytope: Polytope, worth: Worth, memory: Memory, floor: Floats | None = None) -> Solution:
    """The largest sum of what ``worth`` counts; ``InfeasibleError`` if the floors cannot be reached together."""
    if len(polytope.pairs):
        return linear.highest_sum(polytope, worth, floor, session=memory.session)
    return linear.maximise_sum(
        worth.alone(polytope),
        polytope.gang,
        polytope.capacity,
        rates=polytope.rates,
        floors=floor,
        session=memory.session,
    )


def highest_levels(polytope: Polytope, rule: WeightRule, memory: Memory, finalise_all: bool) -> Solution:
    """Water filling of normalised rates: shares that give every job its level.

    The value is what the first pass raises every weight to.
    """
    if len(polytope.pairs):
        return water_filling.fill_pairs(polytope, rule, memory.session, finalise_all)
    there = polytope.capacity > 0
    rates, capacity = polytope.rates[:, there], polytope.capacity[there]
    found = water_filling.fill(rates, polytope.gang, capacity, rule, finalise_all=finalise_all)
    x = np.zeros(polytope.rates.shape)
    x[:, there] = found.x
    return replace(found, x=x)


# -- pairs by class --------------------------------------------------------------------------------------------------


def level_by_class(problem: Problem, table: ClassPairs, demand: Floats, memory: Memory) -> Allocation:
    """The largest t with throughput >= demand t for every job, pairs of classes taking part.

    Of all shares that reach it, those with the most throughput over demand: time that the job with the least cannot use
    is not lost.
    """
    alone = _all_alone(problem, table)
    if alone is not None:
        level = float(((problem.rates * alone).sum(axis=1) / demand).min())
        return allocation(problem, alone, exact(level))
    classes = _DemandClasses.of(problem, table, demand, memory)
    return classes.allocation(classes.solver.max_min(classes.size, demand[classes.first], most_rate=True))


def _all_alone(problem: Problem, table: ClassPairs) -> Floats | None:
    """Every job on its fastest type all the time, if there are GPUs for that and no job is faster next to another."""
    fastest, best = problem.rates.argmax(axis=1), problem.rates.max(axis=1)
    if (np.bincount(fastest, problem.gang, len(problem.types)) > problem.capacity).any():
        return None
    of_class = np.zeros(int(table.class_of.max(initial=0)) + 1)
    of_class[table.class_of] = best
    if len(table.pairs) and (table.throughput.max(axis=2) > of_class[table.pairs]).any():
        return None
    return np.asarray(np.arange(len(problem.types)) == fastest[:, None], np.float64)


def sum_by_class(problem: Problem, table: ClassPairs, type_worth: Floats, memory: Memory) -> Allocation:
    """The largest sum of throughputs, each counted by the worth of the type."""
    classes = _DemandClasses.of(problem, table, np.ones(len(problem)), memory)
    polytope = classes.solver.classes
    pair_worth = polytope.pair_rates.sum(axis=1) * type_worth
    return classes.allocation(classes.solver.max_sum(classes.size, polytope.rates * type_worth, pair_worth))


@dataclass(frozen=True)
class _DemandClasses:
    """Jobs of one class and one demand, in an order that does not depend on the order of the jobs."""

    first: Ints
    """A job of each."""
    member_of: Ints
    size: Floats
    solver: class_pairs.PairSolver
    ids: tuple[str, ...]
    memory: Memory

    @classmethod
    def of(cls, problem: Problem, table: ClassPairs, demand: Floats, memory: Memory) -> _DemandClasses:
        found = presolve.equal_rows((table.class_of.astype(np.float64), demand))
        assert found is not None
        order = np.lexsort((demand[found.first], table.class_of[found.first]))
        first, place = found.first[order], np.argsort(order)
        polytope = _class_polytope(problem, table, first)
        solver: class_pairs.PairSolver | None = memory.warm.get("classes")
        if solver is None or not _same(solver.classes, polytope):
            names = _class_names(polytope, demand[first])
            solver = memory.warm["classes"] = class_pairs.PairSolver(polytope, names, solver)
        return cls(first, place[found.member_of], found.size[order].astype(np.float64), solver, problem.ids, memory)

    def allocation(self, found: Solution) -> Allocation:
        polytope = self.solver.classes
        pair_jobs, pair_shares = self._pairs_of_jobs(found)
        return Allocation(
            shares=np.clip(found.x[self.member_of], 0.0, 1.0),
            pair_jobs=pair_jobs,
            pair_shares=pair_shares,
            effective=self.solver.rate(found.x, polytope.pair_time(found), self.size)[self.member_of],
            objective=found.value,
            bound=found.bound,
            gap=max(found.gap, 0.0),
            solver=found.solver,
            prices=found.prices,
        )

    def _pairs_of_jobs(self, found: Solution) -> tuple[Ints, Floats]:
        """Pairs of jobs and their time; jobs that shared GPUs before go on together where that is as good."""
        place = {name: at for at, name in enumerate(self.ids)}
        before = [(place[a], place[b]) for a, b in self.memory.shared if a in place and b in place]
        jobs, shares = pair_split.split(found, self.solver.classes, self.member_of, before)
        self.memory.shared = [(self.ids[a], self.ids[b]) for a, b in jobs.tolist()]
        return jobs, shares


def _class_polytope(problem: Problem, table: ClassPairs, first: Ints) -> Polytope:
    """One row for each of the jobs ``first``, and every two rows whose classes may share GPUs, once."""
    one, other = np.triu_indices(len(first))
    row, swapped = table.rows(table.class_of[first[one]], table.class_of[first[other]])
    known = row >= 0
    one, other, row, swapped = one[known], other[known], row[known], swapped[known]
    rates = table.throughput[row]
    rates = np.where(swapped[:, None, None], rates[:, ::-1], rates) * problem.fits[first[one]][:, None, :]
    gang = problem.gang[first].astype(np.float64)
    return Polytope(problem.rates[first], gang, problem.capacity, np.stack([one, other], axis=1), rates)


def _class_names(classes: Polytope, demand: Floats) -> list[tuple[bytes, int]]:
    """What classes are called from call to call: their numbers, and which of several with the same numbers it is."""
    numbers = np.column_stack((classes.rates, classes.gang, demand))
    count: dict[bytes, int] = {}
    names = []
    for row in numbers:
        key = row.tobytes()
        count[key] = count.get(key, 0) + 1
        names.append((key, count[key]))
    return names


def _same(one: Polytope, other: Polytope) -> bool:
    return all(
        np.array_equal(getattr(one, part), getattr(other, part))
        for part in ("rates", "gang", "capacity", "pairs", "pair_rates")
    )


# -- deadlines as floors under throughputs ----------------------------------------------------------------------------


def best_sum(
    problem: Problem, polytope: Polytope, worth: Worth, memory: Memory, with_deadlines: bool
) -> tuple[Solution, tuple[Note, ...]]:
    """The largest sum that meets every deadline that can be met; the jobs of the others run without a floor."""
    floor = needed_rate(problem) if with_deadlines else np.zeros(len(problem))
    floor, notes = _alone(problem, polytope, floor)
    if not floor.any():
        return highest_sum(polytope, worth, memory), notes
    try:
        return highest_sum(polytope, worth, memory, floor), notes
    except InfeasibleError:
        floor, more = _together(problem, polytope, floor)
        return highest_sum(polytope, worth, memory, floor), notes + more


def has_deadlines(problem: Problem) -> bool:
    return bool(np.isfinite(problem.deadline_s).any())


def needed_rate(problem: Problem) -> Floats:
    """Steps per second that meet each deadline; 0 without one, infinite if it has passed."""
    wanted = np.isfinite(problem.deadline_s)
    unknown = wanted & np.isnan(problem.steps_left)
    if unknown.any():
        job = problem.ids[int(np.argmax(unknown))]
        raise InputError(WHERE, f"job {job} has a deadline but no steps_left", "how many steps are left", "steps_left")
    rate = np.where(wanted & (problem.steps_left > 0), np.inf, 0.0)
    ahead = wanted & (problem.deadline_s > 0)
    return np.divide(problem.steps_left, problem.deadline_s, out=rate, where=ahead)


def _alone(problem: Problem, polytope: Polytope, floor: Floats) -> tuple[Floats, tuple[Note, ...]]:
    """Drops the floors a job could not reach with the cluster to itself."""
    best = polytope.rates.max(axis=1)
    lost = np.flatnonzero(floor > best * (1 + SLACK))
    notes = tuple(Note(int(i), _too_soon(problem, int(i), floor[i], best[i])) for i in lost)
    floor = np.minimum(floor, best)
    floor[lost] = 0.0
    return floor, notes


def _together(problem: Problem, polytope: Polytope, floor: Floats) -> tuple[Floats, tuple[Note, ...]]:
    """Drops the floors that lack something when the sum of relative shortfalls is smallest."""
    wanted = floor > 0
    penalty = np.divide(-1.0, floor, out=np.zeros(len(floor)), where=wanted)
    lack = Extra(1.0, penalty, np.where(wanted, np.inf, 0.0))
    nothing = Worth(np.zeros(len(floor)), np.ones(len(polytope.capacity)))
    found = linear.highest_sum(polytope, nothing, floor, lack)
    lost = np.flatnonzero(found.extra > SLACK * floor)
    reached = _throughput(polytope, found)
    notes = tuple(
        Note(
            int(i),
            f"job {problem.ids[i]} cannot meet its deadline together with the others: it needs {floor[i]:.4g} steps/s "
            f"and {reached[i]:.4g} are left for it",
        )
        for i in lost
    )
    # A hair below what was just shown to be possible, so that rounding cannot make the rest impossible again.
    kept = np.minimum(floor, reached) * (1 - 1e-12)
    kept[lost] = 0.0
    return kept, notes


def _too_soon(problem: Problem, job: int, needed: float, best: float) -> str:
    if not np.isfinite(needed):
        return f"job {problem.ids[job]} cannot meet its deadline: it has passed"
    return (
        f"job {problem.ids[job]} cannot meet its deadline: it needs {needed:.4g} steps/s and makes at most {best:.4g}"
    )


def best_ratio(
    problem: Problem, polytope: Polytope, prices: Floats, memory: Memory, with_deadlines: bool
) -> tuple[Solution, tuple[Note, ...]]:
    """The largest ratio of all throughput to the price of all GPUs held, by Dinkelbach's method.

    Each program maximises throughput less (ratio so far) x price; it ends when nothing is gained, which proves that no
    shares have a higher ratio. The last but one answer is kept: it runs everything that is worth its price.
    """
    ones = np.ones(len(problem))
    ratio = 0.0
    best, notes = best_sum(problem, polytope, Worth(ones, np.ones(len(prices))), memory, with_deadlines)
    while True:
        made, paid = _made_and_paid(polytope, best, prices)
        ratio = made / paid if paid > 0 else 0.0
        worth = Worth(ones, np.ones(len(prices)), ratio * prices)
        found, _ = best_sum(problem, polytope, worth, memory, with_deadlines)
        gain = max(found.bound, 0.0) / max(made, 1e-300)
        if found.value <= SLACK * 1e-3 * made or _made_and_paid(polytope, found, prices)[1] <= 0:
            return replace(best, value=ratio, bound=ratio * (1 + gain), gap=gain, prices=found.prices), notes
        best = found


def _made_and_paid(polytope: Polytope, found: Solution, prices: Floats) -> tuple[float, float]:
    held = columns_times(polytope.gang, found.x)
    held += columns_times(polytope.gang[polytope.pairs[:, 0]], polytope.pair_time(found))
    return float(_throughput(polytope, found).sum()), dot(held, prices)


def _throughput(polytope: Polytope, found: Solution) -> Floats:
    """Steps per second of every job."""
    return polytope.throughput(found.x, polytope.pair_time(found))
