from dataclasses import replace

import numpy as np
import pytest

from tests.forecast.states import present_at, world_at
from trine.core.job import Job
from trine.forecast.arrivals import RecentArrivals
from trine.forecast.draws import Futures
from trine.forecast.engine_copy import EngineImage
from trine.forecast.predictions import _waits_for, forecast, interval
from trine.forecast.queue_run import NEW_JOB, NO_JOB
from trine.forecast.work_history import KnownJob, NewJobs, OpenJobs, WorkDraw, WorkHistory, sets_of
from trine.trace.generate import generate

POLICIES = ("fifo", "fifo-backfill", "las", "srtf", "tiresias", "trine")


def _job(name: str, submit_s: float, gpus: int, length_s: float, **more: object) -> Job:
    return Job(name, submit_s, gpus, length_s, **more)  # type: ignore[arg-type]


def test_known_lengths_are_foretold_exactly() -> None:
    jobs = [_job("a", 0, 4, 5000), _job("b", 10, 4, 1000), _job("c", 20, 2, 500)]
    found = forecast(Futures(present_at("fifo", "1x4", jobs, 1200.0)), range(5))
    assert found.jobs["a"].start_s is None
    assert found.jobs["a"].end_s is not None and found.jobs["a"].end_s.median == pytest.approx(5000, abs=1)
    b, c = found.jobs["b"], found.jobs["c"]
    assert b.start_s is not None and b.start_s.low == pytest.approx(5000, abs=1)
    assert c.start_s is not None and c.start_s.median == pytest.approx(6000, abs=1)
    assert (b.reason, c.reason) == (
        "waits for job a to end",
        "waits for job b, which waits too, to run and end",
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_world_goes_on_as_it_was_foretold(policy: str) -> None:
    """With all lengths known and nothing more to come, the one future is what happens."""
    jobs = [_job(f"j{i}", 30.0 * i, 1 + i % 4, 600.0 + 97 * (i * 7 % 11)) for i in range(24)]
    world = world_at(policy, "2x4", jobs, 900.0)
    present = present_at(policy, "2x4", jobs, 900.0)
    long_ago = [replace(each, job=replace(each.job, submit_s=-1e9)) for each in present.known]
    futures = Futures(replace(present, known=long_ago))
    drawn = futures.draw(0)
    world.advance()
    lives = [world.recorder.lives[i] for i in futures.job_indices.tolist()]
    waiting = ~futures.started
    starts = np.array([life.start_s for life in lives])
    # Where jobs are stopped, the later rounds of a draw are six times as long.
    off_s = 60.0 if policy.startswith("fifo") else 6 * 60.0
    assert waiting.sum() > 5 or policy in ("las", "tiresias")  # which let every newcomer run at once
    if waiting.any():
        assert np.median(np.abs(drawn.start_s[waiting] - starts[waiting])) <= off_s
    assert np.median(np.abs(drawn.end_s - [life.finish_s for life in lives])) <= off_s


def test_same_seed_same_forecast_and_the_present_is_left_alone() -> None:
    jobs = [replace(job, open_ended=True) for job in generate("philly", jobs=300, seed=3, gpus=16, load=1.2)]
    now_s = jobs[200].submit_s
    present = present_at("fifo-backfill", "2x8", jobs, now_s)
    before = EngineImage(present.engine)._image
    one, two = (forecast(Futures(present, 7), range(8)) for _ in range(2))
    assert one.as_json() == two.as_json()
    assert forecast(Futures(present, 8), range(8)).as_json() != one.as_json()
    assert EngineImage(present.engine)._image == before


def test_jobs_of_unknown_length_get_intervals_not_points() -> None:
    jobs = [replace(job, open_ended=True) for job in generate("philly", jobs=300, seed=3, gpus=16, load=1.2)]
    found = forecast(Futures(present_at("fifo", "2x8", jobs, jobs[200].submit_s)), range(20))
    waiting = [job for job in found.jobs.values() if job.start_s is not None]
    assert waiting
    for job in waiting:
        assert job.start_s is not None and job.end_s is not None
        assert found.made_at_s <= job.start_s.low <= job.start_s.median <= job.start_s.high
        assert job.start_s.median < job.end_s.median


def test_lengths_are_drawn_like_those_of_the_same_user_and_limit() -> None:
    quick, slow = (KnownJob(Job("", 0.0, 1, 1.0, user=user), 0.0, False) for user in ("quick", "slow"))
    limited = replace(quick, limit_s=1000.0)
    past = [replace(quick, work_s=600.0, ended=True)] * 200 + [replace(slow, work_s=60_000.0, ended=True)] * 200
    draw = WorkDraw(WorkHistory(past), np.random.default_rng(0))
    assert 400 < np.median(draw.total_s(quick, np.zeros(500))) < 800
    assert 40_000 < np.median(draw.total_s(slow, np.zeros(500))) < 80_000
    # A job of the quick user that has run for an hour is none of its usual ones: it outlives its age.
    assert (draw.total_s(quick, np.full(500, 3600.0)) > 3600.0).all()
    assert (draw.total_s(limited, np.zeros(500)) <= 1000.0).all()


def test_a_policy_that_solves_linear_programs_can_be_foretold() -> None:
    jobs = [_job(f"j{i}", 10.0 * i, 2, 900.0) for i in range(4)]
    found = forecast(Futures(present_at("max-min-fairness", "1x4", jobs, 100.0)), range(1))
    assert all(job.end_s is not None for job in found.jobs.values())


def test_a_limit_that_no_job_has_had_is_used_as_much_as_others_are() -> None:
    """Minutes of a limit of an hour are many hours of a limit of weeks; drawn like all jobs, they would be minutes."""
    short = KnownJob(Job("", 0.0, 1, 1.0), 0.0, False, limit_s=3600.0)
    past = [replace(short, work_s=3600.0 * part, ended=True) for part in np.linspace(0.2, 0.9, 300)]
    history, long_s = WorkHistory(past), 14 * 86_400.0
    drawn = [
        WorkDraw(history, np.random.default_rng(n)).total_s(replace(short, limit_s=long_s), np.zeros(20))
        for n in range(40)
    ]
    assert 0.02 * long_s < np.median(drawn) < 0.9 * long_s
    assert np.quantile(drawn, 0.9) > 0.3 * long_s  # whether they use as much of it is not known
    assert 1000.0 < np.median(WorkDraw(history, np.random.default_rng(0)).total_s(short, np.zeros(500))) < 3000.0


@pytest.mark.parametrize("limit_s", [20.0, 30.0, np.inf])
def test_jobs_of_seconds_are_not_all_drawn_to_end_at_once(limit_s: float) -> None:
    """They lie in the first bin of work, which says no more of them than that."""
    job = KnownJob(Job("", 0.0, 1, 1.0), 0.0, False, limit_s=limit_s)
    past = [replace(job, work_s=float(work_s), ended=True) for work_s in np.linspace(6.0, 19.0, 100)]
    history = WorkHistory(past)
    drawn, running = (
        np.concatenate([WorkDraw(history, np.random.default_rng(n)).total_s(job, done_s) for n in range(40)])
        for done_s in (np.zeros(20), np.full(20, 10.0))
    )
    assert 6.0 < np.median(drawn) < 20.5 and np.quantile(drawn, 0.9) > 15.0
    assert 12.0 < np.median(running) < 29.0


@pytest.mark.parametrize("draws", [9, 20, 100])
def test_four_of_five_outcomes_like_the_draws_lie_in_the_interval_however_few_draws_there_are(draws: int) -> None:
    rng, held = np.random.default_rng(1), []
    for _ in range(4_000):
        found = interval(rng.random(draws))
        assert found is not None
        held.append(found.holds(float(rng.random())))
    assert np.mean(held) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill", "las"])
def test_a_job_that_waits_for_others_starts_in_each_future_when_they_have_ended(policy: str) -> None:
    jobs = [
        _job("a", 0, 2, 5000, open_ended=True),
        _job("b", 10, 2, 1000),
        _job("c", 20, 1, 500, after=("a", "b")),
        _job("d", 30, 1, 700, after=("c",)),
        _job("e", 40, 1, 300),
    ]
    futures = Futures(present_at(policy, "1x4", jobs, 200.0))
    ids = [futures.present.engine.table.jobs[i].id for i in futures.job_indices.tolist()]
    for number in range(5):
        drawn = futures.draw(number)
        start_s, end_s = (dict(zip(ids, times.tolist(), strict=True)) for times in (drawn.start_s, drawn.end_s))
        assert start_s["c"] == pytest.approx(max(end_s["a"], end_s["b"]), abs=61.0) and start_s["d"] >= end_s["c"] - 1.0
        assert start_s["e"] < start_s["c"]


@pytest.mark.parametrize("ago_s", [0.0, 1800.0, 3 * 86_400.0, 6.9 * 86_400.0])
def test_one_submission_in_a_week_is_enough_to_draw_arrivals(ago_s: float) -> None:
    """Blocks of hours that can never have the job would be put together for ever."""
    now_s, rng = 1e6, np.random.default_rng(0)
    arrivals = RecentArrivals([KnownJob(Job("a", now_s - ago_s, 1, 60.0), 60.0, True)], now_s)
    hours = 0

    def counted(*given: float) -> float:
        nonlocal hours
        hours += 1
        assert hours < 50_000
        return block_from(*given)  # type: ignore[arg-type]

    block_from, arrivals._block_from = arrivals._block_from, counted  # type: ignore[method-assign, assignment]
    found = list(arrivals.draw(rng, WorkDraw(WorkHistory(), rng), 3))
    assert len(found) == (3 if ago_s else 0) and all(job.submit_s >= now_s for job, _ in found)


def test_lengths_drawn_at_once_are_those_drawn_group_by_group() -> None:
    """Rows of hazards side by side are read as each alone would be; those of jobs to come, as ``np.interp`` reads."""
    past = [KnownJob(_job(f"e{i}", i, 1 + i % 3, 1.0, user=f"u{i % 4}"), 60.0 * (i + 1), True) for i in range(80)]
    alike = [replace(past[at], ended=False, limit_s=limit_s) for at, limit_s in ((0, 1e4), (1, np.inf), (6, 500.0))]
    groups = [(each, np.array([0.0, 30.0, 4e3, 1e9])[: 2 + at]) for at, each in enumerate(alike)]
    history = WorkHistory(past)
    one, two = (WorkDraw(history, np.random.default_rng(4)) for _ in range(2))
    by_group = np.concatenate([two.total_s(known, done_s) for known, done_s in groups])
    assert one.totals_s(OpenJobs(history, groups)) == pytest.approx(by_group)
    some, chances = np.array([7, 0, 0, 5, 7]), np.array([1.0, 0.7, 0.03, 1e-9, 1e-300])
    found = one.new_jobs_s(NewJobs([replace(past[0], limit_s=900.0), *past[1:]]), some, chances)
    for at, chance, drawn_s in zip(some.tolist(), chances.tolist(), found.tolist(), strict=True):
        known = replace(past[at], limit_s=900.0 if at == 0 else np.inf)
        survival = one._survival_of(sets_of(known))
        work_s = np.exp(np.interp(np.log(chance), survival[::-1], history.log_edges[::-1])) - history.edges[1]
        assert drawn_s == pytest.approx(max(min(work_s, known.limit_s), 1.0))


@pytest.mark.parametrize(
    ("blockers", "said"),
    [
        ([0, 0, 1], "waits for job a to end"),
        ([0, 0, 1, 1, 2, NEW_JOB], "waits for one of 3 jobs to end; most often for job a to end (33%)"),
        ([0, 0, NEW_JOB, NO_JOB], "waits for job a to end"),
        ([0, 0, 0, NO_JOB, NO_JOB, NEW_JOB, NEW_JOB], "waits most often for job a to end (43%)"),
    ],
)
def test_a_reason_counts_the_jobs_that_there_are(blockers: list[int], said: str) -> None:
    jobs = [_job(name, 0.0, 1, 1000.0) for name in "abc"]
    engine = present_at("fifo", "1x4", jobs, 10.0).engine
    assert _waits_for(engine, blockers, starts=True)[0] == said


def test_a_sentence_about_a_length_has_its_limit_in_a_fitting_unit() -> None:
    jobs = [_job("a", 0.0, 1, 1000.0), _job("b", 0.0, 1, 1000.0)]
    present = present_at("fifo", "1x4", jobs, 10.0)
    known = [replace(each, exact=False, limit_s=7200.0) for each in present.known]
    ended = replace(known[1], ended=True, work_s=900.0, job=replace(jobs[1], id="e"))
    found = forecast(Futures(replace(present, known=[ended, *known])), range(2))
    assert found.jobs["a"].reason == "its length is guessed from 1 job like it, and its limit of 2 h"
