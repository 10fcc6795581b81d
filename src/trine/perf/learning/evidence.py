"""Evidence: settings of learning, a bounded memory of samples, and robust statistics. Knows no GPUs and no models.

Medians throughout: in the measurements published with PAL (SC'24) single runs take up to 3.6 times as long as the
others on the same GPU, which would spoil a mean.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from trine.core.errors import InputError

_WIDTH = 3
_MAD_TO_SD = 1.4826  # a normal distribution's standard deviation in median absolute deviations


@dataclass(frozen=True, slots=True)
class LearningSettings:
    """How quickly observations replace what was given."""

    half_life_s: float = 7 * 86400.0
    """Age at which an observation counts half, relative to the latest one of the same quantity."""
    prior_weight: float = 3.0
    """Number of runs that weigh as much as the given profile or throughput table."""
    min_runs: int = 3
    """Runs before an estimate departs from what was given."""
    min_peers: int = 3
    """Different GPUs (or gangs) that must have run a model before one of them can be called slow."""
    shortest_s: float = 5.0
    """Anything observed for less is left out."""
    sample_s: float = 6 * 3600.0
    """A run longer than this counts once more per segment of this length."""
    attribution_margin: float = 0.05
    """How much faster than its gang a GPU must have run to be ruled out as the cause of the gang's slowness."""
    drift_margin: float = 0.10
    """Departure from the profile that is flagged; the flag is lowered at half of it."""
    material: float = 0.03
    """Change of an estimate after which tables built from it should be built again."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise InputError("learning", f"found {getattr(self, name)}", "a number greater than 0", name)


class SampleId(NamedTuple):
    """Identifies one observation: a later one with the same ``serial`` replaces it, ``goes_on`` if its run had others.

    ``at_s`` is its time in Unix seconds.
    """

    at_s: float
    serial: int
    goes_on: bool = False


class Window:
    """The latest samples, oldest first: flat triples of time, serial (negative: its run goes on) and value.

    One array of doubles instead of objects: there are windows by GPU and by gang, and all of them are in each snapshot.
    """

    __slots__ = ("flat",)

    def __init__(self, flat: Iterable[float] = ()) -> None:
        self.flat = array("d", flat)
        if len(self.flat) % _WIDTH:
            raise ValueError(f"{len(self.flat)} numbers are no triples")

    def __len__(self) -> int:
        return len(self.flat) // _WIDTH

    def put(self, sample: SampleId, value: float, most: int) -> bool:
        """Keep ``value``, as one of ``most``; false if it replaces an earlier value of the same sample.

        Only the latest can be replaced: serials grow, and a run adds to its last segment only.
        """
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
        """Forget all samples but the latest."""
        del self.flat[:-_WIDTH]

    def faded_median(self, half_life_s: float) -> float:
        """Median in which a sample counts half after ``half_life_s``, relative to the latest one."""
        return faded_median(list(zip(self.values, self.times_s, strict=True)), half_life_s)


class EvidenceWeight:
    """Number of runs, each fading with the half-life: how much evidence there is at ``at_s``."""

    __slots__ = ("amount", "at_s")

    def __init__(self, amount: float = 0.0, at_s: float = 0.0) -> None:
        self.amount, self.at_s = amount, at_s

    def add(self, at_s: float, half_life_s: float) -> None:
        """Count one run at ``at_s``; one that is reported late enters already faded."""
        fade = faded(abs(at_s - self.at_s), half_life_s)
        if at_s >= self.at_s:
            self.amount, self.at_s = self.amount * fade + 1.0, at_s
        else:
            self.amount += fade

    def share(self, prior_weight: float) -> float:
        """Share of the observed value in an estimate whose given value weighs ``prior_weight`` runs.

        The posterior mean of a normal prior with that many pseudo-observations: 0 without evidence, towards 1 with it.
        """
        return self.amount / (self.amount + prior_weight)


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
        # Sums of weights are rounded: exactly half is recognised within a margin, so that equal weights give the mean.
        if below > half * (1 + 1e-9):
            return value
        if below > half * (1 - 1e-9) and i + 1 < len(ordered):
            return (value + ordered[i + 1][0]) / 2
    return ordered[-1][0]


def robust_sd(values: Sequence[float]) -> float:
    """Standard deviation by the median absolute deviation, which a few wild values cannot move."""
    middle = median(values)
    return _MAD_TO_SD * median([abs(v - middle) for v in values])


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of both; quicker than ``statistics.median`` on the few numbers of a window."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
