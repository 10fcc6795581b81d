"""The time of two classes together, handed to pairs of their jobs: as few pairs as can be, those of last time first.

What a job makes depends on how long it runs next to each class, not on which jobs of that class those are. So any pairs
that give every job of a class the same time in all are as good as the solution itself. All pairs of jobs would grow as
jobs squared; of ``n`` and ``m`` jobs never more than ``n + m - 1`` pairs are needed, the vertices of a transportation
problem. Time is counted in whole parts, so that nothing is lost to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trine.policy.shares.solver.polytope import Array, Index, Polytope, Solution

SMALLEST = 1e-12
"""Classes with less time together have none."""
Pair = tuple[int, int]
Parts = list[tuple[int, int, int]]
"""Two jobs and how many parts of the time of their classes they get."""


def split(solution: Solution, classes: Polytope, member_of: Index, before: Iterable[Pair] = ()) -> tuple[Index, Array]:
    """Pairs of jobs, the lower first, and their time by type.

    ``member_of`` is the class of every job. ``before`` are pairs, the lower job first, that are used again as far as
    their classes still have time together.
    """
    class_of = member_of.tolist()
    members: list[list[int]] = [[] for _ in range(len(classes.gang))]
    for job, row in enumerate(class_of):
        members[row].append(job)
    known: dict[Pair, list[Pair]] = {}
    for one, other in before:
        if class_of[one] > class_of[other]:
            one, other = other, one
        known.setdefault((class_of[one], class_of[other]), []).append((one, other))
    time_of = classes.pair_time(solution)
    jobs: list[Pair] = []
    row_of: list[int] = []
    part_of: list[float] = []
    for row in np.flatnonzero(time_of.sum(axis=1) > SMALLEST).tolist():
        first, second = classes.pairs[row].tolist()
        own = known.get((first, second), ())
        parts = _among(members[first], own) if first == second else _between(members[first], members[second], own)
        total = sum(count for _, _, count in parts)
        for one, other, count in parts:
            jobs.append((one, other) if one < other else (other, one))
            row_of.append(row)
            part_of.append(count / total)
    return np.array(jobs, np.intp).reshape(-1, 2), time_of[row_of] * np.array(part_of)[:, None]


def _between(one: list[int], other: list[int], before: Iterable[Pair]) -> Parts:
    """Equal time for each job of either class: a job of ``one`` has as many parts as there are jobs in ``other``."""
    left, right = dict.fromkeys(one, len(other)), dict.fromkeys(other, len(one))
    found: Parts = []
    for a, b in before:
        _take(found, left, right, a, b)
    waiting = iter([b for b in other if right[b]])
    b = next(waiting, -1)
    for a in one:
        while left[a]:
            _take(found, left, right, a, b)
            if not right[b]:
                b = next(waiting, -1)
    return found


def _take(found: Parts, left: dict[int, int], right: dict[int, int], a: int, b: int) -> None:
    """As many parts as both still have."""
    count = min(left[a], right[b])
    if count:
        found.append((a, b, count))
        left[a] -= count
        right[b] -= count


def _among(jobs: list[int], before: Iterable[Pair]) -> Parts:
    """Equal time for each job of one class, two parts: in twos, and three in a ring where the number is odd."""
    waiting = dict.fromkeys(jobs)
    twos: list[Pair] = []
    for a, b in before:
        if a in waiting and b in waiting:
            del waiting[a], waiting[b]
            twos.append((a, b))
    rest = list(waiting)
    ring: list[int] = []
    if len(rest) % 2:
        ring = [rest.pop(), *(twos.pop() if len(rest) < 2 else (rest.pop(), rest.pop()))]
    twos += zip(rest[::2], rest[1::2], strict=True)
    return [(a, b, 2) for a, b in twos] + [(a, b, 1) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]
