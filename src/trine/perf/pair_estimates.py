"""Rates of pairs of jobs without measuring every pair: profile a few, complete, take those of the most similar model.

The throughput estimator of Gavel (OSDI'20, section 6), after Quasar (ASPLOS'14): how a model suffers from co-runners is
a row of a matrix (a column per GPU type and co-runner). Few hidden properties explain all rows (how much compute, cache
and memory traffic a model needs), so the matrix has low rank and a few measured entries determine the rest of a row.
The completed row is used only to find the most similar reference model: its measured rates are better than the
completed ones. Rates of jobs alone are taken as known; see ``matrix_completion.estimated_rates``.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from trine.core.errors import InputError
from trine.perf.matrix_completion import WHERE, Flags, Floats, completed, nearest_row
from trine.perf.throughput import AskedPairs, KnowsPairs, ThroughputTable

MOVING_AVERAGE = 0.5
"""Weight of the latest observation of a pair, as in Gavel."""


class Match(NamedTuple):
    """What the profiling of a model led to."""

    reference: str
    """The model whose behaviour stands for this one's."""
    measured: frozenset[tuple[str, str]]
    """(GPU type, reference) pairs that were measured, on one GPU."""


@dataclass(frozen=True)
class References:
    """Models measured with each other in every combination, and how much each slows down beside each."""

    table: ThroughputTable
    models: tuple[str, ...]
    types: tuple[str, ...]
    slowdowns: Floats
    """(models, types x models): rate of the row beside the column's model, as a part of its rate alone."""

    @classmethod
    def of(cls, table: ThroughputTable, count: int | None = None, seed: int = 0) -> References:
        """``count`` of the models whose pairs the table knows, drawn without replacement; all of them by default."""
        every = sorted({model for one, other, gang in table.pairs if gang == 1 for model in (one, other)})
        if not every:
            raise InputError(WHERE, "a table without pairs on one GPU", "rates of pairs to learn from", "pairs")
        chosen = every if count is None else _sample(every, count, seed)
        rows = [cls._row(table, model, chosen) for model in chosen]
        return cls(table, tuple(chosen), table.types, np.array([row for row, _ in rows]))

    @staticmethod
    def _row(table: ThroughputTable, model: str, others: Sequence[str]) -> tuple[Floats, Flags]:
        """Parts of the rate alone that ``model`` keeps beside each of ``others``, and which of them are known."""
        parts = [_part(table, model, other, 1, gpu_type) for gpu_type in table.types for other in others]
        return np.array([part or 0.0 for part in parts]), np.array([part is not None for part in parts])

    def match(self, model: str, profiled: float, seed: int) -> Match:
        """The reference most like ``model``, of which a fraction ``profiled`` of the pairs has been measured."""
        rng = np.random.default_rng([seed, zlib.crc32(model.encode())])
        row, known = self._row(self.table, model, self.models)
        # The table holds all pairs; which of them the profiling would have measured is drawn.
        known &= rng.random(len(row)) < profiled
        whole = np.vstack([self.slowdowns, np.where(known, row, 0.0)])
        mask = np.vstack([np.ones_like(self.slowdowns, np.bool_), known])
        found = nearest_row(self.slowdowns, completed(whole, mask, rng)[-1]) if known.any() else None
        # Without any measurement, or if the algebra fails, all references are as likely.
        reference = self.models[int(rng.integers(len(self.models))) if found is None else found]
        columns = [(gpu_type, other) for gpu_type in self.types for other in self.models]
        return Match(reference, frozenset(c for c, measured in zip(columns, known, strict=True) if measured))


def _sample(models: list[str], count: int, seed: int) -> list[str]:
    if not 1 <= count <= len(models):
        raise InputError(WHERE, f"{count} references", f"from 1 to {len(models)}, the models with pairs", "references")
    return sorted(random.Random(seed).sample(models, count))


def _part(table: ThroughputTable, model: str, other: str, gang: int, gpu_type: str) -> float | None:
    """Rate of ``model`` beside ``other`` as a part of its rate alone; 0 where it does not fit, ``None`` = not known."""
    pair, alone = table.pair_rate(model, other, gang, gpu_type), table.rate(model, gang, gpu_type)
    if pair is None or alone is None:
        return None
    return pair[0] / alone if alone > 0 else 0.0


