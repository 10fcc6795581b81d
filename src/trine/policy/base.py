"""The interface of a policy. Most are a sort key: derive from ``KeyPolicy`` and write ten lines."""

from __future__ import annotations

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from trine.core.errors import TrineError
from trine.core.job import Job
from trine.core.reason import Trade, Why
from trine.perf.model import PerfModel
from trine.policy.view import Flags, Floats, Ints, View


class PolicyError(TrineError):
    """A policy that breaks its contract: a bug in its file."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """When a running job moves to the best place among the free GPUs and its own.

    It is slow where it is, its run is as old as ``quantum_s``, and the seconds that it would gain over its remaining
    work exceed ``cost_factor`` times what the move costs it. The quantum bounds the moves of a job: one per quantum.
    """

    slower_than: float = 1.1
    """Time of a step over that in the best place of an empty cluster, from which on a job is looked at."""
    min_speedup: float = 1.05
    """New over old speed; smaller gains may be noise, or gone when the next job starts."""
    cost_factor: float = 2.0
    horizon_s: float = math.inf
    """Remaining work beyond so many seconds does not count as gain."""
    quantum_s: float = 1200.0
    tries: int = 60
    """Jobs for which a place is looked for in one round, those that could gain most first."""


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """When running jobs are stopped so that a selected gang need not be split over nodes or sit on slow chips.

    Victims are narrower than the gang. They lose worth x speed for as long as a stop costs them, the gang gains worth x
    (speed with room - speed of the best free place) for ``horizon_s`` seconds at most; room is made if that is more.
    """

    slower_than: float = 0.9
    """Speed of the best free place over that of the best there could be on the type, below which room is made."""
    horizon_s: float = 3600.0
    wait_s: float = 54.0
    """Seconds that a victim is expected to wait, beyond what its stop costs: most find GPUs in the same round."""
    slow_chip: float = 1.15
    """Room is made of chips that are no slower than this for the class of the gang."""


@dataclass(slots=True)  # not frozen: that would make it three times as slow to build, once per round
class Ranking:
    """Positions in the view, first served first. Waiting jobs that are left out are not offered anything."""

    order: Ints
    type_indices: Ints | None = None
    """Index of the wanted GPU type, aligned with ``order``; -1 or ``None`` leaves it to the performance model."""
    held_back: Why = Why.NOT_DECIDED
    """Why the jobs that are left out wait."""
    level: Floats | None = None
    """Aligned with ``order``: a job may stop running jobs whose level is larger by at least ``gap``, and no others.

    This and what follows is for sticky placements; the others place every job anew, in order. Without level, victim
    order and quantum a job stops those that rank behind it, the last one first, whether or not it needs all of them."""
    gap: float = 1.0
    victim_order: Floats | None = None
    """Aligned with ``order``: running jobs with the smallest key are stopped first; ``None``: those that rank last."""
    quantum_s: Floats | None = None
    """Aligned with ``order``: seconds that a run lasts before the job may be stopped for another."""
    stops_for_better: bool = False
    """A job that refuses free GPUs because it waits for better ones may stop others for those."""
    stop_reason: str = "which ranks before it"
    """What is said of the job for which another one is stopped."""
    relocation: Relocation | None = None
    """When running jobs move to better GPUs; ``None``: never."""

    @property
    def names_victims(self) -> bool:
        """The policy says which jobs may be stopped for which, or when."""
        return self.level is not None or self.victim_order is not None or self.quantum_s is not None

    def among(self, kept: Flags) -> Ranking:
        """Only the jobs at the positions of ``order`` that are set in ``kept``."""
        columns = ("order", "type_indices", "level", "victim_order", "quantum_s")
        found = {name: getattr(self, name) for name in columns}
        cut: dict[str, Any] = {name: None if column is None else column[kept] for name, column in found.items()}
        return replace(self, **cut)


@dataclass(frozen=True, slots=True)
class JobValues:
    """The one currency in which jobs are weighed against each other: what a unit of speed is worth to each.

    Speed is relative to median GPUs of the job's best type. With values, a selection is where a round begins: room is
    made for selected jobs that would sit badly, GPUs left over go to waiting jobs, running jobs move to better ones.
    """

    worth: Mapping[int, float]
    """By job index; of all active jobs."""
    left_s: Mapping[int, float]
    """Seconds of work left on the best type, by job index, as the policy knows or expects it."""
    order: Sequence[int]
    """Job indices in the order in which waiting jobs take GPUs, of any type, that the selection leaves over."""
    make_room: MakeRoom | None = None
    relocation: Relocation | None = None

    def among(self, job_indices: Collection[int]) -> JobValues:
        """GPUs that are left over are for these jobs only."""
        return replace(self, order=[i for i in self.order if i in job_indices])


@dataclass(slots=True)  # not frozen, as ``Ranking``
class Selection:
    """The jobs that run now, and no others. Those that run as selected already stay put."""

    wanted: Mapping[int, int]
    """Index of the GPU type by job index, -1 for any that suits; in the order in which equal gangs are placed."""
    co_runners: Mapping[int, int] = field(default_factory=dict)
    """The job on the same GPUs by job index, both ways."""
    changed: Collection[int] | None = field(default=None, compare=False)
    """Job indices that may differ here from the selection this policy gave before; ``None`` = any."""

    values: JobValues | None = field(default=None, compare=False)
    """What speed is worth to the jobs; ``None``: the selection is realised as it is, and nothing beyond it."""

    @classmethod
    def of(cls, job_indices: Ints, type_indices: Ints | None = None, co_runners: Ints | None = None) -> Selection:
        """From columns: job indices, types, and the position in ``job_indices`` of each co-runner or -1."""
        order: list[int] = job_indices.tolist()
        wanted = (
            dict.fromkeys(order, -1) if type_indices is None else dict(zip(order, type_indices.tolist(), strict=True))
        )
        if len(wanted) != len(order):
            raise PolicyError("a policy selected the same job twice for one round")
        if co_runners is None:
            return cls(wanted)
        if len(co_runners) != len(order) or (co_runners >= len(order)).any():
            raise PolicyError("a policy names co-runners that it did not select")
        return cls(
            wanted, {order[at]: order[co_runner] for at, co_runner in enumerate(co_runners.tolist()) if co_runner >= 0}
        )

    def among(self, job_indices: Collection[int]) -> Selection:
        """Only these jobs, and only the pairs of which both are among them."""
        pairs = {
            job_index: co_runner
            for job_index, co_runner in self.co_runners.items()
            if job_index in job_indices and co_runner in job_indices
        }
        wanted = {job_index: t for job_index, t in self.wanted.items() if job_index in job_indices}
        return Selection(wanted, pairs, values=None if self.values is None else self.values.among(job_indices))

    def without(self, job_indices: Collection[int]) -> Selection:
        """As it is, but for these jobs."""
        others = set(self.wanted) | set(() if self.values is None else self.values.order)
        return self if others.isdisjoint(job_indices) else self.among(others.difference(job_indices))


def check_ranking(policy: str, chosen: Ranking | Selection, jobs: int, types: int) -> None:
    """Raise ``PolicyError`` unless it ranks every job once at most, and each on a type that there is."""
    if isinstance(chosen, Selection):
        return
    order = chosen.order
    whole = len(order) == 0 or (order.dtype.kind in "iu" and order.min() >= 0 and order.max() < jobs)
    if not whole or len(np.unique(order)) != len(order):
        raise PolicyError(f"policy {policy}: its order must name each of the {jobs} jobs once at most, by position")
    wanted = chosen.type_indices
    if wanted is not None and (len(wanted) != len(order) or ((wanted < -1) | (wanted >= types)).any()):
        raise PolicyError(f"policy {policy}: it must name one of the {types} GPU types, or -1, for each job it ranks")
    for name in ("level", "victim_order", "quantum_s"):
        column = getattr(chosen, name)
        if column is not None and (len(column) != len(order) or np.isnan(column).any()):
            raise PolicyError(
                f"policy {policy}: its {name} must be one number for each of the {len(order)} jobs it ranks"
            )


class FinishedJob(NamedTuple):
    """What a policy may learn from a job that ended."""

    job: Job
    gpu_time_s: float
    """GPU-seconds for which it held GPUs."""
    work_s: float
    """What its work takes on median GPUs of its best type, seconds."""


class Policy(ABC):
    """Orders the active jobs, running and waiting. A subclass is a dataclass whose fields are its parameters."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    goes_with: ClassVar[str] = "packed-sticky"
    """The placement that a simulation takes where none is named."""
    preemptive: ClassVar[bool] = True
    """A job may be stopped for one that ranks before it."""
    strict: ClassVar[bool] = False
    """No job overtakes another: the first one that does not fit ends the round."""
    changes_with_time: ClassVar[bool] = True
    """The order may change although no job arrived or finished."""
    changes_with_starts: bool = False
    """The order depends on which jobs run; matters to placements that place all jobs anew, in order."""

    @property
    def calibrates(self) -> bool:
        """What is predicted of speeds is put right by those of running jobs, by model, GPU type and chip."""
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "finished" in vars(cls) and "gpu_time_s" in inspect.signature(cls.finished).parameters:
            _accept_gpu_time(cls)

    @property
    def queue(self) -> str:
        """What the policy does, if it is a plain queue in order of arrival that stops nothing; forecasts run such
        a queue quickly. ``strict``: the first that does not fit blocks all behind it; ``easy``: EASY backfilling."""
        return ""

    @property
    def is_preemptive(self) -> bool:
        """As ``preemptive``, for policies whose parameters decide it."""
        return self.preemptive

    @property
    def is_strict(self) -> bool:
        """As ``strict``, for policies whose parameters decide it."""
        return self.strict

    def prepare(self, perf: PerfModel) -> None:  # noqa: B027 - most need nothing
        """Called once before the first round, with what a policy may read of the cluster and the speeds of jobs."""

    def use_model(self, perf: PerfModel) -> None:  # noqa: B027 - most read speeds from the view
        """Jobs turned out faster or slower than was thought: ``perf`` knows, for the same cluster."""

    def without_blocking(self) -> None:  # noqa: B027 - most do not block, or may be served out of order as they are
        """The run lets jobs overtake one that does not fit (``strict=false``); called once, before ``prepare``."""

    @property
    def wakes_s(self) -> float:
        """When the order changes next although nothing happens, for policies that know; never, by default."""
        return math.inf

    @abstractmethod
    def rank(self, view: View) -> Ranking | Selection:
        """The order in which jobs are offered GPUs now, or exactly which jobs run where."""

    def ran(self, job_index: int, seconds: float) -> None:  # noqa: B027 - most count from the view
        """The world's own count of the time a job ran since the last round, where it keeps one; 0 = it failed."""

    def state(self, view: View) -> dict[str, Any]:  # noqa: ARG002 - most keep nothing
        """What it keeps from round to round beyond the view: plain values by name, as JSON knows them; jobs by id."""
        return {}

    def restore(self, kept: dict[str, Any], view: View, stale: bool) -> None:  # noqa: B027 - most keep nothing
        """Go on from what ``state`` gave, in another engine; called after ``prepare``, before the first round.

        ``stale``: what is known of the speeds of jobs has changed since.
        """

    def finished(self, ended: FinishedJob) -> None:  # noqa: B027 - most policies learn nothing
        """A job has done all its work; for policies that learn from history."""

    def explain(self, job_index: int) -> str:  # noqa: ARG002 - most orders speak for themselves
        """A sentence on why the job was selected or not in the last round, where there is one."""
        return ""

    def explain_start(self, job_index: int, type_index: int) -> str:  # noqa: ARG002 - most choose jobs, not types
        """A sentence on why the job runs on the type that it got, where there is one."""
        return ""

    def trade(self, job_index: int, old_type: int, new_type: int) -> Trade | None:  # noqa: ARG002 - most have no prices
        """What was weighed when the job was taken off ``old_type`` for ``new_type`` (-1: for none), if anything was."""
        return None

    def notes(self) -> list[str]:
        """Sentences that a reader of the results should know, asked for when the run is over."""
        return []


