"""Several policies and placements side by side: means over seeds with intervals, paired differences, a table as text.

Statistics only; the page is in ``compare_page``, writing in ``files``. Intervals are 95 % and use Student's t over the
seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trine.core.result import Metric, RunResult, Summary, flat_results
from trine.report.text import MISSING, duration_with_interval, median, time_unit, with_interval

CONFIDENCE = 0.95
BEST_MARK = " *"
_FAR_APART = 200.0

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

    @classmethod
    def of(cls, results: Iterable[RunResult], settings: dict[str, Any] | None = None) -> Comparison:
        """From whole runs: the first of each policy and placement represents it."""
        rows: list[ComparisonRow] = []
        runs: dict[Contender, RunResult] = {}
        notes: dict[str, None] = {}
        for result in results:
            rows.append(ComparisonRow.of(result.summary))
            runs.setdefault((result.summary.policy, result.summary.placement), result)
            notes |= dict.fromkeys(result.notes)
        return cls(rows, runs, settings or {}, list(notes))

    @property
    def contenders(self) -> list[Contender]:
        return list(dict.fromkeys((r.policy, r.placement) for r in self.rows))

    def rows_of(self, contender: Contender) -> list[ComparisonRow]:
        return [r for r in self.rows if (r.policy, r.placement) == contender]


COMPARED = tuple(metric for metric in Summary.metrics() if metric.column)
METRICS = tuple(metric for metric in COMPARED if not metric.optional)
"""Compared in any case; the optional ones only where a run has them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds; ``half`` is half the width of its interval, ``None`` with fewer than two values."""

    mean: float
    half: float | None
    values: tuple[float, ...] = ()

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half

    @property
    def excludes_zero(self) -> bool:
        return self.half is not None and abs(self.mean) > self.half


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and half interval of ``values``; those that are no numbers are left out."""
    known = tuple(float(v) for v in values if math.isfinite(v))
    n = len(known)
    if n == 0:
        return Estimate(math.nan, None)
    mean = math.fsum(known) / n
    if n == 1:
        return Estimate(mean, None, known)
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
    return estimate([value_of(r, metric) for r in comparison.rows_of(contender)])


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


def formatter(estimates: Sequence[Estimate], metric: Metric) -> Callable[[Estimate], str]:
    """How to write the values of one column: in one unit, to compare at a glance, unless they lie far apart."""
    if metric.kind == "duration":
        means = [abs(e.mean) for e in estimates if math.isfinite(e.mean)]
        far_apart = max(means, default=0.0) > _FAR_APART * min(means, default=0.0)
        unit = None if far_apart else time_unit(median(means))
        return lambda e: duration_with_interval(e.mean, e.half, unit)
    if metric.kind == "share":
        return _percent
    return lambda e: with_interval(e.mean, e.half)


def _percent(e: Estimate) -> str:
    text = with_interval(100 * e.mean, None if e.half is None else 100 * e.half)
    return text if text == MISSING else f"{text} %"


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
    return {metric: metric.column or metric.key for metric in single if metric.key in known}


def comparison_table(comparison: Comparison, metrics: Sequence[Metric] = ()) -> list[tuple[str, ...]]:
    """A header and one line per policy and placement, as plain text; the best of each column ends in ``" *"``.

    ``metrics`` chooses the columns; without it, those that are compared in any case.
    """
    contenders = comparison.contenders
    titles = chosen_columns(comparison, metrics) if metrics else columns_of(comparison)
    columns = []
    for metric in titles:
        estimates = [metric_estimate(comparison, c, metric) for c in contenders]
        # Hours on one type or another are neither good nor bad.
        write, winners = formatter(estimates, metric), set[int]() if metric.by_type else best(estimates, metric)
        columns.append([write(e) + (BEST_MARK if i in winners else "") for i, e in enumerate(estimates)])
    header = ("policy", "placement", "seeds", *titles.values())
    lines = [
        (*contender, str(len(comparison.rows_of(contender))), *(column[i] for column in columns))
        for i, contender in enumerate(contenders)
    ]
    return [header, *lines]


def as_dict(comparison: Comparison, metrics: Sequence[Metric] = ()) -> dict[str, Any]:
    """``compare.json``: every run, the means with their intervals, the differences to the baseline.

    ``metrics`` chooses of what there are means and differences; without it, of what is compared in any case.
    """
    compared = list(chosen_columns(comparison, metrics) if metrics else columns_of(comparison))
    return {
        "confidence": CONFIDENCE,
        "baseline": _names(comparison.contenders[0]),
        "means": [_means(comparison, c, compared) for c in comparison.contenders],
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
