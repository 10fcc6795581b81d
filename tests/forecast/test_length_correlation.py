"""Jobs that come one after the other are alike: what that means for the lengths that are drawn."""

import numpy as np
import pytest

from trine.core.job import Job
from trine.forecast.length_correlation import LengthCorrelation
from trine.forecast.work_history import KnownJob, WorkDraw, WorkHistory
from trine.policy.view import Floats

PAST, WAITING = 600, 200


def _jobs(scores: Floats) -> list[KnownJob]:
    """Ended jobs with these normal scores of log-normal lengths, then jobs that wait."""
    lengths_s = 3600.0 * np.exp(scores)
    ended = [KnownJob(Job(f"e{i}", float(i), 1, 1.0), float(s), True) for i, s in enumerate(lengths_s)]
    return ended + [KnownJob(Job(f"w{i}", 1e6 + i, 1, 1.0), 0.0, False) for i in range(WAITING)]


def _phases(rng: np.random.Generator, half_life: float = 60.0, share: float = 0.5) -> Floats:
    keep, level, found = 0.5 ** (1 / half_life), 0.0, []
    for _ in range(PAST):
        level = keep * level + rng.normal() * (share * (1 - keep * keep)) ** 0.5
        found.append(level + rng.normal() * (1 - share) ** 0.5)
    return np.array(found)


def _sums_s(known: list[KnownJob], draws: int = 60) -> Floats:
    """Work of all waiting jobs together, in each draw."""
    history = WorkHistory(known)
    correlation = LengthCorrelation(history, known)
    ids = [each.job.id for each in known if not each.ended]
    found = []
    for number in range(draws):
        level = correlation.draw(np.random.default_rng([number, 1]))
        work = WorkDraw(history, np.random.default_rng(number))
        found.append(work.total_s(known[-1], np.zeros(len(ids)), level.at(correlation.positions(ids)), level.own).sum())
    return np.array(found)


def test_sums_of_lengths_vary_as_those_of_the_past_did() -> None:
    """Lengths in phases make the work of a queue uncertain; lengths in any order leave it as it was."""
    rng = np.random.default_rng(5)
    alike = _phases(rng)
    one, other = (_sums_s(_jobs(scores)) for scores in (alike, rng.permutation(alike)))
    spread, as_if_independent = (float(np.std(np.log(sums))) for sums in (one, other))
    assert spread > 1.5 * as_if_independent


def test_jobs_that_ended_lately_tell_of_those_that_wait() -> None:
    rng = np.random.default_rng(6)
    scores = _phases(rng)
    late_long = np.concatenate((scores[: PAST - 60], np.abs(scores[PAST - 60 :])))
    late_short = np.concatenate((scores[: PAST - 60], -np.abs(scores[PAST - 60 :])))
    assert np.median(_sums_s(_jobs(late_long))) > 1.15 * np.median(_sums_s(_jobs(late_short)))


def test_jobs_that_run_on_count_and_not_only_the_short_ones_that_ended() -> None:
    """Of the last hundred jobs only those shorter than an hour have ended: that says nothing of the others."""
    rng = np.random.default_rng(7)
    whole = _jobs(_phases(rng))
    now = [
        each if each.work_s < 3600.0 or at < PAST - 100 else KnownJob(each.job, 3600.0, False)
        for at, each in enumerate(whole[:PAST])
    ]
    censored, only_ended = now + whole[PAST:], [each for each in now if each.ended] + whole[PAST:]

    def median_s(known: list[KnownJob]) -> float:
        """Of the level of the waiting jobs."""
        correlation = LengthCorrelation(WorkHistory(whole), known)
        at = correlation.positions(each.job.id for each in whole[PAST:])
        return float(np.median([correlation.draw(np.random.default_rng(n)).at(at).mean() for n in range(60)]))

    truth = median_s(whole)
    assert abs(median_s(censored) - truth) < abs(median_s(only_ended) - truth)


def test_a_job_that_comes_later_leaves_the_draws_of_the_others_as_they_were() -> None:
    """Both sides of a what-if draw the same lengths."""
    known = _jobs(_phases(np.random.default_rng(8)))
    running = [KnownJob(each.job, 500.0, False) if each.job.id in ("w0", "w1") else each for each in known]
    more = [*running, KnownJob(Job("new", 2e6, 1, 1.0), 0.0, False)]
    ids, history = [f"w{i}" for i in range(WAITING)], WorkHistory(running)
    both = [LengthCorrelation(history, some) for some in (running, more)]
    one, two = (each.draw(np.random.default_rng(3)).at(each.positions(ids)) for each in both)
    assert one == pytest.approx(two, abs=1e-9)


def test_without_any_history_lengths_are_drawn_all_the_same() -> None:
    level = LengthCorrelation(WorkHistory([]), []).draw(np.random.default_rng(0))
    coming = level.to_come()
    assert np.isfinite([next(coming) for _ in range(2000)]).all()
