"""One allocation problem as arrays: GPU types, jobs, pairs, entities, prices. Shared by every share policy.

No objective lives here, and no file is read here (see ``problem_json``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trine.core.errors import InputError
from trine.policy.view import Flags, Floats, Ints

WHERE = "allocation problem"
RULES = ("fairness", "fifo")


@dataclass(frozen=True, slots=True)
class Entity:
    """A group of jobs (a team, a user) that gets its share as a whole."""

    name: str
    weight: float = 1.0
    rule: str = "fairness"
    """How its jobs share what it gets: ``fairness`` or ``fifo``."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of jobs of equal gang that may run on the same GPUs at the same time."""

    jobs: Ints
    """Positions of the two jobs, (pairs, 2)."""
    throughput: Floats
    """Steps per second of either job while both run, (pairs, 2, columns)."""

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True, slots=True)
class ClassPairs:
    """Pairs by class, for many jobs of few classes. Jobs of one class have equal throughputs and gangs."""

    class_of: Ints
    """The class of each job."""
    pairs: Ints
    """(rows, 2): classes of equal gang; a class with itself if two such jobs may share."""
    throughput: Floats
    """(rows, 2, types): steps per second of either while both run."""

    def rows(self, one: Ints, other: Ints) -> tuple[Ints, Flags]:
        """The row for each two classes, -1 for none, and whether it lists them the other way round."""
        count = int(max(self.class_of.max(initial=0), self.pairs.max(initial=0))) + 1
        row = np.full((count, count), -1, np.int64)
        row[self.pairs[:, 0], self.pairs[:, 1]] = np.arange(len(self.pairs))
        swapped = row[one, other] < 0
        return np.where(swapped, row[other, one], row[one, other]), swapped


def no_pairs(columns: int) -> Pairs:
    return Pairs(np.zeros((0, 2), np.int64), np.zeros((0, 2, columns)))


