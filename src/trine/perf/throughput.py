"""Steps per second of a model by GPU type and gang size, as measured. Values are not monotone: never assume it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ThroughputTable:
    """``rates[(model, gang)][gpu_type]`` in steps per second of the whole gang, types in lower case; 0 = no fit."""

    rates: Mapping[tuple[str, int], Mapping[str, float]] = field(default_factory=dict)

    def rate(self, model: str, gang: int, gpu_type: str) -> float | None:
        """Steps per second, or ``None`` if the table does not know the model.

        A gang size that was not measured takes the per-GPU rate of the nearest measured one (the larger on a tie).
        """
        entry = self.rates.get((model, gang))
        if entry is not None:
            return entry.get(gpu_type.lower(), 0.0)
        nearest = self._nearest_gang(model, gang)
        if nearest is None:
            return None
        return self.rates[(model, nearest)].get(gpu_type.lower(), 0.0) / nearest * gang

    def _nearest_gang(self, model: str, gang: int) -> int | None:
        known = sorted(size for name, size in self.rates if name == model)
        return min(known, key=lambda size: (abs(size - gang), -size), default=None)
