"""Dally's experiments: why placement matters, policies side by side, the tuner, and where waiting pays.

Only the abstract of the paper is known. The cluster, the jobs, the rules and the bands are a design of this project, so
the published claims stand beside our figures and are not what they are held to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trine.assembly.factory import performance_model
from trine.assembly.settings import RunSettings
from trine.core.job import Job
from trine.inputs.cluster import load_cluster
from trine.perf.model_traffic import shipped_table
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.reproduce.checks import Check
from trine.reproduce.dally_settings import (
    ARRIVALS,
    MIX,
    DallyInputs,
    dally_inputs,
    generated,
    philly,
    prototypes,
    without_embeddings,
)
from trine.reproduce.experiment import Contender, Experiment, Outcomes, Paper, Runs, contenders_of
from trine.reproduce.paired_comparison import COMPARED, Band, PairedComparison, Setting, SideBySide
from trine.reproduce.reproduction import Panel, Part, ResultTable
from trine.trace.models import DEFAULT_MODELS

AUTO, NO_WAIT, FULL = "dally, tuned timers", "dally, no wait", "dally, fully consolidated"
SKEW, ALWAYS = "tiresias, skew rule", "tiresias, always consolidate"


@dataclass(frozen=True)
class Effort:
    """How many seeds each part gets."""

    seeds: int = 10
    tuner_seeds: int = 5
    sweep_seeds: int = 3


def contenders(inputs: DallyInputs, *names: str) -> dict[str, Contender]:
    """Every policy, or some by name."""
    found = contenders_of(inputs.figures["contenders"])
    return {name: found[name] for name in names or found}


# -- why placement matters -------------------------------------------------------------------------------------------


class TierSlowdowns(Experiment[DallyInputs]):
    """What models send, and how much slower they run the further apart the GPUs of a gang are."""

    name = "why it matters"
    gang = 8
    models = tuple(dict.fromkeys((*DEFAULT_MODELS, *(model.name for model in MIX.models))))

    def judge(self, inputs: DallyInputs, outcomes: Outcomes) -> Part:
        del outcomes
        free, congested = (self._slowdowns(inputs, inputs.congestion(c)) for c in (False, True))
        traffic = shipped_table()
        rows = [
            (
                model,
                f"{traffic.of(model).gradient_bytes / 1e6:.0f}",
                f"{traffic.of(model).all_to_all_bytes / 1e6:.0f}",
                *(f"{x:.2f}" for x in (*free[model], *congested[model])),
            )
            for model in self.models
        ]
        tiers = ("node", "rack", "network")
        header = ("model", "gradient MB", "all-to-all MB", *tiers, *(f"{tier}, congested" for tier in tiers))
        title = f"Why it matters: step time of {self.gang} GPUs by tier over that inside a node"
        across = [float(i) for i in range(len(self.models))]
        lines = [
            (name, across, [congested[model][tier] for model in self.models])
            for tier, name in ((1, "one rack"), (2, "several racks"))
        ]
        panel = Panel(f"{title}, congested", "", "Times the step inside a node", lines, list(self.models))
        return Part([], [panel], [ResultTable(title, header, rows)])

    def _slowdowns(self, inputs: DallyInputs, congestion: float) -> dict[str, tuple[float, ...]]:
        """By model: node, rack and network, links used by nothing else."""
        cluster = load_cluster(inputs.figures["prototype"]["cluster"])
        settings = RunSettings(network=inputs.network, congestion=congestion)
        perf = performance_model(settings, cluster, VariabilityTable(cluster.gpu_count), ThroughputTable())
        return {model: perf.tier_slowdowns(Job("", 0.0, self.gang, 1.0, model=model))[1:] for model in self.models}


# -- policies side by side -------------------------------------------------------------------------------------------


def bands(inputs: DallyInputs) -> list[Band]:
    """All that is held where the network is congested."""
    return [Band.of(AUTO, given) for given in inputs.figures["bands"]["against"]]


@dataclass(frozen=True)
class WithoutEmbeddings(Experiment[DallyInputs]):
    """How much of the gain over Tiresias is left without the model that suffers most from being spread."""

    settings: Sequence[Setting]
    name: str = "without embedding models"

    def runs(self, inputs: DallyInputs) -> Runs:
        chosen = contenders(inputs, SKEW, ALWAYS, AUTO)
        return {key: run for setting in self.settings for key, run in setting.runs(chosen).items()}

    def judge(self, inputs: DallyInputs, outcomes: Outcomes) -> Part:
        del inputs
        found = PairedComparison(outcomes)
        rows = [
            (f"{setting.name}: against {base}", *found.differences(setting, AUTO, base))
            for setting in self.settings
            for base in (SKEW, ALWAYS)
        ]
        title = "Without embedding models: tuned timers, %"
        return Part([], tables=[ResultTable(title, ("scenario", *COMPARED.values()), rows)])


# -- the tuner -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuner(Experiment[DallyInputs]):
    """Whether the tuner, which knows nothing of the setting, finds timers as good as the best fixed ones."""

    settings: Sequence[Setting]
    name: str = "tuner"

    timers = {
        NO_WAIT: "0",
        "dally, 1 h and 2 h": "1 h",
        "dally, 3 h and 6 h": "3 h",
        "dally, 12 h and 24 h": "12 h",
        "dally, 24 h and 48 h": "24 h",
        FULL: "no end",
    }
    """Every fixed timer of the sweep by policy; for racks it is twice as long."""
    tuned = {AUTO: "tuned", "dally, tuned if it pays": "tuned if it pays"}

    def runs(self, inputs: DallyInputs) -> Runs:
        """Also those that ``SideBySide`` runs: equal scenarios are simulated once, and this part may run alone."""
        known = contenders(inputs) | contenders_of(inputs.figures["tuner"])
        judged = {name: known[name] for name in (*self.timers, *self.tuned)}
        return {key: run for setting in self.settings for key, run in setting.runs(judged).items()}

    def judge(self, inputs: DallyInputs, outcomes: Outcomes) -> Part:
        found, allowed = PairedComparison(outcomes), float(inputs.figures["bands"]["tuner_percent"])
        labels = [*self.timers.values(), *self.tuned.values()]
        jct_h = {s: {name: found.mean(s, name, "jct_h") for name in (*self.timers, *self.tuned)} for s in self.settings}
        across = [float(i) for i in range(len(labels))]
        panel = Panel(
            "Tuner: JCT by fixed timer, relative to the best of them",
            "Timer for a node (twice as long for a rack)",
            "JCT over the best fixed timer's (%)",
            [(s.name, across, [self._above(x, own) for x in own.values()]) for s, own in jct_h.items()],
            labels,
        )
        rows = [(s.name, *(f"{x:.2f}" for x in own.values())) for s, own in jct_h.items()]
        table = ResultTable("Tuner: JCT h by timer for a node", ("scenario", *labels), rows)
        return Part([self._check(s, own, allowed) for s, own in jct_h.items()], [panel], [table])

    def _above(self, value_h: float, jct_h: dict[str, float]) -> float:
        """Percent above the best fixed timer."""
        return 100 * (value_h / min(jct_h[name] for name in self.timers) - 1)

    def _check(self, setting: Setting, jct_h: dict[str, float], allowed: float) -> Check:
        best, above = min(self.timers, key=lambda name: jct_h[name]), self._above(jct_h[AUTO], jct_h)
        return Check(
            self.name,
            f"{setting.name}: JCT over that of the best fixed timer",
            f"{above:+.1f} %",
            f"{jct_h[best]:.2f} h with {self.timers[best]}",
            "-",
            above <= allowed,
            f"at most {allowed:g} % above",
        )


# -- where waiting pays ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """One quantity that is varied; the others stay as in the congested settings."""

    name: str
    x_title: str
    points: tuple[float, ...]
    quick: tuple[float, ...]

    def given(self, inputs: DallyInputs, x: float) -> dict[str, Any]:
        """Arguments of ``generated`` at ``x``."""
        congestion = inputs.congestion(True)
        if self.name == "network speed":
            return {"congestion": x / float(inputs.figures["prototype"]["nic"].removesuffix(" GB/s"))}
        if self.name == "oversubscription":
            return {"congestion": congestion, "oversubscription": x}
        return {"congestion": congestion, "sensitive_share": x}


AXES = (
    Axis("network speed", "NIC of a node (GB/s)", (1.25, 3.125, 12.5), (1.25, 12.5)),
    Axis("oversubscription", "NICs of a rack over its uplink", (1.0, 4.0, 16.0), (1.0, 16.0)),
    Axis("sensitive models", "Share of network-sensitive gangs", (0.0, 0.5, 1.0), (0.0, 1.0)),
)


@dataclass(frozen=True)
class Point:
    """A setting of the sweep."""

    axis: Axis
    x: float
    batch: bool
    setting: Setting


@dataclass(frozen=True)
class WherePays(Experiment[DallyInputs]):
    """Over the speed of the network, its oversubscription, the share of sensitive models. Nothing of this is published;
    the lines are JCT relative to the same policy without any wait."""

    points: Sequence[Point]
    name: str = "where waiting pays"

    @classmethod
    def of(cls, inputs: DallyInputs, seeds: int) -> WherePays:
        points = []
        for axis in AXES:
            for x in axis.quick if inputs.quick else axis.points:
                for batch in (False,) if inputs.quick else (False, True):
                    name, given = f"{axis.name} {x:g}, {ARRIVALS[batch]}", axis.given(inputs, x)
                    points.append(Point(axis, x, batch, generated(inputs, name, seeds, batch=batch, **given)))
        return cls(points)

    def runs(self, inputs: DallyInputs) -> Runs:
        chosen = contenders(inputs, NO_WAIT, FULL, AUTO)
        return {key: run for point in self.points for key, run in point.setting.runs(chosen).items()}

    def judge(self, inputs: DallyInputs, outcomes: Outcomes) -> Part:
        """A panel for each quantity, and all figures in one table."""
        del inputs
        found = PairedComparison(outcomes)
        rows = [(p.setting.name, *self._cells(found, p.setting)) for p in self.points]
        columns = ("JCT, fully consolidated", "JCT, tuned", "makespan, fully cons.", "makespan, tuned")
        table = ResultTable("Where waiting pays", ("against no wait, %", *columns), rows)
        return Part([], [self._panel(found, axis) for axis in AXES], [table])

    def _cells(self, found: PairedComparison, setting: Setting) -> list[str]:
        pairs = [(name, key) for key in ("jct_h", "makespan_h") for name in (FULL, AUTO)]
        estimates = [found.difference(setting, name, NO_WAIT, key) for name, key in pairs]
        return [f"{e.mean:+.1f} ± {e.half:.1f}" if e.half is not None else f"{e.mean:+.1f}" for e in estimates]

    def _panel(self, found: PairedComparison, axis: Axis) -> Panel:
        own, lines = [p for p in self.points if p.axis is axis], []
        for name in (FULL, AUTO):
            for batch in sorted({p.batch for p in own}):
                chosen = [p for p in own if p.batch is batch]
                y = [found.difference(p.setting, name, NO_WAIT, "jct_h").mean for p in chosen]
                lines.append((f"{name}, {ARRIVALS[batch]}", [p.x for p in chosen], y))
        title = f"Where waiting pays: JCT by {axis.name}, congested unless varied"
        return Panel(title, axis.x_title, "JCT against no wait (%; below 0: waiting pays)", lines)


# -- the paper -------------------------------------------------------------------------------------------------------


def experiments(inputs: DallyInputs) -> list[Experiment[Any]]:
    """All, in the order of the page."""
    effort = Effort(2, 1, 1) if inputs.quick else Effort()
    compared = prototypes(inputs, effort.seeds) + philly(inputs, effort.seeds)
    return [
        TierSlowdowns(),
        *(SideBySide(s.name, s, contenders(inputs), AUTO, "tuned timers", bands(inputs)) for s in compared),
        WithoutEmbeddings(without_embeddings(inputs, effort.sweep_seeds)),
        Tuner([setting.first(effort.tuner_seeds) for setting in compared]),
        WherePays.of(inputs, effort.sweep_seeds),
    ]


WITHOUT_DATA = "The Philly trace was skipped: --data DIR must name the folder that holds traces/philly_flat."
NOTES = (
    "Of the paper only the abstract is known. Cluster, links, jobs, rules and bands are ours: the published claims "
    "(makespan up to 69 % lower, 68 % on average; JCT up to 83 %; communication up to 98 %) belong to another setting.",
    "Differences are paired by seed, relative, with 95 % intervals of Student's t; 'best' is the seed with the largest "
    "gain.",
    "Communication is GPU-hours in which GPUs wait for the network. Tiers are the widest at which a gang ever ran. "
    "'Spread' is the part of jobs that fit one node and ever ran on several; seeds in which the other policy spreads "
    "none are left out of its differences. It is not judged.",
    "Philly: stretches of consecutive jobs of a virtual cluster with drawn models; stretches of one virtual cluster "
    "may overlap, so that their intervals are too narrow. The sizes of the clusters are ours.",
)
PAPER = Paper(
    "Dally (arXiv 2401.16492)",
    Path(__file__).parent / "dally.yaml",
    dally_inputs,
    experiments,
    lambda inputs: NOTES if inputs.philly else (*NOTES, WITHOUT_DATA),
)
