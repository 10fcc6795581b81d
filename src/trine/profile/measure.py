"""A measuring session: which kernel runs on which device when, and the journal of what came out.

Time is passed in. What the numbers mean is in ``estimate.py``; how a kernel is run in ``pool.py``."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trine.core.errors import TrineError
from trine.profile.devices import Device
from trine.profile.kernels import KERNELS, Kernel
from trine.profile.records import MeasurementRecord

WARM_UP_S = 0.02
RUN_S = {"cpu": 0.1, "cuda": 1.0}
"""Length of a run by kind of device: a GPU needs longer until its power limit holds its clocks."""


class Runner(Protocol):
    """Runs one kernel on one device; raises ``TrineError`` if the device cannot."""

    def measure(self, device: Device, kernel: str, seconds: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement: the kernel, the device and the run (one run measures everything once)."""

    run: int
    device: Device
    kernel: Kernel


@dataclass(frozen=True, slots=True)
class Plan:
    """What a session measures: every kernel on every device ``repeats`` times, ``seconds`` each."""

    devices: tuple[Device, ...]
    repeats: int
    seconds: float
    seed: int = 0
    kernels: tuple[Kernel, ...] = KERNELS

    def steps(self) -> list[Step]:
        """Run after run, so that what changes slowly changes for all; shuffled anew in each, so that nobody is always
        measured after the same neighbour."""
        rng = random.Random(self.seed)
        pairs = [(device, kernel) for device in self.devices for kernel in self.kernels]
        return [
            Step(run, device, kernel)
            for run in range(self.repeats)
            for device, kernel in rng.sample(pairs, k=len(pairs))
        ]

    def as_dict(self) -> dict[str, object]:
        """What must be the same for a session to be resumed; more runs may be added to one."""
        return {
            "devices": [{"id": d.id, "name": d.name, "uuid": d.uuid} for d in self.devices],
            "kernels": [kernel.name for kernel in self.kernels],
            "seconds": self.seconds,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Session:
    """What a session has measured so far; ``failed`` says by device why it was given up."""

    records: list[MeasurementRecord]
    failed: dict[str, str]
    complete: bool


def run_session(
    plan: Plan,
    runner: Runner,
    clock: Callable[[], float],
    keep: Callable[[MeasurementRecord], None],
    taken: Sequence[MeasurementRecord] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Session:
    """Measure what ``taken`` does not hold yet and hand each record to ``keep`` as soon as it exists.

    A device that fails is given up; the others go on. ``clock`` gives seconds since the epoch, ``stop`` is asked
    before every measurement.
    """
    done = {(record.run, record.gpu, record.app_class) for record in taken}
    steps = [step for step in plan.steps() if (step.run, step.device.id, step.kernel.app_class) not in done]
    session = Session(list(taken), {}, complete=False)
    warm: set[tuple[str, str]] = set()
    for step in steps:
        if stop():
            return session
        if step.device.id not in session.failed:
            _take(step, plan, runner, clock, keep, session, warm)
    if len(session.failed) == len(plan.devices):
        raise TrineError("no device could be measured: " + "; ".join(session.failed.values()))
    return Session(session.records, session.failed, complete=True)


def _take(
    step: Step,
    plan: Plan,
    runner: Runner,
    clock: Callable[[], float],
    keep: Callable[[MeasurementRecord], None],
    session: Session,
    warm: set[tuple[str, str]],
) -> None:
    device, kernel = step.device, step.kernel
    try:
        if (device.id, kernel.name) not in warm:
            # The first run of a kernel loads libraries and raises clocks: it is thrown away.
            runner.measure(device, kernel.name, min(WARM_UP_S, plan.seconds))
            warm.add((device.id, kernel.name))
        perf_s = runner.measure(device, kernel.name, plan.seconds)
    except TrineError as error:
        session.failed[device.id] = str(error)
        return
    record = MeasurementRecord(device.id, kernel.app_class, perf_s, step.run, clock(), device.node)
    session.records.append(record)
    keep(record)
