"""What the runs of the authors' code cost at the published spot prices, and what ours cost with the same quirks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcome, Outcomes
from trine.reproduce.gavel_tables import DETERMINED, EQUAL, LP_BAND, MODES, ROUNDED, TABLES, TraceTable, failed
from trine.reproduce.panels import Found, Panel


@dataclass(frozen=True)
class Bill:
    """Reads the runs of the tables of traces; simulates nothing itself."""

    name: ClassVar[str] = "cost of the physical traces"
    tables: ClassVar[tuple[TraceTable, ...]] = TABLES[:2]

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del data, figures, quick
        return {}

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        checks, panels = [], []
        for table in self.tables:
            own = figures[table.table]
            names = [name for name in own["cost_usd"] if (table.run, name, True) in outcomes]
            checks += [self._check(table, name, own, outcomes[table.run, name, True]) for name in names]
            panels.append(self._panel(table, names, own, outcomes))
        return Found(checks, [panel for panel in panels if panel.labels])

    def _check(self, table: TraceTable, name: str, figures: dict[str, Any], found: Outcome) -> Check:
        """Held to the band of the JCT; where other optima give another JCT, the cost is another too."""
        what = f"{table.name}, {CONTENDERS[name].label}, cost $, {MODES[True]}"
        expected, band = figures["cost_usd"][name], _band(name)
        reference = f"{expected:.2f}"
        if found.failure:
            return failed(self.name, what, found, reference)
        off = cost_of(found) / expected - 1
        ours = f"{cost_of(found):.2f} ({100 * off:+.1f} %)"
        if abs(found.jct_h / figures["jct_h"][name] - 1) > band:
            return Check(self.name, what, ours, reference, band="not judged: the average JCT lies outside its band")
        return Check(self.name, what, ours, reference, "-", abs(off) <= band, f"within {100 * band:g} %")

    def _panel(self, table: TraceTable, names: list[str], figures: dict[str, Any], outcomes: Outcomes) -> Panel:
        lines = [("reference", [float(i) for i in range(len(names))], [figures["cost_usd"][name] for name in names])]
        for compat, mode in MODES.items():
            found = [(float(i), outcomes[table.run, name, compat]) for i, name in enumerate(names)]
            there = [(i, cost_of(o)) for i, o in found if not o.failure]
            lines.append((f"ours, {mode}", [i for i, _ in there], [y for _, y in there]))
        labels = [CONTENDERS[name].label for name in names]
        return Panel(f"{table.name}: cost at spot prices", "Policy", "Cost ($)", lines, labels)


def cost_of(found: Outcome) -> float:
    """Of all GPUs held, at the prices of the cluster."""
    assert found.summary is not None
    return found.summary.cost


def _band(name: str) -> float:
    return {"fifo": ROUNDED}.get(name, EQUAL) if name in DETERMINED else LP_BAND
