"""Collects measured rates one by one, whatever file they come from, and refuses those that contradict each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trine.core.errors import InputError
from trine.perf.throughput import ThroughputTable

MOST_GPUS = 1_000_000
NOT_A_RATE = "steps per second, 0 or more"


@dataclass(frozen=True, slots=True)
class RatePlace:
    """Where a rate was measured."""

    gpu_type: str
    """In lower case."""
    gang: int
    spread: bool = False
    """The gang did not lie together."""

    def __str__(self) -> str:
        gpus = "1 GPU" if self.gang == 1 else f"{self.gang} GPUs"
        return f"{gpus} of {self.gpu_type}{', spread out' if self.spread else ''}"


@dataclass
class RateRows:
    """A throughput table in the making. ``where`` names file and line or key in every error."""

    alone: dict[tuple[str, RatePlace], tuple[float, str]] = field(default_factory=dict)
    pairs: dict[tuple[str, str, RatePlace], tuple[tuple[float, float], str]] = field(default_factory=dict)

    def add(self, where: str, model: str, place: RatePlace, rate: float, name: str = "") -> None:
        """A job alone; ``name`` is the field of the file."""
        known = self.alone.setdefault((model, place), (rate, where))
        if known[1] != where:
            found = f"{model!r} on {place} a second time (first: {known[1]})"
            raise InputError(where, found, "every model once for each GPU type, gang and placement", name)

    def add_pair(self, where: str, one: str, other: str, place: RatePlace, rates: tuple[float, float]) -> None:
        """Two jobs on the same GPUs. The same pair may be listed again the other way round, with the same rates."""
        known = self.pairs.setdefault((one, other, place), (rates, where))
        pair = f"the pair of {one!r} and {other!r} on {place}"
        if known[1] != where:
            raise InputError(where, f"{pair} a second time (first: {known[1]})", "every pair once")
        turned = self.pairs.get((other, one, place))
        if turned is not None and turned[0] != rates[::-1]:
            found = f"{pair} runs at {rates[0]:g} and {rates[1]:g} steps/s, but {turned[1]} says {turned[0][::-1]}"
            raise InputError(where, found, "the same rates whichever of the two is named first")

    def table(self) -> ThroughputTable:
        """The table, with a table of its own for gangs that were spread out if there are any."""
        for (one, other, place), (_, where) in self.pairs.items():
            for model in (one, other):
                if (model, place) not in self.alone:
                    found = f"a pair with {model!r} on {place}, whose rate alone is missing"
                    raise InputError(where, found, "the rate of each of the two alone as well")
        spread = self._half(spread=True)
        packed = self._half(spread=False)
        return ThroughputTable(packed.rates, packed.pairs, spread) if spread.rates else packed

    def _half(self, spread: bool) -> ThroughputTable:
        rates: dict[tuple[str, int], dict[str, float]] = {}
        pairs: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = {}
        for (model, place), (rate, _) in self.alone.items():
            if place.spread == spread:
                rates.setdefault((model, place.gang), {})[place.gpu_type] = rate
        for (one, other, place), (both, _) in self.pairs.items():
            if place.spread == spread:
                if one > other:
                    one, other, both = other, one, both[::-1]
                pairs.setdefault((one, other, place.gang), {})[place.gpu_type] = both
        return ThroughputTable(rates, pairs)


def is_rate(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
