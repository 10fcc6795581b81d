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


class Cholesky:
    """The factor of a symmetric positive definite matrix, of which the upper triangle is read.

    Column by column from the left, so that every step is one product of ``rows_times``. Systems are solved in blocks
    whose triangles on the diagonal were inverted once: a step of numpy per block and not per row.
    """

    BLOCK = 32

    def __init__(self, matrix: Floats) -> None:
        size = len(matrix)
        self.lower = np.zeros((size, size))
        for k in range(size):
            column = matrix[k, k:] - rows_times(self.lower[k:, :k], self.lower[k, :k])
            if not column[0] > 0:
                raise np.linalg.LinAlgError("the matrix is not positive definite")
            self.lower[k:, k] = column / np.sqrt(column[0])
        starts = range(0, size, self.BLOCK)
        self.blocks = [(slice(i, i + self.BLOCK), _inverse_of_lower(self.lower, i, self.BLOCK)) for i in starts]

    def solve(self, right: Floats) -> Floats:
        """The solution for one right side."""
        found = right.astype(np.float64)
        for block, inverse in self.blocks:
            known = block.start
            found[block] = rows_times(inverse, found[block] - rows_times(self.lower[block, :known], found[:known]))
        for block, inverse in reversed(self.blocks):
            known = min(block.stop, len(found))
            rest = columns_times(found[known:], self.lower[known:, block])
            found[block] = columns_times(found[block] - rest, inverse)
        return found


def _inverse_of_lower(lower: Floats, start: int, size: int) -> Floats:
    """The inverse of the triangle of so many rows from ``start`` on."""
    triangle = lower[start : start + size, start : start + size]
    inverse = np.zeros(triangle.shape)
    for k, row in enumerate(triangle):
        inverse[k, :k] = -columns_times(row[:k], inverse[:k, :k])
        inverse[k, k] = 1.0
        inverse[k] /= row[k]
    return inverse
