"""What running jobs costs and whether they meet their deadlines, under policies that look at prices and those that do
not. Prices are those of the cost experiments of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.config.prices import PUBLISHED
from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_plots import Found
from trine.reproduce.gavel_runs import ALONE, Asks, Contender, Keep, Key, Outcome, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import failed
from trine.trace.generate import generate

WORKLOAD = "gavel-continuous-single-slos"
JOBS_PER_H = 1.0
SHAPE = "v100=12x1,p100=12x1,k80=12x1"
CHEAP, KEPT, FAST = "min-cost, deadlines ignored", "min-cost, deadlines kept", "max-throughput"
BY_TYPE = "min-cost, deadlines ignored, type by type"
ONE_QUEUE: dict[str, Any] = {**ALONE, "one_queue": True}
CONTENDERS = {
    FAST: Contender(FAST, "max-throughput", {**ONE_QUEUE, "slo": False}),
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
        cluster = _priced_cluster(data)
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
        deadlines = _deadlines_s(self.jobs)
        checks = [self._told(name, found, deadlines) for name, found in runs.items()]
        published = f"up to {figures['claims']['cost_times']} (recalled)"
        return Found([*checks, self._saving(runs, published), self._kept(runs, deadlines)])

    def _told(self, name: str, found: Outcome, deadlines: dict[str, float]) -> Check:
        ours = f"cost {_cost(found):.0f}, {_missed(found, deadlines):.1%} of deadlines missed, JCT {found.jct_h:.1f} h"
        return Check(self.name, name, ours)

    def _saving(self, runs: dict[str, Outcome], published: str) -> Check:
        times = _cost(runs[FAST]) / _cost(runs[CHEAP])
        what = f"cost of {FAST} over that of {CHEAP}"
        return Check(self.name, what, f"{times:.2f} times", "-", published, times >= 1, "not below 1")

    def _kept(self, runs: dict[str, Outcome], deadlines: dict[str, float]) -> Check:
        kept, ignored = (_missed(runs[name], deadlines) for name in (KEPT, CHEAP))
        what = "deadlines missed where they are kept and where ignored"
        return Check(self.name, what, f"{kept:.1%} and {ignored:.1%}", held=kept <= ignored, band="not more where kept")


def _priced_cluster(data: GavelData) -> str:
    """Prices are part of a cluster file."""
    path = data.scratch / "priced.yaml"
    prices = [f"  {gpu_type}: {price}" for gpu_type, price in PUBLISHED["gavel-spot"].items()]
    path.write_text("\n".join([f"shape: {SHAPE}", "prices_per_gpu_hour:", *prices, ""]), encoding="utf-8")
    return str(path)


def _deadlines_s(count: int) -> dict[str, float]:
    jobs = generate(WORKLOAD, jobs=count, seed=0, gpus=36, jobs_per_h=JOBS_PER_H)
    return {job.id: job.deadline_s for job in jobs if job.deadline_s is not None}


def _missed(found: Outcome, deadlines: dict[str, float]) -> float:
    return sum(job.finish_s > deadlines[job.job_id] for job in found.jobs) / len(found.jobs)


def _cost(found: Outcome) -> float:
    assert found.summary is not None
    return found.summary.cost
