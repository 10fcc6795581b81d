"""What is done before a solver runs, and undone afterwards: equal jobs become one row, types and rows that do not count
are taken out, units are chosen, and what needs no iterations is solved in closed form or refused.

Merging equal jobs is exact when the whole row is equal: rates, demand, floor and gang. Rows that differ in demand alone
are not a class: their sum could be served by time that one of them does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trine.policy.shares.solver.polytope import (
    Array,
    Index,
    InfeasibleError,
    LevelProblem,
    Mask,
    Solution,
    UnservableError,
    certify,
)

_MAX_BUCKET_BITS = 16
_FEW = 64
"""Up to so many rows a dictionary is faster than arrays."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


# -- equal jobs as one -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classes:
    """``first`` is one row of each class, ``member_of`` the class of every row, ``size`` how many rows it has."""

    first: Index
    member_of: Index
    size: Index

    def __len__(self) -> int:
        return len(self.first)


class _TooManyError(Exception):
    pass


def equal_rows(columns: Iterable[Array], at_most: int | None = None) -> Classes | None:
    """Rows equal in all ``columns`` (vectors, or matrices of one row per job) as classes, in order of appearance.

    Hashing into buckets instead of sorting: linear in the rows. Rows that share a bucket without being equal are split
    off by a second look, so that a collision costs time and never a wrong merge. None when there are more than
    ``at_most`` classes, which is seen early.
    """
    table = np.concatenate([part.T.reshape(-1, len(part)) for part in columns])
    if table.shape[1] <= _FEW:
        return _equal_few(table, at_most)
    table += 0.0  # -0.0 and 0.0 are the same rate but not the same bits
    limit = table.shape[1] if at_most is None else at_most
    try:
        representative = _representatives(table, np.arange(table.shape[1]), _FACTOR, limit)
    except _TooManyError:
        return None
    first = np.flatnonzero(representative == np.arange(len(representative)))
    if len(first) > limit:
        return None
    number = np.empty(len(representative), dtype=np.intp)
    number[first] = np.arange(len(first))
    member_of = number[representative]
    return Classes(first, member_of, np.bincount(member_of, minlength=len(first)))


def _equal_few(table: Array, at_most: int | None) -> Classes | None:
    number: dict[tuple[float, ...], int] = {}
    member_of = [number.setdefault(row, len(number)) for row in zip(*table.tolist(), strict=True)]
    if at_most is not None and len(number) > at_most:
        return None
    members = np.array(member_of, dtype=np.intp)
    first = np.array([member_of.index(k) for k in range(len(number))], dtype=np.intp)
    return Classes(first, members, np.bincount(members, minlength=len(first)))


def _representatives(table: Array, rows: Index, factor: np.uint64, limit: int) -> Index:
    """For each of ``rows`` the first row (by number) with the same column of ``table``."""
    bits = min(max(len(rows).bit_length() + 2, 4), _MAX_BUCKET_BITS)
    bucket = _hash(table.view(np.uint64), factor) >> np.uint64(64 - bits)
    head = np.empty(1 << bits, dtype=np.intp)
    head[bucket[::-1]] = np.arange(len(bucket) - 1, -1, -1)  # last to first: the first row of a bucket is what stays
    position = head[bucket]
    if np.count_nonzero(position == np.arange(len(position))) > limit:
        raise _TooManyError
    differs = np.zeros(len(bucket), dtype=bool)
    for row in table:
        differs |= row[position] != row
    found: Index = rows[position]
    if differs.any():
        found[differs] = _representatives(table[:, differs], rows[differs], factor ^ (factor << np.uint64(2)), limit)
    return found


def _hash(words: NDArray[np.uint64], factor: np.uint64) -> NDArray[np.uint64]:
    """Multiply and fold, one word of each row after the other."""
    mixed = np.zeros(words.shape[1], dtype=np.uint64)
    for row in words:
        mixed ^= row
        mixed *= factor
        mixed ^= mixed >> np.uint64(29)
    mixed *= factor
    return mixed