@dataclass(frozen=True, slots=True)
class PairRows:
    """Pairs by GPU type, as a solver wants them; a pair has one row for each way of placing it."""

    jobs: Ints
    rates: Floats
    """(rows, 2, types), 0 where the pair cannot run."""
    pair: Ints
    """Which pair a row belongs to."""
    column: Ints
    """(rows, types): the column a row's share of that type belongs to."""

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True)
class Problem:
    """Jobs by row, in the order given. Make one with ``Problem.of``, which checks it.

    Columns are GPU types or, placement-aware, a type placed in some way (``column_type`` is the type that a column
    takes GPUs of). Columns of one type compete for the same GPUs, so a job uses the fastest of them: ``rates`` is by
    type.
    """

    types: tuple[str, ...]
    capacity: Floats
    columns: tuple[str, ...]
    column_type: Ints
    ids: tuple[str, ...]
    labels: tuple[int | str, ...]
    """The ids as they were given: numbers stay numbers."""
    throughput: Floats
    """Steps per second of the whole gang alone, (jobs, columns); 0 = cannot run there."""
    gang: Ints
    weight: Floats
    steps_left: Floats
    """NaN where not known."""
    elapsed_s: Floats
    isolated_s: Floats
    """Seconds the work done so far would have taken on the isolated share."""
    deadline_s: Floats
    """Seconds from now; infinite without a deadline."""
    arrival: Ints
    """Rank in order of arrival."""
    entity: Ints
    """Index into ``entities``; -1 = none."""
    entities: tuple[Entity, ...]
    prices: Floats
    """Per GPU and hour by type; NaN where not known."""
    pairs: Pairs
    class_pairs: ClassPairs | None = None
    """In place of ``pairs``."""

    @classmethod
    def of(
        cls,
        workers: dict[str, int],
        throughput: ArrayLike,
        *,
        columns: Sequence[tuple[str, str]] = (),
        ids: Sequence[int | str] = (),
        gang: ArrayLike = 1,
        weight: ArrayLike = 1.0,
        steps_left: ArrayLike = np.nan,
        elapsed_s: ArrayLike = 0.0,
        isolated_s: ArrayLike = 0.0,
        deadline_s: ArrayLike = np.inf,
        arrival: ArrayLike | None = None,
        entity: ArrayLike = -1,
        entities: Sequence[Entity] = (),
        prices: dict[str, float] | None = None,
        pairs: Pairs | None = None,
        class_pairs: ClassPairs | None = None,
        where: str = WHERE,
    ) -> Problem:
        """A checked problem; ``columns`` are pairs of name and GPU type, by default the types themselves."""
        types = tuple(workers)
        cols = list(columns) or [(t, t) for t in types]
        rates = np.asarray(throughput, np.float64).reshape(-1, len(cols))
        n = len(rates)
        labels = tuple(ids) or tuple(range(n))
        problem = cls(
            types=types,
            capacity=np.array([workers[t] for t in types], np.float64),
            columns=tuple(name for name, _ in cols),
            column_type=np.array([types.index(t) for _, t in cols], np.int64),
            ids=tuple(str(i) for i in labels),
            labels=labels,
            throughput=rates,
            gang=_ints(gang, n),
            weight=_floats(weight, n),
            steps_left=_floats(steps_left, n),
            elapsed_s=_floats(elapsed_s, n),
            isolated_s=_floats(isolated_s, n),
            deadline_s=_floats(deadline_s, n),
            arrival=np.arange(n) if arrival is None else _ints(arrival, n),
            entity=_ints(entity, n),
            entities=tuple(entities),
            prices=np.array([(prices or {}).get(t, np.nan) for t in types], np.float64),
            pairs=no_pairs(len(cols)) if pairs is None else pairs,
            class_pairs=class_pairs,
        )
        check(problem, where)
        return problem

    def __len__(self) -> int:
        return len(self.ids)

    def with_known(self, values: dict[str, Any]) -> Problem:
        """The same with other values by name, unchecked, for calls in every round: a tenth of what ``replace`` takes.

        What is derived from them, as ``rates``, may be given as well.
        """
        made = object.__new__(Problem)
        made.__dict__.update({name: self.__dict__[name] for name in _FIELDS})
        made.__dict__.update(values)
        return made

    @cached_property
    def fits(self) -> Flags:
        """(jobs, types): the gang is not larger than the type has GPUs."""
        return self.gang[:, None] <= self.capacity

    @cached_property
    def best_column(self) -> Ints:
        """(jobs, types): the fastest way of placing each job on each type; the first of equals."""
        if self.plain:
            return np.broadcast_to(np.arange(len(self.types)), self.fits.shape)
        found = np.empty((len(self), len(self.types)), np.int64)
        for j in range(len(self.types)):
            own = np.flatnonzero(self.column_type == j)
            found[:, j] = own[np.argmax(self.throughput[:, own], axis=1)]
        return found

    @property
    def plain(self) -> bool:
        """Columns are the types themselves."""
        return self.columns == self.types

    @cached_property
    def rates(self) -> Floats:
        """(jobs, types): steps per second where the gang fits, placed as fast as possible; else 0."""
        best = self.throughput if self.plain else np.take_along_axis(self.throughput, self.best_column, axis=1)
        return np.where(self.fits, best, 0.0)

    @cached_property
    def isolated_share(self) -> Floats:
        """(jobs, types): an equal part of every type for each job, no job above full time."""
        share = self.capacity / (max(len(self), 1) * self.gang[:, None])
        return np.asarray(share / np.maximum(1.0, share.sum(axis=1, keepdims=True)), np.float64)

    @cached_property
    def isolated_rate(self) -> Floats:
        """Steps per second on the isolated share."""
        return np.asarray((self.rates * self.isolated_share).sum(axis=1), np.float64)

    @cached_property
    def pair_rows(self) -> PairRows:
        """The pairs by GPU type; rows on which neither job advances anywhere are left out."""
        ways = [np.flatnonzero(self.column_type == j) for j in range(len(self.types))]
        rows = [self._pairs_placed(ways, k) for k in range(max(len(w) for w in ways))]
        rates = np.concatenate([r for r, _ in rows])
        column = np.concatenate([np.tile(c, (len(self.pairs), 1)) for _, c in rows])
        pair = np.tile(np.arange(len(self.pairs)), len(rows))
        kept = rates.any(axis=(1, 2))
        return PairRows(self.pairs.jobs[pair[kept]], rates[kept], pair[kept], column[kept])

    def _pairs_placed(self, ways: list[Ints], way: int) -> tuple[Floats, Ints]:
        """Rates of every pair placed the ``way``-th way on each type that has that many, and the columns taken."""
        column = np.array([w[min(way, len(w) - 1)] for w in ways])
        there = np.array([way < len(w) for w in ways])
        fits = self.fits[self.pairs.jobs[:, 0]] & there
        return np.where(fits[:, None, :], self.pairs.throughput[:, :, column], 0.0), column

    def listed(self) -> Problem:
        """The same problem with every pair of jobs listed that ``class_pairs`` allows."""
        if self.class_pairs is None:
            return self
        one, other = np.triu_indices(len(self), 1)
        row, swapped = self.class_pairs.rows(self.class_pairs.class_of[one], self.class_pairs.class_of[other])
        known = row >= 0
        rates = self.class_pairs.throughput[row[known]]
        rates = np.where(swapped[known][:, None, None], rates[:, ::-1], rates)
        return replace(self, pairs=Pairs(np.stack([one, other], axis=1)[known], rates), class_pairs=None)

    def spread(self, x: Floats) -> Floats:
        """Shares by type as shares by column."""
        if self.plain:
            return x
        shares = np.zeros(self.throughput.shape)
        np.put_along_axis(shares, self.best_column, x, axis=1)
        return shares

    def needs(self, values: Floats, name: str, policy: str) -> Floats:
        """``values`` if every job has one; else an error that names the first job without."""
        missing = np.isnan(values)
        if missing.any():
            job = self.ids[int(np.argmax(missing))]
            raise InputError(WHERE, f"job {job} has no {name}", f"a number for every job: {policy} needs it", name)
        return values


