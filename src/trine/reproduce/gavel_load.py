"""Gavel's continuous workloads of single-GPU jobs: the full cluster, and average JCT by load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_plots import Found, Panel
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcomes, scenario
from trine.reproduce.gavel_tables import MODES, failed

PRESET = "gavel-continuous-single"
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
    policies: ClassVar[tuple[str, ...]] = (BLIND, AWARE, SHARED)

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures
        loads = (1.6,) if quick else (0.8, 1.2, 1.6, 2.0, 2.4)
        return {("load", p, x): self._scenario(data, p, x) for x in reversed(loads) for p in self.policies}

    def _scenario(self, data: GavelData, policy: str, jobs_per_h: float) -> Any:
        contender = CONTENDERS[policy]
        rates = data.pairs("simulation") if contender.pairs else "gavel-simulation"
        values = {"workload.jobs": 1000, "workload.jobs_per_h": jobs_per_h, "window": "300:400"}
        return scenario(PRESET, contender, compat=False, throughputs=rates, cluster=self.cluster, values=values)

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        loads = sorted(key[2] for key in outcomes if key[0] == "load" and key[1] == AWARE)
        lines = [(CONTENDERS[p].label, *self._line(p, loads, outcomes)) for p in self.policies]
        published = f"up to {figures['claims']['objectives_times']} (any objective)"
        checks = [
            self._gain(AWARE, BLIND, loads, outcomes, published),
            self._gain(SHARED, AWARE, loads, outcomes, "-"),
        ]
        panel = Panel("Load sweep: average JCT", "Jobs per hour", "Average JCT (h)", lines)
        return Found(checks, [panel] if len(loads) > 1 else [])

    def _line(self, policy: str, loads: list[float], outcomes: Outcomes) -> tuple[list[float], list[float]]:
        there = [x for x in loads if not outcomes["load", policy, x].failure]
        return there, [outcomes["load", policy, x].jct_h for x in there]

    def _gain(self, policy: str, base: str, loads: list[float], outcomes: Outcomes, published: str) -> Check:
        what = f"{CONTENDERS[base].label} over {CONTENDERS[policy].label}, times JCT at {_listed(loads)} jobs/h"
        runs = [outcomes["load", p, x] for x in loads for p in (policy, base)]
        lost = next((found for found in runs if found.failure), None)
        if lost:
            return failed(self.name, what, lost, published=published)
        times = [outcomes["load", base, x].jct_h / outcomes["load", policy, x].jct_h for x in loads]
        ours = " ".join(f"{x:.2f}" for x in times)
        held = min(times) >= 1
        return Check(self.name, what, ours, "-", published, held, "never below 1")


def _listed(values: list[float]) -> str:
    return ", ".join(f"{x:g}" for x in values)