def keys(rates: Array) -> NDArray[np.uint64]:
    """A number per row that tells it from all others, and the same as long as its rates and its place among equal
    rates are the same.
    """
    mixed = _hash(np.ascontiguousarray(rates.T).view(np.uint64), _FACTOR)
    order = np.argsort(mixed, kind="stable")
    ordered, place = mixed[order], np.arange(len(mixed))
    head = np.where(np.concatenate(([True], ordered[1:] != ordered[:-1])), place, 0)
    mixed[order] += (place - np.maximum.accumulate(head)).astype(np.uint64) * _FACTOR
    return mixed


def classes_of(problem: LevelProblem, at_most: int | None = None) -> Classes | None:
    return equal_rows((problem.rates, problem.demand, problem.floor, problem.gang), at_most)


def merged(problem: LevelProblem, classes: Classes) -> LevelProblem:
    """One row per class, with the gangs of all its members together."""
    head = classes.first
    return LevelProblem(
        rates=problem.rates[head],
        demand=problem.demand[head],
        floor=problem.floor[head],
        gang=problem.gang[head] * classes.size,
        capacity=problem.capacity,
    )


def spread(answer: Solution, classes: Classes) -> Solution:
    """Every member gets the shares of its class and an equal part of its dual; value and bound carry over."""
    x, duals = answer.x[classes.member_of], (answer.duals / classes.size)[classes.member_of]
    merged_any = len(classes) < len(classes.member_of) and answer.solver != "closed-form"
    solver = f"classes+{answer.solver}" if merged_any else answer.solver
    return replace(answer, x=x, duals=duals, solver=solver)


# -- what does not count, units, closed forms ------------------------------------------------------------------------


@dataclass(frozen=True)
class Reduced:
    """``problem`` has only types with GPUs, only rows that ask for something, and equal types as one."""

    problem: LevelProblem
    rows: Mask
    column_of: Index
    part: Array

    def expand_x(self, x: Array) -> Array:
        """Shares in the original rows and types: merged types share in proportion to their GPUs."""
        full = np.zeros((len(self.rows), len(self.part)))
        full[self.rows] = x[:, self.column_of] * self.part
        return full

    def expand_duals(self, duals: Array) -> Array:
        full = np.zeros(len(self.rows))
        full[self.rows] = duals
        return full


def check(problem: LevelProblem) -> None:
    """Refuses problems without a level: no row has a demand, or one that has can run nowhere."""
    if not (problem.demand > 0).any():
        raise ValueError("no row has a positive demand")
    usable = problem.rates[:, problem.capacity > 0].max(axis=1, initial=0.0) > 0
    stuck = ~usable & ((problem.demand > 0) | (problem.floor > 0))
    if stuck.any():
        raise UnservableError(np.flatnonzero(stuck).tolist(), "no type with GPUs gives these rows a positive rate")


def reduce(problem: LevelProblem) -> Reduced:
    rows = (problem.demand > 0) | (problem.floor > 0)
    kept = np.flatnonzero(problem.capacity > 0)
    leader = _leaders(problem.rates, kept)
    if len(kept) == problem.n_types and rows.all() and (leader == kept).all():
        return Reduced(problem, rows, kept, np.ones(problem.n_types))
    leaders = np.unique(leader)
    capacity = np.bincount(np.searchsorted(leaders, leader), weights=problem.capacity[kept]).astype(np.float64)
    column_of, part = np.zeros(problem.n_types, dtype=np.intp), np.zeros(problem.n_types)
    column_of[kept] = np.searchsorted(leaders, leader)
    part[kept] = problem.capacity[kept] / capacity[column_of[kept]]
    smaller = problem
    if not rows.all() or len(leaders) < problem.n_types:
        smaller = LevelProblem(
            rates=problem.rates[rows][:, leaders],
            demand=problem.demand[rows],
            floor=problem.floor[rows],
            gang=problem.gang[rows],
            capacity=capacity,
        )
    return Reduced(smaller, rows, column_of, part)


