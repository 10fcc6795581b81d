"""Kinds of jobs met so far and what any two of them make on the same GPUs: rows that are looked up, not made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trine.policy.shares.problem import KindPairs
from trine.policy.view import Floats

Kind = tuple[str, int, str, tuple[float, ...]]
"""Model, GPUs, circle, and steps per second by type."""
MANY = 100_000
"""Pairs of kinds that are kept at most; speeds that are observed make ever new ones."""
NOTHING = -1
"""In place of a row, for two kinds that cannot share."""


class Kinds:
    """Numbers kinds and keeps the rows of their pairs in one array."""

    def __init__(self, types: int) -> None:
        self._number: dict[Kind, int] = {}
        self._row: dict[tuple[int, int], int] = {}
        """Which row tells of two kinds, by their numbers."""
        self._rates: Floats = np.zeros((64, 2, types))
        self._used = 0

    def forget(self) -> None:
        """The rates of pairs are others from now on."""
        self._number.clear()
        self._row.clear()
        self._used = 0

    def table(self, of_job: Sequence[Kind], rates: Callable[[int, int], Floats | None]) -> KindPairs:
        """Of jobs of the kinds ``of_job``, all pairs of kinds that may share: equal gangs and circles.

        ``rates`` gives (2, types) of the jobs at two positions; ``None`` = they cannot run together.
        """
        if len(self._row) > MANY:
            self.forget()
        first: dict[Kind, int] = {}
        for position, kind in enumerate(of_job):
            first.setdefault(kind, position)
        number = {kind: i for i, kind in enumerate(first)}
        alike: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
        pairs: list[tuple[int, int]] = []
        rows: list[int] = []
        for b, (kind, position) in enumerate(first.items()):
            co_runners = alike.setdefault(kind[1:3], [])
            own = self._number.setdefault(kind, len(self._number))
            co_runners.append((b, own, position))
            for a, other, co_runner in co_runners:
                row = self._row.get((other, own))
                if row is None:
                    row = self._row[other, own] = self._keep(rates(co_runner, position))
                if row != NOTHING:
                    pairs.append((a, b))
                    rows.append(row)
        kinds = np.array([number[kind] for kind in of_job], np.int64)
        return KindPairs(kinds, np.array(pairs, np.int64).reshape(-1, 2), self._rates[rows])

    def _keep(self, rates: Floats | None) -> int:
        if rates is None:
            return NOTHING
        if self._used == len(self._rates):
            self._rates = np.concatenate((self._rates, np.zeros_like(self._rates)))
        self._rates[self._used] = rates
        self._used += 1
        return self._used - 1
