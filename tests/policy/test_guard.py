"""The fair-share guard: nothing for jobs that have had their share, more the further a job is behind."""

from __future__ import annotations

import numpy as np
import pytest

from trine.policy.guard import FairShareGuard, fair_speed
from trine.policy.view import Floats

TWO = np.array([0, 1])


HALF = np.full(2, 0.5)
"""Speed of both jobs on the mean GPU, over that on their best type."""


def share(gpus: int = 4) -> Floats:
    """Of a single GPU and of a gang of four."""
    return fair_speed(HALF, np.array([1, 4]), gpus)


def after(seconds: float, guard: FairShareGuard) -> FairShareGuard:
    for now in (0.0, seconds):
        guard.advance(now, TWO, share())
    return guard


def weights(guard: FairShareGuard, *done_s: float, work_s: float = np.inf) -> Floats:
    """Of two jobs; work that is infinite is not known."""
    done, known = np.array(done_s), np.full(2, np.isfinite(work_s))
    return guard.weight(TWO, done, np.where(known, work_s - done, 1000.0), known, share())


def test_a_job_that_waits_gains_weight_and_one_with_its_share_does_not() -> None:
    """Four GPUs, two jobs: the single GPU is owed all of its time, the gang of four half of it."""
    guard = after(20_000.0, FairShareGuard())
    assert guard.owed(TWO).tolist() == [10_000.0, 5000.0]
    waiting, served = weights(guard, 0.0, 5000.0)
    assert waiting == pytest.approx(10_000 / 600)
    assert served == 1.0


def test_a_job_of_known_work_may_fall_behind_until_the_time_to_its_fair_end_gets_short() -> None:
    """One GPU for a job of one and a gang of four: the gang would need 16 times its work by its share."""
    crowded, guard = share(gpus=1), FairShareGuard()
    for now in (0.0, 160_000.0):
        guard.advance(now, TWO, crowded)
    assert guard.owed(TWO)[1] == 10_000.0

    def weight(work_s: float, known: bool) -> float:
        flags, done = np.full(2, known), np.zeros(2)
        return float(guard.weight(TWO, done, np.full(2, work_s), flags, crowded)[1])

    assert weight(100_000.0, known=True) == 1.0  # 1,440,000 s until then
    assert weight(11_000.0, known=True) == pytest.approx(4 * 11_000 / (16_000 + 600))
    assert weight(100_000.0, known=False) == pytest.approx(10_000 / 600)  # for all that is known its end may be near


def test_a_job_that_has_had_its_share_is_not_raised_however_close_its_fair_end_is() -> None:
    assert weights(after(100_000.0, FairShareGuard()), 50_000.0, 25_000.0, work_s=50_100.0).tolist() == [1.0, 1.0]


def test_a_job_past_its_fair_end_gains_weight_the_longer_it_waits() -> None:
    later, latest = (weights(after(s, FairShareGuard()), 0.0, 0.0, work_s=10_000.0)[1] for s in (50_000.0, 90_000.0))
    assert latest > later > weights(after(39_000.0, FairShareGuard()), 0.0, 0.0, work_s=10_000.0)[1] > 1.0


def test_without_exponent_there_is_no_guard() -> None:
    assert weights(after(20_000.0, FairShareGuard(0.0)), 0.0, 0.0).tolist() == [1.0, 1.0]


def test_it_goes_on_from_the_record() -> None:
    guard, other = after(20_000.0, FairShareGuard()), FairShareGuard()
    other.resume(guard.seen_s, {0: 10_000.0, 1: 5000.0})
    for one in (guard, other):
        one.advance(30_000.0, TWO, share())
    assert other.owed(TWO).tolist() == guard.owed(TWO).tolist() == [15_000.0, 7500.0]


def test_job_indices_beyond_what_was_seen_begin_at_nothing() -> None:
    assert FairShareGuard().owed(np.array([5, 100_000])).tolist() == [0.0, 0.0]