def _leaders(rates: Array, kept: Index) -> Index:
    """For each type the first one with the same rates for every job."""
    leader, columns = kept.copy(), kept.tolist()
    first = rates[0].tolist()
    for i, column in enumerate(columns):
        for earlier in columns[:i]:
            if first[earlier] == first[column] and np.array_equal(rates[:, earlier], rates[:, column]):
                leader[i] = leader[np.searchsorted(kept, earlier)]
                break
    return leader


def expand(problem: LevelProblem, reduced: Reduced, answer: Solution) -> Solution:
    """Put back what was taken out; the certificate is computed anew on the original problem, so that a fault of the
    reduction would show as a gap."""
    if reduced.problem is problem:
        return answer
    duals, prices = reduced.expand_duals(answer.duals), answer.prices[reduced.column_of]
    empty = problem.capacity <= 0
    if empty.any():  # a type without GPUs costs nothing to price out
        prices[empty] = (duals[:, None] * problem.rates[:, empty] / problem.gang[:, None]).max(axis=0)
    return certify(problem, reduced.expand_x(answer.x), duals, prices, answer.solver, answer.iterations)


@dataclass(frozen=True)
class Units:
    """Rows divided so that every demand is 1 (a floor without demand: 1) and rates so that t is near 1."""

    row: Array
    level: float

    @staticmethod
    def of(problem: LevelProblem) -> Units:
        active = problem.demand > 0
        fastest = problem.rates.max(axis=1)
        by_time = float((fastest[active] / problem.demand[active]).min())
        by_gpus = float(problem.capacity.sum() / (problem.gang * problem.demand / fastest).sum())
        level = min(by_time, by_gpus)
        other = np.where(problem.floor > 0, problem.floor, 1.0)
        return Units(np.where(active, problem.demand * level, other), level)


def solve_closed(problem: LevelProblem) -> Solution | None:
    """The optimum if there is one type only, or if every job can have its fastest type all the time; else None."""
    if problem.n_types == 1:
        return _one_type(problem)
    fastest = problem.rates.argmax(axis=1)
    if True in (np.bincount(fastest, problem.gang, problem.n_types) > problem.capacity).tolist():
        return None
    x = np.zeros_like(problem.rates)
    x[np.arange(len(x)), fastest] = 1.0
    return certify(problem, x, _slowest(problem, problem.rates.max(axis=1)), np.zeros(problem.n_types), "closed-form")


def _slowest(problem: LevelProblem, rate: Array) -> Array:
    """All weight on the row that limits the level when every row runs at ``rate``."""
    asked = problem.demand > 0
    level = np.where(asked, (rate - problem.floor) / np.where(asked, problem.demand, 1.0), np.inf)
    duals = np.zeros(len(level))
    duals[level.argmin()] = 1.0
    return duals


def _one_type(problem: LevelProblem) -> Solution:
    """The level sets the time of every job: it rises until a job runs all the time or the GPUs are used up.

    The proof: in the first case all weight is on that job, in the second a price makes every job cost what it brings.
    """
    rate, gang, gpus = problem.rates[:, 0], problem.gang, float(problem.capacity[0])
    per_level, at_zero = gang * problem.demand / rate, gang * problem.floor / rate
    by_time = _slowest(problem, rate)
    row = int(by_time.argmax())
    level = float((rate[row] - problem.floor[row]) / problem.demand[row])
    by_gpus = float((gpus - at_zero.sum()) / per_level.sum())
    x = ((problem.demand * min(level, by_gpus) + problem.floor) / rate)[:, None]
    if x.max() > 1 + 1e-12 or min(level, by_gpus) < 0:
        raise InfeasibleError("the floors ask for more than there is")
    if level <= by_gpus:
        return certify(problem, x, by_time, np.zeros(1), "closed-form")
    price = 1.0 / per_level.sum()
    return certify(problem, x, gang * price / rate, np.full(1, price), "closed-form")
