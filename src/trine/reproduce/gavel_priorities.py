"""Gavel's workload with priorities: a fifth of the jobs has weight 5. JCT of both classes, weights heeded or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar

from trine.core.job import Job
from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_load import Line, label_of
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcome, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import AXES, failed
from trine.reproduce.panels import Found, Panel
from trine.trace.formats.trine import write_trace
from trine.trace.generate import generate

WORKLOAD = "gavel-continuous-single-priorities"
CLUSTER, GPUS = "v100=12x1,p100=12x1,k80=12x1", 36
JOBS, JOBS_PER_H = 2000, 2.0
"""A load at which jobs get less than they could use; otherwise weights change nothing. Arrivals must go on until the
last measured job has ended."""
HEAVY = "weight 5"
CLASSES = (HEAVY, "weight 1")
WEIGHED = {True: "weights heeded", False: "all weights 1"}
LINES: tuple[Line, ...] = (
    ("max_min_fairness_perf", False),
    ("max_min_fairness_perf", True),
    ("max_min_fairness", True),
)


@dataclass(frozen=True)
class Priorities:
    """The same jobs with their weights and with equal ones. The paper gives no figure to hold this against."""

    name: ClassVar[str] = "priorities"
    jobs: int = JOBS

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures
        traces = {weighed: self._trace(data, weighed) for weighed in WEIGHED}
        window = "100:150" if quick else "300:400"
        asked = [(line, weighed) for line in LINES for weighed in WEIGHED]
        return {("priorities", *one): self._scenario(one[0], traces[one[1]], window) for one in asked}

    def _trace(self, data: GavelData, weighed: bool) -> str:
        jobs = _drawn(self.jobs)
        path = data.scratch / f"{'weights' if weighed else 'equal'}.csv"
        write_trace(jobs if weighed else [replace(job, weight=1.0) for job in jobs], path)
        return str(path)

    def _scenario(self, line: Line, trace: str, window: str) -> Any:
        name, compat = line
        return scenario(
            "gavel-continuous-single",
            CONTENDERS[name],
            compat=compat,
            throughputs="gavel-simulation",
            cluster=CLUSTER,
            trace=trace,
            values={"window": window},
        )

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data, figures
        runs = {key[1:]: found for key, found in outcomes.items() if key[0] == "priorities"}
        lost = first_failure(runs.values())
        if lost:
            return Found([failed(self.name, "JCT by weight", lost)])
        heavy = {job.id for job in _drawn(self.jobs) if job.weight > 1}
        jct_h = {key: _jct_h(found, heavy) for key, found in runs.items()}
        checks = [check for line in LINES for check in self._of_line(line, jct_h)]
        checks += [self._aware(kind, jct_h) for kind in CLASSES]
        return Found(checks, [self._panel(jct_h)])

    def _of_line(self, line: Line, jct_h: dict[Any, dict[str, float]]) -> list[Check]:
        """Both classes, with weights and without. Only the heavy ones are judged: what they gain the others pay."""
        checks = []
        for kind in CLASSES:
            with_h, without_h = (jct_h[line, weighed][kind] for weighed in WEIGHED)
            what = f"{label_of(line)}, jobs of {kind}, average JCT h: {WEIGHED[True]}, {WEIGHED[False]}"
            ours = f"{with_h:.2f} and {without_h:.2f} ({without_h / with_h:.2f} times)"
            held = with_h <= without_h if kind == HEAVY else None
            band = "no longer with their weight" if kind == HEAVY else ""
            checks.append(Check(self.name, what, ours, held=held, band=band))
        return checks

    def _aware(self, kind: str, jct_h: dict[Any, dict[str, float]]) -> Check:
        _, aware, blind = LINES
        what = f"jobs of {kind}, {WEIGHED[True]}, JCT of {label_of(blind)} over {label_of(aware)}"
        times = jct_h[blind, True][kind] / jct_h[aware, True][kind]
        return Check(self.name, what, f"{times:.2f}", held=times >= 1, band="at least 1")

    def _panel(self, jct_h: dict[Any, dict[str, float]]) -> Panel:
        keys = [(line, weighed) for line in LINES for weighed in WEIGHED]
        labels = [f"{label_of(line)}, {WEIGHED[weighed]}" for line, weighed in keys]
        across = [float(i) for i in range(len(labels))]
        lines = [(f"jobs of {kind}", across, [jct_h[key][kind] for key in keys]) for kind in CLASSES]
        return Panel("Priorities: average JCT by weight", "Policy", AXES["jct_h"], lines, labels)


def _drawn(count: int) -> list[Job]:
    return generate(WORKLOAD, jobs=count, seed=0, gpus=GPUS, jobs_per_h=JOBS_PER_H)


def _jct_h(found: Outcome, heavy: set[str]) -> dict[str, float]:
    """Of the measured jobs, by class."""
    by_class = {
        kind: [j.jct_s / 3600 for j in found.jobs if (j.job_id in heavy) == (kind == HEAVY)] for kind in CLASSES
    }
    return {kind: fmean(values) if values else 0.0 for kind, values in by_class.items()}
