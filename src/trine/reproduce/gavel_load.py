"""Gavel's continuous workloads of single-GPU jobs: the full cluster, and average JCT by load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcome, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import MODES, failed
from trine.reproduce.panels import Found, Panel

PRESET = "gavel-continuous-single"
Line = tuple[str, bool]
"""A policy, and whether with the quirks of the authors' code."""
AWARE, BLIND, SHARED = "max_min_fairness_perf", "max_min_fairness", "max_min_fairness_packed"


MEASURED = "4000:5000"
"""As in the paper; the processor time of the authors' code is known for this window."""


@dataclass(frozen=True)
class FullContinuous:
    """5,500 jobs on 36 GPUs of each type; the authors' code gives a time to compare with, but no result.

    A quick run measures early jobs only and judges no times.
    """

    name: ClassVar[str] = "full continuous-single"
    policies: ClassVar[tuple[str, ...]] = (AWARE, "fifo_perf")

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del data, figures
        window = "300:400" if quick else MEASURED
        asked = [(p, c) for p in self.policies for c in MODES] + [(BLIND, True)]
        return {("full", *one, window): self._scenario(*one, window) for one in asked}

    def _scenario(self, policy: str, compat: bool, window: str) -> Any:
        values = {"window": window}
        return scenario(PRESET, CONTENDERS[policy], compat=compat, throughputs="gavel-simulation", values=values)

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        keys = [key for key in outcomes if key[0] == "full"]
        table = figures["continuous_single"]["cpu_s"]
        checks = [self._check(key, outcomes[key], table.get(key[1]) if key[3] == MEASURED else None) for key in keys]
        blind, aware = (outcomes["full", name, True, keys[0][3]] for name in (BLIND, AWARE))
        return Found([*checks, self._gain(blind, aware)])

    def _check(self, key: Key, found: Outcome, reference_s: float | None) -> Check:
        what = f"{CONTENDERS[key[1]].label}, jobs {key[3].replace(':', ' to ')}, {MODES[key[2]]}"
        reference = "-" if reference_s is None else f"{reference_s:g} s of processor time"
        if found.failure:
            return failed(self.name, what, found, reference)
        assert found.summary is not None
        ours = f"{found.cpu_s:.1f} s, average JCT {found.jct_h:.2f} h, {found.summary.utilization:.0%} of GPUs busy"
        if reference_s is None:
            return Check(self.name, what, ours)
        held = found.cpu_s <= reference_s
        return Check(self.name, what, ours, reference, "-", held, "no slower than the authors' code")

    def _gain(self, blind: Outcome, aware: Outcome) -> Check:
        """No figure is published for this load: only the direction is held."""
        what = f"JCT of {label_of((BLIND, True))} over {label_of((AWARE, True))}"
        lost = first_failure((blind, aware))
        if lost:
            return failed(self.name, what, lost)
        times = blind.jct_h / aware.jct_h
        return Check(self.name, what, f"{times:.2f}", held=times >= 1, band="at least 1")


@dataclass(frozen=True)
class LoadSweep:
    """Average JCT by arrival rate on a third of the cluster: aware of speeds or not, with and without space sharing."""

    name: ClassVar[str] = "load sweep"
    cluster: ClassVar[str] = "v100=12x1,p100=12x1,k80=12x1"
    jobs: ClassVar[int] = 3000
    """More than are measured: arrivals must go on until the last of those has ended."""
    lines: ClassVar[tuple[Line, ...]] = ((BLIND, True), (AWARE, True), (AWARE, False), (SHARED, False))

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures
        loads = (2.0,) if quick else (2.4, 2.0, 1.6, 1.2)
        return {("load", line, x): self._scenario(data, line, x, quick) for x in loads for line in self.lines}

    def _scenario(self, data: GavelData, line: Line, jobs_per_h: float, quick: bool) -> Any:
        contender = CONTENDERS[line[0]]
        rates = data.pairs("simulation") if contender.pairs else "gavel-simulation"
        window = "100:150" if quick else "300:400"
        values = {"workload.jobs": self.jobs, "workload.jobs_per_h": jobs_per_h, "window": window}
        return scenario(PRESET, contender, compat=line[1], throughputs=rates, cluster=self.cluster, values=values)

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        loads = sorted({key[2] for key in outcomes if key[0] == "load"})
        published = f"up to {figures['claims']['objectives_times']} (abstract, any objective)"
        checks = [
            self._times((BLIND, True), (AWARE, True), loads, outcomes, published, (1.0, 1.0)),
            self._times((AWARE, True), (AWARE, False), loads, outcomes, "-", (1.0, 1.0)),
            self._times((AWARE, False), (SHARED, False), loads, outcomes, "-", (0.95, 1.0)),
        ]
        lines = [(label_of(line), *self._line(line, loads, outcomes)) for line in self.lines]
        panel = Panel("Load sweep: average JCT", "Jobs per hour", "Average JCT (h)", lines)
        return Found(checks, [panel] if len(loads) > 1 else [])

    def _line(self, line: Line, loads: list[float], outcomes: Outcomes) -> tuple[list[float], list[float]]:
        there = [x for x in loads if not outcomes["load", line, x].failure]
        return there, [outcomes["load", line, x].jct_h for x in there]

    def _times(
        self,
        base: Line,
        line: Line,
        loads: list[float],
        outcomes: Outcomes,
        published: str,
        least: tuple[float, float],
    ) -> Check:
        """How many times as long jobs take under ``base``; ``least`` holds at every load, and at the highest."""
        what = f"JCT of {label_of(base)} over {label_of(line)}, at {listed(loads)} jobs/h"
        lost = first_failure(outcomes["load", one, x] for x in loads for one in (base, line))
        if lost:
            return failed(self.name, what, lost, published=published)
        times = [outcomes["load", base, x].jct_h / outcomes["load", line, x].jct_h for x in loads]
        held = min(times) >= least[0] and times[-1] >= least[1]
        ours = " ".join(f"{x:.2f}" for x in times)
        band = f"at least {least[0]:g}, and {least[1]:g} at the highest load"
        return Check(self.name, what, ours, "-", published, held, band)


def label_of(line: Line) -> str:
    """Policy and mode."""
    return f"{CONTENDERS[line[0]].label} ({MODES[line[1]]})"


def listed(values: list[float]) -> str:
    """Loads, as a sentence names them."""
    return ", ".join(f"{x:g}" for x in values)
