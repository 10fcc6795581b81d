"""Several policies and placements side by side: means over seeds with intervals, paired differences, the headline, a
table as text. The page is in ``compare_page``, writing in ``files``.

Intervals are 95 % over the seeds. Those of figures that cannot be negative are Student's on the logarithm of the mean:
never below zero, and wide where few seeds are skewed; those of differences are plain Student's (design record 18).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from trine.assembly.registry import STICKY
from trine.core.result import Metric, RunResult, Summary, flat_results
from trine.report.text import count, median, share, time_unit, with_bounds

CONFIDENCE = 0.95
BEST_MARK = " *"

Contender = tuple[str, str]
"""Policy and placement."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One run: ``results`` is ``Summary.results()``, values by GPU type under ``KEY.TYPE``."""

    policy: str
    placement: str
    seed: int
    results: dict[str, Any]

    @classmethod
    def of(cls, summary: Summary) -> ComparisonRow:
        return cls(summary.policy, summary.placement, summary.seed, flat_results(summary.results()))


@dataclass(frozen=True)
class Comparison:
    """Rows in the order to be shown; the first row's policy and placement are the baseline.

    ``runs`` holds one whole run per policy and placement, as far as there are any: without them the report has no
    distributions, and without their segments no load over time and no map.
    """

    rows: list[ComparisonRow]
    runs: dict[Contender, RunResult] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    never_short: bool = False
    """In no run did a job wait for GPUs: each started in the first round after its submission and was never stopped."""

    @classmethod
    def of(cls, results: Iterable[RunResult], settings: dict[str, Any] | None = None) -> Comparison:
        """From whole runs: the first of each policy and placement represents it."""
        rows: list[ComparisonRow] = []
        runs: dict[Contender, RunResult] = {}
        notes: dict[str, None] = {}
        never_short = True
        for result in results:
            rows.append(ComparisonRow.of(result.summary))
            runs.setdefault((result.summary.policy, result.summary.placement), result)
            notes |= dict.fromkeys(result.notes)
            never_short = never_short and _never_short(result)
        return cls(rows, runs, settings or {}, list(notes), never_short and bool(rows))

    @property
    def contenders(self) -> list[Contender]:
        return list(dict.fromkeys((r.policy, r.placement) for r in self.rows))

    def rows_of(self, contender: Contender) -> list[ComparisonRow]:
        return [r for r in self.rows if (r.policy, r.placement) == contender]


def _never_short(result: RunResult) -> bool:
    """Every job started in the first round after its submission; in event-driven mode at once."""
    settings = result.settings.get("settings", {}).get("run", {})
    longest_s = 0.0 if settings.get("event_driven") else float(settings.get("round_s", 0.0))
    stops = result.summary.preemptions + result.summary.migrations
    return not stops and all(job.wait_s <= longest_s * (1 + 1e-9) for job in result.jobs)


_WRITTEN = {"jct": "JCT", "jain": "Jain", "gpu": "GPU", "cpu": "CPU"}
COMPARED = tuple(metric for metric in Summary.metrics() if metric.column)
METRICS = tuple(metric for metric in COMPARED if not metric.optional)
"""Compared in any case; the optional ones only where a run has them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds; ``half`` is half the width of Student's interval, ``None`` with fewer than two values."""

    mean: float
    half: float | None
    values: tuple[float, ...] = ()
    positive: bool = False
    """Of a figure that cannot be negative: the interval is that of the logarithm, ``mean`` times or over a factor."""
    at_most: float = math.inf
    """No value can be larger, nor the interval reach further."""

    @property
    def low(self) -> float | None:
        if self.half is None:
            return None
        return self.mean * math.exp(-self.half / self.mean) if self._on_logs else self.mean - self.half

    @property
    def high(self) -> float | None:
        if self.half is None:
            return None
        high = self.mean * math.exp(self.half / self.mean) if self._on_logs else self.mean + self.half
        return min(high, self.at_most)

    @property
    def _on_logs(self) -> bool:
        return self.positive and self.mean > 0

    @property
    def excludes_zero(self) -> bool:
        return self.half is not None and abs(self.mean) > self.half


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and half of Student's interval of ``values``; those that are no numbers are left out."""
    known = tuple(float(v) for v in values if math.isfinite(v))
    n = len(known)
    if n == 0:
        return Estimate(math.nan, None)
    if n == 1 or min(known) == max(known):
        # Exactly: a mean of equal values that is rounded would lie beside them, with an interval around it.
        return Estimate(known[0], None if n == 1 else 0.0, known)
    mean = math.fsum(known) / n
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in known) / (n - 1))
    return Estimate(mean, _student_t(n - 1) * deviation / math.sqrt(n), known)


