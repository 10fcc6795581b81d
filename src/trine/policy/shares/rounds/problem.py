"""The allocation problem of this moment, from what a policy sees: jobs as arrays, groups as entities, pairs by kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from trine.core.errors import InputError
from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.policy.shares.problem import RULES, Entity, KindPairs, Problem
from trine.policy.shares.rounds.kinds import Kind, Kinds
from trine.policy.shares.rounds.known import Known
from trine.policy.view import Floats, Ints, View

WHERE = "--set"
NOTHING_LEFT = 1e-9
OVERDUE_S = 60.0


@dataclass(frozen=True)
class Question:
    """What stays the same from reset to reset."""

    perf: PerfModel
    space_sharing: bool
    entities: dict[str, Entity]
    """By group, where a weight or rule was given; others count 1 and share fairly."""
    grouped: bool
    """Groups are entities."""
    everywhere: bool = False
    """Only pairs that run on every type, for policies that treat types alike."""
    early_s: float = 0.0
    """Deadlines are planned to be met so much earlier: rounds give a job its share sooner or later."""
    timeless: bool = False
    """For policies that do not ask how far jobs are (``SharePolicy.timeless``)."""
    _measured: dict[tuple[str, str, int], Floats | None] = field(default_factory=dict)

    @cached_property
    def columns(self) -> Ints:
        """GPU types of the cluster by name: the answer must not depend on the order in which nodes were listed."""
        types = self.perf.cluster.types
        return np.array(sorted(range(len(types)), key=lambda j: types[j]), np.int64)

    def problem(self, view: View, known: Known, able: Ints) -> Problem:
        """The jobs at the positions ``able``, types by name; ids are job numbers."""
        everybody = len(able) == len(view)
        job_indices = view.job_indices if everybody else view.job_indices[able]
        rates, labels, n = known.named(job_indices), tuple(job_indices.tolist()), len(job_indices)
        told: dict[str, Any] = _blank(n) | {
            "capacity": np.array([view.gpus_by_type[j] for j in self.columns.tolist()], np.float64),
            "ids": known.names(labels),
            "labels": labels,
            "throughput": rates,
            "rates": rates,
            "gang": view.gpus if everybody else view.gpus[able],
            "weight": known.weight(job_indices),
            "prices": self._prices(view.now),
        }
        if self.grouped or self.space_sharing:
            jobs = [view.job(at) for at in able.tolist()]
            told |= self._entities(jobs) if self.grouped else {}
            told |= {"kind_pairs": self._pairs(jobs, rates)} if self.space_sharing else {}
        if not self.timeless:
            told |= self._times(view, known, able, rates)
        # Made without the checks of ``Problem.of``: these numbers come from the engine, many times a second.
        return self._frame.with_known(told)

    def _times(self, view: View, known: Known, able: Ints, rates: Floats) -> dict[str, Floats]:
        """How far jobs are, and by when they are wanted."""
        left = _left(view.steps_left[able], rates)
        ahead_s = known.deadline_s(view.job_indices[able]) - view.now
        return {
            "steps_left": left,
            "elapsed_s": view.now - view.submit_s[able],
            "deadline_s": _sooner(ahead_s, left, rates, self.early_s),
        }

    @cached_property
    def _frame(self) -> Problem:
        """What all problems of this cluster have in common."""
        cluster = self.perf.cluster
        names = [cluster.types[j] for j in self.columns.tolist()]
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
        return np.array([known.get(types[j], np.nan) for j in self.columns.tolist()])

    def by_cluster(self, shares: Floats) -> Floats:
        """Columns of an answer in the order of the cluster."""
        return shares.take(self._back, axis=1)

    @cached_property
    def _back(self) -> Ints:
        return np.argsort(self.columns)

    def pair_rates(self, view: View, pairs: Ints, known: Known) -> Floats:
        """(pairs, 2, types): steps per second of either job at the positions ``pairs``, types as in the cluster."""
        kinds = range(len(self.perf.cluster.types))
        rates = [
            [[self.perf.rate_next_to(one, other, j) for j in kinds] for one, other in ((a, b), (b, a))]
            for a, b in ((view.job(first), view.job(second)) for first, second in pairs.tolist())
        ]
        found = np.array(rates, np.float64).reshape(-1, 2, len(kinds))
        paces = [
            [self._pace(view.job(at), known.rates(view.job_indices[at])) for at in pair] for pair in pairs.tolist()
        ]
        return found * np.array(paces, np.float64).reshape(-1, 2, 1)

    def _pace(self, job: Job, own: Floats) -> float:
        """How much faster the job was seen to be than its model says; it is so next to another, too.

        ``own``: its steps/s alone, types as in the cluster. Exactly 1 where nothing was observed:
        rates of a table stay as they are.
        """
        types = np.flatnonzero(own)
        expected = [1.0 / self.perf.step_s_by_type(job)[j] for j in types.tolist()]
        return next((float(rate) / known for rate, known in zip(own[types], expected, strict=True) if known > 0), 1.0)

    def forget_pairs(self) -> None:
        """The rates of pairs are others from now on."""
        self._measured.clear()
        self._kinds.forget()

    def measured_pairs(self, view: View, pairs: Ints) -> Floats:
        """As ``pair_rates``, but 0 where nobody measured the two together."""
        back = np.argsort(self.columns)
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
    def _kinds(self) -> Kinds:
        return Kinds(len(self.columns))

    def _pairs(self, jobs: list[Job], rates: Floats) -> KindPairs:
        """Jobs of one model, gang, circle and speed are one kind; two kinds may share if that was measured."""
        keys = [
            (job.model, job.gpus, job.sharing_domain, tuple(row)) for job, row in zip(jobs, rates.tolist(), strict=True)
        ]
        return self._kinds.table(keys, lambda one, other: self._row(keys[one], keys[other], jobs[one], jobs[other]))

    def _row(self, one: Kind, other: Kind, job: Job, co_runner: Job) -> Floats | None:
        """(2, types by name): steps per second of a job of either kind; ``None`` if they make none together."""
        found = self._together(one[0], other[0], one[1])
        if found is None:
            return None
        theirs, own = np.array(one[3]), np.array(other[3])
        paces = [
            self._pace(job, self.by_cluster(theirs[None])[0]),
            self._pace(co_runner, self.by_cluster(own[None])[0]),
        ]
        row: Floats = found * ((own > 0) & (theirs > 0)) * np.array(paces)[:, None]
        return row if (row > 0).all() or (row.any() and not self.everywhere) else None

    def _together(self, model: str, other: str, gang: int) -> Floats | None:
        """(2, types by name): steps per second of either, 0 where the two do not fit; ``None`` if they never do."""
        key = (model, other, gang)
        if key not in self._measured:
            known = [self.perf.throughputs.pair_rate(*key, self.perf.cluster.types[j]) for j in self.columns.tolist()]
            fits = [pair if pair is not None and min(pair) > 0 else (0.0, 0.0) for pair in known]
            self._measured[key] = np.array(fits).T if any(map(any, fits)) else None
        return self._measured[key]


@lru_cache(1024)
def _blank(jobs: int) -> dict[str, Any]:
    """What is the same for any so many jobs, and what stands for all that a policy does not ask for."""
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


def entities_of(parts: tuple[str, ...]) -> dict[str, Entity]:
    """``("research=2", "web=1:fifo")``: entities by name."""
    found: dict[str, Entity] = {}
    for part in parts:
        name, _, told = part.partition("=")
        weight, _, rule = told.partition(":")
        try:
            number = float(weight)
        except ValueError:
            number = 0.0
        rule = rule or RULES[0]
        if not name or not 0 < number < np.inf or rule not in RULES:
            hint = f"GROUP=WEIGHT or GROUP=WEIGHT:RULE, with a weight above 0 and the rule {' or '.join(RULES)}"
            raise InputError(WHERE, f"{part!r}", hint, "entities")
        if name in found:
            raise InputError(WHERE, f"group {name!r} twice", "every group once", "entities")
        found[name] = Entity(name, number, rule)
    return found
