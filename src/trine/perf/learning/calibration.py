"""Factors between the speeds that were predicted and those that jobs turn out to have, by model and type and by chip.

Quick and light, for decisions from round to round: a moving average of measured over predicted speed for the very GPUs
and traffic of a run. What lasts across restarts of a daemon, with evidence and outliers, is in ``observations``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from trine.perf.throughput import SpeedFactors
from trine.perf.variability import VariabilityTable

Key = TypeVar("Key")
_WEIGHT = 0.1
"""Of the latest measurement in the moving average."""
SPEED_STEP, CHIP_STEP = 1.02, 1.05
"""A factor is made known when it has changed by so much: until then decisions rest on the same numbers."""

ChipFactors = Mapping[tuple[str, int], float]
"""Measured over predicted slowdown by class and GPU."""


@dataclass
class MovingFactors(Generic[Key]):
    """Moving averages by key, 1 where nothing was measured, and what of them was made known."""

    step: float
    now: dict[Key, float] = field(default_factory=dict)
    known: dict[Key, float] = field(default_factory=dict)

    def add(self, key: Key, factor: float) -> None:
        old = self.now.get(key, 1.0)
        self.now[key] = old + _WEIGHT * (factor - old)

    def publish(self) -> bool:
        """Make the averages known if one of them has changed materially."""
        known = self.known
        if all(known.get(k, 1.0) / self.step < f < known.get(k, 1.0) * self.step for k, f in self.now.items()):
            return False
        self.known = dict(self.now)
        return True


class Run(NamedTuple):
    """A job on its GPUs, at the speed that was predicted with the factors that are known, and at the one it has."""

    model: str
    gpu_type: str
    app_class: str
    gpus: tuple[int, ...]
    nodes: int
    """On which the GPUs are."""
    fits_a_node: bool
    predicted: float
    """Steps per second."""
    measured: float


class Calibration:
    """Learns from runs, each time from those that show one thing alone.

    Inside a node it is the speed of the model on the type. For gangs that no node holds it is what the model sends,
    which is the same on all types; were it counted as the speed of one type, they would look for another without end.
    Gangs that are spread although a node could hold them show both at once, and teach nothing. Chips are judged by
    single GPUs: the speed of a gang does not say which of its chips slows it.
    """

    def __init__(self) -> None:
        self._types: MovingFactors[tuple[str, str]] = MovingFactors(SPEED_STEP)
        self._gangs: MovingFactors[tuple[str, int]] = MovingFactors(SPEED_STEP)
        self._chips: MovingFactors[tuple[str, int]] = MovingFactors(CHIP_STEP)

    def observe(self, run: Run) -> None:
        """Learn from a run that goes on."""
        on_type, size = (run.model, run.gpu_type.lower()), len(run.gpus)
        ratio = run.measured / run.predicted
        if run.nodes == 1:
            known = self._types.known.get(on_type, 1.0)
            self._types.add(on_type, known * ratio)
            if size == 1:
                # Predicted speed = base x factor of the type / factor of the chip. With the new average as the share of
                # the type, what is left of the measured speed is the chip's.
                chip = (run.app_class, run.gpus[0])
                self._chips.add(chip, self._chips.known.get(chip, 1.0) * self._types.now[on_type] / known / ratio)
        elif not run.fits_a_node:
            gang = (run.model, size)
            self._gangs.add(gang, self._gangs.known.get(gang, 1.0) * ratio)

    def publish_speeds(self) -> SpeedFactors | None:
        """The factors of speed if they changed materially since they were last asked for."""
        changed = [self._types.publish(), self._gangs.publish()]
        return SpeedFactors(self._types.known, self._gangs.known) if any(changed) else None

    def publish_chips(self) -> ChipFactors | None:
        """The factors of slowdowns likewise."""
        return self._chips.known if self._chips.publish() else None


def calibrated(base: VariabilityTable, factors: ChipFactors) -> VariabilityTable:
    """``base`` with the slowdowns as they turned out; without classes, all GPUs get one that is called ``any``."""
    found = {name: list(base.slowdown(name)) for name in base.classes or ("any",)}
    for (app_class, gpu), factor in factors.items():
        row = found[base.class_of(app_class) or "any"]
        row[gpu] *= factor
    return VariabilityTable(base.gpu_count, found)