def _student_t(degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))


def value_of(row: ComparisonRow, metric: Metric) -> float:
    """The metric of a run; NaN where no job finished, so that a run that did nothing cannot win."""
    value = row.results[metric.key]
    unknown = value is None or (metric.kind in ("duration", "share") and row.results.get("finished") == 0)
    return math.nan if unknown else float(value)


def metric_estimate(comparison: Comparison, contender: Contender, metric: Metric) -> Estimate:
    found = estimate([value_of(r, metric) for r in comparison.rows_of(contender)])
    return replace(found, positive=True, at_most=1.0 if metric.kind == "share" else math.inf)


def paired_difference(comparison: Comparison, contender: Contender, metric: Metric) -> Estimate | None:
    """Mean over seeds of contender minus baseline; ``None`` if the two did not run with the same seeds."""
    base, other = _by_seed(comparison, comparison.contenders[0], metric), _by_seed(comparison, contender, metric)
    if base is None or other is None or base.keys() != other.keys():
        return None
    return estimate([other[seed] - base[seed] for seed in base])


def _by_seed(comparison: Comparison, contender: Contender, metric: Metric) -> dict[int, float] | None:
    rows = comparison.rows_of(contender)
    values = {r.seed: value_of(r, metric) for r in rows}
    return values if len(values) == len(rows) else None


def best(estimates: Sequence[Estimate], metric: Metric) -> set[int]:
    """Positions of the best mean; none where there is nothing to choose between."""
    known = [e.mean for e in estimates if math.isfinite(e.mean)]
    if len(known) < 2 or min(known) == max(known):
        return set()
    goal = max(known) if metric.more_is_better else min(known)
    return {i for i, e in enumerate(estimates) if e.mean == goal}


@dataclass(frozen=True, slots=True)
class ColumnUnit:
    """The one unit of a column or an axis: what a value is divided by, its symbol and its plural."""

    scale: float
    symbol: str
    plural: str

    def write(self, e: Estimate) -> str:
        """Mean and interval in this unit, without its name: ``12.3 [9.8, 15.4]``."""
        low, high = (None if end is None else end / self.scale for end in (e.low, e.high))
        return with_bounds(e.mean / self.scale, low, high)

    def after(self, text: str) -> str:
        """``text`` with the unit behind it."""
        return f"{text} {self.symbol}".rstrip()


def column_unit(estimates: Sequence[Estimate], metric: Metric) -> ColumnUnit:
    """The unit that suits the middle value: one for the whole column, so that its numbers can be compared."""
    if metric.kind == "duration":
        unit = time_unit(median(abs(e.mean) for e in estimates))
        return ColumnUnit(unit.seconds, unit.symbol, unit.plural)
    return ColumnUnit(0.01, "%", "%") if metric.kind == "share" else ColumnUnit(1.0, "", "")


def column_title(title: str, unit: ColumnUnit) -> str:
    return f"{title} ({unit.symbol})" if unit.symbol else title


def columns_of(comparison: Comparison) -> dict[Metric, str]:
    """What is compared, with its short title; the cost only where GPUs have prices."""

    def known(metric: Metric) -> bool:
        return not metric.optional or any(row.results.get(metric.key, 0.0) > 0 for row in comparison.rows)

    return {metric: metric.column for metric in COMPARED if known(metric)}


