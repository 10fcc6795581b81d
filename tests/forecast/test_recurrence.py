"""Jobs that repeat earlier ones of their user: what is learned of them, and what it means for draws of lengths."""

import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from trine.core.job import Job
from trine.forecast.leave_one_out import LeaveOneOut
from trine.forecast.recurrence import Recurrence
from trine.forecast.work_history import KnownJob, WorkHistory
from trine.policy.view import Floats

HOUR_S = 3600.0
PAST, SWEEP = 600, 20


def _ended(lengths_s: Sequence[float], user: str = "ann") -> list[KnownJob]:
    return [
        KnownJob(Job(f"{user}{i}", float(i), 1, 1.0, user=user), length_s, True) for i, length_s in enumerate(lengths_s)
    ]


def _open(
    count: int, work_s: float = 0.0, limit_s: float = math.inf, user: str = "ann", from_s: float = 1e6
) -> list[KnownJob]:
    """Jobs that wait, or run for so long."""
    jobs = [Job(f"{user}-{from_s + i}", from_s + i, 1, 1.0, user=user) for i in range(count)]
    return [KnownJob(job, work_s, False, limit_s=limit_s) for job in jobs]


def _sweeps_s(seed: int, last_s: float | None = None) -> list[float]:
    """Lengths of the jobs of one user: sweeps of jobs alike to 2 %, the last one of ``last_s``."""
    rng = np.random.default_rng(seed)
    centres = np.exp(rng.normal(math.log(HOUR_S), 1.5, PAST // SWEEP))
    if last_s is not None:
        centres[-1] = last_s
    return [float(s) for s in np.repeat(centres, SWEEP) * np.exp(rng.normal(0.0, 0.02, PAST))]


def _learned(known: list[KnownJob]) -> Recurrence:
    jobs = sorted(known, key=lambda each: each.job.submit_s, reverse=True)
    history = WorkHistory(jobs)
    return Recurrence(history, jobs, LeaveOneOut(history, jobs).densities)


def _draws_s(found: Recurrence, still_open: int, own_s: float | Floats = 50 * HOUR_S, draws: int = 60) -> Floats:
    """Lengths of the latest jobs, oldest first, in each draw; ``own_s``: of those that repeat no other."""
    positions, own = np.arange(still_open)[::-1], np.broadcast_to(own_s, still_open)
    return np.array([found.totals_s(positions, own, np.random.default_rng(n)) for n in range(draws)])


def test_independent_lengths_are_not_taken_for_repetitions() -> None:
    lengths_s = HOUR_S * np.exp(np.random.default_rng(3).normal(0.0, 1.5, PAST))
    found = _learned(_ended(lengths_s.tolist()) + _open(5))
    assert found.weights[0] == 1.0
    assert not found.chances.any()
    assert (_draws_s(found, 5) == 50 * HOUR_S).all()


def test_few_jobs_are_no_evidence() -> None:
    found = _learned(_ended([HOUR_S, HOUR_S, HOUR_S]) + _open(2))
    assert (_draws_s(found, 2) == 50 * HOUR_S).all()


def test_jobs_that_follow_a_sweep_take_as_long_as_it_did() -> None:
    found = _learned(_ended(_sweeps_s(4, last_s=3 * HOUR_S)) + _open(10))
    drawn = _draws_s(found, 10)
    like_the_sweep = np.abs(np.log(drawn[:, 0] / (3 * HOUR_S))) < 0.1
    assert like_the_sweep.mean() > 0.7
    assert found.chances[10 : PAST // 2].mean() > 0.8


def test_a_new_sweep_may_begin_with_any_job() -> None:
    """The further down the queue, the less sure it is that jobs are of the sweep that ran last."""
    found = _learned(_ended(_sweeps_s(4, last_s=3 * HOUR_S)) + _open(100))
    like_the_sweep = np.abs(np.log(_draws_s(found, 100) / (3 * HOUR_S))) < 0.1
    assert like_the_sweep[:, -10:].mean() < like_the_sweep[:, :10].mean() - 0.1


def test_waiting_jobs_are_as_long_as_the_running_ones_that_they_repeat() -> None:
    """In a draw, not only on average: the work of a queue is as uncertain as the length of its sweep."""
    beyond_all_s = 2 * max(_sweeps_s(5))
    running = _open(SWEEP, work_s=beyond_all_s, from_s=9e5)
    found = _learned(_ended(_sweeps_s(5)) + running + _open(10))
    drawn = np.log(_draws_s(found, SWEEP + 10, own_s=np.geomspace(1.1, 3.0, SWEEP + 10) * beyond_all_s))
    of_running, of_waiting = drawn[:, SWEEP - 5 : SWEEP].mean(axis=1), drawn[:, SWEEP : SWEEP + 5].mean(axis=1)
    assert (drawn[:, :SWEEP] > math.log(beyond_all_s)).all()
    assert np.mean(np.abs(of_waiting - of_running) < 0.2) > 0.6


def test_no_job_is_drawn_above_its_limit_or_below_what_it_has_done() -> None:
    past = _ended(_sweeps_s(6, last_s=3 * HOUR_S))
    limited = _open(5, limit_s=2 * HOUR_S, from_s=2e6)
    running = _open(5, work_s=4 * HOUR_S, from_s=1e6)
    drawn = _draws_s(_learned(past + running + limited), 10)
    assert (drawn[:, 5:] <= 2 * HOUR_S).all()
    assert (drawn[:, :5] > 4 * HOUR_S).all()


def test_jobs_repeat_those_of_their_own_user() -> None:
    past = _ended(_sweeps_s(7, last_s=3 * HOUR_S)) + _ended(_sweeps_s(8, last_s=HOUR_S / 4), user="bob")
    found = _learned(past + _open(5, user="ann", from_s=1e6) + _open(5, user="bob", from_s=2e6))
    drawn = _draws_s(found, 10)
    for own, last_s in ((drawn[:, :5], 3 * HOUR_S), (drawn[:, 5:], HOUR_S / 4)):
        assert (np.abs(np.log(own / last_s)) < 0.1).mean() > 0.6


def test_a_job_that_comes_later_leaves_the_draws_of_the_others_as_they_were() -> None:
    """Both sides of a what-if draw the same lengths."""
    past = _ended(_sweeps_s(9))
    both = [_learned(past + _open(20) + _open(more, from_s=2e6)) for more in (0, 3)]
    one, other = (_draws_s(found, 20 + more, draws=10) for found, more in zip(both, (0, 3), strict=True))
    assert (one == other[:, :20]).all()


@pytest.mark.parametrize("user", ["", "ann"])
def test_draws_are_the_same_for_the_same_seed(user: str) -> None:
    past = _ended(_sweeps_s(10), user=user)
    one, other = (_draws_s(_learned(past + _open(5, user=user)), 5, draws=3) for _ in range(2))
    assert (one == other).all()
    assert len(np.unique(one[:, 0])) > 1


def test_thousands_of_waiting_jobs_of_one_user_take_little_more_memory_than_their_distributions() -> None:
    """All at once they would take nine times that, and half a gigabyte for 20,000 jobs."""
    count = 6_000
    jobs = sorted(_ended(_sweeps_s(11)) + _open(count), key=lambda each: each.job.submit_s, reverse=True)
    history = WorkHistory(jobs)
    densities = LeaveOneOut(history, jobs).densities
    tracemalloc.start()
    found = Recurrence(history, jobs, densities)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held > found._likelier.nbytes
    assert peak < 6 * found._likelier.nbytes
