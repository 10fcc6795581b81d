"""FIFO with EASY backfilling: a reservation for the head of the queue, small jobs fill the gaps in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.reason import Why
from trine.policy.base import Policy, Ranking
from trine.policy.view import Ints, View


@dataclass
class FifoBackfill(Policy):
    """The head of the queue gets the earliest time at which enough GPUs will be free; others may overtake it only if
    they end before that time or leave it enough GPUs. Nothing is preempted. With exact run times the head is never
    delayed by a job that overtook it.
    """

    name: ClassVar[str] = "fifo-backfill"
    title: ClassVar[str] = "FIFO with EASY backfilling (reservation for the head)"
    paper: ClassVar[str] = "Lifka, The ANL/IBM SP scheduling system (JSSPP'95)"
    preemptive: ClassVar[bool] = False

    def rank(self, view: View) -> Ranking:
        order = np.lexsort((view.submit_s, -view.priority))
        running = order[view.running[order]]
        waiting = order[~view.running[order]]
        admitted = _admit(view, waiting)
        chosen = np.array([position for position, _ in admitted], dtype=np.int64)
        pools = np.array([pool for _, pool in admitted], dtype=np.int64)
        return Ranking(np.concatenate((running, chosen)), np.concatenate((view.pool[running], pools)), Why.RESERVED)


def _admit(view: View, waiting: Ints) -> list[tuple[int, int]]:
    """Waiting jobs with the GPU type they may start on: those that fit in order, the head, the backfill."""
    free = view.free.tolist()
    started: list[tuple[int, int]] = []
    for position in waiting.tolist():
        pool = _tightest_pool(view, position, free)
        if pool < 0:
            break
        free[pool] -= int(view.gpus[position])
        started.append((position, pool))
    rest = waiting[len(started) :]
    if not len(rest):
        return started
    head = int(rest[0])
    reservation = min(_reserve(view, started, head, pool, free[pool]) for pool in view.pools_of(head))
    # The head does not fit, but it is considered: whoever asks is told so, not that it waits for itself.
    return [*started, (head, -1), *_backfill(view, rest[1:], free, reservation)]


def _tightest_pool(view: View, position: int, free: list[int]) -> int:
    """The GPU type with the fewest free GPUs that still holds the gang, or -1."""
    need = int(view.gpus[position])
    fitting = [(free[pool], pool) for pool in view.pools_of(position) if free[pool] >= need]
    return min(fitting)[1] if fitting else -1


def _reserve(view: View, started: list[tuple[int, int]], head: int, pool: int, free: int) -> tuple[float, int, int]:
    """Earliest time the head can start on ``pool``, that pool, and how many GPUs will then be left over."""
    just = np.array([position for position, where in started if where == pool], dtype=np.int64)
    holders = np.concatenate((np.flatnonzero(view.running & (view.pool == pool)), just))
    ends = np.where(view.running, view.ends_s, view.now + view.remaining_s)[holders]
    by_end = np.argsort(ends, kind="stable")
    available = free + np.cumsum(view.gpus[holders][by_end])
    need = int(view.gpus[head])
    enough = int(np.searchsorted(available, need))
    if enough >= len(holders):
        return float("inf"), pool, 0
    at = ends[by_end][enough]
    last = int(np.searchsorted(ends[by_end], at, side="right")) - 1
    return float(at), pool, int(available[last]) - need


def _backfill(view: View, behind: Ints, free: list[int], reservation: tuple[float, int, int]) -> list[tuple[int, int]]:
    """Jobs behind the head that fit now and do not delay it, with their GPU type."""
    reserved_s, reserved_pool, spare = reservation
    chosen: list[tuple[int, int]] = []
    in_time = view.now + view.remaining_s <= reserved_s
    for position in behind[view.gpus[behind] <= max(free)].tolist():
        gpus = int(view.gpus[position])
        usable = [*free]
        if not in_time[position]:
            usable[reserved_pool] = min(usable[reserved_pool], spare)
        pool = _tightest_pool(view, position, usable)
        if pool < 0:
            continue
        if pool == reserved_pool and not in_time[position]:
            spare -= gpus
        free[pool] -= gpus
        chosen.append((position, pool))
        if not any(free):
            break
    return chosen
