"""Completion of matrices of low rank: fills the holes, finds the row most like another, estimates rates of new models.

Alternating least squares, as in Gavel's throughput estimator (OSDI'20, section 6). With one factor fixed, the other is
the answer of a linear regression per row, so that each half step is exact and the error never grows; the ridge keeps
rows with fewer known entries than the rank solvable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trine.core.errors import InputError
from trine.core.sums import length, product, rows_times, solve_definite
from trine.perf.throughput import ThroughputTable

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WHERE = "throughput estimate"
RANK, RIDGE, TOLERANCE, MOST_PASSES = 10, 1e-2, 1e-3, 100
"""The constants of Gavel's estimator."""
LARGEST = 3.0
"""Furthest that a model may be estimated from the mean of the others, as a logarithm: a factor of 20."""


def completed(
    values: Floats, known: Flags, rng: np.random.Generator, rank: int = RANK, within: tuple[float, float] = (0.0, 1.0)
) -> Floats:
    """``values`` with what is not ``known`` filled in, clipped to ``within``; what is known stays as it is.

    Alternating ridge regressions on two factors with a normal start, until the product moves by less than
    ``TOLERANCE`` per entry, as Gavel's estimator does.
    """
    if known.all():
        return values
    rows, columns = values.shape
    mask, given = known.astype(np.float64), np.where(known, values, 0.0)
    right = rng.standard_normal((columns, rank))
    filled = product(rng.standard_normal((rows, rank)), right.T)
    for _ in range(MOST_PASSES):
        left = _regressed(given, mask, right)
        right = _regressed(given.T, mask.T, left)
        before, filled = filled, product(left, right.T)
        if length(filled - before) / values.size < TOLERANCE:
            break
    return np.where(known, values, np.clip(filled, *within))


def _regressed(given: Floats, mask: Floats, factor: Floats) -> Floats:
    """For every row of ``given`` the ridge regression of its known entries on ``factor``."""
    rank = factor.shape[1]
    squares = (factor[:, :, None] * factor[:, None, :]).reshape(len(factor), -1)
    gram = product(mask, squares).reshape(len(mask), rank, rank) + RIDGE * np.eye(rank)
    return solve_definite(gram, product(given, factor))


def nearest_row(rows: Floats, row: Floats) -> int | None:
    """Which of ``rows`` points in the direction most like ``row``'s (the first of equals); ``None`` for a zero row.

    The cosine ignores how much a model suffers overall, which a few noisy measurements tell badly, and compares from
    which co-runners it suffers. Rounded, so that rows that differ in the last bits only are equals.
    """
    own = length(row)
    lengths = np.linalg.norm(rows, axis=1)
    if own == 0 or not np.isfinite(own) or not lengths.any():
        return None
    distance = 1.0 - rows_times(rows, row) / (np.where(lengths > 0, lengths, np.inf) * own)
    return int(np.argmin(np.round(distance, 12)))


def estimated_rates(
    table: ThroughputTable, measured: Mapping[str, float], gang: int = 1, seed: int = 0
) -> dict[str, float]:
    """Steps per second on every type of the table, given those on the types in ``measured``, which stay as they are.

    Logarithms of rates, every model relative to its own rate on the types of ``measured``: what models have in common
    on a type is their mean, what they differ by is completed. Whether the model fits on a new type is not estimated.
    """
    given = {gpu_type.lower(): rate for gpu_type, rate in measured.items()}
    running = [t for t in table.types if given.get(t, 0.0) > 0]
    if not running:
        raise InputError(WHERE, "no rate above 0", f"one on at least one of {', '.join(table.types)}", "measured")
    rates = _rates(table, gang, running)
    if not len(rates):
        found = f"no model that runs on {', '.join(running)} with {gang} GPUs"
        raise InputError(WHERE, found, "one to learn from", "gang")
    row = np.array([given.get(t, 0.0) for t in table.types])
    filled = _filled(np.vstack([rates, row]), [table.types.index(t) for t in running], seed)
    return {t: float(given.get(t, rate)) for t, rate in zip(table.types, filled, strict=True)}


def _rates(table: ThroughputTable, gang: int, running: Sequence[str]) -> Floats:
    """Rates by type of the models that run on all of ``running``."""
    entries = [entry for (_, size), entry in sorted(table.rates.items(), key=lambda item: item[0]) if size == gang]
    rows = [[entry.get(t, 0.0) for t in table.types] for entry in entries if all(entry.get(t, 0) > 0 for t in running)]
    return np.array(rows, np.float64).reshape(-1, len(table.types))


def _filled(rates: Floats, running: Sequence[int], seed: int) -> Floats:
    """The last row with rates in place of its zeros."""
    known: Flags = rates > 0
    logs = np.log(np.where(known, rates, 1.0))
    logs -= logs[:, running].mean(axis=1, keepdims=True)
    usual = np.where(known, logs, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    rank = min(RANK, max(1, rates.shape[1] // 2))
    apart = completed(np.where(known, logs - usual, 0.0), known, np.random.default_rng(seed), rank, (-LARGEST, LARGEST))
    scale = float(np.log(rates[-1, running]).mean())
    return np.asarray(np.exp(usual + apart[-1] + scale), np.float64)
