"""The interface of a placement, and the wrapper that makes any of them sticky."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar

from trine.core.compat import Compat
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.perf.model import PerfModel
from trine.placement.free import FreePool


class Placement(ABC):
    """Chooses GPUs for one job. A subclass is a dataclass whose fields are its parameters.

    Whether there are enough free GPUs of the type at all has been checked before ``place`` is called.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    sticky: bool = False
    """Running jobs keep their GPUs; otherwise every round places all jobs anew, in order."""
    repeatable: ClassVar[bool] = True
    """Same jobs in the same order give the same GPUs; false where chance plays a part."""

    by_class: ClassVar[bool] = False
    """Jobs at the head of the order that fit together choose in order of their class, most sensitive first."""
    weighs_moves: ClassVar[bool] = False
    """A running job moves only if it gains more time over its remaining work than the move costs."""

    def prepare(self, perf: PerfModel, rng: random.Random, compat: Compat) -> None:  # noqa: B027 - most need nothing
        """Called once before the first decision, with what a placement may read and its own random stream."""

    def excluded(self) -> frozenset[int]:
        """GPUs that are never used; asked once, after ``prepare``."""
        return frozenset()

    def explain(self, job: Job, gpus: tuple[int, ...], pool: FreePool) -> str:  # noqa: ARG002
        """A sentence on why these GPUs, where there is one; ``pool`` as it is after the round."""
        return ""

    @abstractmethod
    def place(self, job: Job, pool: FreePool) -> list[int] | Reason:
        """GPU ids for the whole gang, or the reason to wait."""


class Sticky(Placement):
    """Any placement, for new jobs only: what runs stays where it is until it ends or is preempted."""

    sticky = True

    def __init__(self, inner: Placement) -> None:
        self.inner = inner
        self.place = inner.place  # type: ignore[method-assign]  # no call layer on the hot path

    def prepare(self, perf: PerfModel, rng: random.Random, compat: Compat) -> None:
        self.inner.prepare(perf, rng, compat)

    def excluded(self) -> frozenset[int]:
        return self.inner.excluded()

    def explain(self, job: Job, gpus: tuple[int, ...], pool: FreePool) -> str:
        return self.inner.explain(job, gpus, pool)

    def place(self, job: Job, pool: FreePool) -> list[int] | Reason:
        return self.inner.place(job, pool)


def too_few(job: Job, pool: FreePool) -> Reason:
    """The refusal every placement gives when fewer GPUs are free than the gang needs."""
    return Reason(
        Why.NO_FREE_GPUS,
        f"needs {job.gpus} {pool.gpu_type} GPUs at once, {pool.total} are free.",
        {"needed": job.gpus, "free": pool.total},
        f"It can start when {job.gpus - pool.total} more become free.",
    )
