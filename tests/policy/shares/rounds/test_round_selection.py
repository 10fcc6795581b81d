"""The choice of a round: gangs, pairs, work conservation, the order of arrival, GPUs left over."""

from __future__ import annotations

import numpy as np

from trine.policy.shares.rounds.round_selection import Candidates, Chosen, fill_by_arrival, select, split_pairs

Rows = list[list[float]]


def units(
    priority: Rows, gang: list[int], rates: Rows | None = None, pairs: list[list[int]] | None = None
) -> Candidates:
    """Jobs, then ``pairs`` of them, each with its priority on each type."""
    jobs = len(gang) - len(pairs or [])
    speeds = np.ones((jobs, len(priority[0]))) if rates is None else np.array(rates)
    members = np.array([[i, -1] for i in range(jobs)] + (pairs or []), np.int64)
    runs = np.concatenate((speeds > 0, np.ones((len(gang) - jobs, speeds.shape[1]), np.bool_)))
    p = np.array(priority)
    return Candidates(members, np.array(gang, np.int64), runs, p, np.zeros(p.shape), p, speeds)


def chosen(found: Chosen) -> dict[int, int]:
    return dict(zip(found.rows, found.type_indices, strict=True))


def pick(candidates: Candidates, free: list[int]) -> dict[int, int]:
    return chosen(select(candidates, candidates.runs, free, range(len(free)), False))


def test_the_highest_priority_first_and_a_gang_that_does_not_fit_is_skipped() -> None:
    assert pick(units([[1.0], [3.0], [2.0]], gang=[1, 2, 2]), [3]) == {1: 0, 0: 0}


def test_a_job_runs_on_one_type_only() -> None:
    assert pick(units([[2.0, 2.0], [1.0, 1.0]], gang=[1, 1]), [1, 1]) == {0: 0, 1: 1}


def test_gpus_are_not_left_idle_for_want_of_a_share() -> None:
    assert pick(units([[0.0], [1.0]], gang=[1, 1]), [2]) == {0: 0, 1: 0}


def test_no_job_runs_where_it_cannot() -> None:
    assert pick(units([[5.0, 1.0]], gang=[1], rates=[[0.0, 1.0]]), [1, 1]) == {0: 1}


def test_a_pair_and_its_members_exclude_each_other() -> None:
    priority = [[1.0], [1.0], [0.5], [2.0]]
    assert pick(units(priority, gang=[1, 1, 1, 1], pairs=[[0, 1]]), [2]) == {3: 0, 2: 0}


def test_jobs_by_arrival_take_what_is_left_each_on_its_fastest_type() -> None:
    candidates = units([[0.0, 0.0]] * 3, gang=[1, 1, 2], rates=[[1.0, 2.0], [1.0, 2.0], [3.0, 1.0]])
    assert chosen(fill_by_arrival(candidates, Chosen([], []), [2, 1], True)) == {0: 1, 1: 0}
    assert chosen(fill_by_arrival(candidates, Chosen([0], [0]), [3, 1], False)) == {0: 0, 1: 1, 2: 0}


def test_strict_filling_ends_at_the_first_gang_without_room() -> None:
    candidates = units([[0.0]] * 2, gang=[3, 1])
    assert chosen(fill_by_arrival(candidates, Chosen([], []), [2], True)) == {}
    assert chosen(fill_by_arrival(candidates, Chosen([], []), [2], False)) == {1: 0}


def test_filling_passes_over_a_job_that_cannot_use_what_is_left() -> None:
    candidates = units([[0.0, 0.0]] * 2, gang=[1, 1], rates=[[1.0, 0.0], [1.0, 1.0]])
    assert chosen(fill_by_arrival(candidates, Chosen([], []), [0, 1], True)) == {1: 1}


def test_a_pair_is_split_when_gpus_are_left_over() -> None:
    candidates = units(
        [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]], gang=[1, 1, 1], rates=[[4.0, 1.0], [4.0, 3.0]], pairs=[[0, 1]]
    )
    rates = np.array([[[2.0, 1.0], [2.0, 1.0]]])
    assert chosen(split_pairs(candidates, Chosen([2], [0]), [1, 1], rates)) == {0: 0, 1: 1}
    assert chosen(split_pairs(candidates, Chosen([2], [0]), [1, 0], rates)) == {2: 0}


def test_of_equals_a_pair_comes_right_after_the_later_of_its_jobs() -> None:
    """No unit has a share: jobs and pairs in order of arrival, so that the first two run alone."""
    assert pick(units([[0.0]] * 4, gang=[1, 1, 1, 1], pairs=[[0, 1]]), [2]) == {0: 0, 1: 0}
