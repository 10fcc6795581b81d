"""What running jobs costs and how many deadlines are missed, under policies that look at prices or deadlines and those
that do not. Prices are those of the cost experiments of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_bill import cost_of
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_plots import Found, Panel
from trine.reproduce.gavel_runs import ALONE, Asks, Contender, Keep, Key, Outcome, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import failed

WORKLOAD = "gavel-continuous-single-slos"
JOBS_PER_H = 1.0
SHAPE = "v100=12x1,p100=12x1,k80=12x1"
FAST, FAST_KEPT = "max-throughput, deadlines ignored", "max-throughput, deadlines kept"
CHEAP, KEPT = "min-cost, deadlines ignored", "min-cost, deadlines kept"
BY_TYPE = "min-cost, deadlines ignored, type by type"
ONE_QUEUE: dict[str, Any] = {**ALONE, "one_queue": True}
CONTENDERS = {
    FAST: Contender(FAST, "max-throughput", {**ONE_QUEUE, "slo": False}),
    FAST_KEPT: Contender(FAST_KEPT, "max-throughput", {**ONE_QUEUE, "slo": True}),
    CHEAP: Contender(CHEAP, "min-cost", {**ONE_QUEUE, "slo": False}),
    KEPT: Contender(KEPT, "min-cost", {**ONE_QUEUE, "slo": True}),
    BY_TYPE: Contender(BY_TYPE, "min-cost", {**ALONE, "slo": False}),
}
"""Types are filled together, by priority: type by type, a job that waits for a cheap GPU is first put on a dear one."""


@dataclass(frozen=True)
class Cost:
    """Total cost and missed deadlines of single-GPU jobs."""

    name: ClassVar[str] = "cost and SLO"
    jobs: int = 300

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures, quick
        cluster = data.priced(SHAPE)
        return {("cost", name): self._scenario(contender, cluster) for name, contender in CONTENDERS.items()}

    def _scenario(self, contender: Contender, cluster: str) -> Any:
        values = {"workload.jobs": self.jobs, "workload.jobs_per_h": JOBS_PER_H, "window": ""}
        return scenario(
            "gavel-continuous-single",
            contender,
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
        runs = {name: outcomes["cost", name] for name in CONTENDERS}
        lost = first_failure(runs.values())
        if lost:
            return Found([failed(self.name, "cost and missed deadlines", lost)])
        checks = [self._told(name, found) for name, found in runs.items()]
        published = f"up to {figures['claims']['cost_times']} (recalled)"
        kept = [self._kept(runs, *pair) for pair in ((FAST_KEPT, FAST), (KEPT, CHEAP))]
        return Found([*checks, self._saving(runs, published), *kept], _panels(runs))

    def _told(self, name: str, found: Outcome) -> Check:
        ours = f"${cost_of(found):.0f}, {_missed(found):.1%} of deadlines missed, average JCT {found.jct_h:.1f} h"
        return Check(self.name, name, ours)

    def _saving(self, runs: dict[str, Outcome], published: str) -> Check:
        times = cost_of(runs[FAST]) / cost_of(runs[CHEAP])
        what = f"cost of {FAST} over that of {CHEAP}"
        return Check(self.name, what, f"{times:.2f} times", "-", published, times >= 1, "not below 1")

    def _kept(self, runs: dict[str, Outcome], kept: str, ignored: str) -> Check:
        """The paper shows that minding deadlines avoids missing them; no figure of it is at hand."""
        what = f"deadlines missed, {kept} and ignored"
        ours = f"{_missed(runs[kept]):.1%} and {_missed(runs[ignored]):.1%}"
        held = _missed(runs[kept]) <= _missed(runs[ignored])
        return Check(self.name, what, ours, held=held, band="not more where kept")


def _missed(found: Outcome) -> float:
    """Fraction of the deadlines."""
    assert found.summary is not None
    return found.summary.deadlines_missed / max(found.summary.deadlines, 1)


def _panels(runs: dict[str, Outcome]) -> list[Panel]:
    labels, across = list(runs), [float(i) for i in range(len(runs))]
    missed = [100 * _missed(found) for found in runs.values()]
    costs = [cost_of(found) for found in runs.values()]
    return [
        Panel("Deadlines missed", "Policy", "Jobs that miss their deadline (%)", [("ours", across, missed)], labels),
        Panel("Cost at spot prices, same runs", "Policy", "Cost ($)", [("ours", across, costs)], labels),
    ]
