"""Bounded memory of numbers with their times, and robust figures of it. Knows nothing of GPUs or models."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

_WIDTH = 3
_MAD_TO_SD = 1.4826  # a normal distribution's standard deviation in median absolute deviations


class Sample(NamedTuple):
    """Names one observation: a later one with the same ``serial`` replaces it, ``goes_on`` if its run had others."""

    at_s: float
    serial: int
    goes_on: bool = False


class Window:
    """The latest samples, oldest first: flat triples of time, serial (negative: its run goes on) and value."""

    __slots__ = ("flat",)

    def __init__(self, flat: Iterable[float] = ()) -> None:
        self.flat = array("d", flat)
        if len(self.flat) % _WIDTH:
            raise ValueError(f"{len(self.flat)} numbers are no triples")

    def __len__(self) -> int:
        return len(self.flat) // _WIDTH

    def put(self, sample: Sample, value: float, most: int) -> bool:
        """Keep ``value``, as one of ``most``; false if it only replaces what the same sample said before."""
        flat = self.flat
        if known := bool(flat) and abs(flat[-2]) == sample.serial:
            del flat[-_WIDTH:]
        flat.extend((sample.at_s, -sample.serial if sample.goes_on else sample.serial, value))
        if len(flat) > most * _WIDTH:
            del flat[: len(flat) - most * _WIDTH]
        return not known

    @property
    def values(self) -> Sequence[float]:
        return self.flat[2::_WIDTH]

    @property
    def times_s(self) -> Sequence[float]:
        return self.flat[::_WIDTH]

    @property
    def runs(self) -> list[int]:
        """Number of its run by sample: equal for samples of one run."""
        return list(accumulate(serial > 0 for serial in self.flat[1::_WIDTH]))

    def keep_latest(self) -> None:
        del self.flat[:-_WIDTH]

    def faded_median(self, half_life_s: float) -> float:
        """Median in which a sample counts half after ``half_life_s``, seen from the latest one."""
        return faded_median(list(zip(self.values, self.times_s, strict=True)), half_life_s)


class Mass:
    """Number of runs, each fading with the half-life: how much evidence there is."""

    __slots__ = ("amount", "at_s")

    def __init__(self, amount: float = 0.0, at_s: float = 0.0) -> None:
        self.amount, self.at_s = amount, at_s

    def add(self, at_s: float, half_life_s: float) -> None:
        fade = faded(abs(at_s - self.at_s), half_life_s)
        if at_s >= self.at_s:
            self.amount, self.at_s = self.amount * fade + 1.0, at_s
        else:
            self.amount += fade


def faded(age_s: float, half_life_s: float) -> float:
    """What is left of a weight of 1 after ``age_s``."""
    return float(0.5 ** (age_s / half_life_s))


def faded_median(values_and_times: Sequence[tuple[float, float]], half_life_s: float) -> float:
    """Weighted median of (value, time) pairs; weights halve per half-life back from the latest."""
    newest_s = max([at_s for _, at_s in values_and_times])
    return weighted_median([(value, 0.5 ** ((newest_s - at_s) / half_life_s)) for value, at_s in values_and_times])


def weighted_median(values_and_weights: Iterable[tuple[float, float]]) -> float:
    """The value with half of the weight on either side; between two values their mean."""
    ordered = sorted(values_and_weights)
    half = sum([weight for _, weight in ordered]) / 2
    below = 0.0
    for i, (value, weight) in enumerate(ordered):
        below += weight
        if below > half * (1 + 1e-9):
            return value
        if below > half * (1 - 1e-9) and i + 1 < len(ordered):
            return (value + ordered[i + 1][0]) / 2
    return ordered[-1][0]


def robust_sd(values: Sequence[float]) -> float:
    """Standard deviation that a few wild values cannot move."""
    middle = median(values)
    return _MAD_TO_SD * median([abs(v - middle) for v in values])


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of both; quicker than the general one on the few numbers of a window."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
