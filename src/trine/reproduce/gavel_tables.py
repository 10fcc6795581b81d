"""Gavel's experiments for which runs of the authors' code exist: physical traces, small and full continuous, static."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcome, Outcomes, scenario
from trine.reproduce.panels import Found, Panel

DETERMINED = ("isolated", "fifo", "fifo_perf", "allox", "gandiva")
"""Policies that leave a solver no choice: their runs must be equal."""
INCOMPARABLE = ("fifo",)
"""Not held to be no worse without quirks: one means something else there, one is for neither JCT nor makespan."""
SAME_S = 1.0
LP_BAND = 0.03
EQUAL = 0.001
"""Averages this close are taken for equal."""
ROUNDED = 0.002
"""The same where the reference is known to three digits only."""
METRICS = {"jct_h": "average JCT h", "makespan_h": "makespan h"}
AXES = {"jct_h": "Average JCT (h)", "makespan_h": "Makespan (h)"}
MODES = {True: "as published", False: "trine"}


@dataclass(frozen=True)
class TraceTable:
    """One trace under many policies, each with the quirks of the authors' code and without."""

    name: str
    table: str
    """Block of figures."""
    run: str
    """How the runs of the authors' code are called."""
    preset: str
    rates: tuple[str, str]
    """The shipped table of rates alone, and the authors' one with pairs."""
    cluster: str = ""
    window: str = ""
    quick: tuple[str, ...] = ()
    """Policies of the quick run; none = all."""

    def trace(self, data: GavelData) -> str:
        traces = {"phys_las": "max_min_fairness", "phys_makespan": "minimize_makespan"}
        return data.physical(traces[self.run]) if self.run in traces else data.small

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        names = (quick and self.quick) or list(figures[self.table]["jct_h"])
        modes = {self._key(name, compat): (name, compat) for name in names for compat in MODES}
        return {key: self._scenario(data, *mode) for key, mode in modes.items()}

    def keep(self) -> dict[Key, Keep]:
        return {self._key(name, True): Keep(finishes=True) for name in DETERMINED}

    def _key(self, name: str, compat: bool) -> Key:
        return (self.run, name, compat)

    def _scenario(self, data: GavelData, name: str, compat: bool) -> Any:
        contender = CONTENDERS[name]
        rates = data.pairs(self.rates[1]) if contender.pairs else self.rates[0]
        given: dict[str, Any] = {"cluster": data.priced(self.cluster)} if self.cluster else {}
        values = {"window": self.window} if self.window else {}
        return scenario(
            self.preset,
            contender,
            compat=compat,
            throughputs=rates,
            trace=self.trace(data),
            format="gavel" if self.preset == "gavel-physical" else "",
            values=values,
            **given,
        )

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        table = figures[self.table]
        names = [name for name in table["jct_h"] if self._key(name, True) in outcomes]
        checks: list[Check] = []
        for name in names:
            authors, ours = (outcomes[self._key(name, compat)] for compat in MODES)
            checks += self._against_reference(name, table, authors, data.finishes_s(f"{self.run}__{name}"))
            checks.append(self._better(name, table, ours))
        return Found(checks, [self._panel(names, table, outcomes)])

    def _metrics(self, table: dict[str, Any]) -> list[str]:
        return [metric for metric in METRICS if metric in table]

    def _against_reference(
        self, name: str, table: dict[str, Any], found: Outcome, per_job: dict[str, float] | None
    ) -> list[Check]:
        """With all quirks on: job by job where nothing is left to a solver, on average otherwise."""
        checks = [self._average(name, table, metric, found) for metric in self._metrics(table)]
        if name in DETERMINED and per_job:
            checks.append(same_finishes(self.name, f"{CONTENDERS[name].label}, per job", found, per_job))
        return checks

    def _average(self, name: str, table: dict[str, Any], metric: str, found: Outcome) -> Check:
        band = {"fifo": ROUNDED}.get(name, EQUAL) if name in DETERMINED else LP_BAND
        what = f"{CONTENDERS[name].label}, {METRICS[metric]}, {MODES[True]}"
        told = table.get("published", {}).get(name, "-") if metric == self._metrics(table)[-1] else "-"
        return within(self.name, what, found, metric, table[metric][name], band, told)

    def _better(self, name: str, table: dict[str, Any], found: Outcome) -> Check:
        """Without quirks: no worse in what the policy is for."""
        metric = "makespan_h" if CONTENDERS[name].policy == "makespan" else "jct_h"
        what = f"{CONTENDERS[name].label}, {METRICS[metric]}, {MODES[False]}"
        return no_worse(self.name, what, found, metric, table[metric][name], judged=name not in INCOMPARABLE)

    def _panel(self, names: list[str], table: dict[str, Any], outcomes: Outcomes) -> Panel:
        metric = self._metrics(table)[-1]
        lines = [("reference", [float(i) for i in range(len(names))], [table[metric][name] for name in names])]
        for compat, mode in MODES.items():
            found = [(float(i), outcomes[self._key(name, compat)]) for i, name in enumerate(names)]
            there = [(i, o) for i, o in found if not o.failure]
            lines.append((f"ours, {mode}", [i for i, _ in there], [getattr(o, metric) for _, o in there]))
        labels = [CONTENDERS[name].label for name in names]
        return Panel(f"{self.name}: {METRICS[metric].removesuffix(' h')}", "Policy", AXES[metric], lines, labels)


