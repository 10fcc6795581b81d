"""FIFO with EASY backfilling: a reservation for the head of the queue, small jobs fill the gaps in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.reason import Why
from trine.policy.base import Policy, Ranking
from trine.policy.view import Floats, Ints, View

UNLIMITED_S = 365 * 86_400.0
"""How long a job is taken to run that states no duration, as in Slurm one without a time limit."""


@dataclass
class FifoBackfill(Policy):
    """The head of the queue gets the earliest time at which enough GPUs will be free; others may overtake it only if
    they end before that time or leave it enough GPUs. Nothing is preempted. With exact run times the head is never
    delayed by a job that overtook it. A job that states no duration is taken to run for a year: it overtakes no job on
    GPUs that the head waits for, and jobs that state one may pass while it runs. One that runs longer than stated is
    taken to end at any moment, so nothing new delays the head meanwhile. Jobs take the fastest GPU type with room.
    """

    name: ClassVar[str] = "fifo-backfill"
    title: ClassVar[str] = "FIFO with EASY backfilling (reservation for the head)"
    paper: ClassVar[str] = "Lifka, The ANL/IBM SP scheduling system (JSSPP'95)"
    preemptive: ClassVar[bool] = False

    @property
    def queue(self) -> str:
        return "easy"

    def rank(self, view: View) -> Ranking:
        order = view.allowed(np.lexsort((view.submit_s, -view.priority)))
        running = order[view.assigned[order]]
        waiting = order[~view.assigned[order]]
        admitted = _admit(view, waiting)
        chosen = np.array([position for position, _ in admitted], dtype=np.int64)
        pools = np.array([pool for _, pool in admitted], dtype=np.int64)
        return Ranking(
            np.concatenate((running, chosen)), np.concatenate((view.type_index[running], pools)), Why.RESERVED
        )


def _admit(view: View, waiting: Ints) -> list[tuple[int, int]]:
    """Waiting jobs with the GPU type they may start on: those that fit in order, the head, the backfill."""
    free = view.free.tolist()
    started: list[tuple[int, int]] = []
    for position in waiting.tolist():
        need = int(view.gpus[position])
        pool = next((pool for pool in view.types_of(position) if free[pool] >= need), -1)
        if pool < 0:
            break
        free[pool] -= need
        started.append((position, pool))
    rest = waiting[len(started) :]
    if not len(rest):
        return started
    head = int(rest[0])
    reservation = min(_reserve(view, started, head, pool, free[pool]) for pool in view.types_of(head))
    # The head does not fit, but it is considered: its explanation says so, not that it waits for itself.
    return [*started, (head, -1), *_backfill(view, rest[1:], free, reservation)]


def _reserve(view: View, started: list[tuple[int, int]], head: int, pool: int, free: int) -> tuple[float, int, int]:
    """Earliest time the head can start on ``pool``, that pool, and how many GPUs will then be left over."""
    running = np.flatnonzero(view.assigned & (view.type_index == pool))
    just = [position for position, where in started if where == pool]
    ends = np.concatenate((_ends(view, running), [_end(view, position, pool) for position in just]))
    gpus = np.concatenate((view.gpus[running], view.gpus[just]))
    by_end = np.argsort(ends, kind="stable")
    available = free + np.cumsum(gpus[by_end])
    need = int(view.gpus[head])
    enough = int(np.searchsorted(available, need))
    if enough >= len(ends):
        return float("inf"), pool, 0
    at = ends[by_end][enough]
    last = int(np.searchsorted(ends[by_end], at, side="right")) - 1
    return float(at), pool, int(available[last]) - need


def _ends(view: View, running: Ints) -> Floats:
    """When jobs that run will end; those that said nothing after all that did, the one that started first first."""
    ends, unknown = view.ends_s[running], view.open_ended[running]
    return np.where(unknown, view.now - view.attained_s[running] + UNLIMITED_S, ends) if unknown.any() else ends


def _end(view: View, position: int, pool: int) -> float:
    """When a job that starts now would end; one that said nothing after all others, those that run included."""
    if view.open_ended[position]:
        return view.now + 2 * UNLIMITED_S
    return view.now + view.remaining_on(position, pool)


def _backfill(view: View, behind: Ints, free: list[int], reservation: tuple[float, int, int]) -> list[tuple[int, int]]:
    """Jobs behind the head that fit now and do not delay it, with their GPU type."""
    reserved_s, reserved_pool, spare = reservation
    chosen: list[tuple[int, int]] = []
    for position in _that_may_fit(view, behind, free, reserved_s, spare).tolist():
        gpus = int(view.gpus[position])
        for pool in view.types_of(position):
            late = pool == reserved_pool and _end(view, position, pool) > reserved_s
            if gpus <= (min(free[pool], spare) if late else free[pool]):
                spare -= gpus if late else 0
                free[pool] -= gpus
                chosen.append((position, pool))
                break
        if not any(free):
            break
    return chosen


def _that_may_fit(view: View, behind: Ints, free: list[int], reserved_s: float, spare: int) -> Ints:
    """All that could be admitted, and few others: queues are long, and what is free only shrinks."""
    gpus = view.gpus[behind]
    if len(free) > 1:
        return behind[gpus <= max(free)]
    # Later than this by more than rounding: such a job may have spare GPUs only.
    latest_s = reserved_s + 1e-9 * abs(reserved_s) if reserved_s < np.inf else np.inf
    late = view.open_ended[behind] | (view.now + view.remaining_s[behind] > latest_s)
    return behind[gpus <= np.where(late & (reserved_s < np.inf), min(free[0], spare), free[0])]
