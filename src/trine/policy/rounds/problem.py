"""The allocation problem of this moment, from what a policy sees: jobs as arrays, groups as entities, pairs by kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trine.core.errors import InputError
from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.policy.lp.problem import RULES, Entity, KindPairs, Problem
from trine.policy.rounds.known import Known
from trine.policy.view import Floats, Ints, View

WHERE = "--set"


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
    _measured: dict[tuple[str, str, int], Floats | None] = field(default_factory=dict)

    @cached_property
    def columns(self) -> Ints:
        """GPU types of the cluster by name: the answer must not depend on the order in which nodes were listed."""
        types = self.perf.cluster.types
        return np.array(sorted(range(len(types)), key=lambda j: types[j]), np.int64)

    def problem(self, view: View, known: Known, able: Ints) -> Problem:
        """The jobs at the positions ``able``, types by name; ids are job numbers."""
        cluster, slots = self.perf.cluster, view.slots[able]
        rates = known.rates(slots)[:, self.columns]
        jobs = [view.job(at) for at in able.tolist()] if self.grouped or self.space_sharing else []
        entity, entities = self._entities(jobs) if self.grouped else (-1, [])
        return Problem.of(
            {cluster.types[j]: int(view.capacity[j]) for j in self.columns.tolist()},
            rates,
            ids=slots.tolist(),
            gang=view.gpus[able],
            weight=known.weight(slots),
            steps_left=np.maximum(view.steps_left[able], 1e-9),
            elapsed_s=view.now - view.submit_s[able],
            deadline_s=known.deadline_s(slots) - view.now,
            entity=entity,
            entities=entities,
            prices=cluster.prices_per_gpu_h,
            kind_pairs=self._pairs(jobs, rates) if self.space_sharing else None,
        )

    def by_cluster(self, shares: Floats) -> Floats:
        """Columns of an answer in the order of the cluster."""
        found = np.empty_like(shares)
        found[:, self.columns] = shares
        return found

    def pair_rates(self, view: View, pairs: Ints) -> Floats:
        """(pairs, 2, types): steps per second of either job at the positions ``pairs``, types as in the cluster."""
        kinds = range(len(self.perf.cluster.types))
        rates = [
            [[self.perf.rate_next_to(one, other, j) for j in kinds] for one, other in ((a, b), (b, a))]
            for a, b in ((view.job(first), view.job(second)) for first, second in pairs.tolist())
        ]
        return np.array(rates, np.float64).reshape(-1, 2, len(kinds))

    def _entities(self, jobs: list[Job]) -> tuple[list[int], list[Entity]]:
        number: dict[str, int] = {}
        entity = [number.setdefault(job.group, len(number)) if job.group else -1 for job in jobs]
        return entity, [self.entities.get(group, Entity(group)) for group in number]

    def _pairs(self, jobs: list[Job], rates: Floats) -> KindPairs:
        """Jobs of one model, gang and speed are one kind; two kinds may share if that was measured."""
        number: dict[tuple[str, int, tuple[float, ...]], int] = {}
        keys = [(job.model, job.gpus, tuple(row)) for job, row in zip(jobs, rates.tolist(), strict=True)]
        kind = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
        rows: list[Floats] = []
        pairs: list[tuple[int, int]] = []
        kinds = list(number)
        for b, (other, gang, own) in enumerate(kinds):
            for a, (model, size, theirs) in enumerate(kinds[: b + 1]):
                found = self._together(model, other, gang) if size == gang else None
                if found is not None:
                    pairs.append((a, b))
                    rows.append(found * ((np.array(own) > 0) & (np.array(theirs) > 0)))
        table = np.array(rows).reshape(-1, 2, rates.shape[1])
        kept = (table > 0).all(axis=(1, 2)) if self.everywhere else table.any(axis=(1, 2))
        return KindPairs(kind, np.array(pairs, np.int64).reshape(-1, 2)[kept], table[kept])

    def _together(self, model: str, other: str, gang: int) -> Floats | None:
        """(2, types by name): steps per second of either, 0 where the two do not fit; ``None`` if they never do."""
        key = (model, other, gang)
        if key not in self._measured:
            known = [self.perf.throughputs.pair_rate(*key, self.perf.cluster.types[j]) for j in self.columns.tolist()]
            fits = [pair if pair is not None and min(pair) > 0 else (0.0, 0.0) for pair in known]
            self._measured[key] = np.array(fits).T if any(map(any, fits)) else None
        return self._measured[key]


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
