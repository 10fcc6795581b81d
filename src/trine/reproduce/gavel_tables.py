"""Gavel's experiments for which runs of the authors' code exist: traces under many policies, and what the runs cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.checks import EQUAL, Check, no_worse, same_finishes, with_change, within
from trine.reproduce.experiment import Experiment, Key, Outcome, Outcomes, Runs, known_points
from trine.reproduce.gavel_inputs import AXES, CONTENDERS, FIGURES, METRICS, MODES, GavelData, label, scenario
from trine.reproduce.reproduction import Panel, Part
from trine.sim.scenario import Scenario

DETERMINED = ("isolated", "fifo", "fifo_perf", "allox", "gandiva")
"""Policies that leave a solver no choice: their runs must be equal."""
INCOMPARABLE = ("fifo",)
"""Not held to be no worse without quirks: it means something else there."""
UNIQUE = ("max_min_fairness_perf", "min_total_duration_perf")
"""Policies whose programs have few optima: their averages agree with the authors' to 0.12 % on every trace here."""
LP_BAND, UNIQUE_BAND = 0.03, 0.003
ROUNDED = 0.002
"""In place of ``EQUAL`` where the reference is known to three digits only."""


def band_of(name: str) -> float:
    """Fraction by which an average may differ from that of the authors' code."""
    if name in DETERMINED:
        return ROUNDED if name == "fifo" else EQUAL
    return UNIQUE_BAND if name in UNIQUE else LP_BAND


@dataclass(frozen=True)
class TraceTable(Experiment[GavelData]):
    """One trace under many policies, each with the quirks of the authors' code and without."""

    table: str
    """Block of figures."""
    name: str
    run: str
    """How the runs of the authors' code are called."""
    preset: str
    trace: str
    """Below the root."""
    pairs: str
    """The authors' table of rates with pairs; the others take that of the preset."""
    cluster: str
    window: str = ""
    quick: tuple[str, ...] = ()
    """Policies of the quick run; none = all."""

    def runs(self, data: GavelData) -> Runs:
        names = (data.quick and self.quick) or list(data.figures[self.table]["jct_h"])
        return {self._key(name, compat): self._scenario(data, name, compat) for name in names for compat in MODES}

    def with_segments(self) -> Collection[Key]:
        return [self._key(name, True) for name in DETERMINED]

    def _key(self, name: str, compat: bool) -> Key:
        return (self.run, name, compat)

    def _scenario(self, data: GavelData, name: str, compat: bool) -> Scenario:
        given: dict[str, Any] = {"throughputs": data.pairs(self.pairs)} if CONTENDERS[name].pairs else {}
        return scenario(
            self.preset,
            name,
            compat=compat,
            trace=str(data.root / self.trace),
            cluster=data.priced(self.cluster),
            values={"window": self.window} if self.window else {},
            **given,
        )

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        table = data.figures[self.table]
        names = [name for name in table["jct_h"] if self._key(name, True) in outcomes]
        checks: list[Check] = []
        for name in names:
            authors, ours = (outcomes[self._key(name, compat)] for compat in MODES)
            checks += self._against_reference(name, table, authors, data.finishes_s(f"{self.run}__{name}"))
            checks.append(self._better(name, table, ours))
        metric = self._metrics(table)[-1]
        title = f"{self.name}: {METRICS[metric].removesuffix(' h')}"
        return Part(checks, [self.panel(title, AXES[metric], names, table[metric], metric, outcomes)])

    def _metrics(self, table: Mapping[str, Any]) -> list[str]:
        return [metric for metric in METRICS if metric in table]

    def _against_reference(
        self, name: str, table: Mapping[str, Any], found: Outcome, per_job: dict[str, float] | None
    ) -> list[Check]:
        """With all quirks on: job by job where nothing is left to a solver, on average otherwise."""
        checks = [self._average(name, table, metric, found) for metric in self._metrics(table)]
        if name in DETERMINED and per_job:
            checks.append(same_finishes(self.name, f"{label(name)}, per job", found, per_job))
        return checks

    def _average(self, name: str, table: Mapping[str, Any], metric: str, found: Outcome) -> Check:
        what = f"{label(name)}, {METRICS[metric]}, {MODES[True]}"
        published = table.get("published", {}).get(name, "-") if metric == self._metrics(table)[-1] else "-"
        expected = table[metric][name]
        return within(self.name, what, lambda: getattr(found, metric), expected, band_of(name), published)

    def _better(self, name: str, table: Mapping[str, Any], found: Outcome) -> Check:
        """Without quirks: no worse in what the policy is for."""
        metric = "makespan_h" if CONTENDERS[name].policy == "makespan" else "jct_h"
        what = f"{label(name)}, {METRICS[metric]}, {MODES[False]}"
        judged = name not in INCOMPARABLE
        return no_worse(self.name, what, lambda: getattr(found, metric), table[metric][name], judged=judged)

    def panel(
        self, title: str, axis: str, names: list[str], reference: Mapping[str, float], metric: str, outcomes: Outcomes
    ) -> Panel:
        """One figure by policy: the reference, and ours with quirks and without."""
        across = [float(i) for i in range(len(names))]
        lines = [("reference", across, [reference[name] for name in names])]
        for compat, mode in MODES.items():
            found = [outcomes[self._key(name, compat)] for name in names]
            lines.append((f"ours, {mode}", *known_points(across, found, metric)))
        return Panel(title, "Policy", axis, lines, [label(name) for name in names])


def tables(figures: Mapping[str, Any]) -> tuple[TraceTable, ...]:
    """From every block that describes one."""
    blocks = {name: block["experiment"] for name, block in figures.items() if "experiment" in block}
    return tuple(
        TraceTable(name, **(given | {"quick": tuple(given.get("quick", ()))})) for name, given in blocks.items()
    )


TABLES = tables(read_mapping(FIGURES).plain())


class Bill(Experiment[GavelData]):
    """What the runs of the authors' code cost at the published spot prices, and ours with the same quirks.

    Reads the runs of the tables of traces; simulates nothing itself.
    """

    name = "cost of the physical traces"

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        checks: list[Check] = []
        panels: list[Panel] = []
        for table in TABLES:
            own = data.figures.get(table.table, {})
            names = [name for name in own.get("cost_usd", ()) if (table.run, name, True) in outcomes]
            checks += [self._check(table, name, own, outcomes[table.run, name, True]) for name in names]
            if names:
                title = f"{table.name}: cost at spot prices"
                panels.append(table.panel(title, "Cost ($)", names, own["cost_usd"], "cost", outcomes))
        return Part(checks, panels)

    def _check(self, table: TraceTable, name: str, figures: Mapping[str, Any], found: Outcome) -> Check:
        """Held to the band of the JCT; where other optima give another JCT, the cost is another too."""
        what = f"{table.name}, {label(name)}, cost $, {MODES[True]}"
        expected, band = figures["cost_usd"][name], band_of(name) if name in DETERMINED else LP_BAND
        if found.failure or abs(found.jct_h / figures["jct_h"][name] - 1) <= band:
            return within(self.name, what, lambda: found.cost, expected, band, digits=2)
        words = "not judged: the average JCT is out of tolerance"
        return Check(self.name, what, with_change(found.cost, expected, 2), f"{expected:.2f}", band=words)
