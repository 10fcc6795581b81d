from __future__ import annotations

import math

import pytest

from trine.report.text import (
    count,
    duration,
    log_ticks,
    number,
    share,
    times,
    with_bounds,
    with_interval,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.5, "0.5 s"),
        (45, "45 s"),
        (2160, "36 min"),
        (4320, "1.2 h"),
        (36 * 3600, "36 h"),
        (12 * 86400, "12 d"),
        (1234 * 86400, "1,234 d"),
        (math.nan, "–"),
        (-4320, "-1.2 h"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.785, "78 %"), (0.999, "99.9 %"), (0.004, "0.4 %"), (0, "0 %"), (1, "100 %"), (math.nan, "–")],
)
def test_shares_near_the_ends_keep_a_digit(fraction: float, text: str) -> None:
    assert share(fraction) == text


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (12.345, 0.42, "12.35 ± 0.42"),
        (1234.5, 56.0, "1,234 ± 56"),
        (78.0, 0.0, "78 ± 0"),
        (1.5, None, "1.5"),
        (math.nan, None, "–"),
    ],
)
def test_the_interval_decides_the_decimals(mean: float, half: float | None, text: str) -> None:
    assert with_interval(mean, half) == text


def test_a_duration_and_its_interval_share_one_unit() -> None:
    assert with_bounds(1.2, 1.15, 1.25) == "1.200 [1.150, 1.250]"
    assert with_bounds(28.0, 3.3, 245.0) == "28 [3, 245]", "no more decimals than the nearer end warrants"
    assert with_bounds(0.0, 0.0, 0.0) == "0"
    assert with_bounds(12.345, None, None) == "12.3"


def test_small_words() -> None:
    assert (count(1, "job"), count(1204, "job")) == ("1 job", "1,204 jobs")
    assert (times(3.24), times(math.inf)) == ("3.2×", "–")
    assert (number(0.5678), number(1234567), number(0)) == ("0.568", "1,234,567", "0")


def test_log_marks_get_sparser_over_many_decades() -> None:
    dense, sparse = log_ticks(60, 3600), log_ticks(1, 1e7)
    assert (10800.0, "3 h") in dense
    assert (10800.0, "3 h") not in sparse
    assert [s for s, _ in dense] == sorted(s for s, _ in dense)
