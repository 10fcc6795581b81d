"""PAL's experiments: A1 (64 GPUs), A2 (locality sweep), A3 (256 GPUs, load sweep), and where the gain comes from."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trine.report.compare import Estimate, estimate
from trine.report.text import with_interval
from trine.reproduce.checks import Check, check
from trine.reproduce.experiment import (
    Experiment,
    Inputs,
    Outcome,
    Outcomes,
    Paper,
    Runs,
    contenders_of,
    find_root,
    known_points,
    preset_scenario,
)
from trine.reproduce.paired_comparison import PairedComparison, Setting
from trine.reproduce.reproduction import Panel, Part
from trine.sim.scenario import Scenario

WORKLOADS = (1, 2, 3)
PUBLISHED_NAMES = {
    "packed-sticky": "Default-Packed-S",
    "packed": "Default-Packed-NS",
    "pm-first": "PMFirst",
    "pal": "PAL",
}
PLACEMENTS = tuple(PUBLISHED_NAMES)
BASELINE = "packed-sticky"
RECORDS = {"A": "resnet", "B": "bert", "C": "bert", "D": "pagerank"}
"""The measured application that stands for each class."""


class PalData(Inputs):
    """Where the public inputs lie, and the runs of the authors' code."""

    def workload(self, number: int) -> str:
        return str(self.root / f"traces/pal_workloads/philly/workload-{number}.csv")

    @property
    def synergy(self) -> str:
        return str(self.root / "traces/synergy_standin/synergy-standin-jobs.csv.gz")

    def chips(self, gpus: int) -> str:
        return str(self.root / f"hardware/pal_gpu_variability/realised/gpus-{gpus}.csv")

    @property
    def records(self) -> str:
        folder = self.root / "hardware/pal_gpu_variability/longhorn"
        return ",".join(f"{c}={folder / f'{name}-longhorn-agg.csv.gz'}" for c, name in RECORDS.items())

    def reference(self, name: str) -> dict[str, tuple[float, float]] | None:
        """Start and finish by job id of a run of the authors' code, if it is at hand."""
        path = self.root.parent / "reference/pal" / name
        if not path.is_file():
            return None
        with path.open(newline="") as stream:
            return {row["job_id"]: (float(row["start_s"]), float(row["finish_s"])) for row in csv.DictReader(stream)}


def base_scenario(data: PalData, workload: int, placement: str = BASELINE, **values: Any) -> Scenario:
    """The published setting for one of the Sia-Philly workloads."""
    given = {"trace": data.workload(workload), "variability": data.chips(64)}
    return preset_scenario("pal-sia", compat=True, placement=placement, values=values, **given)


def synergy_scenario(data: PalData, placement: str, policy: str, jobs_per_h: float) -> Scenario:
    """The published setting for the 256-GPU experiment on the stand-in workload."""
    given = {"trace": data.synergy, "variability": data.chips(256), "policy": policy, "placement": placement}
    return preset_scenario("pal-synergy", compat=True, values={"trace.jobs_per_h": jobs_per_h}, **given)


def _jct_s(outcome: Outcome) -> float:
    return outcome.summary.jct_mean_s


def _gain(ours: float, base: float) -> float:
    """Percent by which ``ours`` is shorter."""
    return 100 * (1 - ours / base)


def _geomean_gain(ours: Iterable[float], base: Iterable[float]) -> float:
    ratios = [a / b for a, b in zip(ours, base, strict=True)]
    return 100 * (1 - math.exp(sum(map(math.log, ratios)) / len(ratios)))


def _listed(gains: Iterable[float]) -> str:
    return " ".join(f"{gain:.1f}" for gain in gains)


def _per_job(
    experiment: str, what: str, outcome: Outcome, expected: dict[str, tuple[float, float]] | None
) -> list[Check]:
    """How many jobs start and finish when the reference says."""
    if expected is None:
        return []

    def judge() -> tuple[str, bool]:
        same = sum(expected.get(job.job_id) == (job.start_s, job.finish_s) for job in outcome.jobs)
        return f"{same} of {len(outcome.jobs)} jobs equal", same == len(expected)

    band = "start and finish to the second"
    return [check(experiment, f"{what}, per job", judge, f"{len(expected)} jobs", band=band)]


