"""The allocation problem of this moment, from what a policy sees: jobs as arrays, groups as entities, and the rates of
the pairs of jobs that may share GPUs, by kind of job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.policy.shares.problem import ClassPairs, Entity, Problem
from trine.policy.shares.rounds.job_rates import JobRateCache
from trine.policy.view import Floats, Ints, View

NOTHING_LEFT = 1e-9
OVERDUE_S = 60.0
"""A job that has done all steps it was said to have, and goes on, is taken to need so much longer."""
JobKind = tuple[str, int, str, tuple[float, ...]]
"""Model, GPUs, sharing domain, and steps per second by type: jobs that are the same to a co-runner."""
KEPT_PAIRS = 100_000
"""Pairs of kinds that are kept at most; speeds that are observed make ever new ones."""
KEPT_KINDS = 2_000
CANNOT_SHARE, NOT_ASKED = -1, -2
"""In place of a row, for two kinds that cannot share GPUs, or that have not met."""


@dataclass(frozen=True)
class ProblemBuilder:
    """What stays the same from reset to reset, and the problem of each."""

    perf: PerfModel
    space_sharing: bool
    entities: dict[str, Entity]
    """By group, where a weight or rule was given; others count 1 and share fairly."""
    uses_groups: bool
    """Groups are entities."""
    pairs_on_all_types: bool = False
    """Only pairs that run on every type, for policies that treat types alike."""
    timeless: bool = False
    """For policies that do not ask how far jobs are (``SharePolicy.timeless``)."""
    _measured: dict[tuple[str, str, int], Floats | None] = field(default_factory=dict)
    _speedups: dict[tuple[str, int, float | None, bytes], float] = field(default_factory=dict)

    @cached_property
    def types_by_name(self) -> Ints:
        """Indices of the GPU types by name: the answer must not depend on the order in which nodes were listed."""
        types = self.perf.cluster.types
        return np.array(sorted(range(len(types)), key=lambda j: types[j]), np.int64)

    def problem(self, view: View, cache: JobRateCache, able: Ints, early_s: float = 0.0) -> Problem:
        """The jobs at the positions ``able``, types by name; ids are job indices.

        Deadlines are planned to be met ``early_s`` before they are due.
        """
        all_jobs = len(able) == len(view)
        job_indices = view.job_indices if all_jobs else view.job_indices[able]
        rates, labels, n = cache.rates_by_name(job_indices), tuple(job_indices.tolist()), len(job_indices)
        columns: dict[str, Any] = _blank(n) | {
            "capacity": np.array([view.gpus_by_type[j] for j in self.types_by_name.tolist()], np.float64),
            "ids": cache.ids(labels),
            "labels": labels,
            "throughput": rates,
            "rates": rates,
            "gang": view.gpus if all_jobs else view.gpus[able],
            "weight": cache.weight(job_indices),
            "prices": self._prices(view.now),
        }
        if self.uses_groups:
            columns |= self._entities([view.job(at) for at in able.tolist()])
        if self.space_sharing:
            columns["class_pairs"] = self._pairs(view, labels, rates, cache.generation)
        if not self.timeless:
            columns |= self._times(view, cache, able, rates, early_s)
        # Made without the checks of ``Problem.of``: these numbers come from the engine, many times a second.
        return self._frame.with_known(columns)

    def _times(self, view: View, cache: JobRateCache, able: Ints, rates: Floats, early_s: float) -> dict[str, Floats]:
        """How far jobs are, and their deadlines."""
        left = _left(view.steps_left[able], rates)
        ahead_s = cache.deadline_s(view.job_indices[able]) - view.now
        return {
            "steps_left": left,
            "elapsed_s": view.now - view.submit_s[able],
            "deadline_s": _sooner(ahead_s, left, rates, early_s),
        }

    @cached_property
    def _frame(self) -> Problem:
        """What all problems of this cluster have in common."""
        cluster = self.perf.cluster
        names = [cluster.types[j] for j in self.types_by_name.tolist()]
        return Problem.of(
            {name: cluster.gpus_by_type[name] for name in names},
            np.zeros((0, len(names))),
        )

    def _prices(self, now: float) -> Floats:
        """Per GPU and hour, types by name; NaN where not known."""
        types = self.perf.cluster.types
        if not self.perf.cluster.prices:
            return self._frame.prices
        known = self.perf.cluster.prices.now(types, now)
        return np.array([known.get(types[j], np.nan) for j in self.types_by_name.tolist()])

    def by_cluster(self, shares: Floats) -> Floats:
        """Columns of an answer in the order of the cluster."""
        return shares.take(self._back, axis=1)

    @cached_property
    def _back(self) -> Ints:
        return np.argsort(self.types_by_name)

    def pair_rates(self, view: View, pairs: Ints, cache: JobRateCache) -> Floats:
        """(pairs, 2, types): steps per second of either job at the positions ``pairs``, types as in the cluster.

        Looked up once for each two kinds of jobs: the pairs of a published centre are all pairs of jobs.
        """
        type_indices = range(len(self.perf.cluster.types))
        positions, member = np.unique(pairs, return_inverse=True)
        member = member.reshape(pairs.shape)
        jobs = [view.job(at) for at in positions.tolist()]
        number: dict[tuple[str, int, float | None], int] = {}
        kind = [number.setdefault((job.model, job.gpus, job.step_s), len(number)) for job in jobs]
        one, other = np.array(kind, np.int64)[member].T
        _, first, row = np.unique(one * len(number) + other, return_index=True, return_inverse=True)
        rates = [
            [[self.perf.rate_next_to(jobs[m], jobs[n], j) for j in type_indices] for m, n in ((a, b), (b, a))]
            for a, b in member[first].tolist()
        ]
        found = np.array(rates, np.float64).reshape(-1, 2, len(type_indices))[row]
        observed = [
            self._observed_speedup(job, cache.rates(view.job_indices[at]))
            for job, at in zip(jobs, positions.tolist(), strict=True)
        ]
        return np.asarray(found * np.array(observed, np.float64)[member][:, :, None], np.float64)

    def _observed_speedup(self, job: Job, own: Floats) -> float:
        """How much faster the job was seen to be than its model says; it is so next to another, too.

        ``own``: its steps/s alone, types as in the cluster. Exactly 1 where nothing was observed:
        rates of a table stay as they are.
        """
        key = (job.model, job.gpus, job.step_s, own.tobytes())
        known = self._speedups.get(key)
        if known is None:
            if len(self._speedups) > KEPT_PAIRS:
                self._speedups.clear()
            expected = [
                (rate, 1.0 / step_s)
                for rate, step_s in zip(own.tolist(), self.perf.step_s_by_type(job), strict=True)
                if rate
            ]
            known = self._speedups[key] = next((rate / usual for rate, usual in expected if usual > 0), 1.0)
        return known

    def forget_pairs(self) -> None:
        """The rates of pairs are others from now on."""
        self._measured.clear()
        self._pair_table.clear()

    def measured_pairs(self, view: View, pairs: Ints) -> Floats:
        """As ``pair_rates``, but 0 where the two were not measured together."""
        back = self._back
        nothing = np.zeros((2, len(back)))
        rates: list[Floats] = []
        for first, second in pairs.tolist():
            one, other = view.job(first), view.job(second)
            found = self._together(one.model, other.model, one.gpus)
            rates.append(nothing if found is None else found[:, back])
        return np.array(rates, np.float64).reshape(-1, 2, len(back))

    def _entities(self, jobs: list[Job]) -> dict[str, Any]:
        number: dict[str, int] = {}
        entity = [number.setdefault(job.group, len(number)) if job.group else -1 for job in jobs]
        return {
            "entity": np.array(entity, np.int64),
            "entities": tuple(self.entities.get(group, Entity(group)) for group in number),
        }

    @cached_property
    def _pair_table(self) -> PairRateTable:
        return PairRateTable(len(self.types_by_name))

    def _pairs(self, view: View, job_indices: tuple[int, ...], rates: Floats, generation: int) -> ClassPairs:
        """Jobs of one model, gang, sharing domain and speed are one kind; two kinds may share if that was measured."""

        def kind(position: int) -> JobKind:
            job = view.job_of(job_indices[position])
            return job.model, job.gpus, job.sharing_domain, tuple(rates[position].tolist())

        def row(one: int, other: int) -> Floats | None:
            jobs = view.job_of(job_indices[one]), view.job_of(job_indices[other])
            return self._row(kind(one), kind(other), *jobs)

        return self._pair_table.pairs_of(self._pair_table.numbers_of(job_indices, generation, kind), row)

    def _row(self, one: JobKind, other: JobKind, job: Job, co_runner: Job) -> Floats | None:
        """(2, types by name): steps per second of a job of either kind; ``None`` if they make none together."""
        found = self._together(one[0], other[0], one[1])
        if found is None:
            return None
        theirs, own = np.array(one[3]), np.array(other[3])
        speedups = [
            self._observed_speedup(job, self.by_cluster(theirs[None])[0]),
            self._observed_speedup(co_runner, self.by_cluster(own[None])[0]),
        ]
        row: Floats = found * ((own > 0) & (theirs > 0)) * np.array(speedups)[:, None]
        return row if (row > 0).all() or (row.any() and not self.pairs_on_all_types) else None

    def _together(self, model: str, other: str, gang: int) -> Floats | None:
        """(2, types by name): steps per second of either, 0 where the two do not fit; ``None`` if they never do."""
        key = (model, other, gang)
        if key not in self._measured:
            known = [
                self.perf.throughputs.pair_rate(*key, self.perf.cluster.types[j]) for j in self.types_by_name.tolist()
            ]
            fits = [pair if pair is not None and min(pair) > 0 else (0.0, 0.0) for pair in known]
            self._measured[key] = np.array(fits).T if any(map(any, fits)) else None
        return self._measured[key]


class PairRateTable:
    """Rates of the pairs of job kinds met so far, in one array: rows are looked up, not made again at each reset."""

    def __init__(self, types: int) -> None:
        self._number: dict[JobKind, int] = {}
        self._kinds: list[JobKind] = []
        """By their numbers."""
        self._number_of_job: dict[int, int] = {}
        self._generation = -1
        """The kinds of jobs are as of then."""
        self._row: Ints = np.full((64, 64), NOT_ASKED)
        """The row of two kinds, by their numbers, the lower first."""
        self._rates: Floats = np.zeros((64, 2, types))
        self._used = 0

    def clear(self) -> None:
        """The rates of pairs are others from now on."""
        self._number.clear()
        self._kinds.clear()
        self._number_of_job.clear()
        self._row[:] = NOT_ASKED
        self._used = 0

    def numbers_of(
        self, job_indices: tuple[int, ...], generation: int, kind: Callable[[int], JobKind]
    ) -> Sequence[int]:
        """The numbers of the kinds of jobs; ``kind`` of the job at a position is asked once in a ``generation``."""
        if self._used > KEPT_PAIRS or len(self._kinds) > KEPT_KINDS:
            self.clear()
        known = self._number_of_job
        if generation != self._generation or len(known) > KEPT_KINDS + 2 * len(job_indices):
            known.clear()
            self._generation = generation
        for position, job_index in enumerate(job_indices):
            if job_index not in known:
                known[job_index] = self._numbered(kind(position))
        return [known[job_index] for job_index in job_indices]

    def _numbered(self, kind: JobKind) -> int:
        number = self._number.setdefault(kind, len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(kind)
        return number

    def pairs_of(self, of_job: Sequence[int], rates: Callable[[int, int], Floats | None]) -> ClassPairs:
        """Of jobs of the kinds ``of_job``, all pairs of kinds that may share: equal gangs and sharing domains.

        ``rates`` gives (2, types) of the jobs at two positions; ``None`` = they cannot run together.
        """
        first: dict[int, int] = {}
        for position, number in enumerate(of_job):
            first.setdefault(number, position)
        place = {number: at for at, number in enumerate(first)}
        alike: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
        for number, position in first.items():
            alike.setdefault(self._kinds[number][1:3], []).append((number, place[number], position))
        found = [self._pairs_among(np.array(sorted(kinds), np.int64), rates) for kinds in alike.values()]
        pairs, rows = (np.concatenate(part) for part in zip(*found, strict=True))
        return ClassPairs(np.array([place[number] for number in of_job], np.int64), pairs, self._rates[rows])

    def _pairs_among(self, kinds: Ints, rates: Callable[[int, int], Floats | None]) -> tuple[Ints, Ints]:
        """Which two of ``kinds``, rows of (number, place, position of a job), may share, by place; and their rows."""
        self._make_room(int(kinds[-1, 0]) + 1)
        one, other = np.triu_indices(len(kinds))
        lower, upper = kinds[one, 0], kinds[other, 0]
        for at in np.flatnonzero(self._row[lower, upper] == NOT_ASKED).tolist():
            found = rates(int(kinds[one[at], 2]), int(kinds[other[at], 2]))
            self._row[lower[at], upper[at]] = self._add(found)
        row = self._row[lower, upper]
        may = row != CANNOT_SHARE
        return np.stack((kinds[one, 1], kinds[other, 1]), axis=1)[may], row[may]

    def _make_room(self, kinds: int) -> None:
        while kinds > len(self._row):
            grown = np.full((2 * len(self._row), 2 * len(self._row)), NOT_ASKED)
            grown[: len(self._row), : len(self._row)] = self._row
            self._row = grown

    def _add(self, rates: Floats | None) -> int:
        if rates is None:
            return CANNOT_SHARE
        if self._used == len(self._rates):
            self._rates = np.concatenate((self._rates, np.zeros_like(self._rates)))
        self._rates[self._used] = rates
        self._used += 1
        return self._used - 1


@lru_cache(1024)
def _blank(jobs: int) -> dict[str, Any]:
    """Columns that are the same for any so many jobs, and those that stand for what a policy does not ask for."""
    found = {
        "steps_left": np.full(jobs, np.nan),
        "elapsed_s": np.full(jobs, np.nan),
        "deadline_s": np.full(jobs, np.inf),
        "isolated_s": np.zeros(jobs),
        "arrival": np.arange(jobs),
        "entity": np.full(jobs, -1),
    }
    for column in found.values():
        column.flags.writeable = False
    return found


def _left(steps_left: Floats, rates: Floats) -> Floats:
    """Steps left; a job that was said to be done by now and is not is taken to need a little more."""
    return np.where(steps_left > NOTHING_LEFT, steps_left, rates.max(axis=1, initial=0.0) * OVERDUE_S)


def _sooner(deadline_s: Floats, steps_left: Floats, rates: Floats, early_s: float) -> Floats:
    """Seconds to the deadline less ``early_s``, but no deadline that can be met becomes one that cannot."""
    best_s = np.divide(
        steps_left, rates.max(axis=1, initial=0.0), out=np.full(len(rates), np.inf), where=rates.any(axis=1)
    )
    return np.where(deadline_s >= best_s, np.maximum(deadline_s - early_s, best_s), deadline_s)