def chosen_columns(comparison: Comparison, metrics: Sequence[Metric]) -> dict[Metric, str]:
    """As ``columns_of``, for these metrics and no others; one by GPU type has a column for each type."""
    single: list[Metric] = []
    for metric in metrics:
        keys = [key for key in comparison.rows[0].results if key.startswith(f"{metric.key}.")]
        single += [replace(metric, key=key, column=key) for key in keys] if metric.by_type else [metric]
    known = set(comparison.rows[0].results)
    return {metric: metric.column or _title_from_key(metric.key) for metric in single if metric.key in known}


def _title_from_key(key: str) -> str:
    """``jct_p95_s`` as ``JCT p95``: the unit of a column need not be that of the key."""
    words = key.removesuffix("_s").split("_")
    return " ".join(_WRITTEN.get(word, word) for word in words)


def comparison_table(comparison: Comparison, metrics: Sequence[Metric] = ()) -> list[tuple[str, ...]]:
    """A header and one line per policy and placement, as plain text; the best of each column ends in ``" *"``.

    ``metrics`` chooses the columns; without it, those that are compared in any case.
    """
    return comparison_tables([comparison], metrics)[0]


def comparison_tables(comparisons: Sequence[Comparison], metrics: Sequence[Metric] = ()) -> list[list[tuple[str, ...]]]:
    """The table of each comparison, with the same columns in the same units: their lines can stand in one table."""
    titles: dict[Metric, str] = {}
    for comparison in comparisons:
        titles |= chosen_columns(comparison, metrics) if metrics else columns_of(comparison)
    found = {m: [[metric_estimate(c, each, m) for each in c.contenders] for c in comparisons] for m in titles}
    units = {m: column_unit([e for estimates in found[m] for e in estimates], m) for m in titles}
    header = ("policy", "placement", "seeds", *(column_title(titles[m], units[m]) for m in titles))
    return [
        [header, *_lines(c, [_column(found[m][at], units[m], m) for m in titles])] for at, c in enumerate(comparisons)
    ]


def _column(estimates: Sequence[Estimate], unit: ColumnUnit, metric: Metric) -> list[str]:
    # Hours on one type or another are neither good nor bad.
    winners = set[int]() if metric.by_type else best(estimates, metric)
    return [unit.write(e) + (BEST_MARK if i in winners else "") for i, e in enumerate(estimates)]


