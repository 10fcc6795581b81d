"""The accounts: what a reset carries over, which jobs are forgotten, what becomes of a pair whose member left."""

from __future__ import annotations

import numpy as np
import pytest

from trine.policy.shares.rounds.share_ledger import ShareLedger

NO_PAIRS = (np.zeros((0, 2), np.int64), np.zeros((0, 1)), np.zeros((0, 2, 1)))


def job_indices(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


def test_what_a_job_did_not_get_is_owed_after_a_reset() -> None:
    ledger = ShareLedger(types=1, head_start_s=180.0)
    ledger.follow(job_indices(0, 1))
    ledger.settle(0.0, 0.0)
    ledger.grant(np.array([[0.5], [0.5]]), *NO_PAIRS)
    ledger.charge(np.array([0]), np.array([0]), np.array([1000.0]))
    ledger.settle(1000.0, 0.0)
    assert ledger.owed_s.ravel() == pytest.approx([-500.0, 500.0])
    assert ledger.received_s.ravel() == pytest.approx([180.0, 180.0])


def test_the_job_that_received_less_of_its_share_comes_first() -> None:
    ledger = ShareLedger(types=1, head_start_s=180.0)
    ledger.follow(job_indices(3, 7))
    ledger.settle(0.0, 0.0)
    ledger.grant(np.array([[0.8], [0.2]]), *NO_PAIRS)
    everywhere = np.ones((2, 1), np.bool_)
    assert ledger.priority(everywhere)[0] > ledger.priority(everywhere)[1]
    ledger.charge(np.array([0]), np.array([0]), np.array([720.0]))
    assert ledger.priority(everywhere)[0] < ledger.priority(everywhere)[1]
    assert not ledger.priority(np.zeros((2, 1), np.bool_)).any()


def test_jobs_that_leave_are_forgotten_and_newcomers_wait_for_a_share() -> None:
    ledger = ShareLedger(types=1, head_start_s=180.0)
    ledger.follow(job_indices(0, 1, 2))
    ledger.settle(0.0, 0.0)
    ledger.grant(np.array([[0.1], [0.2], [0.3]]), *NO_PAIRS)
    ledger.charge(np.array([2]), np.array([0]), np.array([360.0]))
    assert ledger.follow(job_indices(0, 2, 5))
    assert not ledger.follow(job_indices(0, 2, 5))
    assert ledger.share.ravel() == pytest.approx([0.1, 0.3, 0.0])
    assert ledger.received_s.ravel() == pytest.approx([180.0, 540.0, 180.0])
    assert ledger.fresh.tolist() == [False, False, True]


def test_the_share_of_a_pair_goes_to_the_one_that_is_left() -> None:
    ledger = ShareLedger(types=1, head_start_s=180.0)
    ledger.follow(job_indices(0, 1, 2))
    ledger.settle(0.0, 0.0)
    pairs = np.array([[0, 1], [1, 2]])
    ledger.grant(np.array([[0.0], [0.0], [0.1]]), pairs, np.array([[0.6], [0.3]]), np.ones((2, 2, 1)))
    ledger.charge(np.array([3]), np.array([0]), np.array([360.0]))
    ledger.follow(job_indices(0, 2))
    assert ledger.members.tolist() == [[0, -1], [2, -1]]
    assert ledger.share.ravel() == pytest.approx([0.6, 0.4])
    assert ledger.received_s.ravel() == pytest.approx([540.0, 180.0])


def test_a_pair_that_stays_keeps_what_it_is_owed() -> None:
    ledger = ShareLedger(types=1, head_start_s=180.0)
    ledger.follow(job_indices(4, 9))
    ledger.settle(0.0, 0.0)
    pair = (np.array([[4, 9]]), np.array([[1.0]]), np.ones((1, 2, 1)))
    ledger.grant(np.zeros((2, 1)), *pair)
    ledger.settle(600.0, 0.0)
    ledger.grant(np.zeros((2, 1)), *pair)
    assert ledger.owed_s.ravel() == pytest.approx([0.0, 0.0, 600.0])
