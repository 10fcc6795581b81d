"""Time received follows the shares computed: nobody falls behind its share by more than about a round, ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import stable
from trine.policy.rounds.ledger import Ledger
from trine.policy.rounds.select import Candidates, select
from trine.policy.view import Floats, Ints

ROUND_S = 360.0
ROUNDS = 120


@dataclass(frozen=True)
class Demand:
    """Jobs of one GPU each and shares that rounds can realise: a mixture of whole assignments."""

    gpus: list[int]
    shares: Floats
    mixed_of: ClassVar[int] = 5


@st.composite
def demands(draw: st.DrawFn, types: int) -> Demand:
    gpus = draw(st.lists(st.integers(1, 6), min_size=types, max_size=types))
    jobs = draw(st.integers(sum(gpus) + 1, sum(gpus) + 12))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    shares = np.zeros((jobs, types))
    for part in rng.dirichlet(np.ones(Demand.mixed_of)):
        order = rng.permutation(jobs)
        for kind, count in enumerate(gpus):
            shares[order[:count], kind] += part
            order = order[count:]
    return Demand(gpus, shares)


def furthest_behind(demand: Demand, by_lag: bool) -> tuple[float, float]:
    """Rounds by which any job was behind on any type: at worst, and after all rounds."""
    jobs, types = demand.shares.shape
    ledger = Ledger(types, ROUND_S / 2)
    ledger.follow(np.arange(jobs))
    ledger.settle(0.0, 0.0)
    ledger.grant(demand.shares, np.zeros((0, 2), np.int64), np.zeros((0, types)), np.zeros((0, 2, types)))
    everywhere, gang = np.ones((jobs, types), np.bool_), np.ones(jobs, np.int64)
    worst = 0.0
    for number in range(1, ROUNDS + 1):
        end_s = number * ROUND_S
        units = _units(ledger, gang, everywhere)
        behind_s = ledger.behind_s(end_s) if by_lag else None
        chosen = select(units, everywhere, demand.gpus, range(types), False, behind_s)
        assert len(set(chosen.rows)) == len(chosen.rows) == sum(demand.gpus), "GPUs stand idle or a job runs twice"
        ledger.charge(
            np.array(chosen.rows, np.int64), np.array(chosen.kinds, np.int64), np.full(len(chosen.rows), ROUND_S)
        )
        now = float(ledger.behind_s(end_s).max()) / ROUND_S
        worst = max(worst, now)
    return worst, now


def _units(ledger: Ledger, gang: Ints, runs: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Candidates:
    priority = ledger.priority(runs)
    return Candidates(ledger.members, gang, runs, priority, ledger.owed_s, ledger.share, np.ones(runs.shape))


@given(demands(types=1))
@stable(60)
def test_on_one_type_nobody_falls_a_round_behind(demand: Demand) -> None:
    worst, _ = furthest_behind(demand, by_lag=True)
    assert worst <= 1.0


@given(demands(types=3))
@stable(60)
def test_on_three_types_nobody_falls_more_than_two_rounds_behind(demand: Demand) -> None:
    """A job runs on one type at a time, so that two types may want it in the same round."""
    worst, _ = furthest_behind(demand, by_lag=True)
    assert worst <= 2.5


@given(demands(types=1))
@stable(60)
def test_the_published_ratio_keeps_to_the_shares_of_one_type(demand: Demand) -> None:
    worst, last = furthest_behind(demand, by_lag=False)
    assert worst <= 2.0 and last / ROUNDS < 0.02