def _lines(comparison: Comparison, columns: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return [
        (*map(label, contender), str(len(comparison.rows_of(contender))), *(column[i] for column in columns))
        for i, contender in enumerate(comparison.contenders)
    ]


# -- names and the headline --------------------------------------------------------------------------------------------


def label(name: str) -> str:
    """What a policy or placement is called where people read: a file of one's own by its name, not by its path."""
    path, _, wrapper = name.rpartition(".py")
    return f"{PurePath(path).name}{wrapper}" if path and wrapper in ("", STICKY) else name


def name_of(contender: Contender) -> str:
    return f"{label(contender[0])}/{label(contender[1])}"


def names_of(comparison: Comparison) -> dict[Contender, str]:
    """Short where they can be: what all contenders have in common is not repeated."""
    contenders = comparison.contenders
    for part, other in ((0, 1), (1, 0)):
        names = [label(c[part]) for c in contenders]
        if len(contenders) > 1 and len({c[other] for c in contenders}) == 1 and len(set(names)) == len(names):
            return dict(zip(contenders, names, strict=True))
    full = [name_of(c) for c in contenders]
    if len(set(full)) < len(full):  # two files of one name: the paths tell them apart
        full = ["/".join(c) for c in contenders]
    return dict(zip(contenders, full, strict=True))


def headline(comparison: Comparison) -> str:
    """The combination with the shortest mean completion time, and by how much; or that there is no difference."""
    contenders, metric, names = comparison.contenders, METRICS[0], names_of(comparison)
    means = [metric_estimate(comparison, c, metric).mean for c in contenders]
    known = [(m, i) for i, m in enumerate(means) if math.isfinite(m)]
    if len(contenders) == 1 or not known:
        return f"Comparison: {name_of(contenders[0])}"
    if no_difference(comparison):
        return _no_difference_sentence(comparison)
    mean, winner = min(known)
    shortest = _as_in_the_table(comparison, winner, metric)
    equal = [names[contenders[i]] for m, i in known if m == mean]
    if len(equal) > 1:
        return f"{' and '.join(equal)} have the same mean completion time, {shortest}, the shortest"
    head = f"{names[contenders[winner]]} has the shortest mean completion time, {shortest}"
    if winner == 0 or not means[0] > 0:
        return head
    difference = paired_difference(comparison, contenders[winner], metric)
    unsure = difference is not None and difference.half is not None and not difference.excludes_zero
    doubt = ", which may be chance" if unsure else ""
    gain = 1 - mean / means[0]
    less = share(gain) if gain >= 0.0005 else "less than 0.1 %"
    return f"{head}: {less} below {names[contenders[0]]}{doubt}"


def _as_in_the_table(comparison: Comparison, at: int, metric: Metric) -> str:
    """A mean in the unit and with the digits of its column, so that readers find the figure there."""
    estimates = [metric_estimate(comparison, c, metric) for c in comparison.contenders]
    unit = column_unit(estimates, metric)
    return unit.after(unit.write(estimates[at]).partition(" [")[0])


def no_difference(comparison: Comparison) -> bool:
    """All combinations have the same figures, seed by seed."""
    metrics = columns_of(comparison)
    seen = [
        {tuple(sorted((r.seed, r.results[m.key]) for r in comparison.rows_of(c))) for c in comparison.contenders}
        for m in metrics
    ]
    return len(comparison.contenders) > 1 and all(len(values) == 1 for values in seen)


def _no_difference_sentence(comparison: Comparison) -> str:
    used = [float(row.results["utilization"]) for row in comparison.rows]
    jobs = f"the {count(len(comparison.contenders), 'combination')} give the same results"
    if not comparison.never_short:
        return f"No difference: {jobs}"
    return f"No difference: GPUs were never short ({share(sum(used) / len(used))} of their time was used); {jobs}"


def as_dict(comparison: Comparison, metrics: Sequence[Metric] = ()) -> dict[str, Any]:
    """``compare.json``: every run, the means with their intervals, the differences to the baseline.

    ``metrics`` chooses of what there are means and differences; without it, of what is compared in any case.
    """
    compared = list(chosen_columns(comparison, metrics) if metrics else columns_of(comparison))
    return {
        "confidence": CONFIDENCE,
        "baseline": _names(comparison.contenders[0]),
        "means": [_means(comparison, c, compared) for c in comparison.contenders],
        "headline": headline(comparison),
        "differences": [_differences(comparison, c, compared) for c in comparison.contenders[1:]],
        "runs": [{**r.results, "policy": r.policy, "placement": r.placement, "seed": r.seed} for r in comparison.rows],
        "settings": comparison.settings,
        "notes": comparison.notes,
    }


def _names(contender: Contender) -> dict[str, str]:
    return {"policy": contender[0], "placement": contender[1]}


def _means(comparison: Comparison, contender: Contender, metrics: Sequence[Metric]) -> dict[str, Any]:
    seeds = [r.seed for r in comparison.rows_of(contender)]
    values = {m.key: _interval(metric_estimate(comparison, contender, m)) for m in metrics}
    return {**_names(contender), "seeds": seeds, **values}


def _differences(comparison: Comparison, contender: Contender, metrics: Sequence[Metric]) -> dict[str, Any]:
    found = {m.key: paired_difference(comparison, contender, m) for m in metrics}
    return {**_names(contender), **{k: None if d is None else _interval(d) for k, d in found.items()}}


def _interval(e: Estimate) -> dict[str, float | None]:
    return {"mean": e.mean, "low": e.low, "high": e.high}
