"""Gavel's continuous workload of gangs: average JCT with and without knowledge of speeds, at one load and by load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_load import Line, label_of, listed
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcome, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import AXES, METRICS, MODES, failed
from trine.reproduce.panels import Found, Panel

PRESET = "gavel-continuous-multiple"
JOBS, JOBS_PER_H = 6000, 2.0
"""Of the public trace; our generator draws the same jobs. Far more than are measured: arrivals must go on until the
last measured job has ended."""
AWARE, BLIND = "max_min_fairness_perf", "max_min_fairness"
FIFO_AWARE, FIFO_BLIND = "fifo_perf", "fifo"


@dataclass(frozen=True)
class Gain:
    """Jobs take ``base`` / ``line`` times as long under ``base``."""

    base: Line
    line: Line
    published: bool = False


GAINS = (
    Gain((BLIND, True), (AWARE, True), published=True),
    Gain((FIFO_BLIND, True), (FIFO_AWARE, True)),
    Gain((BLIND, False), (AWARE, False)),
)
"""By load. The paper prints curves and one number, 'up to 3.5 times', so only the direction is held: knowing speeds is
never slower. The hours and ratios themselves are ours only; the authors' code was not run on this workload.

The gain does not grow with the load: in an empty cluster whoever does not know speeds draws a type at random although
the fastest is free; the fuller it gets, the fewer fast GPUs there are to choose. Only queues turn that round, from 2.75
jobs per hour on."""


@dataclass(frozen=True)
class Multiple:
    """Jobs on 1 to 8 GPUs, Poisson arrivals, 36 GPUs of each type."""

    name: ClassVar[str] = "continuous-multiple"
    policies: ClassVar[tuple[str, ...]] = ("isolated", FIFO_BLIND, BLIND, AWARE, FIFO_AWARE)
    loads: ClassVar[tuple[float, ...]] = (0.5, 1.5, 2.5)
    """Jobs per hour besides that of the trace; at 3 every policy falls behind for good."""

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures
        window = "300:400" if quick else "500:700"
        asked = [(name, compat, JOBS_PER_H) for name in self.policies for compat in MODES]
        lines = dict.fromkeys(line for gain in GAINS for line in (gain.base, gain.line))
        asked += [(*line, load) for load in ([] if quick else self.loads) for line in lines]
        return {("multiple", *one): self._scenario(data, *one, window) for one in asked}

    def _scenario(self, data: GavelData, name: str, compat: bool, jobs_per_h: float, window: str) -> Any:
        values: dict[str, Any] = {"window": window}
        given: dict[str, Any] = {}
        if jobs_per_h == JOBS_PER_H and data.multiple:
            given["trace"] = data.multiple
        else:
            values |= {"workload.jobs": JOBS, "workload.jobs_per_h": jobs_per_h}
        return scenario(PRESET, CONTENDERS[name], compat=compat, throughputs="gavel-simulation", values=values, **given)

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        told = f"up to {figures['claims']['objectives_times']} (abstract, any objective)"
        loads = sorted({key[3] for key in outcomes if key[0] == "multiple"})
        checks = [self._average(name, compat, outcomes) for name in self.policies for compat in MODES]
        checks += [self._gain(gain, loads, outcomes, told if gain.published else "-") for gain in GAINS]
        checks.append(self._isolated(outcomes))
        return Found(checks, [self._bars(outcomes), *([self._curves(loads, outcomes)] if len(loads) > 1 else [])])

    def _average(self, name: str, compat: bool, outcomes: Outcomes) -> Check:
        what = f"{CONTENDERS[name].label}, {JOBS_PER_H:g} jobs/h, {METRICS['jct_h']}, {MODES[compat]}"
        found = _at(outcomes, (name, compat))
        return failed(self.name, what, found) if found.failure else Check(self.name, what, f"{found.jct_h:.2f}")

    def _gain(self, gain: Gain, loads: list[float], outcomes: Outcomes, published: str) -> Check:
        what = f"JCT of {label_of(gain.base)} over {label_of(gain.line)}, at {listed(loads)} jobs/h"
        lost = first_failure(_at(outcomes, line, x) for x in loads for line in (gain.base, gain.line))
        if lost:
            return failed(self.name, what, lost, published=published)
        times = [_at(outcomes, gain.base, x).jct_h / _at(outcomes, gain.line, x).jct_h for x in loads]
        shown = " ".join(f"{x:.2f}" for x in times)
        return Check(self.name, what, shown, "-", published, min(times) >= 1, "at least 1")

    def _isolated(self, outcomes: Outcomes) -> Check:
        """Sharing the cluster by speeds is no slower than a part of the cluster for each."""
        base, line = (("isolated", True), (AWARE, True))
        what = f"JCT of {label_of(base)} over {label_of(line)}, at {JOBS_PER_H:g} jobs/h"
        found = [_at(outcomes, one) for one in (base, line)]
        lost = first_failure(found)
        if lost:
            return failed(self.name, what, lost)
        times = found[0].jct_h / found[1].jct_h
        return Check(self.name, what, f"{times:.2f}", held=times >= 1, band="at least 1")

    def _bars(self, outcomes: Outcomes) -> Panel:
        lines = []
        for compat, mode in MODES.items():
            found = [(float(i), _at(outcomes, (name, compat))) for i, name in enumerate(self.policies)]
            there = [(i, o.jct_h) for i, o in found if not o.failure]
            lines.append((mode, [i for i, _ in there], [y for _, y in there]))
        labels = [CONTENDERS[name].label for name in self.policies]
        title = f"{self.name}, {JOBS_PER_H:g} jobs per hour: average JCT"
        return Panel(title, "Policy", AXES["jct_h"], lines, labels)

    def _curves(self, loads: list[float], outcomes: Outcomes) -> Panel:
        drawn = dict.fromkeys(line for gain in GAINS for line in (gain.base, gain.line))
        lines = []
        for line in drawn:
            there = [x for x in loads if not _at(outcomes, line, x).failure]
            lines.append((label_of(line), there, [_at(outcomes, line, x).jct_h for x in there]))
        return Panel(f"{self.name}: average JCT by load", "Jobs per hour", AXES["jct_h"], lines)


def _at(outcomes: Outcomes, line: Line, jobs_per_h: float = JOBS_PER_H) -> Outcome:
    return outcomes["multiple", *line, jobs_per_h]
