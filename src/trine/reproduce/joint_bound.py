"""How far from optimal: average JCT beside the least that any scheduler could have, and which bars are possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trine.reproduce.checks import Check, check
from trine.reproduce.experiment import HOUR_S, Experiment, Outcomes, Runs
from trine.reproduce.joint_settings import JointInputs
from trine.reproduce.joint_worlds import VARIANTS, AgainstAll, percent
from trine.reproduce.paired_comparison import PairedComparison, Setting, difference
from trine.reproduce.reproduction import Panel, Part, ResultTable
from trine.sim.jct_bound import least_mean_jct_s, pooled_jobs
from trine.sim.scenario import Scenario, jobs_and_model


@dataclass(frozen=True)
class HowFarFromOptimal(Experiment[JointInputs]):
    """Every contender of the main table beside the bound, which knows all run times and arrivals in advance."""

    against: AgainstAll
    """Whose worlds, contenders and bars."""
    name: str = "how far from optimal"

    @property
    def setting(self) -> Setting:
        return self.against.setting

    def runs(self, inputs: JointInputs) -> Runs:
        return self.against.runs(inputs)

    def judge(self, inputs: JointInputs, outcomes: Outcomes) -> Part:
        slot_h = float(inputs.figures["bound"]["quick_slot_h" if inputs.quick else "slot_h"])
        bound_h = [least_jct_h(scenario, slot_h) for scenario in self.setting.scenarios]
        found, names = PairedComparison(outcomes), list(self.against.contenders(inputs))
        tables = [self._by_seed(found, names, bound_h), self._possible(inputs, found, bound_h)]
        return Part([self._none_below(found, names, bound_h)], [self._panel(found, names, bound_h)], tables)

    def _by_seed(self, found: PairedComparison, names: Sequence[str], bound_h: Sequence[float]) -> ResultTable:
        rows: list[tuple[str, ...]] = [("least possible JCT, h", *(f"{x:.2f}" for x in bound_h), "")]
        for name in names:
            over = difference(found.values(self.setting, name, "jct_h"), bound_h)
            rows.append((f"{name}: over it, %", *(f"{x:.1f}" for x in over.values), percent(over)))
        header = ("", *(str(seed + 1) for seed in self.setting.seeds), "mean")
        return ResultTable(f"{self.name}: {self.setting.name}, by seed", header, rows)

    def _possible(self, inputs: JointInputs, found: PairedComparison, bound_h: Sequence[float]) -> ResultTable:
        """What a scheduler at the bound would have against the best contenders of each seed, beside bar and goal."""
        rows = []
        for variant, key in VARIANTS.items():
            for bar in self.against.bars[key]:
                if bar["figure"] == "jct_h":
                    bases = inputs.group(bar["against"])
                    least = difference(bound_h, found.best(self.setting, bases, "jct_h"))
                    ours = found.difference(self.setting, variant, bases, "jct_h")
                    rows.append(
                        (f"{variant} : {', '.join(bar['against'])}", percent(ours), percent(least), *_bars(bar))
                    )
        header = ("JCT against the best per seed, %", "ours", "at the bound", "bar", "goal")
        return ResultTable(f"{self.name}: {self.setting.name}, what is possible", header, rows)

    def _none_below(self, found: PairedComparison, names: Sequence[str], bound_h: Sequence[float]) -> Check:
        def judge() -> tuple[str, bool]:
            best_h = found.best(self.setting, names, "jct_h")
            least = min(difference(best_h, bound_h).values)
            return f"the closest is {least:.1f} % above", least >= 0

        return check(self.name, "no contender is below the bound in any seed", judge, band="above 0 %")

    def _panel(self, found: PairedComparison, names: Sequence[str], bound_h: Sequence[float]) -> Panel:
        over = [difference(found.values(self.setting, name, "jct_h"), bound_h) for name in names]
        lines = [(name, [one.mean], [float(i)]) for i, (name, one) in enumerate(zip(names, over, strict=True))]
        title = f"{self.name}: {self.setting.name}, JCT over the least possible"
        return Panel(
            title, "Average JCT over the bound (%), 95 % interval", "", lines, halves=[o.half or 0.0 for o in over]
        )


def _bars(bar: Mapping[str, Any]) -> list[str]:
    """Bar and goal; a bar without a percentage asks for lower by any."""
    return [f"-{bar[key]}" if key in bar else "lower" for key in ("at_least_lower_percent", "goal")]


def least_jct_h(scenario: Scenario, slot_h: float) -> float:
    """The bound for the jobs and the cluster of a scenario, whatever its policy; hours."""
    return least_mean_jct_s(pooled_jobs(*jobs_and_model(scenario)), slot_h * HOUR_S) / HOUR_S
