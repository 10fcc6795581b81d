"""trine against its ancestors and their combinations in worlds of one kind: tables, bars, the prototype beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trine.report.compare import Estimate, estimate
from trine.report.text import number, with_interval
from trine.reproduce.checks import Check, check
from trine.reproduce.experiment import Contender, Experiment, Outcomes, Runs
from trine.reproduce.joint_settings import KNOWN, LEARNED, JointInputs, prototype_results
from trine.reproduce.paired_comparison import (
    NAMES,
    Figure,
    PairedComparison,
    Rule,
    Setting,
    at_least_lower,
    between,
    described,
    difference,
)
from trine.reproduce.reproduction import Line, Panel, Part, ResultTable

COLUMNS: dict[Figure, str] = {
    "jct_h": "JCT h",
    "jct_p99_h": "p99 h",
    "makespan_h": "makespan h",
    "rho_mean": "rho mean",
    "rho_max": "rho max",
    "preemptions": "stops/job",
    "moves": "moves/job",
}
COMPARED: dict[Figure, str] = {
    "jct_h": "JCT",
    "jct_p99_h": "p99 JCT",
    "makespan_h": "makespan",
    "rho_max": "largest rho",
}
VARIANTS = {LEARNED: "learned", KNOWN: "known"}


def percent(found: Estimate) -> str:
    """Mean and interval; without an interval the mean alone."""
    return with_interval(found.mean, found.half) if found.values else "-"


@dataclass(frozen=True)
class AgainstAll(Experiment[JointInputs]):
    """Both variants of trine, its ancestors and all combinations in the worlds of one kind.

    Contenders that know run times are compared with the variant that is, only.
    """

    name: str
    setting: Setting
    bars: Mapping[str, Sequence[Mapping[str, Any]]]
    """By variant."""
    most_stops: float | None = None

    def contenders(self, inputs: JointInputs) -> dict[str, Contender]:
        groups = [name for name in inputs.figures["groups"] if name != "source"]
        return inputs.contenders([*VARIANTS, *inputs.group(groups)])

    def runs(self, inputs: JointInputs) -> Runs:
        return self.setting.runs(self.contenders(inputs))

    def judge(self, inputs: JointInputs, outcomes: Outcomes) -> Part:
        found, names = PairedComparison(outcomes), list(self.contenders(inputs))
        tables = [self._means(inputs, found, names), self._by_seed(found, names), self._best(inputs, found)]
        tables.append(self._differences(inputs, found))
        checks = [*self._bars(inputs, found), *self._stops(found), *self._prototype(inputs, found)]
        return Part(checks, [self._panel(inputs, found)], tables)

    # -- tables ----------------------------------------------------------------------------------------------------

    def _means(self, inputs: JointInputs, found: PairedComparison, names: Sequence[str]) -> ResultTable:
        """One line per contender, with the prototype's JCT and by how much ours differs."""
        rows = []
        for name in names:
            cells = [self._cell(found, name, figure) for figure in COLUMNS]
            theirs = self._theirs(inputs, name)
            change = None if theirs is None else difference(found.values(self.setting, name, "jct_h"), theirs)
            there = "-" if theirs is None else number(estimate(theirs).mean, 3)
            rows.append((name, *cells, there, "-" if change is None else percent(change)))
        header = ("mean over seeds", *COLUMNS.values(), "prototype's JCT h", "ours over it %")
        return ResultTable(f"{self.name}: {self.setting.name}, {len(self.setting.seeds)} seeds", header, rows)

    def _cell(self, found: PairedComparison, name: str, figure: Figure) -> str:
        one = estimate(found.values(self.setting, name, figure))
        return with_interval(one.mean, one.half if figure == "jct_h" else None)

    def _by_seed(self, found: PairedComparison, names: Sequence[str]) -> ResultTable:
        rows = [(name, *(f"{x:.2f}" for x in found.values(self.setting, name, "jct_h"))) for name in names]
        header = ("JCT h", *(str(seed + 1) for seed in self.setting.seeds))
        return ResultTable(f"{self.name}: {self.setting.name}, by seed", header, rows)

    def _groups(self, inputs: JointInputs, variant: str) -> dict[str, list[str]]:
        """Whom a variant is compared with: ancestors alone, and everyone."""
        kinds = ("",) if variant == LEARNED else ("", ", known")
        ancestors = inputs.group(f"ancestors{kind}" for kind in kinds)
        combinations = inputs.group(f"combinations{kind}" for kind in kinds)
        return {"ancestors": ancestors, "ancestors and combinations": ancestors + combinations}

    def _best(self, inputs: JointInputs, found: PairedComparison) -> ResultTable:
        rows = [
            (f"{variant} against the best of the {group}", *self._against(found, variant, bases))
            for variant in VARIANTS
            for group, bases in self._groups(inputs, variant).items()
        ]
        title = f"{self.name}: {self.setting.name}, against the best per seed, %"
        return ResultTable(title, ("", *COMPARED.values()), rows)

    def _differences(self, inputs: JointInputs, found: PairedComparison) -> ResultTable:
        rows = [
            (f"{variant} against {base}", *self._against(found, variant, [base]))
            for variant in VARIANTS
            for base in self._groups(inputs, variant)["ancestors and combinations"]
        ]
        title = f"{self.name}: {self.setting.name}, paired differences, %"
        return ResultTable(title, ("", *COMPARED.values()), rows)

    def _against(self, found: PairedComparison, variant: str, bases: Sequence[str]) -> list[str]:
        return [percent(found.difference(self.setting, variant, bases, figure)) for figure in COMPARED]

    def _panel(self, inputs: JointInputs, found: PairedComparison) -> Panel:
        lines: list[Line] = []
        halves: list[float] = []
        for variant in VARIANTS:
            for base in self._groups(inputs, variant)["ancestors and combinations"]:
                change = found.difference(self.setting, variant, base, "jct_h")
                lines.append((f"{variant} : {base}", [change.mean], [float(len(lines))]))
                halves.append(change.half or 0.0)
        title = f"{self.name}: {self.setting.name}, JCT against each contender"
        return Panel(title, "Difference in average JCT (%, less is better), 95 % interval", "", lines, halves=halves)

    # -- bars ------------------------------------------------------------------------------------------------------

    def _bars(self, inputs: JointInputs, found: PairedComparison) -> list[Check]:
        """The bars, and the goals beyond them, which do not count."""
        if not self.setting.judged:
            return []
        checks: list[Check] = []
        for variant, name in VARIANTS.items():
            given = self.bars[name]
            for bar, band in zip(given, inputs.bars(variant, given), strict=True):
                what = f"{variant}: {NAMES[band.figure]} against the best of {' and '.join(bar['against'])}"
                change = self._judging(found, variant, band.base, band.figure)
                checks.append(check(self.name, what, change(band.holds), band.words, band="mean of the seeds"))
                if "goal" in bar:
                    goal, words = change(at_least_lower(bar["goal"])), f"at least {bar['goal']} % lower"
                    checks.append(check(self.name, f"{what}, goal", goal, band=words, counted=False))
        return checks

    def _judging(
        self, found: PairedComparison, ours: str, base: str | Sequence[str], figure: Figure
    ) -> Callable[[Rule], Callable[[], tuple[str, bool]]]:
        """By the rule, what a check measures: the paired difference, described, and whether the rule holds."""

        def by(rule: Rule) -> Callable[[], tuple[str, bool]]:
            def judge() -> tuple[str, bool]:
                change = found.difference(self.setting, ours, base, figure)
                return described(change), rule(change)

            return judge

        return by

    def _stops(self, found: PairedComparison) -> list[Check]:
        if self.most_stops is None or not self.setting.judged:
            return []
        most, checks = self.most_stops, []
        for variant in VARIANTS:
            mean = found.mean(self.setting, variant, "stops_and_moves")
            what = f"{variant}: {NAMES['stops_and_moves']}"
            checks.append(Check(self.name, what, f"{mean:.1f}", held=mean <= most, band=f"at most {most:g}"))
        return checks

    # -- the prototype ---------------------------------------------------------------------------------------------

    def _theirs(self, inputs: JointInputs, name: str) -> list[float] | None:
        """The prototype's JCT by seed, in hours."""
        policy = inputs.figures["prototype"]["names"].get(name)
        results = None if policy is None else prototype_results(self.setting, policy)
        return None if results is None else [result["jct"] for result in results]

    def _prototype(self, inputs: JointInputs, found: PairedComparison) -> list[Check]:
        """Our policy counts; a baseline that lies further off is for the notes to explain."""
        figures, checks = inputs.figures["prototype"], []
        around, here = float(figures["baseline_percent"]), self.contenders(inputs)
        for name in figures["names"]:
            if name not in here:
                continue  # a quick run leaves most contenders out
            theirs, ours = self._theirs(inputs, name), name in VARIANTS
            if theirs is None:
                continue
            low, high = figures["ours_percent"] if ours else (-around, around)
            change = difference(found.values(self.setting, name, "jct_h"), theirs)
            what, reference = f"{name}: JCT over the prototype's", f"{estimate(theirs).mean:.2f} h"
            held, counted = between(low, high)(change), ours and self.setting.judged
            band = f"between {low:g} and {high:g} %"
            checks.append(
                Check(self.name, what, f"{percent(change)} %", reference, held=held, band=band, counted=counted)
            )
        return checks
