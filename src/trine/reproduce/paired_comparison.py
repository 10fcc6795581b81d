"""Contenders side by side in settings, seed by seed: tables, paired differences with intervals, and bands for them.

A setting is a scenario for each seed, so that contenders meet the same jobs, chips and links in it: what differs
between seeds cancels out of a paired difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trine.report.compare import Estimate, estimate
from trine.report.text import number, with_interval
from trine.reproduce.checks import Check, check
from trine.reproduce.experiment import Contender, Experiment, Inputs, Outcome, Outcomes, Runs
from trine.reproduce.reproduction import Part, ResultTable
from trine.sim.scenario import Scenario

Figure = str | Callable[[Outcome], float]
"""A figure of ``Outcome`` by name, or one that an experiment computes from an outcome."""
COLUMNS: dict[Figure, str] = {
    "makespan_h": "makespan h",
    "jct_h": "JCT h",
    "jct_p95_h": "p95",
    "jct_p99_h": "p99",
    "wait_p95_h": "wait p95 h",
    "wait_p99_h": "p99",
    "comm_h": "comm GPU-h",
    "comm_node_h": "of one node",
    "comm_spread_h": "spread",
    "utilization": "busy",
    "gpu_h": "GPU-h",
    "preemptions": "stops/job",
    "moves": "moves/job",
}
WITH_INTERVAL = ("makespan_h", "jct_h", "comm_h")
COMPARED: dict[Figure, str] = {
    "makespan_h": "makespan",
    "jct_h": "JCT",
    "jct_p95_h": "p95 JCT",
    "wait_p95_h": "p95 wait",
    "comm_h": "communication",
    "comm_node_h": "communication of jobs that fit one node",
    "comm_spread_h": "of those, where spread",
}
"""The last is not judged: communication inside nodes is the same under every policy, so that the one before it shows no
difference in a seed whose jobs the base never spreads. Here such a seed is left out."""
NAMES: dict[Figure, str] = COMPARED | {
    "jct_p99_h": "p99 JCT",
    "rho_max": "largest rho",
    "stops_and_moves": "stops and moves per job",
}


@dataclass(frozen=True)
class Setting:
    """A scenario for each seed, without a contender."""

    name: str
    scenarios: tuple[Scenario, ...]
    judged: bool = True
    """Whether bands are held here."""

    @property
    def seeds(self) -> range:
        return range(len(self.scenarios))

    def first(self, seeds: int) -> Setting:
        """The same with fewer seeds."""
        return replace(self, scenarios=self.scenarios[:seeds])

    def runs(self, contenders: Mapping[str, Contender]) -> Runs:
        """Every contender with every seed, by setting, contender and seed."""
        return {
            (self.name, name, seed): contender.on(self.scenarios[seed])
            for name, contender in contenders.items()
            for seed in self.seeds
        }


@dataclass(frozen=True)
class PairedComparison:
    """Outcomes by setting, contender and seed."""

    outcomes: Outcomes

    def values(self, setting: Setting, contender: str, figure: Figure) -> list[float]:
        """One figure by seed."""
        found = (self.outcomes[setting.name, contender, seed] for seed in setting.seeds)
        return [float(getattr(one, figure) if isinstance(figure, str) else figure(one)) for one in found]

    def mean(self, setting: Setting, contender: str, figure: Figure) -> float:
        return estimate(self.values(setting, contender, figure)).mean

    def best(self, setting: Setting, contenders: Iterable[str], figure: Figure) -> list[float]:
        """The lowest of several contenders in each seed."""
        return [min(values) for values in zip(*(self.values(setting, c, figure) for c in contenders), strict=True)]

    def difference(self, setting: Setting, ours: str, base: str | Sequence[str], figure: Figure) -> Estimate:
        """Percent by which ``ours`` is above ``base``, or above the best of several, paired by seed."""
        bases = (base,) if isinstance(base, str) else base
        return difference(self.values(setting, ours, figure), self.best(setting, bases, figure))

    # -- tables ----------------------------------------------------------------------------------------------------

    def table(
        self, setting: Setting, contenders: Iterable[str], columns: Mapping[Figure, str] = COLUMNS
    ) -> ResultTable:
        """One line per contender, means over seeds."""
        rows = [(name, *self._cells(setting, name, columns)) for name in contenders]
        header = ("mean over seeds", *columns.values(), "gangs in node/rack/network %")
        where = f", {setting.scenarios[0].cluster}" if setting.scenarios[0].cluster else ""
        return ResultTable(f"{setting.name}{where}, {len(setting.seeds)} seeds", header, rows)

    def _cells(self, setting: Setting, name: str, columns: Iterable[Figure]) -> list[str]:
        found = {key: estimate(self.values(setting, name, key)) for key in columns}
        cells = [
            f"{e.mean:.0%}" if key == "utilization" else with_interval(e.mean, e.half if key in WITH_INTERVAL else None)
            for key, e in found.items()
        ]
        tiers = zip(*(self.outcomes[setting.name, name, seed].tiers for seed in setting.seeds), strict=True)
        return [*cells, "/".join(number(100 * sum(shares) / len(shares), 2) for shares in tiers)]

    def differences(
        self, setting: Setting, ours: str, base: str, figures: Iterable[Figure] = tuple(COMPARED)
    ) -> list[str]:
        """A cell for each figure: percent, negative is lower, 95 % interval of the paired difference."""
        found = (self.difference(setting, ours, base, key) for key in figures)
        return [with_interval(e.mean, e.half) if e.values else "-" for e in found]


def difference(ours: Sequence[float], base: Sequence[float]) -> Estimate:
    """Percent by which ``ours`` is higher, seed by seed; seeds in which the base has nothing are left out."""
    return estimate([100 * (a / b - 1) for a, b in zip(ours, base, strict=True) if b > 0])


def described(found: Estimate) -> str:
    """Mean with interval, the best seed, and whether the sign is certain."""
    if not found.values:
        return "nothing to compare"
    certain = "" if found.excludes_zero else ", interval includes 0"
    return f"{with_interval(found.mean, found.half)} %, best {min(found.values):.0f} %{certain}"


# -- bands ---------------------------------------------------------------------------------------------------------

Rule = Callable[[Estimate], bool]


def at_least_lower(percent: float = 0.0) -> Rule:
    """Without a percentage, lower by any."""
    return lambda found: found.mean <= -percent and found.mean < 0


def between(low_percent: float, high_percent: float) -> Rule:
    return lambda found: low_percent <= found.mean <= high_percent


def no_worse(found: Estimate) -> bool:
    """Lower, or higher by no more than its interval."""
    return found.mean <= (found.half or 0.0)


@dataclass(frozen=True)
class Band:
    """What is held of one figure of ``ours`` against one other contender, or against the best of several per seed."""

    ours: str
    base: str | tuple[str, ...]
    figure: Figure
    words: str
    holds: Rule
    published: str = "-"

    @classmethod
    def of(cls, ours: str, given: Mapping[str, Any]) -> Band:
        """From YAML: ``figure``, ``against`` (a name or several) and one of ``at_least_lower_percent``,
        ``between_percent: [low, high]``, ``no_worse: true``; without any of them it must be lower."""
        words, holds = "lower", at_least_lower()
        if "at_least_lower_percent" in given:
            percent = given["at_least_lower_percent"]
            words, holds = f"at least {percent} % lower", at_least_lower(percent)
        elif "between_percent" in given:
            low, high = given["between_percent"]
            words, holds = f"between {low} and {high} %", between(low, high)
        elif given.get("no_worse"):
            words, holds = "no worse than its interval", no_worse
        against = given["against"]
        base = against if isinstance(against, str) else tuple(against)
        return cls(ours, base, given["figure"], words, holds, given.get("published", "-"))

    def check(self, found: PairedComparison, setting: Setting) -> Check:
        """The band in one setting."""
        base = self.base if isinstance(self.base, str) else f"the best per seed of {'; '.join(self.base)}"

        def judge() -> tuple[str, bool | None]:
            change = found.difference(setting, self.ours, self.base, self.figure)
            return described(change), self.holds(change) if change.values else None

        named = self.figure if isinstance(self.figure, str) else self.figure.__name__
        what = f"{NAMES.get(self.figure, named)} against {base}"
        return check(setting.name, what, judge, self.words, self.published, "mean of the seeds")


# -- the experiment ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SideBySide(Experiment[Inputs]):
    """Every contender in one setting: means over seeds, one of them against each other one, and its bands."""

    name: str
    setting: Setting
    contenders: Mapping[str, Contender]
    ours: str
    ours_label: str
    bands: Sequence[Band] = ()
    columns: Mapping[Figure, str] = field(default_factory=lambda: COLUMNS)
    compared: Mapping[Figure, str] = field(default_factory=lambda: COMPARED)

    def runs(self, inputs: Inputs) -> Runs:
        del inputs
        return self.setting.runs(self.contenders)

    def judge(self, inputs: Inputs, outcomes: Outcomes) -> Part:
        del inputs
        found, others = PairedComparison(outcomes), [name for name in self.contenders if name != self.ours]
        checks = [band.check(found, self.setting) for band in self.bands] if self.setting.judged else []
        rows = [(base, *found.differences(self.setting, self.ours, base, self.compared)) for base in others]
        header = (f"{self.ours_label} against, %", *self.compared.values())
        gains = ResultTable(f"{self.name}: {self.ours_label} against the others", header, rows)
        return Part(checks, tables=[found.table(self.setting, self.contenders, self.columns), gains])
