"""Gavel's static workload: all jobs at the start, makespan by number of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import LP_BAND, failed, no_worse, within
from trine.reproduce.panels import Found, Panel

AWARE = "min_total_duration_perf"
PUBLISHED_JOBS = 100
PUBLISHED_SEEDS = (0, 1, 2)
PUBLISHED_BAND = 0.05


@dataclass(frozen=True)
class Static:
    """Makespan of 100 jobs as published and in the reference; by number of jobs for several policies."""

    name: ClassVar[str] = "static workload"
    policies: ClassVar[tuple[str, ...]] = (AWARE, "min_total_duration", "fifo_perf", "fifo")

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del data, figures
        sizes = (PUBLISHED_JOBS,) if quick else (400, 200, PUBLISHED_JOBS, 50)
        found = {("static", p, False, n, 0): self._scenario(p, n) for n in sizes for p in self.policies}
        found["static", AWARE, True, PUBLISHED_JOBS, 0] = self._scenario(AWARE, PUBLISHED_JOBS, compat=True)
        for seed in PUBLISHED_SEEDS[1:]:
            for policy in (AWARE, "fifo_perf", "fifo"):
                found["static", policy, False, PUBLISHED_JOBS, seed] = self._scenario(policy, PUBLISHED_JOBS, seed)
        return found

    def _scenario(self, policy: str, jobs: int, seed: int = 0, *, compat: bool = False) -> Any:
        return scenario(
            "gavel-static",
            CONTENDERS[policy],
            compat=compat,
            throughputs="gavel-simulation",
            seed=seed,
            values={"workload.jobs": jobs},
        )

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        table = figures["static"]
        expected = table["makespan_h"][AWARE]
        what = f"makespan, {PUBLISHED_JOBS} jobs, makespan h"
        ours, authors = (outcomes["static", AWARE, compat, PUBLISHED_JOBS, 0] for compat in (False, True))
        checks = [
            within(self.name, f"{what}, as published", authors, "makespan_h", expected, LP_BAND),
            no_worse(self.name, f"{what}, trine", ours, "makespan_h", expected),
            self._mean(AWARE, table["published"][AWARE], outcomes, judged=True),
            *(self._mean(p, table["published"]["fifo"], outcomes, judged=False) for p in ("fifo_perf", "fifo")),
        ]
        sizes = sorted({key[3] for key in outcomes if key[0] == "static"})
        lines = [(CONTENDERS[p].label, *self._line(p, sizes, outcomes)) for p in self.policies]
        panel = Panel("Static workload: makespan", "Number of jobs", "Makespan (h)", lines)
        checks += [self._order(n, outcomes) for n in sizes]
        return Found(checks, [panel] if len(sizes) > 1 else [])

    def _mean(self, policy: str, published: float, outcomes: Outcomes, *, judged: bool) -> Check:
        what = f"{CONTENDERS[policy].label}, {PUBLISHED_JOBS} jobs, mean of seeds 0 to 2, makespan h, trine"
        found = [outcomes["static", policy, False, PUBLISHED_JOBS, seed] for seed in PUBLISHED_SEEDS]
        lost = first_failure(found)
        told = f"{published:g} (notebook)"
        if lost:
            return failed(self.name, what, lost, published=told)
        mean = fmean(one.makespan_h for one in found)
        ours = f"{mean:.2f} ({100 * (mean / published - 1):+.1f} %)"
        held = mean <= published * (1 + PUBLISHED_BAND) if judged else None
        return Check(self.name, what, ours, "-", told, held, f"at most {PUBLISHED_BAND:.0%} longer" if judged else "")

    def _line(self, policy: str, sizes: list[int], outcomes: Outcomes) -> tuple[list[float], list[float]]:
        there = [n for n in sizes if not outcomes["static", policy, False, n, 0].failure]
        return [float(n) for n in there], [outcomes["static", policy, False, n, 0].makespan_h for n in there]

    def _order(self, jobs: int, outcomes: Outcomes) -> Check:
        """The policy made for the makespan has the shortest one."""
        what = f"{jobs} jobs, makespan h: {', '.join(CONTENDERS[p].label for p in self.policies)}"
        found = [outcomes["static", p, False, jobs, 0] for p in self.policies]
        lost = first_failure(found)
        if lost:
            return failed(self.name, what, lost)
        times = [one.makespan_h for one in found]
        ours = " ".join(f"{x:.1f}" for x in times)
        return Check(self.name, what, ours, held=times[0] <= min(times) * 1.001, band="the first is the shortest")
