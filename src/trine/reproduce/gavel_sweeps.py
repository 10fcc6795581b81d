"""Gavel's continuous workloads: single-GPU jobs on the full cluster and by load, and gangs by load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trine.reproduce.checks import Check, check, ratios, shown
from trine.reproduce.experiment import Experiment, Key, Outcome, Outcomes, Runs, known_points
from trine.reproduce.gavel_inputs import (
    AWARE,
    AXES,
    BLIND,
    CONTENDERS,
    FIFO_AWARE,
    FIFO_BLIND,
    METRICS,
    MODES,
    SHARED,
    SMALL_CLUSTER,
    GavelData,
    Mode,
    label,
    label_of,
    listed,
    scenario,
)
from trine.reproduce.reproduction import Panel, Part
from trine.sim.scenario import Scenario

SINGLE, MULTIPLE = "gavel-continuous-single", "gavel-continuous-multiple"
MEASURED = "4000:5000"
"""As in the paper; the processor time of the authors' code is known for this window."""


def claim(data: GavelData) -> str:
    return f"up to {data.figures['claims']['objectives_times']} (abstract, any objective)"


def jct_times(base: Sequence[Outcome], line: Sequence[Outcome]) -> Callable[[], list[float]]:
    """How many times as long jobs take under ``base``, at each load."""
    return lambda: [slow.jct_h / fast.jct_h for slow, fast in zip(base, line, strict=True)]


class FullContinuous(Experiment[GavelData]):
    """5,500 jobs on 36 GPUs of each type; the authors' code gives a time to compare with, but no result.

    A quick run measures early jobs only and judges no times.
    """

    name = "full continuous-single"

    def runs(self, data: GavelData) -> Runs:
        window = "300:400" if data.quick else MEASURED
        modes = [(policy, compat) for policy in (AWARE, FIFO_AWARE) for compat in MODES] + [(BLIND, True)]
        return {
            ("full", *mode, window): scenario(SINGLE, mode[0], compat=mode[1], values={"window": window})
            for mode in modes
        }

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        keys = [key for key in outcomes if key[0] == "full"]
        table = data.figures["continuous_single"]["cpu_s"]
        checks = [self._check(key, outcomes[key], table.get(key[1]) if key[3] == MEASURED else None) for key in keys]
        blind, aware = (outcomes["full", name, True, keys[0][3]] for name in (BLIND, AWARE))
        # No figure is published for this load: only the direction is held.
        what = f"JCT of {label_of((BLIND, True))} over {label_of((AWARE, True))}"
        return Part([*checks, ratios(self.name, what, jct_times([blind], [aware]))])

    def _check(self, key: Key, found: Outcome, reference_s: float | None) -> Check:
        what = f"{label(key[1])}, jobs {key[3].replace(':', ' to ')}, {MODES[key[2]]}"
        reference = "-" if reference_s is None else f"{reference_s:g} s of processor time"

        def judge() -> tuple[str, bool | None]:
            cpu_s, busy = found.summary.sim_cpu_s, found.utilization
            ours = f"{cpu_s:.1f} s, average JCT {found.jct_h:.2f} h, {busy:.0%} of GPUs busy"
            return ours, None if reference_s is None else cpu_s <= reference_s

        band = "" if reference_s is None else "no slower than the authors' code"
        return check(self.name, what, judge, reference, band=band, counted=False)


class LoadSweep(Experiment[GavelData]):
    """Average JCT by arrival rate on a third of the cluster: aware of speeds or not, with and without space sharing."""

    name = "load sweep"
    jobs = 3000
    """More than are measured: arrivals must go on until the last of those has ended."""
    modes: tuple[Mode, ...] = ((BLIND, True), (AWARE, True), (AWARE, False), (SHARED, False))

    def runs(self, data: GavelData) -> Runs:
        loads = (2.0,) if data.quick else (2.4, 2.0, 1.6, 1.2)
        return {("load", mode, x): self._scenario(data, mode, x) for x in loads for mode in self.modes}

    def _scenario(self, data: GavelData, mode: Mode, jobs_per_h: float) -> Scenario:
        rates = {"throughputs": data.pairs("simulation")} if CONTENDERS[mode[0]].pairs else {}
        window = "100:150" if data.quick else "300:400"
        values = {"workload.jobs": self.jobs, "workload.jobs_per_h": jobs_per_h, "window": window}
        return scenario(SINGLE, mode[0], compat=mode[1], cluster=SMALL_CLUSTER, values=values, **rates)

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        loads = sorted({key[2] for key in outcomes if key[0] == "load"})
        blind, published, ours, shared = self.modes
        checks = [
            self._times(blind, published, loads, outcomes, claim(data)),
            self._times(published, ours, loads, outcomes),
            self._times(ours, shared, loads, outcomes, least=0.95),
        ]
        lines = [
            (label_of(mode), *known_points(loads, [outcomes["load", mode, x] for x in loads], "jct_h"))
            for mode in self.modes
        ]
        panel = Panel("Load sweep: average JCT", "Jobs per hour", "Average JCT (h)", lines)
        return Part(checks, [panel] if len(loads) > 1 else [])

    def _times(
        self, base: Mode, line: Mode, loads: list[float], outcomes: Outcomes, published: str = "-", least: float = 1.0
    ) -> Check:
        """At least ``least`` times at every load, and no fewer than once at the highest."""
        slow, fast = ([outcomes["load", mode, x] for x in loads] for mode in (base, line))
        return ratios(
            self.name,
            f"JCT of {label_of(base)} over {label_of(line)}, at {listed(loads)} jobs/h",
            jct_times(slow, fast),
            published,
            holds=lambda times: min(times) >= least and times[-1] >= 1,
            band=f"at least {least:g}, and 1 at the highest load",
        )


