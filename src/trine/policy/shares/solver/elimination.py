"""Elimination with row exchanges for systems of a dozen unknowns, where calling a library costs more than the work."""

from __future__ import annotations

from trine.policy.shares.solver.form import Array


class SingularError(ArithmeticError):
    """A column without a usable pivot."""


class Factors:
    """Factors of one matrix, for several right-hand sides."""

    __slots__ = ("_order", "_rows")

    def __init__(self, matrix: Array) -> None:
        rows: list[list[float]] = matrix.tolist()
        size = len(rows)
        order = list(range(size))
        for k in range(size):
            best = max(range(k, size), key=lambda i: abs(rows[i][k]))
            if not 0.0 < abs(rows[best][k]) < float("inf"):
                raise SingularError
            rows[k], rows[best] = rows[best], rows[k]
            order[k], order[best] = order[best], order[k]
            _eliminate(rows, k)
        self._rows, self._order = rows, order

    def solve(self, right: Array) -> list[float]:
        given, rows = right.tolist(), self._rows
        found = [given[i] for i in self._order]
        for i, row in enumerate(rows):
            for j in range(i):
                found[i] -= row[j] * found[j]
        for i in range(len(rows) - 1, -1, -1):
            row, value = rows[i], found[i]
            for j in range(i + 1, len(rows)):
                value -= row[j] * found[j]
            found[i] = value / row[i]
        return found


def _eliminate(rows: list[list[float]], k: int) -> None:
    """Clear column ``k`` below the pivot, and keep the multipliers in its place."""
    pivot_row, size = rows[k], len(rows)
    for i in range(k + 1, size):
        row = rows[i]
        factor = row[k] / pivot_row[k]
        row[k] = factor
        if factor:
            for j in range(k + 1, size):
                row[j] -= factor * pivot_row[j]
