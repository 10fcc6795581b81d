"""Equal jobs as one: finding classes, merging them where that is exact, and spreading the answer back.

Merging is exact when the whole row is equal: rates, demand, floor and gang. Rows that differ in demand alone are not a
class: their sum could be served by time that one of them does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trine.policy.shares.solver.polytope import Array, Index, LevelProblem, Solution

_MAX_BUCKET_BITS = 16
_FEW = 64
"""Up to so many rows a dictionary is faster than arrays."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


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


def find(columns: Iterable[Array], at_most: int | None = None) -> Classes | None:
    """Rows equal in all ``columns`` (vectors, or matrices of one row per job) as classes, in order of appearance.

    Hashing into buckets instead of sorting: linear in the rows. Rows that share a bucket without being equal are split
    off by a second look, so that a collision costs time and never a wrong merge. None when there are more than
    ``at_most`` classes, which is seen early.
    """
    table = np.concatenate([part.T.reshape(-1, len(part)) for part in columns])
    if table.shape[1] <= _FEW:
        return _find_few(table, at_most)
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


def _find_few(table: Array, at_most: int | None) -> Classes | None:
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
    head[bucket[::-1]] = np.arange(len(bucket) - 1, -1, -1)
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


def of_problem(problem: LevelProblem, at_most: int | None = None) -> Classes | None:
    return find((problem.rates, problem.demand, problem.floor, problem.gang), at_most)


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
