"""Placements around other placements: the wrapper passes everything on, and changes what it is for.

A wrapper answers for the placement inside in all that it does not define itself. ``Sticky`` is the plainest one,
``delay`` lets jobs wait for a better tier; ``PLACEMENT-sticky`` names the former by composition.
"""

from __future__ import annotations

import random
from typing import Any

from trine.core.job import Job
from trine.core.reason import Reason
from trine.core.result import TimerChange
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement
from trine.placement.free_index import FreePool


class Wrapper(Placement):
    """Passes every call to the placement inside, ``within``."""

    within: Placement

    def wrap(self, within: Placement) -> None:
        """Go around ``within``; to be called before anything else."""
        self.within = within
        self.relocates = within.relocates

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:
        self.within.prepare(perf, rng)

    def use_model(self, perf: PerfModel) -> None:
        self.within.use_model(perf)

    @property
    def wakes_s(self) -> float:
        return self.within.wakes_s

    @property
    def chooses(self) -> Placement:
        return self.within.chooses

    def excluded(self) -> frozenset[int]:
        return self.within.excluded()

    def explain(self, job: Job, gpus: tuple[int, ...], pool: FreePool) -> str:
        return self.within.explain(job, gpus, pool)

    def started(self, ask: Ask, gpus: tuple[int, ...]) -> None:
        self.within.started(ask, gpus)

    def timer_changes_since(self, seen: int) -> list[TimerChange]:
        return self.within.timer_changes_since(seen)

    def state(self) -> dict[str, Any]:
        return self.within.state()

    def restore(self, kept: dict[str, Any]) -> None:
        self.within.restore(kept)

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        return self.within.place(ask, pool)


class Sticky(Wrapper):
    """Any placement, for new jobs only: what runs stays where it is until it ends or is preempted."""

    sticky = True

    def __init__(self, within: Placement) -> None:
        self.wrap(within)
        self.place = within.place  # type: ignore[method-assign]  # no call layer on the hot path
        self.started = within.started  # type: ignore[method-assign]
        self.changes_with_starts = within.changes_with_starts
