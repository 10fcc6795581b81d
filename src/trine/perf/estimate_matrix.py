"""Fills the holes of a matrix of low rank, and finds the row most like another. Plain numbers, no jobs and no GPUs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

RANK = 10
RIDGE = 1e-2
TOLERANCE = 1e-3
MOST_PASSES = 100


def completed(
    values: Floats, known: Flags, rng: np.random.Generator, rank: int = RANK, within: tuple[float, float] = (0.0, 1.0)
) -> Floats:
    """``values`` with what is not ``known`` filled in, clipped to ``within``; what is known stays as it is.

    Alternating ridge regressions on two factors with a normal start, until the product moves by less than
    ``TOLERANCE`` per entry, as Gavel's estimator does. Raises ``numpy.linalg.LinAlgError`` if the algebra fails.
    """
    if known.all():
        return values
    rows, columns = values.shape
    mask, told = known.astype(np.float64), np.where(known, values, 0.0)
    right = rng.standard_normal((columns, rank))
    product = rng.standard_normal((rows, rank)) @ right.T
    for _ in range(MOST_PASSES):
        left = _regressed(told, mask, right)
        right = _regressed(told.T, mask.T, left)
        before, product = product, left @ right.T
        if float(np.linalg.norm(product - before)) / values.size < TOLERANCE:
            break
    return np.where(known, values, np.clip(product, *within))


def _regressed(told: Floats, mask: Floats, factor: Floats) -> Floats:
    """For every row of ``told`` the ridge regression of its known entries on ``factor``."""
    rank = factor.shape[1]
    squares = (factor[:, :, None] * factor[:, None, :]).reshape(len(factor), -1)
    gram = (mask @ squares).reshape(len(mask), rank, rank) + RIDGE * np.eye(rank)
    return np.asarray(np.linalg.solve(gram, (told @ factor)[:, :, None])[:, :, 0], np.float64)


def nearest_row(rows: Floats, row: Floats) -> int | None:
    """Which of ``rows`` points in the direction most like ``row``'s (the first of equals); ``None`` for a zero row."""
    length = float(np.linalg.norm(row))
    lengths = np.linalg.norm(rows, axis=1)
    if length == 0 or not np.isfinite(length) or not lengths.any():
        return None
    distance = 1.0 - rows @ row / (np.where(lengths > 0, lengths, np.inf) * length)
    return int(np.argmin(np.round(distance, 12)))
