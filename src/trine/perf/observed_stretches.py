"""Runs in the making: a run is reported piece by piece and counts as one observation until it has become long."""

from __future__ import annotations

from collections.abc import Iterable

from trine.perf.observed_evidence import LearningSettings
from trine.perf.observed_rates import PaceKey
from trine.perf.observed_window import Sample


class Stretch:
    """A part of a run: the pieces so far, added up."""

    __slots__ = ("goes_on", "gpus", "key", "next_to", "run", "seconds", "serial", "steps")

    def __init__(
        self, run: str, gpus: tuple[int, ...], key: PaceKey, serial: int, goes_on: bool, next_to: str = ""
    ) -> None:
        self.run, self.gpus, self.key, self.serial, self.goes_on = run, gpus, key, serial, goes_on
        self.next_to = next_to
        """Model of the job on the same GPUs, for parts of a run that was not alone."""
        self.seconds = self.steps = 0.0

    def add(self, steps: float, seconds: float) -> None:
        self.seconds += seconds
        self.steps += steps

    def sample(self, at_s: float) -> Sample:
        return Sample(round(at_s, 3), self.serial, self.goes_on)


class Stretches:
    """The latest stretch by first GPU of its gang; GPUs are ascending."""

    def __init__(self, settings: LearningSettings, serial: int = 0, latest: Iterable[Stretch] = ()) -> None:
        self.settings, self.serial = settings, serial
        self.latest = {stretch.gpus[0]: stretch for stretch in latest}

    def extend(self, run: str, gpus: tuple[int, ...], key: PaceKey, steps: float, seconds: float) -> Stretch:
        """The stretch the piece belongs to, with the piece in it. Without a name every piece is a run of its own."""
        known = self.latest.get(gpus[0]) if run else None
        same_run = known is not None and (known.run, known.gpus, known.key) == (run, gpus, key)
        if known is None or not same_run or known.seconds >= self.settings.sample_s:
            self.serial += 1
            known = Stretch(run, gpus, key, self.serial, goes_on=same_run)
        if run:
            self.latest[gpus[0]] = known
        known.add(steps, seconds)
        return known
