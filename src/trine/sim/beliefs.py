"""Speeds that a scheduler believes in and speeds that jobs have, where the two differ (settings ``belief.NAME``).

The engine gets ``believed_model``; the world lets jobs run by ``ActualSpeeds`` and passes on what jobs would report, as
a daemon does. It serves to ask what a part of the knowledge is worth, and how much error a policy bears.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp

from trine.assembly.factory import performance_model
from trine.assembly.settings import BeliefSettings, RunSettings
from trine.core.job import Job
from trine.perf.model import PerfModel, Speed
from trine.perf.model_traffic import TrafficTable
from trine.perf.throughput import ThroughputTable
from trine.perf.traffic import Traffic
from trine.perf.variability import VariabilityTable

Factor = Callable[[str], float]
"""What a thing is misjudged by, by its name."""


def believed_model(belief: BeliefSettings, run: RunSettings, actual: PerfModel) -> PerfModel:
    """The performance model of a scheduler that misjudges ``actual`` as the settings say."""
    throughputs = _throughputs(belief, actual)
    variability = _variability(belief, actual.variability)
    if not belief.network:
        penalties = {"locality_penalty": 1.0, "rack_penalty": None, "class_penalty": ()}
        run = replace(run, network="off", oversubscription=None, congestion=1.0, **penalties)  # type: ignore[arg-type]
    traffic = None if actual.network is None else _traffic(belief, actual.network.traffic)
    return performance_model(run, actual.cluster, variability, throughputs, traffic)


def _factor(belief: BeliefSettings, what: str, error: float) -> Factor:
    """Lognormal factors; every name has a stream of its own, so that more names change none."""
    if error == 0:
        return lambda _: 1.0
    return lambda name: exp(random.Random(f"{belief.seed}/{what}/{name}").gauss(0.0, error))


def _throughputs(belief: BeliefSettings, actual: PerfModel) -> ThroughputTable:
    """Rates by type misjudged or, without knowledge of types, the same on all; a type that does not fit stays so."""
    factor, counts = _factor(belief, "speed", belief.speed_error), actual.cluster.gpus_by_type
    gpus = {gpu_type.lower(): count for gpu_type, count in counts.items()}

    def believed(model: str, rates: Mapping[str, float]) -> dict[str, float]:
        if not belief.types:
            fits = {t: r for t, r in rates.items() if r > 0 and t in gpus}
            mean = sum(r * gpus[t] for t, r in fits.items()) / max(1, sum(gpus[t] for t in fits))
            return {t: mean if t in fits else r for t, r in rates.items()}
        return {t: rate * factor(f"{model}/{t}") for t, rate in rates.items()}

    table = actual.throughputs
    return replace(table, rates={key: believed(key[0], rates) for key, rates in table.rates.items()})


def _variability(belief: BeliefSettings, table: VariabilityTable) -> VariabilityTable:
    if not belief.chips:
        # The classes stay known: which jobs come first in a placement does not depend on single chips.
        return VariabilityTable(table.gpu_count, {name: [1.0] * table.gpu_count for name in table.classes})
    factor = _factor(belief, "chip", belief.chip_error)
    return VariabilityTable(
        table.gpu_count,
        {c: [v * factor(f"{c}/{gpu}") for gpu, v in enumerate(table.slowdown(c))] for c in table.classes},
    )


def _traffic(belief: BeliefSettings, table: TrafficTable) -> TrafficTable:
    factor = _factor(belief, "bytes", belief.bytes_error)
    return replace(
        table,
        models={n: replace(m, gradient_bytes=m.gradient_bytes * factor(n)) for n, m in table.models.items()},
        families={n: replace(f, gradient_bytes=f.gradient_bytes * factor(n)) for n, f in table.families.items()},
    )


class ActualSpeeds:
    """How fast the running jobs really are: the model of the world, and its own book of flows."""

    def __init__(self, perf: PerfModel, reported: bool) -> None:
        """``reported``: jobs tell the scheduler how fast they are."""
        self.perf, self.reported = perf, reported
        self._traffic = Traffic.of(perf)
        self._gpus: dict[int, Sequence[int]] = {}

    def start(self, job_index: int, job: Job, gpus: tuple[int, ...]) -> None:
        self._gpus[job_index] = gpus
        if self._traffic is not None:
            self._traffic.join(job_index, job, gpus)

    def end(self, job_index: int) -> None:
        del self._gpus[job_index]
        if self._traffic is not None:
            self._traffic.leave(job_index)

    def settle(self) -> list[int]:
        """Share the links anew; the jobs whose bandwidth changed."""
        return [] if self._traffic is None else [changed.job_index for changed in self._traffic.settle()]

    def speed(self, job_index: int, job: Job, co_runner: Job | None) -> Speed:
        """Of a running job on the GPUs it was started on."""
        bandwidth = None if self._traffic is None else self._traffic.bandwidth(job_index)
        return self.perf.speed(job, self._gpus[job_index], co_runner, bandwidth)
