"""Intervals of figures that cannot be negative: never below zero, and they hold the mean about as often as they say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.report.interval_coverage import coverage
from tests.report.test_compare import rows_with
from trine.core.result import Summary
from trine.report.compare import column_unit, estimate, metric_estimate

MEAN_JCT = next(m for m in Summary.metrics() if m.key == "jct_mean_s")


def test_a_skewed_figure_has_an_interval_above_zero() -> None:
    found = replace(estimate([40.0, 73.0, 700.0]), positive=True)
    assert found.half is not None
    assert found.mean < found.half, "Student's interval would begin below zero"
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < found.mean < found.high
    assert found.low * found.high == pytest.approx(found.mean**2), "a factor down, the same factor up"


def test_values_that_agree_have_the_interval_of_student() -> None:
    plain, positive = estimate([99.0, 100.0, 101.0]), replace(estimate([99.0, 100.0, 101.0]), positive=True)
    assert positive.low == pytest.approx(plain.low, rel=1e-3)
    assert positive.high == pytest.approx(plain.high, rel=1e-3)


def test_a_share_does_not_exceed_one() -> None:
    used = next(m for m in Summary.metrics() if m.key == "utilization")
    comparison = rows_with({("a", 0): 1.0, ("a", 1): 1.0})
    rows = [
        replace(r, results={**r.results, "utilization": v}) for r, v in zip(comparison.rows, (0.7, 0.9), strict=True)
    ]
    assert metric_estimate(replace(comparison, rows=rows), ("a", "packed"), used).high == 1.0


@pytest.mark.parametrize(("seeds", "least"), [(3, 0.90), (5, 0.87)])
def test_with_few_skewed_seeds_the_interval_holds_the_mean_more_often_than_others(seeds: int, least: float) -> None:
    found = coverage(np.random.default_rng(7), seeds, spread=1.0, samples=4000)
    assert found["log"] >= least
    assert found["log"] > found["student"]
    assert found["log"] > found["bootstrap"] + 0.1


def test_a_column_has_one_unit_however_far_its_values_lie_apart() -> None:
    estimates = [estimate([v]) for v in (30.0, 7200.0, 90 * 86400.0)]
    unit = column_unit(estimates, MEAN_JCT)
    assert unit.symbol == "h"
    assert [unit.write(e) for e in estimates] == ["0.00833", "2", "2,160"]
    assert math.isclose(unit.scale, 3600.0)
