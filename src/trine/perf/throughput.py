"""Steps per second of a model by GPU type and gang size, alone or sharing its GPUs with another job, as measured.

Values are not monotone: never assume it. Files are read in ``trine.inputs.throughputs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Rates = Mapping[tuple[str, int], Mapping[str, float]]
PairRates = Mapping[tuple[str, str, int], Mapping[str, tuple[float, float]]]

PairRow = tuple[tuple[float, ...], ...]
AskedPairs = dict[tuple[str, ...], dict[tuple[tuple[str, int], tuple[str, int]], PairRow]]


class KnowsPairs(Protocol):
    """A source of rates of two jobs on the same GPUs: a table, or an estimate."""

    @property
    def asked(self) -> AskedPairs:
        """Answers given before, kept for ``pair_kinds``; empty after a change."""
        ...

    def pair_rate(self, model: str, other: str, gang: int, gpu_type: str) -> tuple[float, float] | None: ...


@dataclass(frozen=True)
class SpeedFactors:
    """Speeds over those of the tables, where jobs turned out faster or slower."""

    by_type: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By model and GPU type, in lower case."""
    by_gang: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """By model and size of the gang, on every type."""

    def of(self, model: str, gang: int, gpu_type: str) -> float:
        return self.by_type.get((model, gpu_type.lower()), 1.0) * self.by_gang.get((model, gang), 1.0)


@dataclass(frozen=True)
class ThroughputTable:
    """``rates[(model, gang)][gpu_type]`` in steps per second of the whole gang, types in lower case; 0 = no fit."""

    rates: Rates = field(default_factory=dict)
    pairs: PairRates = field(default_factory=dict)
    """``pairs[(model, other, gang)][gpu_type]``: steps per second of either; each pair once, in either order."""
    spread: ThroughputTable | None = None
    """The same for gangs that do not lie together, where that was measured."""
    asked: AskedPairs = field(default_factory=dict, init=False, repr=False, compare=False)

    def rate(self, model: str, gang: int, gpu_type: str) -> float | None:
        """Steps per second, or ``None`` if the table does not know the model; 0 on types it was never measured on.

        A gang size that was not measured takes the per-GPU rate of the nearest measured one (the larger on a tie).
        """
        gpu_type = gpu_type.lower()
        known = self.rates.get((model, gang), {}).get(gpu_type)
        if known is not None:
            return known
        gangs = self._gangs.get(model)
        if gangs is None:
            return None
        measured = [size for size in gangs if gpu_type in self.rates[model, size]]
        nearest = min(measured, key=lambda size: (abs(size - gang), -size), default=None)
        return 0.0 if nearest is None else self.rates[model, nearest][gpu_type] / nearest * gang

    def pair_rate(self, model: str, other: str, gang: int, gpu_type: str) -> tuple[float, float] | None:
        """Steps per second of either while both run on the same ``gang`` GPUs; ``None`` = not known.

        ``(0, 0)`` means that the two do not fit together. Gang sizes that were not measured are not guessed.
        """
        entry = self.pairs.get((model, other, gang))
        if entry is not None:
            return entry.get(gpu_type.lower())
        entry = self.pairs.get((other, model, gang))
        found = None if entry is None else entry.get(gpu_type.lower())
        return None if found is None else (found[1], found[0])

    @property
    def models(self) -> list[str]:
        return sorted(self._gangs)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """GPU types of the table, sorted."""
        return tuple(sorted({gpu_type for entry in self.rates.values() for gpu_type in entry}))

    @cached_property
    def _gangs(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for model, gang in sorted(self.rates):
            found.setdefault(model, []).append(gang)
        return found


@dataclass(frozen=True, slots=True)
class PairKinds:
    """Which kinds of jobs may share GPUs, as the share policies want it. Jobs of one model and gang are one kind."""

    kind: NDArray[np.int64]
    """Of each job."""
    pairs: NDArray[np.int64]
    """(rows, 2): kinds of equal gang, each two once; a kind with itself if two such jobs may share."""
    throughput: NDArray[np.float64]
    """(rows, 2, types): steps per second of either while both run, 0 where they do not fit together."""


def pair_kinds(known: KnowsPairs, jobs: Sequence[tuple[str, int]], types: Sequence[str]) -> PairKinds:
    """Kinds and pairs of ``jobs`` (model, gang) on ``types``; pairs that run nowhere are left out.

    Kinds are numbered in order of appearance. Policies ask at every reset, so answers are kept with ``known``.
    """
    import numpy as np

    number: dict[tuple[str, int], int] = {}
    kind = np.array([number.setdefault(job, len(number)) for job in jobs], np.int64)
    rows = known.asked.setdefault(tuple(types), {})
    pairs: list[tuple[int, int]] = []
    rates: list[PairRow] = []
    for (one, a), (other, b) in combinations_with_replacement(number.items(), 2):
        if one[1] != other[1]:
            continue
        if (one, other) not in rows:
            rows[one, other] = _pair_row(known, one[0], other[0], one[1], types)
        found = rows[one, other]
        if found:
            pairs.append((a, b))
            rates.append(found)
    throughput = np.array(rates, np.float64).reshape(len(pairs), 2, len(types))
    return PairKinds(kind, np.array(pairs, np.int64).reshape(-1, 2), throughput)


def _pair_row(known: KnowsPairs, model: str, other: str, gang: int, types: Sequence[str]) -> PairRow:
    """Rates of either by type, 0 where the two do not run together; nothing if that is everywhere."""
    rates = [known.pair_rate(model, other, gang, t) or (0.0, 0.0) for t in types]
    runs = [pair if min(pair) > 0 else (0.0, 0.0) for pair in rates]
    return tuple(zip(*runs, strict=True)) if any(one for one, _ in runs) else ()
