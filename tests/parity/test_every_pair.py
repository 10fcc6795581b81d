"""Accounts of all pairs, as the published mechanism keeps them."""

from __future__ import annotations

import numpy as np
import pytest

from trine.parity.gavel_rounds import EveryPairLedger
from trine.policy.view import Floats, Ints, View


class Seen(View):
    """Jobs of the gangs given."""

    def __init__(self, job_indices: list[int], gang: list[int]) -> None:
        self.job_indices, self.gpus = np.array(job_indices, np.int64), np.array(gang, np.int64)


def measured_pairs(view: View, pairs: Ints) -> Floats:
    """Any two run together, but for the first with the last."""
    rates = np.full((len(pairs), 2, 1), 0.6)
    rates[(pairs == [0, len(view.job_indices) - 1]).all(axis=1)] = 0.0
    return rates


def met(ledger: EveryPairLedger, job_indices: list[int], gang: list[int]) -> None:
    view = Seen(job_indices, gang)
    ledger.follow(view.job_indices)
    ledger.add_pairs(view, measured_pairs)


def pairs(ledger: EveryPairLedger) -> list[tuple[int, int]]:
    return [(a, b) for a, b in ledger.members.tolist() if b >= 0]


def test_any_two_of_equal_gangs_that_can_run_together_have_an_account() -> None:
    ledger = EveryPairLedger(types=1, head_start_s=180.0)
    met(ledger, [0, 1, 2, 3], [1, 2, 1, 1])
    assert pairs(ledger) == [(0, 2), (2, 3)]
    met(ledger, [0, 2, 3, 9], [1, 1, 1, 1])
    assert pairs(ledger) == [(0, 2), (2, 3), (2, 9), (3, 9)]
    assert ledger.fresh.tolist() == [True] * 8


def test_a_new_pair_is_owed_the_head_start_at_its_first_reset() -> None:
    ledger = EveryPairLedger(types=1, head_start_s=180.0)
    met(ledger, [0, 1, 2], [1, 1, 1])
    ledger.settle(0.0, 0.0)
    assert ledger.owed_s.ravel() == pytest.approx([0, 0, 0, 180, 180])
    ledger.grant(np.array([[0.5], [0.0], [0.0]]), np.array([[1, 2]]), np.array([[0.5]]), np.zeros((1, 2, 1)))
    runs = np.ones((5, 1), np.bool_)
    assert (ledger.priority(runs).ravel() > 0).tolist() == [True, False, False, False, True]


def test_a_job_whose_co_runner_left_gets_nothing_of_their_share() -> None:
    ledger = EveryPairLedger(types=1, head_start_s=180.0)
    met(ledger, [0, 1, 2], [1, 1, 1])
    ledger.settle(0.0, 0.0)
    ledger.grant(np.array([[0.2], [0.0], [0.0]]), np.array([[1, 2]]), np.array([[0.8]]), np.zeros((1, 2, 1)))
    met(ledger, [0, 1], [1, 1])
    assert ledger.share.ravel() == pytest.approx([0.2, 0.0, 0.0])