@dataclass
class EstimatedPairs:
    """Answers ``pair_rate`` as a table does, from estimates that get better with what is observed.

    A model is profiled once: jobs of one model are one kind. A pair that was profiled keeps its measured rates. Gangs
    take the reference's measurement of that size where there is one, else that of a single GPU. Same seed, same
    estimates, whatever is asked first.
    """

    references: References
    profiled: float = 1.0
    """Probability that a pair of a model with a reference on a GPU type is measured."""
    seed: int = 0
    version: int = 0
    """Changes with every observation: answers that were kept are out of date then."""
    asked: AskedPairs = field(default_factory=dict, init=False, repr=False)
    _matches: dict[str, Match] = field(default_factory=dict, init=False)
    _seen: dict[tuple[str, str, int, str], tuple[float, float]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.profiled <= 1:
            raise InputError(WHERE, f"found {self.profiled:g}", "a fraction from 0 to 1", "profiled")

    def match(self, model: str) -> Match:
        """The reference whose behaviour stands for that of ``model``, and what was measured to find it."""
        known = self._matches.get(model)
        if known is None:
            known = self._matches[model] = self.references.match(model, self.profiled, self.seed)
        return known

    def pair_rate(self, model: str, other: str, gang: int, gpu_type: str) -> tuple[float, float] | None:
        """Steps per second of either while both run; ``None`` if the rate of one of them alone is not known."""
        gpu_type = gpu_type.lower()
        if model > other:
            swapped = self.pair_rate(other, model, gang, gpu_type)
            return None if swapped is None else (swapped[1], swapped[0])
        seen = self._seen.get((model, other, gang, gpu_type))
        return seen or self._estimate(model, other, gang, gpu_type)

    def observe(
        self,
        model: str,
        other: str,
        gang: int,
        gpu_type: str,
        rates: tuple[float, float],
        weight: float = MOVING_AVERAGE,
    ) -> None:
        """The two really ran at ``rates``: moves the estimate there by ``weight`` (1 = takes the rates as they are).

        A pair that got no time counts with rates of 0.
        """
        if model > other:
            model, other, rates = other, model, (rates[1], rates[0])
        before = self.pair_rate(model, other, gang, gpu_type) or rates
        after = tuple(weight * new + (1 - weight) * old for new, old in zip(rates, before, strict=True))
        self._seen[model, other, gang, gpu_type.lower()] = (after[0], after[1])
        self.version += 1
        self.asked.clear()

    def measured(self, model: str, other: str, gang: int, gpu_type: str) -> bool:
        """The pair needs no estimate: it was profiled, or both models were found to be references themselves."""
        one, two, gpu_type = self.match(model), self.match(other), gpu_type.lower()
        if gang == 1 and ((gpu_type, other) in one.measured or (gpu_type, model) in two.measured):
            return True
        themselves = one.reference == model and two.reference == other
        return themselves and self.references.table.pair_rate(model, other, gang, gpu_type) is not None

    def _estimate(self, model: str, other: str, gang: int, gpu_type: str) -> tuple[float, float] | None:
        table = self.references.table
        if self.measured(model, other, gang, gpu_type):
            return table.pair_rate(model, other, gang, gpu_type)
        one, two = self.match(model), self.match(other)
        alone = table.rate(model, gang, gpu_type), table.rate(other, gang, gpu_type)
        parts = self._parts(one.reference, two.reference, gang, gpu_type)
        if alone[0] is None or alone[1] is None or parts is None:
            return None
        # What carries over from a reference is the part of its speed that is left, not the speed itself.
        rates = alone[0] * parts[0], alone[1] * parts[1]
        return rates if rates[0] > 0 and rates[1] > 0 else (0.0, 0.0)

    def _parts(self, one: str, other: str, gang: int, gpu_type: str) -> tuple[float, float] | None:
        table = self.references.table
        for size in dict.fromkeys((gang, 1)):
            parts = _part(table, one, other, size, gpu_type), _part(table, other, one, size, gpu_type)
            if parts[0] is not None and parts[1] is not None:
                return parts[0], parts[1]
        return None

    def table(self, gangs: Sequence[int] = (1,)) -> ThroughputTable:
        """The estimates as they stand, as a table of all models with the rates alone that they start from."""
        known = self.references.table
        pairs: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = {}
        for gang in gangs:
            models = sorted(model for model, size in known.rates if size == gang)
            for one, other in combinations_with_replacement(models, 2):
                found = {t: self.pair_rate(one, other, gang, t) for t in known.types}
                pairs[one, other, gang] = {t: rates for t, rates in found.items() if rates is not None}
        return ThroughputTable(known.rates, {key: found for key, found in pairs.items() if found})


@dataclass(frozen=True, slots=True)
class EstimateError:
    """Errors relative to the measured rate, over both jobs of all pairs that fit in truth and in the estimate."""

    pairs: int
    """Pairs by GPU type whose truth is known."""
    mean: float
    median: float
    p90: float
    missed: int
    """Pairs that fit together although the estimate says no."""
    wrong: int
    """Pairs that do not fit together although the estimate says yes."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def pair_error(known: KnowsPairs, truth: ThroughputTable, gang: int = 1) -> EstimateError:
    """The error of ``known`` over every two models of ``truth`` (a model with itself included)."""
    models = sorted({model for one, other, size in truth.pairs if size == gang for model in (one, other)})
    errors: list[float] = []
    missed = wrong = count = 0
    for one, other in combinations_with_replacement(models, 2):
        for gpu_type in truth.types:
            real, estimated = truth.pair_rate(one, other, gang, gpu_type), known.pair_rate(one, other, gang, gpu_type)
            if real is None:
                continue
            count += 1
            fits, said = min(real) > 0, estimated is not None and min(estimated) > 0
            missed, wrong = missed + (fits and not said), wrong + (said and not fits)
            if fits and said and estimated is not None:
                errors += [abs(a - b) / b for a, b in zip(estimated, real, strict=True)]
    found = np.array(errors or [0.0])
    mean, median, p90 = float(found.mean()), float(np.median(found)), float(np.quantile(found, 0.9))
    return EstimateError(count, mean, median, p90, missed, wrong)


def matches(estimate: EstimatedPairs, models: list[str]) -> dict[str, str]:
    """The reference that stands for each model."""
    return {model: estimate.match(model).reference for model in models}
