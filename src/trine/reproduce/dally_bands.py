"""Tables of a scenario by policy, and what is held of tuned timers against the others: paired, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trine.report.compare import Estimate, estimate
from trine.report.text import number, with_interval
from trine.reproduce.checks import Check
from trine.reproduce.dally_runs import ALWAYS, AUTO, CONTENDERS, NO_WAIT, SKEW, Figures
from trine.reproduce.dally_settings import Setting
from trine.reproduce.panels import Table

Results = Mapping[tuple[str, str, int], Figures]
"""By scenario, policy and seed."""

COLUMNS: dict[str, str] = {
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
COMPARED = {
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


def values_of(results: Results, setting: Setting, contender: str, key: str) -> list[float]:
    """One figure by seed."""
    return [float(getattr(results[setting.name, contender, seed], key)) for seed in setting.seeds]


def mean_of(results: Results, setting: Setting, contender: str, key: str) -> float:
    return estimate(values_of(results, setting, contender, key)).mean


def difference(ours: Sequence[float], base: Sequence[float]) -> Estimate:
    """Percent by which ``ours`` is higher, seed by seed; seeds in which the base has nothing are left out."""
    return estimate([100 * (a / b - 1) for a, b in zip(ours, base, strict=True) if b > 0])


def compared(results: Results, setting: Setting, ours: str, base: str, key: str) -> Estimate:
    return difference(values_of(results, setting, ours, key), values_of(results, setting, base, key))


def told(found: Estimate) -> str:
    """Mean with interval, the best seed, and whether the sign is certain."""
    if not found.values:
        return "nothing to compare"
    certain = "" if found.excludes_zero else ", interval includes 0"
    return f"{with_interval(found.mean, found.half)} %, best {min(found.values):.0f} %{certain}"


# -- tables --------------------------------------------------------------------------------------------------------


def table_of(results: Results, setting: Setting) -> Table:
    """One line per policy, means over seeds."""
    rows = [(name, *_cells(results, setting, name)) for name in CONTENDERS]
    header = ("mean over seeds", *COLUMNS.values(), "gangs in node/rack/network %")
    return Table(f"{setting.name}, {setting.cluster}, {len(setting.traces)} seeds", header, rows)


def _cells(results: Results, setting: Setting, name: str) -> list[str]:
    found = {key: estimate(values_of(results, setting, name, key)) for key in COLUMNS}
    cells = [
        f"{e.mean:.0%}" if key == "utilization" else with_interval(e.mean, e.half if key in WITH_INTERVAL else None)
        for key, e in found.items()
    ]
    tiers = zip(*(results[setting.name, name, seed].tiers for seed in setting.seeds), strict=True)
    return [*cells, "/".join(number(100 * sum(shares) / len(shares), 2) for shares in tiers)]


def gains_of(results: Results, setting: Setting) -> Table:
    """Tuned timers against every other policy: percent, negative is lower, 95 % interval of the paired difference."""
    rows = [
        (base, *(_short(compared(results, setting, AUTO, base, key)) for key in COMPARED))
        for base in CONTENDERS
        if base != AUTO
    ]
    header = ("tuned timers against, %", *COMPARED.values())
    return Table(f"{setting.name}: tuned timers against the others", header, rows)


def without_embeddings_of(results: Results, settings: Sequence[Setting]) -> Table:
    """How much of the gain over Tiresias is left without the model that suffers most from being spread."""
    rows = [
        (f"{s.name}: against {base}", *(_short(compared(results, s, AUTO, base, key)) for key in COMPARED))
        for s in settings
        for base in (SKEW, ALWAYS)
    ]
    return Table("Without embedding models: tuned timers, %", ("scenario", *COMPARED.values()), rows)


def _short(found: Estimate) -> str:
    return with_interval(found.mean, found.half) if found.values else "-"


# -- bands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Band:
    """What is held of one figure against one policy."""

    base: str
    key: str
    words: str
    holds: Callable[[Estimate], bool]
    published: str = "-"


def at_least_lower(percent: float) -> Callable[[Estimate], bool]:
    return lambda found: found.mean <= -percent


def lower(found: Estimate) -> bool:
    return found.mean < 0


def no_worse(found: Estimate) -> bool:
    """Lower, or higher by no more than its interval."""
    return found.mean <= (found.half or 0.0)


def bands(figures: dict[str, Any]) -> list[Band]:
    """All that is held where the network is congested."""
    least, claims = figures["bands"]["skew"], figures["published"]
    published = {
        "makespan_h": f"up to {claims['makespan_percent']} % lower, {claims['makespan_mean_percent']} % mean (v2)",
        "jct_h": f"up to {claims['jct_percent']} % lower",
        "comm_node_h": f"up to {claims['communication_percent']} % lower (all jobs)",
    }
    return [
        *(Band(SKEW, k, f"at least {x} % lower", at_least_lower(x), published[k]) for k, x in least.items()),
        Band(ALWAYS, "jct_h", "lower", lower),
        Band(ALWAYS, "wait_p95_h", "lower", lower),
        Band(ALWAYS, "makespan_h", "no worse than its interval", no_worse),
        *(Band(NO_WAIT, key, "lower", lower) for key in ("makespan_h", "jct_h", "wait_p95_h", "comm_h")),
    ]


def check(band: Band, results: Results, setting: Setting) -> Check:
    """The band in one scenario."""
    found = compared(results, setting, AUTO, band.base, band.key)
    held = band.holds(found) if found.values else None
    what = f"{COMPARED[band.key]} against {band.base}"
    return Check(setting.name, what, told(found), band.words, band.published, held, "mean of the seeds")
