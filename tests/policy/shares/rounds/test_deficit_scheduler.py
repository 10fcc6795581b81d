"""Deficits: jobs behind go first, running jobs stay for a while, idle GPUs are given out on top and not counted."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import stable
from trine.core.job import Job
from trine.engine.job_table import JobTable
from trine.policy.base import Selection
from trine.policy.shares.rounds.deficit_scheduler import AT_LEAST, MANY, SLACK, DeficitScheduler
from trine.policy.shares.rounds.job_rates import JobRateCache
from trine.policy.view import View

ROUND_S = 100.0
FAST, SLOW = 0, 1


class Floor:
    """Jobs on two types of GPUs; the fast one is twice as fast for all."""

    def __init__(
        self, gpus: list[int], gangs: list[int], stay_rounds: float = 0.0, upgrades: bool = True, many: int = MANY
    ) -> None:
        self.table, self.gpus, self.now = JobTable(), gpus, 0.0
        for number, gang in enumerate(gangs):
            self.table.add(Job(str(number), 0.0, gang, 1e9), 1e9, (FAST, SLOW), (1.0, 2.0))
        self.job_indices = list(range(len(gangs)))
        self.scheduler = DeficitScheduler(JobRateCache(2), [FAST, SLOW], stay_rounds * ROUND_S, ROUND_S, upgrades, many)

    @property
    def view(self) -> View:
        return View(self.now, np.array(self.job_indices, np.int64), self.table, self.gpus, self.gpus)

    def grant(self, shares: list[list[float]], pairs: dict[tuple[int, int], list[float]] | None = None) -> None:
        """Two in a pair make 0.4 steps/s each on the fast type, and none on the slow one."""
        told = pairs or {}
        rates = np.array([[[0.4, 0.0], [0.4, 0.0]]] * len(told)).reshape(-1, 2, 2)
        pair_share = np.array(list(told.values())).reshape(-1, 2)
        self.scheduler.follow(self.view)
        self.scheduler.charge(self.view)
        self.scheduler.grant(
            self.view, np.array(shares), np.array(list(told), np.int64).reshape(-1, 2), pair_share, rates
        )

    def choose(self) -> Selection:
        return self.hold(self.scheduler.serve(self.view))

    def hold(self, chosen: Selection) -> Selection:
        for job_index in range(len(self.table)):
            self.table.assigned[job_index] = job_index in chosen.wanted
        return chosen

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.scheduler.follow(self.view)
        self.scheduler.charge(self.view)


def test_whole_shares_never_change() -> None:
    floor = Floor([1, 1], [1, 1])
    floor.grant([[0.0, 1.0], [1.0, 0.0]])
    assert floor.choose().wanted == {0: SLOW, 1: FAST}
    assert floor.scheduler.change_s == math.inf


def test_two_jobs_change_places_when_one_is_further_behind() -> None:
    floor = Floor([1, 1], [1, 1])
    floor.grant([[0.5, 0.5], [0.5, 0.5]])
    first = dict(floor.choose().wanted)
    floor.later(ROUND_S)
    assert floor.now >= floor.scheduler.change_s
    assert floor.choose().wanted == {0: first[1], 1: first[0]}


def test_a_running_job_stays_until_others_are_behind_by_more() -> None:
    floor = Floor([1, 1], [1, 1], stay_rounds=3.0)
    floor.grant([[0.5, 0.5], [0.5, 0.5]])
    first = dict(floor.choose().wanted)
    floor.later(2 * ROUND_S)
    assert floor.scheduler.change_s > floor.now
    assert floor.choose().wanted == first


def test_idle_gpus_are_given_out_and_not_counted() -> None:
    floor = Floor([2, 2], [1, 1])
    floor.grant([[0.0, 1.0], [0.0, 0.0]])
    assert floor.choose().wanted == {0: FAST, 1: FAST}, "faster than their share where no other job wants it"
    floor.later(10 * ROUND_S)
    account = floor.scheduler.accounts[0, -1]
    assert account.entitled == SLOW and account.deficit_s == [0.0, 0.0]
    assert floor.scheduler.accounts[1, -1].deficit_s == [0.0, 0.0], "a job without a share owes nothing"


def test_where_types_have_prices_no_job_is_moved_to_a_faster_one() -> None:
    floor = Floor([1, 1], [1], upgrades=False)
    floor.grant([[0.0, 1.0]])
    assert floor.choose().wanted == {0: SLOW}


def test_a_new_job_takes_what_is_left_until_shares_are_computed() -> None:
    floor = Floor([1, 1], [1, 1])
    floor.job_indices = [0]
    floor.grant([[1.0, 0.0]])
    floor.choose()
    floor.job_indices = [0, 1]
    floor.later(ROUND_S)
    assert floor.scheduler.keep().wanted == {0: FAST, 1: SLOW}


def test_accounts_go_over_to_new_shares() -> None:
    floor = Floor([1, 0], [1, 1])
    floor.grant([[0.5, 0.0], [0.5, 0.0]])
    assert floor.choose().wanted == {0: FAST}
    floor.later(ROUND_S)
    floor.grant([[0.9, 0.0], [0.1, 0.0]])
    assert floor.scheduler.accounts[1, -1].deficit_s[FAST] == pytest.approx(50.0)
    assert floor.choose().wanted == {1: FAST} or floor.scheduler.change_s <= floor.now + ROUND_S


def test_a_pair_is_a_unit_and_the_job_left_takes_it_over() -> None:
    floor = Floor([1, 0], [1, 1, 1])
    floor.grant([[0.0, 0.0], [0.0, 0.0], [0.2, 0.0]], {(0, 1): [0.8, 0.0]})
    chosen = floor.choose()
    assert chosen.wanted == {0: FAST, 1: FAST} and chosen.co_runners == {0: 1, 1: 0}
    floor.job_indices = [1, 2]
    floor.later(ROUND_S)
    assert floor.scheduler.keep() == Selection({1: FAST}, {})
    assert floor.scheduler.accounts[1, -1].share[FAST] == pytest.approx(0.8)


def test_a_pair_is_split_when_gpus_are_left() -> None:
    floor = Floor([1, 1], [1, 1])
    floor.grant([[0.0, 0.0], [0.0, 0.0]], {(0, 1): [1.0, 0.0]})
    chosen = floor.choose()
    assert sorted(chosen.wanted.values()) == [FAST, SLOW] and not chosen.co_runners


def test_a_pair_never_runs_beside_its_own_members() -> None:
    floor = Floor([2, 0], [1, 1])
    floor.grant([[0.3, 0.0], [0.3, 0.0]], {(0, 1): [0.6, 0.0]})
    for _ in range(20):
        chosen = floor.choose()
        assert set(chosen.wanted) == {0, 1}
        assert not chosen.co_runners, "both fit alone: none shares"
        floor.later(ROUND_S)


def test_a_job_that_was_away_and_returns_gets_its_own_share() -> None:
    """A job that was held comes back before those that arrived after it."""
    floor = Floor([1, 1], [1, 1])
    floor.job_indices = [1]
    floor.grant([[0.0, 1.0]])
    floor.choose()
    floor.job_indices = [0, 1]
    floor.later(ROUND_S)
    floor.grant([[1.0, 0.0], [0.0, 1.0]])
    assert floor.choose().wanted == {0: FAST, 1: SLOW}
    floor.grant([[0.0, 1.0], [1.0, 0.0]])
    assert floor.choose().wanted == {0: SLOW, 1: FAST}


def first_change_s(scheduler: DeficitScheduler, stay_s: float) -> float:
    """Seconds until a waiting job passes one that has GPUs of a type it wants, comparing all with all."""
    accounts = scheduler.accounts.values()
    behind_s = {a.unit: [d + s * ROUND_S for d, s in zip(a.deficit_s, a.share, strict=True)] for a in accounts}
    waits = [
        (behind_s[holder.unit][j] + stay_s - behind_s[waiting.unit][j]) / (waiting.share[j] + 1 - holder.share[j])
        for waiting in accounts
        for holder in accounts
        for j in waiting.types
        if waiting.entitled < 0 and holder.entitled == j
    ]
    return min([wait_s for wait_s in waits if wait_s >= 0], default=math.inf)


@given(st.integers(2, 30), st.integers(1, 4), st.sampled_from((0.0, 1.0, 3.0)), st.randoms(use_true_random=False))
@stable(60)
def test_the_change_foreseen_is_the_first_of_all(jobs: int, gpus: int, stay_rounds: float, rng: random.Random) -> None:
    """Searching the nearest thresholds only finds what comparing each job with every other finds."""
    floor = Floor([gpus, 0], [1] * jobs, stay_rounds)
    weights = [rng.random() + 0.01 for _ in range(jobs)]
    floor.grant([[min(0.99, weight * gpus / sum(weights)), 0.0] for weight in weights])
    floor.choose()
    for _ in range(10):
        floor.later(rng.uniform(0.1, 2.0) * ROUND_S)
        floor.choose()
        wait_s = first_change_s(floor.scheduler, stay_rounds * ROUND_S) + SLACK * stay_rounds * ROUND_S
        assert floor.scheduler.change_s == pytest.approx(floor.now + max(wait_s, AT_LEAST * ROUND_S), rel=1e-9)


def lagging(jobs: int, gpus: list[int], stay_rounds: float, many: int, rng: random.Random) -> list[object]:
    """What is selected and foreseen round by round, for gangs and pairs with shares of both types that add up."""
    gangs = [rng.choice((1, 1, 2)) for _ in range(jobs)]
    floor, found = Floor(gpus, gangs, stay_rounds, many=many), list[object]()
    for _ in range(3):
        alone = [[rng.random() if rng.random() < 0.6 else 0.0 for _ in gpus] for _ in floor.job_indices]
        equal = [(a, b) for a in floor.job_indices for b in floor.job_indices if a < b and gangs[a] == gangs[b]]
        pairs = {pair: [rng.random(), 0.0] for pair in rng.sample(equal, min(len(equal), jobs // 2))}
        scale = 0.5 * min(gpus) / (2 * jobs)
        floor.grant(
            [[scale * s for s in share] for share in alone],
            {pair: [scale * s for s in share] for pair, share in pairs.items()},
        )
        for _ in range(6):
            found += [floor.choose(), floor.scheduler.change_s, floor.scheduler.state(floor.view)]
            floor.later(rng.uniform(0.1, 2.0) * ROUND_S)
        for _ in range(3):  # jobs leave between resets: those they shared GPUs with take over
            if len(floor.job_indices) > 2:
                floor.job_indices.remove(rng.choice(floor.job_indices))
            floor.scheduler.follow(floor.view)
            floor.later(rng.uniform(0.1, 2.0) * ROUND_S)
            found += [floor.choose(), floor.scheduler.change_s, floor.scheduler.state(floor.view)]
    return found


@given(st.integers(2, 24), st.integers(1, 4), st.sampled_from((0.0, 1.0)), st.integers(0, 2**32))
@stable(60)
def test_many_accounts_decide_as_each_by_itself(jobs: int, gpus: int, stay_rounds: float, seed: int) -> None:
    one_by_one = lagging(jobs, [gpus, 2], stay_rounds, 10**9, random.Random(seed))
    assert lagging(jobs, [gpus, 2], stay_rounds, 0, random.Random(seed)) == one_by_one