_FIELDS = tuple(f.name for f in fields(Problem))


def proportional(rates: Floats, capacity: Floats) -> Floats:
    """Throughput with the same share of every GPU: what max-min fairness is relative to. Equal rows give equal bits, so
    that equal jobs stay equal.
    """
    found: Floats = np.add.reduce(rates * (capacity / np.add.reduce(capacity)), axis=1)
    return found


def check(problem: Problem, where: str = WHERE) -> None:
    """Raises ``InputError``, naming the job, for values no policy can work with."""
    _check_workers(problem, where)
    _check_rates(problem, where)
    _check_positive(problem, problem.weight, "weight", where)
    _check_positive(problem, problem.gang.astype(np.float64), "gpus", where)
    _check_pairs(problem, where)
    _check_class_pairs(problem, where)
    _check_places(problem, where)


def _check_workers(problem: Problem, where: str) -> None:
    if not len(problem.types) or not (problem.capacity > 0).any() or not (problem.capacity >= 0).all():
        raise InputError(where, "no GPUs", "at least one GPU of some type", "workers")
    if len(set(problem.ids)) != len(problem.ids) or len(problem.ids) != len(problem.throughput):
        twice = next((i for k, i in enumerate(problem.ids) if i in problem.ids[:k]), "?")
        raise InputError(where, f"job {twice} twice", "an id of its own for every job", "jobs.id")


def _check_rates(problem: Problem, where: str) -> None:
    bad = ~(np.isfinite(problem.throughput) & (problem.throughput >= 0))
    if bad.any():
        job, column = (int(i) for i in np.argwhere(bad)[0])
        found = f"job {problem.ids[job]} makes {problem.throughput[job, column]:g} steps/s on {problem.columns[column]}"
        raise InputError(where, found, "a finite number, 0 or more", "throughput")


def _check_positive(problem: Problem, values: Floats, name: str, where: str) -> None:
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        job = int(np.argmax(bad))
        raise InputError(where, f"job {problem.ids[job]} has {name} {values[job]:g}", "a number greater than 0", name)


def _check_pairs(problem: Problem, where: str) -> None:
    if not len(problem.pairs):
        return
    a, b = problem.pairs.jobs.T
    unequal = problem.gang[a] != problem.gang[b]
    if unequal.any():
        k = int(np.argmax(unequal))
        one, other = (f"job {problem.ids[i]} with gpus {problem.gang[i]}" for i in (a[k], b[k]))
        raise InputError(where, f"a pair of {one} and {other}", "pairs of jobs with equally many GPUs", "pairs")
    rates = problem.pairs.throughput
    if rates.size and not (np.isfinite(rates) & (rates >= 0)).all():
        k = int(np.argwhere(~(np.isfinite(rates) & (rates >= 0)))[0][0])
        names = " and ".join(problem.ids[i] for i in problem.pairs.jobs[k])
        raise InputError(where, f"the pair of jobs {names} has {rates[k].min():g} steps/s", "0 or more", "pairs")


def _check_class_pairs(problem: Problem, where: str) -> None:
    table = problem.class_pairs
    if table is None:
        return
    if not problem.plain or len(problem.pairs) or table.throughput.shape[1:] != (2, len(problem.types)):
        raise InputError(where, "kinds of pairs beside listed pairs or placements", "one of the two", "class_pairs")
    _, first, member_of = np.unique(table.class_of, return_index=True, return_inverse=True)
    head = first[member_of]
    alike = (problem.throughput == problem.throughput[head]).all(axis=1) & (problem.gang == problem.gang[head])
    if not alike.all():
        job = problem.ids[int(np.argmin(alike))]
        raise InputError(
            where, f"job {job} differs from others of its kind", "equal throughputs and gangs", "class_pairs"
        )


def _check_places(problem: Problem, where: str) -> None:
    """Every job has a type on which it makes steps and its gang fits."""
    nowhere = ~problem.rates.any(axis=1)
    if not nowhere.any():
        return
    job = int(np.argmax(nowhere))
    if not problem.throughput[job].any():
        raise InputError(where, f"no GPU type can run job {problem.ids[job]}", "a throughput above 0", "throughput")
    most = int(problem.capacity[problem.column_type[problem.throughput[job] > 0]].max())
    found = (
        f"job {problem.ids[job]} needs {problem.gang[job]} GPUs of one type and no type it runs on has more than {most}"
    )
    raise InputError(where, found, "a gang that fits on one type", "gpus")


def _floats(values: ArrayLike, n: int) -> Floats:
    found = np.array(values, np.float64)
    return found if found.shape == (n,) else np.full(n, found)


def _ints(values: ArrayLike, n: int) -> NDArray[np.int64]:
    found = np.array(values, np.int64)
    return found if found.shape == (n,) else np.full(n, found)