def _accept_gpu_time(policy_type: type[Policy]) -> None:
    """A policy file of an earlier version goes on working."""
    what = f"{policy_type.__name__}.finished(gpu_time_s) is finished(ended) now: use ended.gpu_time_s"
    warnings.warn(what, FutureWarning, stacklevel=4)
    takes_seconds: Any = policy_type.finished
    policy_type.finished = lambda self, ended: takes_seconds(self, ended.gpu_time_s)  # type: ignore[method-assign]


class KeyPolicy(Policy):
    """A policy that is a sort key: smallest first, ties in order of arrival, the job's priority before everything."""

    @abstractmethod
    def key(self, view: View) -> Floats | tuple[Floats, ...]:
        """One column, or several from the most to the least significant."""

    def rank(self, view: View) -> Ranking:
        keys = self.key(view)
        columns = keys if isinstance(keys, tuple) else (keys,)
        prioritised = view.prioritised and view.priority.any()
        if len(columns) == 1 and len(columns[0]) == len(view) and not prioritised:
            order = columns[0].argsort(kind="stable")
            # What is not a number was sorted to the end: one look there instead of a pass over the column.
            if not len(order) or not math.isnan(columns[0][order[-1]]):
                return Ranking(order)
        self._check(view, columns)
        if prioritised:
            columns = (-view.priority, *columns)
        return Ranking(np.lexsort(columns[::-1]))

    def _check(self, view: View, columns: tuple[Floats, ...]) -> None:
        for column in columns:
            if len(column) != len(view) or np.isnan(column).any():
                raise PolicyError(
                    f"policy {self.name}: its key has {len(column)} values for {len(view)} jobs, "
                    f"{int(np.isnan(column).sum())} of them not a number; it must give one number per job"
                )


def whole_microseconds(seconds: Floats) -> Floats:
    """In microseconds, rounded: times that differ by floating-point errors only are equal, and ties go by arrival.

    What is left of a job that ran is a difference of large numbers, known to some 1e-10 s; a newcomer's is exact."""
    return np.rint(seconds * 1e6)
