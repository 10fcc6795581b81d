"""Sums of products in an order that does not depend on the processor.

The linear algebra library behind ``@`` and ``numpy.linalg`` adds up in another order on every type of processor. The
last bits that differ then decide between equal jobs, and a run is no longer the same everywhere. What leads to a
decision is therefore summed here, by numpy's own loops, which add in one order on all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def dot(one: Floats, other: Floats) -> float:
    """The sum of the products of two vectors."""
    return float(np.einsum("i,i->", one, other))


def rows_times(matrix: Floats, vector: Floats) -> Floats:
    """``matrix @ vector``: each row against the vector; a scalar array for a single row."""
    found: Floats = np.einsum("...i,i->...", matrix, vector)
    return found


def columns_times(vector: Floats, matrix: Floats) -> Floats:
    """``vector @ matrix``: the rows of the matrix, each counted by its entry of the vector."""
    found: Floats = np.einsum("i,ij->j", vector, matrix)
    return found


def product(one: Floats, other: Floats) -> Floats:
    """``one @ other`` of two matrices."""
    found: Floats = np.einsum("ik,kj->ij", one, other)
    return found


def length(values: Floats) -> float:
    """The Euclidean norm of all values."""
    flat = values.ravel()
    return float(np.sqrt(dot(flat, flat)))


def solve_definite(matrices: Floats, right: Floats) -> Floats:
    """The solutions of positive definite systems, ``matrices`` (n, k, k) and ``right`` (n, k), by elimination.

    Such systems need no exchange of rows, so that all are eliminated together, column by column.
    """
    rows = np.concatenate((matrices, right[:, :, None]), axis=2)
    size = rows.shape[1]
    for k in range(size):
        rows[:, k] /= rows[:, k, k, None].copy()
        rows[:, k + 1 :] -= rows[:, k + 1 :, k, None] * rows[:, k, None]
    found: Floats = rows[:, :, size]
    for k in range(size - 1, 0, -1):
        found[:, :k] -= rows[:, :k, k] * found[:, k, None]
    return found