def same_finishes(experiment: str, what: str, found: Outcome, expected: dict[str, float]) -> Check:
    """How many jobs finish when the reference says."""
    band = f"every job within {SAME_S:g} s"
    reference = f"{len(expected)} jobs"
    if found.failure:
        return failed(experiment, what, found, reference, band)
    # The last round of the authors' run ends after the last measured job; what ended in it may be missing here.
    there = {job: at for job, at in expected.items() if job in found.finishes_s}
    off = [abs(found.finishes_s[job] - at) for job, at in there.items()]
    same = sum(x <= SAME_S for x in off)
    ended_s = max(found.finishes_s.values(), default=0.0)
    missing = [job for job, at in expected.items() if job not in there and at < ended_s - SAME_S]
    ours = f"{same} of {len(there)} equal, largest difference {max(off, default=0.0):.3g} s"
    return Check(experiment, what, ours, reference, "-", bool(off) and same == len(off) and not missing, band)


def within(
    experiment: str, what: str, found: Outcome, metric: str, expected: float, band: float, published: str = "-"
) -> Check:
    """A figure that may differ from the reference by so much of it."""
    told = f"within {100 * band:g} %"
    if found.failure:
        return failed(experiment, what, found, f"{expected:.3f}", told, published)
    value = getattr(found, metric)
    off = value / expected - 1
    ours = f"{value:.3f} ({100 * off:+.1f} %)"
    return Check(experiment, what, ours, f"{expected:.3f}", published, abs(off) <= band, told)


def no_worse(experiment: str, what: str, found: Outcome, metric: str, expected: float, *, judged: bool = True) -> Check:
    """A time that may not be longer than that of the reference."""
    told = f"no worse than the reference (to {100 * EQUAL:g} %)" if judged else ""
    if found.failure:
        return failed(experiment, what, found, f"{expected:.3f}", told)
    value = getattr(found, metric)
    ours = f"{value:.3f} ({100 * (value / expected - 1):+.1f} %)"
    held = value <= expected * (1 + EQUAL) if judged else None
    return Check(experiment, what, ours, f"{expected:.3f}", "-", held, told)


def failed(
    experiment: str, what: str, found: Outcome, reference: str = "-", band: str = "", published: str = "-"
) -> Check:
    return Check(experiment, what, f"failed: {found.failure}", reference, published, False, band)


TABLES = (
    TraceTable(
        "physical LAS trace",
        "physical_las",
        "phys_las",
        "gavel-physical",
        ("gavel-physical", "physical_cluster"),
        "v100=8x1,p100=16x1,k80=24x1",
    ),
    TraceTable(
        "physical makespan trace",
        "physical_makespan",
        "phys_makespan",
        "gavel-physical",
        ("gavel-physical", "physical_cluster"),
        "v100=8x1,p100=16x1,k80=24x1",
    ),
    TraceTable(
        "small continuous-single",
        "small_single",
        "small_single",
        "gavel-continuous-single",
        ("gavel-simulation", "simulation"),
        "v100=12x1,p100=12x1,k80=12x1",
        "300:400",
        ("fifo_perf", "allox", "max_min_fairness_perf"),
    ),
)
