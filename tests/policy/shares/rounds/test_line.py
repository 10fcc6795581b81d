"""FIFO in line: the same choice as the share policy makes, kept between resets, whoever comes and goes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import stable
from trine.core.compat import Compat
from trine.core.job import Job
from trine.engine.job_table import JobTable
from trine.policy.shares.base import Memory
from trine.policy.shares.fifo import Fifo
from trine.policy.shares.problem import Problem
from trine.policy.shares.rounds.line import Line
from trine.policy.shares.rounds.quirks import PassingFifo
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
        return View(0.0, np.array(job_indices, np.int64), self.table, self.capacity, self.capacity, Compat())

    def asked(self, line: Line, job_indices: list[int], anew: bool = False) -> dict[int, int]:
        view = self.view(job_indices)
        line.follow(view)
        return dict(line.choose(view, anew).wanted)


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
    shares = PassingFifo(Fifo()).compute(problem, Memory()).shares
    expected = {job_index: int(row.argmax()) for job_index, row in zip(job_indices, shares, strict=True) if row.any()}
    assert floor.asked(Line(), job_indices, anew=True) == expected


def test_between_resets_nobody_moves_and_newcomers_take_what_is_left() -> None:
    floor, line = Floor([1, 1, 0]), Line()
    first, second, third = (floor.add(1, [2.0, 1.0, 0.0]) for _ in range(3))
    assert floor.asked(line, [first, second], anew=True) == {first: 0, second: 1}
    assert floor.asked(line, [second, third]) == {second: 1, third: 0}
    assert floor.asked(line, [second, third], anew=True) == {second: 0, third: 1}


def test_a_job_that_stands_in_line_again_has_its_old_place() -> None:
    floor, line = Floor([1, 0, 0]), Line()
    early, running, late = (floor.add(1, [1.0, 0.0, 0.0]) for _ in range(3))
    assert floor.asked(line, [running, late], anew=True) == {running: 0}
    assert floor.asked(line, [early, running, late]) == {running: 0}
    assert floor.asked(line, [early, late]) == {early: 0}


def test_fewer_gpus_make_everybody_choose_again() -> None:
    floor, line = Floor([2, 0, 0]), Line()
    one, two = (floor.add(1, [1.0, 0.0, 0.0]) for _ in range(2))
    assert floor.asked(line, [one, two], anew=True) == {one: 0, two: 0}
    floor.capacity = [1, 0, 0]
    assert floor.asked(line, [one, two]) == {one: 0}


@given(st.lists(st.integers(4, 7), min_size=3, max_size=3), st.data())
@stable(150)
def test_who_might_choose_otherwise_and_who_did_is_told(capacity: list[int], data: st.DataObject) -> None:
    """Where nobody might, choosing again gives the same; and nobody but those told has other GPUs than before."""
    floor, line = Floor(capacity), Line()
    job_indices: list[int] = []
    kept: dict[int, int] = {}
    same = False
    for _ in range(data.draw(st.integers(1, 12))):
        job_indices = [job_index for job_index in job_indices if data.draw(st.integers(0, 3))]
        job_indices += [floor.add(*data.draw(jobs)) for _ in range(data.draw(st.integers(0, 3)))]
        view, anew = floor.view(job_indices), data.draw(st.booleans())
        same = not line.follow(view) and (same or not kept)
        found = line.choose(view, anew)
        assert found.changed is not None
        assert {job_index for job_index, _ in kept.items() ^ found.wanted.items()} <= set(found.changed)
        same, kept = same or anew, dict(found.wanted)
        if same:
            assert floor.asked(Line(), job_indices, anew=True) == kept
