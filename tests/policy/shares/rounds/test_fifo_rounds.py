"""FIFO in rounds: the same choice as the share policy makes, kept between resets, whichever jobs come and go."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import stable
from trine.core.job import Job
from trine.engine.job_table import JobTable
from trine.policy.base import Selection
from trine.policy.shares.base import Memory
from trine.policy.shares.fifo import FifoShares
from trine.policy.shares.problem import Problem
from trine.policy.shares.rounds.fifo_rounds import FifoRounds, PassingFifo
from trine.policy.view import View

TYPES = ("a", "b", "c")


class Floor:
    """Jobs with speeds by type, and what a policy sees of those present."""

    def __init__(self, capacity: list[int]) -> None:
        self.table, self.capacity = JobTable(), capacity
        self.rates: list[list[float]] = []

    def add(self, gpus: int, rates: list[float]) -> int:
        order = sorted((j for j in range(len(rates)) if rates[j] > 0), key=lambda j: -rates[j])
        steps = tuple(1.0 / r if r else float("inf") for r in rates)
        self.rates.append(rates)
        return self.table.add(Job(str(len(self.table)), 0.0, gpus, 10.0), 10.0, tuple(order), steps)

    def view(self, job_indices: list[int]) -> View:
        return View(0.0, np.array(job_indices, np.int64), self.table, self.capacity, self.capacity)

    def asked(self, rounds: FifoRounds, job_indices: list[int], anew: bool = False) -> dict[int, int]:
        view = self.view(job_indices)
        rounds.advance(view, same_jobs=False, moved=False)
        return dict(chosen(rounds, view, anew).wanted)


def chosen(rounds: FifoRounds, view: View, anew: bool) -> Selection:
    """``anew``: shares are reset first, so that all jobs choose again."""
    if anew:
        rounds.reset(view, 0.0, lambda: None)
    return rounds.choose(view, anew)


jobs = st.tuples(
    st.sampled_from((1, 1, 2, 4)),
    st.lists(st.sampled_from((0.0, 1.0, 2.0, 3.0)), min_size=3, max_size=3, unique_by=lambda r: r or object()),
).filter(lambda job: any(job[1]))


@given(st.lists(st.integers(4, 7), min_size=3, max_size=3), st.lists(jobs, min_size=1, max_size=14))
@stable(150)
def test_choosing_anew_is_what_the_share_policy_computes(
    capacity: list[int], asked: list[tuple[int, list[float]]]
) -> None:
    floor = Floor(capacity)
    job_indices = [floor.add(gpus, rates) for gpus, rates in asked]
    workers = dict(zip(TYPES, capacity, strict=True))
    problem = Problem.of(workers, np.array(floor.rates), gang=[gpus for gpus, _ in asked])
    shares = PassingFifo(FifoShares()).compute(problem, Memory()).shares
    expected = {job_index: int(row.argmax()) for job_index, row in zip(job_indices, shares, strict=True) if row.any()}
    assert floor.asked(FifoRounds(), job_indices, anew=True) == expected


def test_between_resets_no_job_moves_and_new_jobs_take_what_is_left() -> None:
    floor, rounds = Floor([1, 1, 0]), FifoRounds()
    first, second, third = (floor.add(1, [2.0, 1.0, 0.0]) for _ in range(3))
    assert floor.asked(rounds, [first, second], anew=True) == {first: 0, second: 1}
    assert floor.asked(rounds, [second, third]) == {second: 1, third: 0}
    assert floor.asked(rounds, [second, third], anew=True) == {second: 0, third: 1}


def test_a_job_that_was_held_has_its_old_place() -> None:
    floor, rounds = Floor([1, 0, 0]), FifoRounds()
    early, running, late = (floor.add(1, [1.0, 0.0, 0.0]) for _ in range(3))
    assert floor.asked(rounds, [running, late], anew=True) == {running: 0}
    assert floor.asked(rounds, [early, running, late]) == {running: 0}
    assert floor.asked(rounds, [early, late]) == {early: 0}


def test_with_fewer_gpus_all_jobs_choose_again() -> None:
    floor, rounds = Floor([2, 0, 0]), FifoRounds()
    one, two = (floor.add(1, [1.0, 0.0, 0.0]) for _ in range(2))
    assert floor.asked(rounds, [one, two], anew=True) == {one: 0, two: 0}
    floor.capacity = [1, 0, 0]
    assert floor.asked(rounds, [one, two]) == {one: 0}


@given(st.lists(st.integers(4, 7), min_size=3, max_size=3), st.data())
@stable(150)
def test_jobs_that_might_choose_otherwise_and_those_that_did_are_named(
    capacity: list[int], data: st.DataObject
) -> None:
    """Where none might, choosing again gives the same; and only the jobs named have other GPUs than before."""
    floor, rounds = Floor(capacity), FifoRounds()
    job_indices: list[int] = []
    kept: dict[int, int] = {}
    same = False
    for _ in range(data.draw(st.integers(1, 12))):
        job_indices = [job_index for job_index in job_indices if data.draw(st.integers(0, 3))]
        job_indices += [floor.add(*data.draw(jobs)) for _ in range(data.draw(st.integers(0, 3)))]
        view, anew = floor.view(job_indices), data.draw(st.booleans())
        same = not rounds.advance(view, same_jobs=False, moved=False) and (same or not kept)
        found = chosen(rounds, view, anew)
        assert found.changed is not None
        assert {job_index for job_index, _ in kept.items() ^ found.wanted.items()} <= set(found.changed)
        same, kept = same or anew, dict(found.wanted)
        if same:
            assert floor.asked(FifoRounds(), job_indices, anew=True) == kept
