"""Whether predictions came true: the share of intervals that held, and how far medians were off. Seconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_KEPT = 2_000
"""The last ones count; a cluster changes."""


@dataclass
class Score:
    """Of predictions of one kind."""

    held: list[bool] = field(default_factory=list)
    errors_s: list[float] = field(default_factory=list)
    """Median less what happened."""

    def add(self, low_s: float, median_s: float, high_s: float, real_s: float) -> None:
        self.held.append(low_s <= real_s <= high_s)
        self.errors_s.append(median_s - real_s)
        del self.held[:-_KEPT], self.errors_s[:-_KEPT]

    @property
    def coverage(self) -> float | None:
        """Part of the intervals that held."""
        return sum(self.held) / len(self.held) if self.held else None

    @property
    def median_error_s(self) -> float | None:
        """Median of the absolute errors of the medians."""
        return statistics.median(map(abs, self.errors_s)) if self.errors_s else None

    def summary(self) -> dict[str, Any]:
        """As the API shows it."""
        return {"count": len(self.held), "coverage": self.coverage, "median_error_s": self.median_error_s}

    def as_json(self) -> dict[str, Any]:
        return {"held": list(self.held), "errors_s": list(self.errors_s)}

    @classmethod
    def of_json(cls, body: Mapping[str, Any]) -> Score:
        return cls([bool(held) for held in body["held"]], [finite(error) for error in body["errors_s"]])


def finite(value: Any) -> float:
    """A number from a file; ``ValueError`` if it is none."""
    if isinstance(value, bool) or not math.isfinite(found := float(value)):
        raise ValueError(value)
    return found
