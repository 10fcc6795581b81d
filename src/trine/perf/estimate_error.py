"""How far estimated rates are from measured ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from trine.perf.estimate import EstimatedPairs
from trine.perf.throughput import KnowsPairs, ThroughputTable


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
            real, told = truth.pair_rate(one, other, gang, gpu_type), known.pair_rate(one, other, gang, gpu_type)
            if real is None:
                continue
            count += 1
            fits, said = min(real) > 0, told is not None and min(told) > 0
            missed, wrong = missed + (fits and not said), wrong + (said and not fits)
            if fits and said and told is not None:
                errors += [abs(a - b) / b for a, b in zip(told, real, strict=True)]
    found = np.array(errors or [0.0])
    mean, median, p90 = float(found.mean()), float(np.median(found)), float(np.quantile(found, 0.9))
    return EstimateError(count, mean, median, p90, missed, wrong)


def matches(estimate: EstimatedPairs, models: list[str]) -> dict[str, str]:
    """The reference that stands for each model."""
    return {model: estimate.match(model).reference for model in models}
