"""Where PAL's gain comes from: chips drawn anew for every seed, in several ways and from the measurements of three
clusters, with moves that cost something, and against the plain alternative of leaving slow GPUs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trine.report.compare import Estimate, estimate
from trine.report.text import with_interval
from trine.reproduce.checks import Check, shown
from trine.reproduce.experiment import Contender, Experiment, Outcomes, Runs, contenders_of
from trine.reproduce.paired_comparison import PairedComparison, Setting
from trine.reproduce.pal_inputs import BASELINE, METRICS, SWEPT, WORKLOADS, PalData, base_scenario, geomean_change
from trine.reproduce.reproduction import Panel, Part


def _settings(
    data: PalData, cluster: str, name: str, values: Mapping[str, Any], workloads: Sequence[int], seeds: Sequence[int]
) -> list[Setting]:
    """One for each workload, on chips drawn from the measurements of ``cluster``."""
    records = data.records(cluster)
    bases = [replace(base_scenario(data, w, **values), variability=records) for w in workloads]
    return [
        Setting(f"{name}, workload {w}", tuple(replace(base, seed=seed) for seed in seeds))
        for w, base in zip(workloads, bases, strict=True)
    ]


def _changes(outcomes: Outcomes, settings: Sequence[Setting], ours: str, base: str, figure: str) -> list[float]:
    """By seed, percent by which a figure is larger under ``ours``: the geometric mean over the settings."""
    found = PairedComparison(outcomes)
    sides = ([found.values(setting, name, figure) for setting in settings] for name in (ours, base))
    by_seed = (zip(*values, strict=True) for values in sides)
    return [geomean_change(*pair) for pair in zip(*by_seed, strict=True)]


@dataclass(frozen=True)
class WhereFrom(Experiment[PalData]):
    """Where the gain comes from: chips drawn anew for every seed, in several ways, and moves that cost something."""

    seeds: Sequence[int] = range(10)
    workloads: Sequence[int] = SWEPT
    name: str = "gain"

    def settings(self, data: PalData, draw: str) -> list[Setting]:
        """One for each workload."""
        return _settings(data, "longhorn", draw, data.figures["draws"][draw], self.workloads, self.seeds)

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
        changes = _changes(outcomes, self.settings(data, draw), ours, base, "jct_h")
        return estimate([-change for change in changes])


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


PAL, EXCLUDING = "pal", "exclude-outliers-sticky"


@dataclass(frozen=True)
class Clusters(Experiment[PalData]):
    """The same traces on chips drawn from three clusters: how much is gained depends on how many of them are slow."""

    seeds: Sequence[int] = range(5)
    workloads: Sequence[int] = WORKLOADS
    name: str = "clusters"

    def runs(self, data: PalData) -> Runs:
        runs: Runs = {}
        for cluster, draw in _drawn_clusters(data):
            for setting in self._settings(data, cluster, draw):
                runs |= setting.runs(_CONTENDERS)
        return runs

    def judge(self, data: PalData, outcomes: Outcomes) -> Part:
        checks: list[Check] = []
        means: dict[str, Estimate] = {}
        for cluster, draw in _drawn_clusters(data):
            settings = self._settings(data, cluster, draw)
            name = f"{data.figures['clusters']['titles'][cluster]}, {draw}"
            checks += [self._change(name, settings, metric, BASELINE, outcomes) for metric in METRICS]
            checks.append(self._change(name, settings, "jct_h", EXCLUDING, outcomes))
            checks.append(self._worst(name, settings, outcomes))
            means[name] = estimate([-c for c in _changes(outcomes, settings, PAL, BASELINE, "jct_h")])
        return Part(checks, [_means("clusters", means)])

    def _settings(self, data: PalData, cluster: str, draw: str) -> list[Setting]:
        name, values = f"{cluster}, {draw}", {"variability.draw": draw}
        return _settings(data, cluster, name, values, self.workloads, self.seeds)

    def _change(self, name: str, settings: list[Setting], metric: str, base: str, outcomes: Outcomes) -> Check:
        def measure() -> str:
            found = estimate(_changes(outcomes, settings, PAL, base, metric))
            return f"{with_interval(found.mean, found.half)} %"

        return shown(f"clusters, {name}", f"pal, {METRICS[metric]} against {base}", measure)

    def _worst(self, name: str, settings: list[Setting], outcomes: Outcomes) -> Check:
        """The trace and seed in which pal does worst."""

        def measure() -> str:
            changes = {s.name: max(_changes(outcomes, [s], PAL, BASELINE, "jct_h")) for s in settings}
            worst = max(changes, key=changes.__getitem__)
            return f"{changes[worst]:+.1f} % ({worst.rpartition(', ')[2]})"

        return shown(f"clusters, {name}", f"pal, worst average JCT against {BASELINE}", measure)


_CONTENDERS = {name: Contender(name, "fifo", name) for name in (BASELINE, EXCLUDING, PAL)}


def _drawn_clusters(data: PalData) -> list[tuple[str, str]]:
    """Clusters with each way to draw chips from their measurements; with one run per GPU there is only one."""
    block = data.figures["clusters"]
    return [(cluster, draw) for cluster in block["records"] for draw in block["draws"][cluster]]
