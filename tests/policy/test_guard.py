"""The fair-share guard: nothing for jobs that have had their share, more the further a job is behind."""

from __future__ import annotations

import numpy as np
import pytest

from trine.policy.guard import FairShareGuard
from trine.policy.view import Floats

TWO = np.array([0, 1])


def after(seconds: float, guard: FairShareGuard, mean_speed: float = 0.5, gpus: int = 4) -> FairShareGuard:
    for now in (0.0, seconds):
        guard.advance(now, TWO, np.full(2, mean_speed), np.array([1, 4]), gpus)
    return guard


def weights(guard: FairShareGuard, *done_s: float, work_s: float = np.inf) -> Floats:
    return guard.weight(TWO, np.array(done_s), np.full(2, work_s))


def test_a_job_that_waits_gains_weight_and_one_with_its_share_does_not() -> None:
    """Four GPUs, two jobs: the single GPU is owed all of its time, the gang of four half of it."""
    guard = after(20_000.0, FairShareGuard())
    assert guard.owed(TWO).tolist() == [10_000.0, 5000.0]
    waiting, served = weights(guard, 0.0, 5000.0)
    assert waiting == pytest.approx(10_000 / 600)
    assert served == 1.0


def test_no_job_is_owed_more_than_its_work() -> None:
    assert weights(after(20_000.0, FairShareGuard()), 0.0, 0.0, work_s=600.0).tolist() == [1.0, 1.0]


def test_without_exponent_there_is_no_guard() -> None:
    assert weights(after(20_000.0, FairShareGuard(0.0)), 0.0, 0.0).tolist() == [1.0, 1.0]


def test_it_goes_on_from_the_record() -> None:
    guard, other = after(20_000.0, FairShareGuard()), FairShareGuard()
    other.resume(guard.seen_s, {0: 10_000.0, 1: 5000.0})
    for one in (guard, other):
        one.advance(30_000.0, TWO, np.full(2, 0.5), np.array([1, 4]), 4)
    assert other.owed(TWO).tolist() == guard.owed(TWO).tolist() == [15_000.0, 7500.0]


def test_job_indices_beyond_what_was_seen_begin_at_nothing() -> None:
    assert FairShareGuard().owed(np.array([5, 100_000])).tolist() == [0.0, 0.0]
