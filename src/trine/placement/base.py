"""The interface of a placement: what it is asked and what it answers; ``wrapper`` has those that go around others."""

from __future__ import annotations

import inspect
import math
import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from trine.core.cluster import Tier
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.core.result import TimerChange
from trine.perf.model import PerfModel
from trine.placement.free_index import FreePool

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class JobColumns(Protocol):
    """What is known of all jobs, by job index; the engine's job table."""

    step_s: list[tuple[float, ...]]
    steps: Floats
    done: Floats
    rate: Floats
    work_from_s: Floats
    attained_s: Floats
    run_from_s: Floats
    idle_from_s: Floats
    assigned: Flags
    open_ended: Flags


@dataclass(slots=True)
class Ask:
    """What a placement is asked: GPUs for which job, when, and how far apart they may be.

    Times and work left are looked up when read: most placements need none of them. An ask without ``columns`` is
    about a job that has not run yet. The engine reuses its ask: a placement that keeps one keeps a copy (``within``).
    """

    job: Job
    job_index: int = -1
    now: float = 0.0
    widest: Tier = Tier.NETWORK
    """The GPUs may be no further apart than this: ``NODE``, ``RACK``, or ``NETWORK`` for anywhere."""
    type_index: int = 0
    """Index of the GPU type of the pool."""
    columns: JobColumns | None = None
    quote: Callable[[int, tuple[int, ...], float], float] | None = None
    """Steps/s of a job, by its index, on given GPUs, next to the jobs that send over the same links now.

    Exact where it is at least the last argument: what does not matter below that is cheaper to answer."""
    relocating: bool = False
    """The job runs and goes on where it is unless it gets better GPUs: there is nothing to wait for."""

    @property
    def idle_from_s(self) -> float:
        """Since when the job waits: its submission or its last stop; now, while it runs."""
        if self.columns is None:
            return min(self.now, self.job.submit_s)
        if self.columns.assigned[self.job_index]:
            return self.now
        return min(self.now, float(self.columns.idle_from_s[self.job_index]))

    @property
    def waited_s(self) -> float:
        """Seconds since the job last ran or, if it never did, since it was submitted; 0 while it runs."""
        return self.now - self.idle_from_s

    @property
    def attained_s(self) -> float:
        """Seconds for which the job has held GPUs so far."""
        columns, index = self.columns, self.job_index
        if columns is None:
            return 0.0
        current_s = self.now - float(columns.run_from_s[index]) if columns.assigned[index] else 0.0
        return float(columns.attained_s[index]) + max(0.0, current_s)

    @property
    def work_left_s(self) -> float:
        """Seconds the rest of the job takes on median GPUs of this type inside one node; infinity: not known."""
        job, columns, index = self.job, self.columns, self.job_index
        if columns is None:
            return math.inf if job.open_ended or job.step_s is None else job.steps * job.step_s
        if columns.open_ended[index]:
            return math.inf
        worked_s = max(0.0, self.now - float(columns.work_from_s[index]))
        left = float(columns.steps[index]) - float(columns.done[index]) - worked_s * float(columns.rate[index])
        return max(0.0, left) * columns.step_s[index][self.type_index]

    def within(self, widest: Tier) -> Ask:
        """The same ask with this bound, or its own if that is tighter."""
        widest = min(widest, self.widest)
        ask = Ask(self.job, self.job_index, self.now, widest, self.type_index, self.columns, self.quote)
        ask.relocating = self.relocating
        return ask


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
    reads_chips: ClassVar[bool] = False
    """Chooses among GPUs of one type by their scores: of no use where it cannot have the very GPUs that it names."""
    relocates: bool = True
    """Sticky, it may be asked for a better place for a running job, under policies that relocate; false where chance
    decides."""

    by_room_alone: ClassVar[bool] = False
    """What it answers depends on nothing but the job and the free GPUs, and it refuses no job that has room."""
    changes_with_starts: bool = False
    """What it answers depends on earlier starts (``started``)."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "place" in vars(cls) and list(inspect.signature(cls.place).parameters)[1:2] == ["job"]:
            raise TypeError(f"{cls.__name__}.place(job, pool) is place(ask, pool) now; the job is ask.job")
        if "prepare" in vars(cls) and len(inspect.signature(cls.prepare).parameters) > 3:
            _accept_three_arguments(cls)

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:  # noqa: B027 - most need nothing
        """Called once before the first decision, with what a placement may read and its own random stream."""

    def use_model(self, perf: PerfModel) -> None:  # noqa: B027 - most keep the model they were prepared with
        """Jobs turned out faster or slower than was thought: ``perf`` knows, for the same cluster."""

    @property
    def wakes_s(self) -> float:
        """When an answer of this placement changes next although nothing happens; never, by default.

        A refusal that ends at a known time carries that time itself (``Reason.wakes_s``).
        """
        return math.inf

    @property
    def chooses(self) -> Placement:
        """The placement that names the GPUs, inside all wrappers."""
        return self

    def excluded(self) -> frozenset[int]:
        """GPUs that are never used; asked once, after ``prepare``."""
        return frozenset()

    def explain(self, job: Job, gpus: tuple[int, ...], pool: FreePool) -> str:  # noqa: ARG002
        """A sentence on why these GPUs, where there is one; ``pool`` as it is after the round."""
        return ""

    def started(self, ask: Ask, gpus: tuple[int, ...]) -> None:  # noqa: B027 - most learn nothing
        """A start or a move to ``gpus`` was decided; the ask is as it was when the job had none."""

    def timer_changes_since(self, seen: int) -> list[TimerChange]:  # noqa: ARG002
        """How long it lets jobs wait for a better place, over time: changes after the first ``seen``, oldest first."""
        return []

    def state(self) -> dict[str, Any]:
        """What it keeps from start to start: plain values by name, as JSON knows them."""
        return {}

    def restore(self, kept: dict[str, Any]) -> None:  # noqa: B027 - most keep nothing
        """Go on from what ``state`` gave, in another engine; called after ``prepare``, before the first decision."""

    @abstractmethod
    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        """GPU ids for the whole gang, no further apart than ``ask.widest``, or the reason to wait.

        Asked on paper, too: that it answers with GPUs does not mean that the job starts there.
        """


def _accept_three_arguments(cls: type[Any]) -> None:
    """Files written for ``prepare(perf, rng, compat)`` go on working; no flag of ``compat`` is set any more."""
    prepare = cls.prepare
    warnings.warn(f"{cls.__name__}.prepare(perf, rng, compat) is prepare(perf, rng) now", FutureWarning, stacklevel=3)
    cls.prepare = lambda self, perf, rng, compat=None: prepare(self, perf, rng, compat)


def too_few(job: Job, pool: FreePool) -> Reason:
    """The refusal every placement gives when fewer GPUs are free than the gang needs."""
    return Reason(
        Why.NO_FREE_GPUS,
        f"needs {job.gpus} {pool.gpu_type} GPUs at once, {pool.total} are free.",
        {"needed": job.gpus, "free": pool.total},
        f"It can start when {job.gpus - pool.total} more become free.",
    )


def no_room(ask: Ask, pool: FreePool) -> Reason:
    """The refusal every placement gives when no node or rack, whichever is the bound, has room for the gang."""
    unit, count = ask.widest.label, ask.job.gpus
    return Reason(
        Why.TOPOLOGY,
        f"job {ask.job.id} wants its {count} GPUs within one {unit}, and none has room.",
        {"needed": count, "free": pool.total},
        "It starts when enough GPUs are free close together.",
    )


def has_room(count: int, widest: Tier, pool: FreePool) -> bool:
    """Some free GPUs, ``count`` of them, are no further apart than ``widest``."""
    if widest <= Tier.NODE:
        return pool.nodes_having(count) != 0
    if widest is Tier.RACK and len(pool.rack_nodes) > 1:
        return any(pool.free_in(rack) >= count for rack in pool.rack_nodes)
    return pool.total >= count


def exceeds(ask: Ask, gpus: Sequence[int], pool: FreePool) -> bool:
    """The GPUs are further apart than the ask allows."""
    return len(gpus) > 1 and ask.widest < Tier.NETWORK and pool.cluster.tier(gpus) > max(ask.widest, Tier.NODE)
