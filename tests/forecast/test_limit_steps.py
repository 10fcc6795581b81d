"""Limits that are far above the next smaller one: how much longer jobs with them are, by their number."""

import numpy as np
import pytest

from trine.forecast.limit_steps import LimitSteps

_PROPORTIONS = (np.arange(50) + 0.5) / 50
_WIDE_STEPS = np.log(13.0) / np.log(2.0)
"""Usual steps of 2 in one of 13, as from four weeks to a year."""


def _mean_proportion(steps: LimitSteps) -> float:
    likely = np.exp(steps.log_likelihood(_PROPORTIONS))
    return float(likely @ _PROPORTIONS / likely.sum())


def _limits_of(requests: np.ndarray, limits: np.ndarray) -> LimitSteps:
    """Jobs that ask for the smallest limit that is enough."""
    numbers = np.bincount(np.searchsorted(limits, requests), minlength=len(limits))
    return LimitSteps(dict(zip(limits.tolist(), numbers.tolist(), strict=True)))


@pytest.mark.parametrize("decay", [0.3, 0.7, 1.5])
def test_the_number_of_jobs_tells_how_far_their_lengths_go(decay: float) -> None:
    """What jobs need is drawn with a density that falls by ``decay`` from one power of two to the next."""
    limits = np.append(2.0 ** np.arange(1, 5), 13.0 * 2.0**4)
    steps = np.random.default_rng(3).exponential(1.0 / decay, 40_000)
    steps = steps[steps < np.log2(limits[-1])]
    in_usual, in_wide = (steps[np.floor(steps) == 3] - 3.0).mean(), (steps[steps > 4.0] - 4.0).mean()
    expected = (in_wide - in_usual) / (_WIDE_STEPS - 1.0)
    assert _mean_proportion(_limits_of(2.0**steps, limits)) == pytest.approx(expected, abs=0.05)


def test_few_jobs_with_such_a_limit_say_that_they_are_little_longer_and_many_that_they_are() -> None:
    usual = {3600.0 * hours: 40 for hours in (1, 2, 4, 8, 16)}
    few, as_many, many = (_mean_proportion(LimitSteps(usual | {3600.0 * 160: jobs})) for jobs in (2, 40, 400))
    assert few < 0.2 < as_many < 0.5 < many


def test_without_a_wide_step_there_is_nothing_to_tell() -> None:
    for limits in ({}, {60.0: 5}, {60.0: 5, 120.0: 3, 240.0: 1}):
        assert not LimitSteps(limits).log_likelihood(_PROPORTIONS).any()


def test_limits_that_are_close_together_count_as_one_and_leave_no_wide_step() -> None:
    """Where users choose any number of minutes, steps are narrow, and a gap of a quarter is one of them."""
    minutes = {60.0 * at: 1 for at in range(100, 120)} | {60.0 * 150: 1}
    steps = LimitSteps(minutes)
    assert steps.excess(60.0 * 150) == 1.0 and not steps.log_likelihood(_PROPORTIONS).any()


def test_a_limit_is_as_much_smaller_as_its_step_is_wider_than_the_usual_one() -> None:
    steps = LimitSteps({1.0: 10, 2.0: 10, 4.0: 10, 40.0: 10})
    assert steps.excess(40.0) == pytest.approx(2.0 * 4.0 / 40.0)
    assert steps.excess(4.0) == steps.excess(1.0) == 1.0
    assert steps.excess(400.0) == pytest.approx(2.0 * 40.0 / 400.0)  # of a job whose limit none that ran had
