"""The quick run of a plain queue against the engine: the same starts, ends and blockers in every draw."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forecast.states import present_at
from trine.core.job import Job
from trine.engine.events import GpusCordoned
from trine.forecast.draws import Draw, Futures
from trine.forecast.present import Present
from trine.trace.generate import generate


def _by_engine(present: Present, seed: int) -> Futures:
    futures = Futures(present, seed)
    futures.queue = None
    return futures


def _same(one: Draw, two: Draw) -> None:
    np.testing.assert_allclose(one.start_s, two.start_s, atol=1e-6)
    np.testing.assert_allclose(one.end_s, two.end_s, atol=1e-6)
    np.testing.assert_array_equal(one.blockers, two.blockers)


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_plain_queue_runs_as_the_engine_would_run_it(policy: str, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 10_000))
    load = data.draw(st.floats(0.7, 2.0))
    locality = data.draw(st.sampled_from([1.0, 1.7]))
    open_ended = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    apart_s = data.draw(st.sampled_from([1.0, 600.0]))
    rng = np.random.default_rng(seed)
    jobs = generate("philly", jobs=120, seed=seed, gpus=16, load=load, max_gpus=16)
    # Sweeps: several jobs come at once, of which some may start and others not.
    jobs = [replace(job, submit_s=apart_s * (job.submit_s // apart_s)) for job in jobs]
    # Lengths are what jobs state; in draws they take other times, shorter and longer.
    jobs = [replace(job, open_ended=bool(rng.random() < open_ended)) for job in jobs]
    now_s = jobs[data.draw(st.integers(40, 110))].submit_s
    present = present_at(policy, "2x8", jobs, now_s, locality_penalty=locality)
    known = [replace(each, exact=False) for each in present.known]
    present = replace(present, known=known)
    quick, engine = Futures(present, seed), _by_engine(present, seed)
    assert quick.queue is not None
    for number in range(3):
        _same(quick.draw(number), engine.draw(number))


@pytest.mark.parametrize(("seed", "shape"), [(1516, "2x8"), (2, "2x8"), (3, "4x4"), (6, "16x1"), (5, "1x16")])
def test_a_queue_of_open_ended_jobs_runs_as_the_engine_would_run_it(seed: int, shape: str) -> None:
    """Gangs as wide as the cluster: reservations then rest on jobs that start at the same moment."""
    jobs = generate("philly", jobs=120, seed=seed, gpus=16, load=1.7, max_gpus=16)
    jobs = [replace(job, open_ended=True, gpus=16 if at % 20 == 19 else job.gpus) for at, job in enumerate(jobs)]
    present = present_at("fifo-backfill", shape, jobs, jobs[60].submit_s, locality_penalty=1.0 + seed % 2)
    quick, engine = Futures(present, seed), _by_engine(present, seed)
    for number in range(3):
        _same(quick.draw(number), engine.draw(number))
    assert quick.queue is not None and quick.queue.open_ended


@pytest.mark.parametrize(
    ("gpus", "attained_s"),
    [
        # When the first job ends, those of 8 and 4 start and that of 16 waits for them, too: none may overtake it.
        ((15, 1, 8, 4, 16, 1, 1), 0.0),
        # The first of 8 ran before. Asked again, the engine expects its end before that of the job of 1.
        ((1, 15, 8, 8, 1, 1, 1), 2e7),
    ],
)
def test_reservations_that_rest_on_jobs_of_the_same_moment(gpus: tuple[int, ...], attained_s: float) -> None:
    jobs = [Job(f"j{at}", float(at), count, 500.0, open_ended=True) for at, count in enumerate(gpus)]
    present = present_at("fifo-backfill", "2x8", jobs, 100.0)
    present.engine.table.attained_s[2] = attained_s
    quick, engine = Futures(present), _by_engine(present, 0)
    for number in range(12):
        _same(quick.draw(number), engine.draw(number))
    assert quick.queue is not None and quick.queue.open_ended


def test_a_queue_of_open_ended_jobs_heeds_limits_of_jobs_to_come_and_those_that_run_for_a_year() -> None:
    jobs = generate("philly", jobs=120, seed=9, gpus=16, load=1.7, max_gpus=16)
    jobs = [replace(job, open_ended=True) for job in jobs]
    present = present_at("fifo-backfill", "2x8", jobs, jobs[60].submit_s)
    ended = [each for each in present.known if each.ended]
    limited = [replace(each, job=replace(each.job, open_ended=False)) for each in ended[-20:]]
    known = [replace(each, exact=False) for each in present.known if each not in ended[-20:]]
    oldest = min(present.engine.assigned)
    present.engine.table.attained_s[oldest] += 364.9 * 86_400.0
    both = [replace(present, known=[*known, *limited]), replace(present, known=known)]
    for seed, some in [(3, both[0]), (6, both[0]), (3, both[1])]:
        quick, engine = Futures(some, seed), _by_engine(some, seed)
        assert quick.queue is not None and quick.queue.open_ended
        for number in range(2):
            _same(quick.draw(number), engine.draw(number))
        assert not quick.queue.open_ended


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill"])
def test_a_job_for_which_too_few_gpus_are_in_service_does_not_keep_others_from_being_foretold(policy: str) -> None:
    jobs = [Job("runs", 0.0, 4, 500.0), Job("wide", 10.0, 16, 500.0)]
    present = present_at(policy, "4x4", jobs, 100.0)
    present.engine.handle(GpusCordoned(100.0, (15,)))
    for futures in (Futures(present), _by_engine(present, 0)):
        found = futures.draw(0)
        assert found.end_s.tolist() == [500.0, np.inf] and found.start_s[1] == np.inf


def test_what_is_no_plain_queue_is_left_to_the_engine() -> None:
    jobs = [Job(f"j{i}", 10.0 * i, 2, 500.0, priority=float(i == 3)) for i in range(8)]
    assert Futures(present_at("fifo-backfill", "1x4", jobs, 100.0)).queue is None
    plain = [replace(job, priority=0.0) for job in jobs]
    assert Futures(present_at("fifo-backfill", "1x4", plain, 100.0)).queue is not None
    assert Futures(present_at("las", "1x4", plain, 100.0)).queue is None
