"""Work left, learned from history: what the estimate must say of distributions whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from trine.policy.remaining import WorkDistribution, shrunk


def learned(work_s: list[float], running_s: list[float] | None = None) -> WorkDistribution:
    found = WorkDistribution()
    for seconds in work_s:
        found.add(seconds)
    found.fit(np.array(running_s or []))
    return found


def left(found: WorkDistribution, *done_s: float) -> list[float]:
    answer: list[float] = found.left_s(np.array(done_s)).tolist()
    return answer


def test_without_history_a_job_is_expected_to_take_as_long_again() -> None:
    """The prior is heavy-tailed: the longer a job has run, the more is left of it."""
    estimates = left(WorkDistribution(), 0.0, 600.0, 3600.0, 36_000.0, 360_000.0)
    assert estimates == sorted(estimates)
    assert estimates[-1] > 100_000


def test_equal_jobs_have_less_left_the_further_they_are() -> None:
    """Where all jobs take eight hours, none is stopped for an equal one that has just arrived."""
    found = learned([8 * 3600.0] * 2000)
    fresh, half, nearly = left(found, 0.0, 4 * 3600.0, 7.2 * 3600.0)
    assert fresh > half > nearly
    assert fresh == pytest.approx(8 * 3600.0, rel=0.15)


def test_two_kinds_of_jobs_are_told_apart_by_their_age() -> None:
    """Nine of ten take five minutes, the others ten hours: past five minutes a job is one of the long ones."""
    found = learned([300.0] * 1800 + [36_000.0] * 200)
    fresh, old = left(found, 0.0, 1000.0)
    assert fresh < 600
    assert old > 20_000


def test_running_jobs_count_as_survivors() -> None:
    """Jobs that are still running passed the bins they passed: without them long jobs look rarer than they are."""
    ended, running = [300.0] * 50, [40_000.0] * 50
    assert left(learned(ended, running), 1000.0)[0] > left(learned(ended), 1000.0)[0]
    assert left(learned(ended, running), 0.0)[0] > left(learned(ended), 0.0)[0]


def test_the_record_gives_the_same_estimates() -> None:
    one = learned([120.0, 5000.0, 5100.0, 90_000.0])
    other = WorkDistribution()
    other.restore(one.ended)
    other.fit(np.zeros(0))
    assert left(other, 0.0, 4000.0, 80_000.0) == left(one, 0.0, 4000.0, 80_000.0)


def of_two_users(short: int, long: int) -> WorkDistribution:
    """One user's jobs take five minutes, the other's ten hours; all are of one GPU."""
    found = WorkDistribution()
    for user, count, work_s in (("ann", short, 300.0), ("bob", long, 36_000.0)):
        for _ in range(count):
            found.add(work_s, found.row_of(("gpus 1", f"user {user}")))
    found.fit(np.zeros(0))
    return found


def left_of(found: WorkDistribution, *job_set: str) -> float:
    return float(found.left_s(np.zeros(1), np.array([found.row_of(job_set)]))[0])


def test_a_user_whose_jobs_were_short_is_expected_to_submit_short_ones() -> None:
    found = of_two_users(200, 200)
    assert left_of(found, "gpus 1", "user ann") < 450
    assert left_of(found, "gpus 1", "user bob") > 10_000


def test_a_set_of_which_little_is_known_is_taken_for_like_the_larger_one() -> None:
    found = of_two_users(200, 200)
    assert left_of(found, "gpus 1", "user new") == left_of(found, "gpus 1")
    one_job, all_jobs = left_of(of_two_users(400, 1), "gpus 1", "user bob"), left_of(of_two_users(400, 1))
    assert one_job == pytest.approx(all_jobs, rel=0.5)


def test_what_one_user_submits_makes_the_table_no_longer_than_its_limit() -> None:
    found = WorkDistribution()
    rows = {found.row_of((f"gpus {i}",)) for i in range(5000)}
    assert len(rows) <= 1000
    assert found.row_of(("gpus 4999", "user ann")) == 0, "a set that has no room counts as the one around it"


def test_the_record_keeps_the_sets() -> None:
    one, other = of_two_users(50, 50), WorkDistribution()
    other.restore(one.ended)
    other.fit(np.zeros(0))
    for user in ("ann", "bob"):
        assert left_of(other, "gpus 1", f"user {user}") == left_of(one, "gpus 1", f"user {user}")


def test_guesses_count_less_the_further_they_are_from_the_middle_one() -> None:
    guesses = np.array([60.0, 600.0, 3_600.0, 36_000.0, 576_000.0])
    counted = shrunk(guesses)
    assert counted[2] == 3_600.0
    assert (np.diff(counted) > 0).all(), "their order stays"
    assert counted[4] / counted[3] == pytest.approx(8.0), "sixteen times as long, by three quarters of the logarithm"
    assert (counted[:2] > guesses[:2]).all()
    assert (counted[3:] < guesses[3:]).all()
    assert shrunk(np.array([77.0])).tolist() == [77.0]
