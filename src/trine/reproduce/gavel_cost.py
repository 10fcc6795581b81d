"""What running jobs costs and how many deadlines are missed, under policies that look at prices or deadlines and those
that do not. Prices are those of the cost experiments of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_bill import cost_of
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import ALONE, Asks, Contender, Keep, Key, Outcome, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import failed
from trine.reproduce.panels import Found, Panel

WORKLOAD = "gavel-continuous-single-slos"
LOADS = {1.0: "1 job/h", 2.0: "2 jobs/h"}
"""Room to spare, and not enough for all deadlines."""
SHAPE = "v100=12x1,p100=12x1,k80=12x1"
FAST, FAST_KEPT = "max-throughput, deadlines ignored", "max-throughput, deadlines kept"
CHEAP, KEPT = "min-cost, deadlines ignored", "min-cost, deadlines kept"
Runs = dict[Any, Outcome]
"""By policy and load."""
CONTENDERS = {
    FAST: Contender(FAST, "max-throughput", {**ALONE, "slo": False}),
    FAST_KEPT: Contender(FAST_KEPT, "max-throughput", {**ALONE, "slo": True}),
    CHEAP: Contender(CHEAP, "min-cost", {**ALONE, "slo": False}),
    KEPT: Contender(KEPT, "min-cost", {**ALONE, "slo": True}),
}


@dataclass(frozen=True)
class Cost:
    """Total cost and missed deadlines of single-GPU jobs."""

    name: ClassVar[str] = "cost and SLO"
    jobs: int = 300

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures, quick
        cluster = data.priced(SHAPE)
        return {("cost", name, load): self._scenario(name, load, cluster) for load in LOADS for name in CONTENDERS}

    def _scenario(self, name: str, jobs_per_h: float, cluster: str) -> Any:
        values = {"workload.jobs": self.jobs, "workload.jobs_per_h": jobs_per_h, "window": ""}
        return scenario(
            "gavel-continuous-single",
            CONTENDERS[name],
            compat=False,
            throughputs="gavel-simulation",
            cluster=cluster,
            workload=WORKLOAD,
            values=values,
        )

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        runs = {key[1:]: outcomes[key] for key in outcomes if key[0] == "cost"}
        lost = first_failure(runs.values())
        if lost:
            return Found([failed(self.name, "cost and missed deadlines", lost)])
        published = f"up to {figures['claims']['cost_times']} (recalled)"
        checks = [self._told(name, load, found) for (name, load), found in runs.items()]
        checks += [self._saving(load, runs, published) for load in LOADS]
        checks += [self._kept(*pair, load, runs) for load in LOADS for pair in ((FAST_KEPT, FAST), (KEPT, CHEAP))]
        return Found(checks, _panels(runs))

    def _told(self, name: str, load: float, found: Outcome) -> Check:
        ours = f"${cost_of(found):.0f}, {_missed(found):.1%} of deadlines missed, average JCT {found.jct_h:.1f} h"
        return Check(self.name, f"{name}, {LOADS[load]}", ours)

    def _saving(self, load: float, runs: Runs, published: str) -> Check:
        times = cost_of(runs[FAST, load]) / cost_of(runs[CHEAP, load])
        what = f"cost of {FAST} over that of {CHEAP}, {LOADS[load]}"
        return Check(self.name, what, f"{times:.2f} times", "-", published, times >= 1, "not below 1")

    def _kept(self, kept: str, ignored: str, load: float, runs: Runs) -> Check:
        """The paper shows that minding deadlines avoids missing them; no figure of it is at hand."""
        those, these = _missed(runs[kept, load]), _missed(runs[ignored, load])
        what = f"deadlines missed, {kept} and ignored, {LOADS[load]}"
        return Check(self.name, what, f"{those:.1%} and {these:.1%}", held=those <= these, band="not more where kept")


def _missed(found: Outcome) -> float:
    """Fraction of the deadlines."""
    assert found.summary is not None
    return found.summary.deadlines_missed / max(found.summary.deadlines, 1)


def _panels(runs: Runs) -> list[Panel]:
    labels = list(CONTENDERS)

    def bars(title: str, axis: str, value: Callable[[Outcome], float]) -> Panel:
        across = [float(i) for i in range(len(labels))]
        lines = [(told, across, [value(runs[name, load]) for name in labels]) for load, told in LOADS.items()]
        return Panel(title, "Policy", axis, lines, labels)

    return [
        bars("Deadlines missed", "Jobs that miss their deadline (%)", lambda found: 100 * _missed(found)),
        bars("Cost of the same runs at spot prices", "Cost ($)", cost_of),
    ]
