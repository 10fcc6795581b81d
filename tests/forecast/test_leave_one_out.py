"""What is learned of the lengths of jobs by leaving each out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri_exp

from trine.core.job import Job
from trine.forecast.leave_one_out import LeaveOneOut
from trine.forecast.length_correlation import LengthCorrelation
from trine.forecast.replay import with_limits
from trine.forecast.work_history import KnownJob, OpenJobs, WorkDraw, WorkHistory
from trine.policy.view import Floats
from trine.trace.generate import generate

HOUR_S = 3600.0


def _drawn(seed: int, count: int) -> list[KnownJob]:
    """Ended jobs of a workload whose lengths are independent of each other, of user and of model."""
    limited, true_s = with_limits(generate("philly", jobs=count, seed=seed, gpus=64, load=0.9, max_gpus=16), seed)
    return [KnownJob(job, true_s[job.id], True, limit_s=job.steps) for job in limited]


def _of_users(lengths_s: Floats, users: int, seed: int = 0) -> list[KnownJob]:
    of = np.random.default_rng(seed).integers(users, size=len(lengths_s))
    return [KnownJob(Job(f"{i}", i, 1, 1.0, user=f"u{of[i]}"), float(s), True) for i, s in enumerate(lengths_s)]


def _shared(known: list[KnownJob]) -> float:
    """The part of the variance of lengths that neighbours have in common, as is likely by these jobs."""
    correlation = LengthCorrelation(WorkHistory(known), known)
    return float(correlation._chances @ [sum(each.share) for each in correlation._strengths])


@pytest.mark.parametrize(("seed", "count"), [(0, 300), (1, 1_000)])
def test_independent_lengths_are_standard_normal_scores_and_have_nothing_in_common(seed: int, count: int) -> None:
    """Scored by hazards that count each job itself, they lie too close together, and what is missing to a variance of
    one is taken for a level that neighbours share."""
    known = [each for each in _drawn(seed, count) if each.work_s < each.limit_s]
    scores = -ndtri_exp(np.minimum(LeaveOneOut(WorkHistory(known), known).log_survival, -1e-9))
    assert abs(scores.mean()) < 0.12 and 0.9 < scores.std() < 1.1
    assert _shared(known) < 0.1


def test_lengths_in_phases_are_found_to_have_a_level_in_common() -> None:
    rng, keep, level, scores = np.random.default_rng(3), 0.5 ** (1 / 60), 0.0, []
    for _ in range(1_000):
        level = keep * level + rng.normal() * (0.5 * (1 - keep * keep)) ** 0.5
        scores.append(level + rng.normal() * 0.5**0.5)
    phases = HOUR_S * np.exp(np.array(scores))
    assert 0.3 < _shared(_of_users(phases, 30)) < 0.7
    assert _shared(_of_users(rng.permutation(phases), 30)) < 0.1


def test_how_alike_the_jobs_of_a_user_are_is_learned() -> None:
    """Users who differ speak for themselves; those who do not are taken for one."""
    rng = np.random.default_rng(4)
    any_s = HOUR_S * np.exp(rng.normal(size=600))
    alike = _of_users(any_s, 20)
    apart = [replace(each, work_s=each.work_s * 30.0 ** int(each.job.user[1:]) / 30.0**10) for each in alike]
    apart = [replace(each, work_s=min(max(each.work_s, 1.0), 1e7)) for each in apart]
    one, other = (LeaveOneOut(WorkHistory(known), known).learned for known in (alike, apart))
    assert one.concentration("user") >= 500.0
    assert other.concentration("user") <= 5.0


def _limited(limit_h: float, works_h: Floats, name: str) -> list[KnownJob]:
    jobs = [Job(f"{name}-{limit_h:g}-{i}", float(i), 1, 1.0) for i in range(len(works_h))]
    return [
        KnownJob(job, HOUR_S * float(w), True, limit_s=HOUR_S * limit_h) for job, w in zip(jobs, works_h, strict=True)
    ]


def _median_h(known: list[KnownJob], limit_h: float) -> float:
    """Of a job with this limit that has not begun, over many futures."""
    history = WorkHistory(known)
    history.learned = LengthCorrelation(history, known).learned
    new = KnownJob(Job("new", 0.0, 1, 1.0), 0.0, False, limit_s=HOUR_S * limit_h)
    drawn = [WorkDraw(history, np.random.default_rng(n)).total_s(new, np.zeros(10)) for n in range(60)]
    return float(np.median(drawn)) / HOUR_S


def test_a_limit_one_step_above_the_others_is_used_as_they_are_and_one_far_above_may_be_used_in_small_part() -> None:
    rng = np.random.default_rng(5)
    usual = [job for h in (1, 2, 4, 8, 16) for job in _limited(h, h * rng.uniform(0.2, 1.0, 80), "usual")]
    assert _median_h(usual, 32.0) == pytest.approx(0.6 * 32.0, rel=0.25)
    assert 0.6 * 32.0 < _median_h(usual, 1_000.0) < 0.6 * 500.0
    # Those who asked for so much took little more than others before them: seen in twelve jobs.
    seen = [*usual, *_limited(1_000.0, rng.uniform(10.0, 40.0, 12), "far")]
    assert _median_h(seen, 1_000.0) < 60.0


def test_a_job_that_waits_with_a_limit_of_its_own_leaves_what_is_drawn_of_others_as_it_was() -> None:
    """Both sides of a what-if that submits it draw the same."""
    known = [*_drawn(2, 150), *(replace(each, ended=False) for each in _drawn(7, 160)[150:])]
    more = [*known, KnownJob(Job("new", 9e9, 1, 1.0), 0.0, False, limit_s=3.3e6)]
    found = []
    for some in (known, more):
        history = WorkHistory(some)
        history.learned = LengthCorrelation(history, some).learned
        jobs = OpenJobs(history, [(each, np.zeros(1)) for each in known if not each.ended])
        found.append([WorkDraw(history, np.random.default_rng(n)).totals_s(jobs) for n in range(5)])
    assert np.array_equal(found[0], found[1])


def test_without_history_nothing_is_learned() -> None:
    assert LeaveOneOut(WorkHistory(), []).learned.concentration("user") < math.inf


def test_a_job_without_a_limit_changes_nothing_that_is_learned_of_those_with_one() -> None:
    rng = np.random.default_rng(1)
    lengths_s = np.minimum(HOUR_S * np.exp(rng.normal(0.0, 1.0, 400)), 10 * HOUR_S).tolist()
    limited = [
        KnownJob(Job(f"j{i}", float(i), 1, 1.0, user=f"u{i % 20}"), length_s, True, limit_s=10 * HOUR_S)
        for i, length_s in enumerate(lengths_s)
    ]
    other = KnownJob(Job("o", 500.0, 1, 1.0, user="u3"), 0.0, False)
    one, two = (LeaveOneOut(WorkHistory(known), known).learned for known in (limited, [*limited, other]))
    assert one.concentrations.items() <= two.concentrations.items()
    assert one.concentrations["limited user"] == math.inf, "lengths do not depend on users here"


def test_where_lengths_say_nothing_a_larger_set_counts_as_usual() -> None:
    one = [KnownJob(Job("j", 0.0, 1, 1.0, user="ann"), 600.0, True)]
    assert LeaveOneOut(WorkHistory(one), one).learned.concentrations == {"gpus": 5.0, "user": 5.0}
