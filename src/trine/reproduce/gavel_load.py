"""Gavel's continuous workloads of single-GPU jobs: the full cluster, and average JCT by load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_plots import Found, Panel
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import MODES, failed

PRESET = "gavel-continuous-single"
Line = tuple[str, bool]
"""A policy, and whether with the quirks of the authors' code."""
AWARE, BLIND, SHARED = "max_min_fairness_perf", "max_min_fairness", "max_min_fairness_packed"


@dataclass(frozen=True)
class FullContinuous:
    """5,500 jobs on 36 GPUs of each type; the authors' code gives a time to compare with, but no result."""

    name: ClassVar[str] = "full continuous-single"
    policies: ClassVar[tuple[str, ...]] = (AWARE, "fifo_perf")

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del data, figures
        return {} if quick else {("full", p, c): self._scenario(p, c) for p in self.policies for c in MODES}

    def _scenario(self, policy: str, compat: bool) -> Any:
        return scenario(PRESET, CONTENDERS[policy], compat=compat, throughputs="gavel-simulation")

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        table = figures["continuous_single"]["cpu_s"]
        keys = [("full", p, c) for p in self.policies for c in MODES if ("full", p, c) in outcomes]
        return Found([self._check(key, outcomes, table[key[1]]) for key in keys])

    def _check(self, key: Key, outcomes: Outcomes, reference_s: float) -> Check:
        what = f"{CONTENDERS[key[1]].label}, {MODES[key[2]]}"
        found, reference = outcomes[key], f"{reference_s:g} s of processor time"
        if found.failure:
            return failed(self.name, what, found, reference)
        ours = f"{found.cpu_s:.1f} s, average JCT {found.jct_h:.2f} h"
        held = found.cpu_s <= reference_s
        return Check(self.name, what, ours, reference, "-", held, "no slower than the authors' code")


@dataclass(frozen=True)
class LoadSweep:
    """Average JCT by arrival rate on a third of the cluster: aware of speeds or not, with and without space sharing."""

    name: ClassVar[str] = "load sweep"
    cluster: ClassVar[str] = "v100=12x1,p100=12x1,k80=12x1"
    lines: ClassVar[tuple[Line, ...]] = ((BLIND, True), (AWARE, True), (AWARE, False), (SHARED, False))

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures
        loads = (2.0,) if quick else (2.4, 2.0, 1.6, 1.2)
        return {("load", line, x): self._scenario(data, line, x, quick) for x in loads for line in self.lines}

    def _scenario(self, data: GavelData, line: Line, jobs_per_h: float, quick: bool) -> Any:
        contender = CONTENDERS[line[0]]
        rates = data.pairs("simulation") if contender.pairs else "gavel-simulation"
        jobs, window = (300, "100:150") if quick else (1000, "300:400")
        values = {"workload.jobs": jobs, "workload.jobs_per_h": jobs_per_h, "window": window}
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
        lines = [(_label(line), *self._line(line, loads, outcomes)) for line in self.lines]
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
        what = f"JCT of {_label(base)} over {_label(line)}, at {_listed(loads)} jobs/h"
        lost = first_failure(outcomes["load", one, x] for x in loads for one in (base, line))
        if lost:
            return failed(self.name, what, lost, published=published)
        times = [outcomes["load", base, x].jct_h / outcomes["load", line, x].jct_h for x in loads]
        held = min(times) >= least[0] and times[-1] >= least[1]
        ours = " ".join(f"{x:.2f}" for x in times)
        band = f"at least {least[0]:g}, and {least[1]:g} at the highest load"
        return Check(self.name, what, ours, "-", published, held, band)


def _label(line: Line) -> str:
    return f"{CONTENDERS[line[0]].label} ({MODES[line[1]]})"


def _listed(values: list[float]) -> str:
    return ", ".join(f"{x:g}" for x in values)