@dataclass(frozen=True)
class Gain:
    """Jobs take ``base`` / ``line`` times as long under ``base``."""

    base: Mode
    line: Mode
    published: bool = False


GAINS = (
    Gain((BLIND, True), (AWARE, True), published=True),
    Gain((FIFO_BLIND, True), (FIFO_AWARE, True)),
    Gain((BLIND, False), (AWARE, False)),
)
"""By load. The paper prints curves and one number, 'up to 3.5 times', so only the direction is held: knowing speeds is
never slower. The hours and ratios themselves are ours only; the authors' code was not run on this workload.

The gain does not grow with the load: in an empty cluster a policy that does not know speeds draws a type at random
although the fastest is free; the fuller it gets, the fewer fast GPUs there are to choose. Only queues turn that round,
from 2.75 jobs per hour on."""


class Multiple(Experiment[GavelData]):
    """Jobs on 1 to 8 GPUs, Poisson arrivals, 36 GPUs of each type."""

    name = "continuous-multiple"
    policies = ("isolated", FIFO_BLIND, BLIND, AWARE, FIFO_AWARE)
    jobs, jobs_per_h = 6000, 2.0
    """Of the public trace; our generator draws the same jobs. Far more than are measured: arrivals must go on until the
    last measured job has ended."""
    loads = (0.5, 1.5, 2.5)
    """Jobs per hour besides that of the trace; at 3 every policy falls behind for good."""

    def runs(self, data: GavelData) -> Runs:
        modes = [(name, compat, self.jobs_per_h) for name in self.policies for compat in MODES]
        modes += [(*mode, load) for load in (() if data.quick else self.loads) for mode in self._swept()]
        return {("multiple", *mode): self._scenario(data, *mode) for mode in modes}

    def _swept(self) -> list[Mode]:
        return list(dict.fromkeys(mode for gain in GAINS for mode in (gain.base, gain.line)))

    def _scenario(self, data: GavelData, name: str, compat: bool, jobs_per_h: float) -> Scenario:
        values: dict[str, Any] = {"window": "300:400" if data.quick else "500:700"}
        given: dict[str, Any] = {}
        if jobs_per_h == self.jobs_per_h and data.multiple:
            given["trace"] = data.multiple
        else:
            values |= {"workload.jobs": self.jobs, "workload.jobs_per_h": jobs_per_h}
        return scenario(MULTIPLE, name, compat=compat, values=values, **given)

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        loads = sorted({key[3] for key in outcomes if key[0] == "multiple"})
        checks = [self._average((name, compat), outcomes) for name in self.policies for compat in MODES]
        checks += [self._gain(gain, loads, outcomes, claim(data) if gain.published else "-") for gain in GAINS]
        # Sharing the cluster by speeds is no slower than a part of the cluster for each job.
        checks.append(self._gain(Gain(("isolated", True), (AWARE, True)), [self.jobs_per_h], outcomes))
        return Part(checks, [self._bars(outcomes), *([self._curves(loads, outcomes)] if len(loads) > 1 else [])])

    def _at(self, outcomes: Outcomes, mode: Mode, loads: Sequence[float] = (jobs_per_h,)) -> list[Outcome]:
        return [outcomes["multiple", *mode, x] for x in loads]

    def _average(self, mode: Mode, outcomes: Outcomes) -> Check:
        what = f"{label(mode[0])}, {self.jobs_per_h:g} jobs/h, {METRICS['jct_h']}, {MODES[mode[1]]}"
        (found,) = self._at(outcomes, mode)
        return shown(self.name, what, lambda: f"{found.jct_h:.2f}")

    def _gain(self, gain: Gain, loads: list[float], outcomes: Outcomes, published: str = "-") -> Check:
        what = f"JCT of {label_of(gain.base)} over {label_of(gain.line)}, at {listed(loads)} jobs/h"
        base, line = (self._at(outcomes, mode, loads) for mode in (gain.base, gain.line))
        return ratios(self.name, what, jct_times(base, line), published)

    def _bars(self, outcomes: Outcomes) -> Panel:
        across, lines = [float(i) for i in range(len(self.policies))], []
        for compat, mode in MODES.items():
            found = [one for name in self.policies for one in self._at(outcomes, (name, compat))]
            lines.append((mode, *known_points(across, found, "jct_h")))
        title = f"{self.name}, {self.jobs_per_h:g} jobs per hour: average JCT"
        return Panel(title, "Policy", AXES["jct_h"], lines, [label(name) for name in self.policies])

    def _curves(self, loads: list[float], outcomes: Outcomes) -> Panel:
        lines = [
            (label_of(mode), *known_points(loads, self._at(outcomes, mode, loads), "jct_h")) for mode in self._swept()
        ]
        return Panel(f"{self.name}: average JCT by load", "Jobs per hour", AXES["jct_h"], lines)
