"""Devices whose true speed, noise and drift are known: what an estimate must find again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import exp

from trine.core.errors import TrineError
from trine.profile.devices import Device
from trine.profile.gpu_session import MeasurementPlan, run_session
from trine.profile.measurements import MeasurementRecord
from trine.profile.variability_profile import VariabilityProfile

KERNEL_S = {"matmul": 0.004, "attention": 0.002, "triad": 0.008}


class VirtualMachine:
    """Runs nothing: time passes on a clock of its own, and every device answers from its true speed."""

    def __init__(
        self,
        slowdowns: Sequence[float],
        noise: float = 0.01,
        drift_per_s: float = 0.0,
        seed: int = 0,
        failing: str = "",
    ) -> None:
        self.devices = tuple(Device(f"n0-gpu{i}", "cuda", i, i, "virtual", "n0") for i in range(len(slowdowns)))
        self.now_s = 1_000_000.0
        self.asked: list[tuple[str, str]] = []
        self._slowdowns, self._noise, self._drift_per_s, self._failing = slowdowns, noise, drift_per_s, failing
        self._rng = random.Random(seed)
        self._odd: Callable[[int], float] = lambda call: 1.0

    def disturb(self, factor_of_call: Callable[[int], float]) -> None:
        """Make single calls slower: the factor by the number of the call."""
        self._odd = factor_of_call

    def clock(self) -> float:
        return self.now_s

    def measure(self, device: Device, kernel: str, seconds: float) -> float:
        if device.id == self._failing:
            raise TrineError(f"{device.id}: fell off the bus")
        self.asked.append((device.id, kernel))
        self.now_s += seconds
        drift = 1 + self._drift_per_s * (self.now_s - 1_000_000)
        noise = exp(self._rng.gauss(0, self._noise))
        return KERNEL_S[kernel] * self._slowdowns[device.ordinal] * drift * noise * self._odd(len(self.asked))

    def records(self, repeats: int = 10, seed: int = 0) -> list[MeasurementRecord]:
        plan = MeasurementPlan(self.devices, repeats, 0.1, seed)
        return run_session(plan, self, self.clock, lambda record: None).records


def flagged(profile: VariabilityProfile, flag: str) -> tuple[str, ...]:
    """Names of the GPUs that carry ``flag`` in any class."""
    return tuple(gpu.name for gpu in profile.gpus if any(flag in s.flags for s in gpu.classes.values()))