class Published64(Experiment[PalData]):
    """64 GPUs, FIFO: every placement on every workload, and the gain over the baseline."""

    name = "A1"

    def runs(self, data: PalData) -> Runs:
        return {("A1", p, w): base_scenario(data, w, p) for p in PLACEMENTS for w in WORKLOADS}

    def judge(self, data: PalData, outcomes: Outcomes) -> Part:
        checks: list[Check] = []
        for placement in PLACEMENTS:
            for workload in WORKLOADS:
                outcome, what = outcomes["A1", placement, workload], f"workload {workload}, {placement}"
                expected = data.figures["reference"]["jct_h"][placement][workload - 1]
                checks.append(_decimals("A1", f"{what}, JCT h", outcome, expected, 3))
                name = f"sia-w{workload}-{PUBLISHED_NAMES[placement]}-fifo-lf1.7.csv"
                checks += _per_job("A1", what, outcome, data.reference(name))
        return Part([*checks, *(self._gain(data, p, outcomes) for p in ("pm-first", "pal"))])

    def _gain(self, data: PalData, placement: str, outcomes: Outcomes) -> Check:
        table, published = data.figures["reference"]["jct_h"], data.figures["published"]["gain_percent"][placement]
        expected = _geomean_gain(table[placement], table[BASELINE])

        def judge() -> tuple[str, bool]:
            ours = _geomean_gain(*([outcomes["A1", p, w].jct_h for w in WORKLOADS] for p in (placement, BASELINE)))
            return f"{ours:.1f} %", abs(ours - expected) < 0.1 and abs(ours - published) <= 5

        what = f"{placement}, gain over {BASELINE}, geometric mean"
        band = "0.1 points of the reference, 5 of the published"
        return check("A1", what, judge, f"{expected:.1f} %", f"{published} % (8 traces)", band)


def _decimals(
    experiment: str, what: str, outcome: Outcome, expected: float, digits: int, published: str = "-"
) -> Check:
    """An average JCT that equals the reference in so many decimals."""
    words = {2: "two", 3: "three"}[digits]

    def judge() -> tuple[str, bool]:
        # 0.6 of the last digit: the reference is rounded, and so may be wrong by half of it.
        return f"{outcome.jct_h:.{digits}f}", abs(outcome.jct_h - expected) <= 0.6 * 10**-digits

    return check(experiment, what, judge, f"{expected:.{digits}f}", published, f"to {words} decimals")


class LocalitySweep(Experiment[PalData]):
    """Gain over the baseline by the penalty across nodes."""

    name = "A2"

    def workloads(self, data: PalData) -> tuple[int, ...]:
        return (1,) if data.quick else WORKLOADS

    def runs(self, data: PalData) -> Runs:
        return {
            ("A2", w, p, x): base_scenario(data, w, p, locality_penalty=x)
            for w in self.workloads(data)
            for p in PLACEMENTS
            for x in data.figures["locality"]["penalties"]
        }

    def judge(self, data: PalData, outcomes: Outcomes) -> Part:
        checks, panels, penalties = [], [], data.figures["locality"]["penalties"]
        for workload in self.workloads(data):
            gains = {p: self._gains(workload, p, penalties, outcomes) for p in PLACEMENTS[1:]}
            checks += [self._check(data, workload, placement, own) for placement, own in gains.items()]
            title = f"A2: workload {workload}, gain over {BASELINE} (%) by locality penalty"
            lines = [(placement, penalties, own) for placement, own in gains.items()]
            panels.append(Panel(title, "Locality penalty", f"gain over {BASELINE} (%)", lines))
        return Part(checks, panels)

    def _gains(self, workload: int, placement: str, penalties: list[float], outcomes: Outcomes) -> list[float]:
        pairs = [[outcomes["A2", workload, p, x] for p in (placement, BASELINE)] for x in penalties]
        return [_gain(_jct_s(ours), _jct_s(base)) for ours, base in pairs]

    def _check(self, data: PalData, workload: int, placement: str, gains: list[float]) -> Check:
        table, published = data.figures["locality"], data.figures["published"]["locality_gain_percent"]
        expected = table["gain_percent"][str(workload)][placement]
        worst = max(abs(a - b) for a, b in zip(gains, expected, strict=True))
        ends = f"{table['penalties'][0]:g} .. {table['penalties'][-1]:g}"
        what = f"workload {workload}, {placement}, gain % at {ends}"
        told = str(published.get(placement, "-"))
        return Check("A2", what, _listed(gains), _listed(expected), told, worst < 0.15, "0.1 points")


@dataclass(frozen=True)
class LoadOn256(Experiment[PalData]):
    """256 GPUs: JCT by load under three policies."""

    name: str = "A3"

    def loads(self, data: PalData) -> tuple[float, ...]:
        return (10.0,) if data.quick else (8.0, 10.0, 12.0, 14.0)

    def policies(self, data: PalData) -> tuple[str, ...]:
        return ("fifo",) if data.quick else ("fifo", "las", "srtf")

    def runs(self, data: PalData) -> Runs:
        return {
            ("A3", policy, p, x): synergy_scenario(data, p, policy, x)
            for policy in self.policies(data)
            for p in (BASELINE, "pal")
            for x in self.loads(data)
        }

    def judge(self, data: PalData, outcomes: Outcomes) -> Part:
        checks, loads = [], self.loads(data)
        for placement, expected in data.figures["synergy"]["jct_h"].items():
            outcome = outcomes["A3", "fifo", placement, 10.0]
            what = f"fifo, {placement}, 10 jobs/h, JCT h"
            checks.append(_decimals("A3", what, outcome, expected, 2, "curve only"))
            name = f"syn256-standin-load10.0-Fifo-{PUBLISHED_NAMES[placement]}-2000-3000.csv"
            checks += _per_job("A3", f"fifo, {placement}", outcome, data.reference(name))
        checks += [self._gains(policy, loads, outcomes) for policy in self.policies(data)]
        return Part(checks, [self._panel(p, loads, outcomes) for p in self.policies(data) if len(loads) > 1])

    def _gains(self, policy: str, loads: Sequence[float], outcomes: Outcomes) -> Check:
        def judge() -> tuple[str, None]:
            pairs = [[outcomes["A3", policy, p, x].jct_h for p in ("pal", BASELINE)] for x in loads]
            return _listed(_gain(*pair) for pair in pairs), None

        at = ", ".join(f"{x:g}" for x in loads)
        what = f"{policy}, pal over {BASELINE}, gain % at {at} jobs/h"
        return check("A3", what, judge, published="curve only")

    def _panel(self, policy: str, loads: Sequence[float], outcomes: Outcomes) -> Panel:
        lines = [
            (p, *known_points(loads, [outcomes["A3", policy, p, x] for x in loads], "jct_h")) for p in (BASELINE, "pal")
        ]
        return Panel(f"A3: {policy}, average JCT (h) by jobs per hour", "Jobs per hour", "average JCT (h)", lines)


