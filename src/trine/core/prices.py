"""What a GPU costs per hour, by type and time, and what a stretch of time costs. Files are read in ``inputs.prices``.

No currency in here: a price is a number per GPU and hour, whatever it is counted in.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

HOUR_S = 3600.0


@dataclass(frozen=True)
class Prices:
    """``steps[gpu_type]`` = times (s, ascending) and the prices per GPU and hour from each on; types in lower case.

    Before its first time a type costs what it costs then.
    """

    steps: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = field(default_factory=dict)

    @classmethod
    def constant(cls, by_type: Mapping[str, float]) -> Prices:
        return cls({name.lower(): ((0.0,), (price,)) for name, price in by_type.items()})

    def __bool__(self) -> bool:
        """Some price is known."""
        return bool(self.steps)

    def at(self, gpu_type: str, time_s: float) -> float | None:
        """Per GPU and hour; ``None`` if no price of the type is known."""
        return self.mean(gpu_type, time_s, time_s)

    def mean(self, gpu_type: str, start_s: float, end_s: float) -> float | None:
        """Per GPU and hour, on average from ``start_s`` to ``end_s``; ``None`` if no price of the type is known."""
        known = self.steps.get(gpu_type.lower())
        if known is None:
            return None
        times, prices = known
        first = max(bisect.bisect_right(times, start_s) - 1, 0)
        last = max(bisect.bisect_left(times, end_s) - 1, first)
        if first == last:
            return prices[first]
        edges = (start_s, *times[first + 1 : last + 1], end_s)
        spans = zip(prices[first : last + 1], edges[:-1], edges[1:], strict=True)
        return math.fsum(price * (until - since) for price, since, until in spans) / (end_s - start_s)

    def cost(self, gpu_type: str, gpus: float, start_s: float, end_s: float) -> float | None:
        """What ``gpus`` GPUs cost from ``start_s`` to ``end_s``; ``None`` if no price of the type is known."""
        mean = self.mean(gpu_type, start_s, end_s)
        return None if mean is None else (end_s - start_s) * gpus / HOUR_S * mean

    def lowest(self, gpu_type: str) -> float | None:
        """The least the type ever costs, per GPU and hour; ``None`` if no price of it is known."""
        known = self.steps.get(gpu_type.lower())
        return None if known is None else min(known[1])

    def next_change_s(self, after_s: float) -> float:
        """When the next price changes; infinite if none does."""
        changes = [times[at] for times, _ in self.steps.values() if (at := _next(times, after_s)) < len(times)]
        return min(changes, default=math.inf)

    def now(self, types: Iterable[str], time_s: float) -> dict[str, float]:
        """Price by type, for those types that have one."""
        found = {gpu_type: self.at(gpu_type, time_s) for gpu_type in types}
        return {gpu_type: price for gpu_type, price in found.items() if price is not None}

    def of(self, types: Iterable[str]) -> Prices:
        """The prices of ``types`` alone."""
        wanted = {gpu_type.lower() for gpu_type in types}
        return Prices({name: known for name, known in self.steps.items() if name in wanted})


def _next(times: tuple[float, ...], after_s: float) -> int:
    """Position of the first change after ``after_s``; the first time of a type is where it starts, not a change."""
    return max(bisect.bisect_right(times, after_s), 1)