@dataclass(frozen=True)
class WhereFrom(Experiment[PalData]):
    """Where the gain comes from: chips drawn anew for every seed, in several ways, and moves that cost something."""

    seeds: Sequence[int] = range(10)
    workloads: Sequence[int] = WORKLOADS
    name: str = "gain"

    def settings(self, data: PalData, draw: str) -> list[Setting]:
        """One for each workload."""
        values = data.figures["draws"][draw]
        bases = [replace(base_scenario(data, w, **values), variability=data.records) for w in self.workloads]
        return [
            Setting(f"{draw}, workload {w}", tuple(replace(base, seed=seed) for seed in self.seeds))
            for w, base in zip(self.workloads, bases, strict=True)
        ]

    def runs(self, data: PalData) -> Runs:
        variants = contenders_of(data.figures["variants"])
        runs: Runs = {}
        for draw in _draws(data):
            for setting in self.settings(data, draw):
                runs |= setting.runs(variants)
        return runs

    def judge(self, data: PalData, outcomes: Outcomes) -> Part:
        checks: list[Check] = []
        panels: list[Panel] = []
        base, excluding, *_ = variants = list(contenders_of(data.figures["variants"]))
        for draw in _draws(data):
            gains = {
                variant: [self._gain(data, draw, variant, over, outcomes) for over in (base, excluding)]
                for variant in variants[1:]
            }
            checks += [Check(f"gain, {draw}", name, _described(name, *over)) for name, over in gains.items()]
            panels.append(_means(draw, {name: over_base for name, (over_base, _) in gains.items()}))
        return Part(checks, panels)

    def _gain(self, data: PalData, draw: str, ours: str, base: str, outcomes: Outcomes) -> Estimate:
        """Gain per seed (geometric mean over the workloads), mean and interval over the seeds."""
        found, settings = PairedComparison(outcomes), self.settings(data, draw)
        ours_s, base_s = ([found.values(s, name, _jct_s) for s in settings] for name in (ours, base))
        return estimate(
            [_geomean_gain(*pair) for pair in zip(zip(*ours_s, strict=True), zip(*base_s, strict=True), strict=True)]
        )


def _draws(data: PalData) -> list[str]:
    return [name for name in data.figures["draws"] if name != "source"]


def _described(variant: str, over_base: Estimate, over_excluding: Estimate) -> str:
    text = f"{with_interval(over_base.mean, over_base.half)} % over {BASELINE}"
    if variant.startswith("pal"):
        text += f", {with_interval(over_excluding.mean, over_excluding.half)} % over exclude-outliers"
    return text


def _means(draw: str, gains: dict[str, Estimate]) -> Panel:
    lines = [(name, [gain.mean], [float(i)]) for i, (name, gain) in enumerate(gains.items())]
    title = f"Gain over {BASELINE} (%), chips drawn by {draw}"
    axis = "Gain in average JCT (%, more is better), 95 % interval over seeds"
    return Panel(title, axis, "", lines, halves=[gain.half or 0.0 for gain in gains.values()])


NOTES = (
    "A1 is published for eight traces; three of them are public, so the geometric means are compared with those of the "
    "authors' code on the same three.",
    "The published decline of the gain with the locality penalty (A2) does not come out of the authors' code either; "
    "there, as here, only the order pal >= pm-first for penalties of 1.5 and more holds.",
    "A3 is published as curves for a job log that is not public; the stand-in keeps its GPU demands and its rule for "
    "durations, and all jobs are in class A.",
    "Where the gain comes from: chips are drawn anew for every seed. 'record' gives each simulated GPU one single "
    "measurement, as published, so that one slow run makes a permanently slow GPU; 'gpu_median' gives it the median of "
    "the runs of a real GPU.",
)


PAPER = Paper(
    "PAL (SC'24)",
    Path(__file__).parent / "pal.yaml",
    lambda folder, *given: PalData(find_root(folder, "traces/pal_workloads"), *given),
    lambda data: (Published64(), LocalitySweep(), LoadOn256(), WhereFrom(range(3) if data.quick else range(10))),
    lambda _: NOTES,
    grouped=False,
)
