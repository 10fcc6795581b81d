"""Time received follows the shares computed: no job falls behind its share by more than a few rounds, ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import stable
from trine.core.job import Job
from trine.engine.job_table import JobTable
from trine.policy.shares.rounds.deficit_scheduler import DeficitScheduler
from trine.policy.shares.rounds.job_rates import JobRateCache
from trine.policy.shares.rounds.round_selection import Candidates, select
from trine.policy.shares.rounds.share_ledger import ShareLedger
from trine.policy.view import Floats, Ints, View

ROUND_S = 360.0
ROUNDS = 120


@dataclass(frozen=True)
class Demand:
    """Jobs and shares that rounds can realise: a mixture of whole assignments."""

    gpus: list[int]
    gangs: list[int]
    shares: Floats
    mixed_of: ClassVar[int] = 5


@st.composite
def demands(draw: st.DrawFn, types: int, gangs: tuple[int, ...] = (1,)) -> Demand:
    gpus = draw(st.lists(st.integers(max(gangs), 6), min_size=types, max_size=types))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    jobs = draw(st.integers(sum(gpus) + 1, sum(gpus) + 12))
    sizes = rng.choice(gangs, jobs)
    shares = np.zeros((jobs, types))
    for part in rng.dirichlet(np.ones(Demand.mixed_of)):
        waiting = rng.permutation(jobs).tolist()
        for type_index, count in enumerate(gpus):
            left = count
            for job in list(waiting):
                if sizes[job] <= left:
                    left -= int(sizes[job])
                    shares[job, type_index] += part
                    waiting.remove(job)
    return Demand(gpus, sizes.tolist(), shares)


@dataclass
class Received:
    """Seconds each job had on each type."""

    demand: Demand
    stay_rounds: float = 0.0

    def __post_init__(self) -> None:
        self.table = JobTable()
        types = len(self.demand.gpus)
        for number, gang in enumerate(self.demand.gangs):
            suits = tuple(type_index for type_index in range(types) if gang <= self.demand.gpus[type_index])
            self.table.add(Job(str(number), 0.0, gang, 1e9), 1e9, suits, (1.0,) * types)
        self.job_indices = np.arange(len(self.table))
        self.seconds = np.zeros(self.demand.shares.shape)
        # Types are equally fast here: no job gains by a move to idle GPUs.
        self.scheduler = DeficitScheduler(JobRateCache(types), list(range(types)), self.stay_rounds * ROUND_S, ROUND_S)

    def view(self, now: float) -> View:
        return View(now, self.job_indices, self.table, self.demand.gpus, self.demand.gpus)

    def begin(self) -> None:
        types = len(self.demand.gpus)
        self.scheduler.follow(self.view(0.0))
        none = np.zeros((0, 2), np.int64)
        self.scheduler.grant(self.view(0.0), self.demand.shares, none, np.zeros((0, types)), np.zeros((0, 2, types)))

    def furthest_behind(self) -> float:
        """Rounds by which any job was behind on any type, at worst."""
        self.begin()
        worst = 0.0
        for number in range(ROUNDS):
            view = self.view(number * ROUND_S)
            self.scheduler.charge(view)
            chosen = (
                self.scheduler.serve(view)
                if view.now >= self.scheduler.change_s or not number
                else self.scheduler.keep()
            )
            self.run(dict(chosen.wanted))
            owed = self.demand.shares * (number + 1) * ROUND_S - self.seconds
            worst = max(worst, float(owed.max()) / ROUND_S)
        return worst

    def run(self, wanted: dict[int, int]) -> None:
        """A round of this selection."""
        used = np.zeros(len(self.demand.gpus), np.int64)
        self.table.assigned[: len(self.table)] = False
        for job_index, type_index in wanted.items():
            used[type_index] += self.demand.gangs[job_index]
            self.seconds[job_index, type_index] += ROUND_S
            self.table.assigned[job_index] = True
        assert (used <= self.demand.gpus).all(), "more GPUs than there are"
        idle = set(range(len(self.table))) - wanted.keys()
        room = self.demand.gpus - used
        assert not any(self.demand.gangs[job_index] <= room.max() for job_index in idle), "GPUs stand idle"


@given(demands(types=1))
@stable(60)
def test_on_one_type_no_job_falls_a_round_behind(demand: Demand) -> None:
    assert Received(demand).furthest_behind() <= 1.0


@given(demands(types=3))
@stable(60)
def test_on_three_types_no_job_falls_more_than_two_rounds_behind(demand: Demand) -> None:
    """A job runs on one type at a time, so that two types may want it in the same round."""
    assert Received(demand).furthest_behind() <= 2.0


@given(st.sampled_from((1, 3)).flatmap(lambda types: demands(types, gangs=(1, 2, 4))))
@stable(60)
def test_gangs_fall_no_more_than_four_rounds_behind(demand: Demand) -> None:
    """A gang waits until enough GPUs come free at once."""
    assert Received(demand).furthest_behind() <= 4.0


@given(demands(types=3, gangs=(1, 2)), st.sampled_from((1.0, 2.0, 4.0)))
@stable(60)
def test_staying_costs_what_it_says(demand: Demand, stay_rounds: float) -> None:
    """A job that stays for so many rounds makes others wait as long, changes made together half of that more."""
    assert Received(demand, stay_rounds).furthest_behind() <= 2.5 + 1.5 * stay_rounds


@given(demands(types=1))
@stable(60)
def test_the_published_ratio_keeps_to_the_shares_of_one_type(demand: Demand) -> None:
    jobs, types = demand.shares.shape
    ledger = ShareLedger(types, ROUND_S / 2)
    ledger.follow(np.arange(jobs))
    ledger.settle(0.0, 0.0)
    ledger.grant(demand.shares, np.zeros((0, 2), np.int64), np.zeros((0, types)), np.zeros((0, 2, types)))
    everywhere, gang = np.ones((jobs, types), np.bool_), np.ones(jobs, np.int64)
    behind = worst = 0.0
    for number in range(1, ROUNDS + 1):
        chosen = select(_units(ledger, gang, everywhere), everywhere, demand.gpus, range(types), False)
        assert len(set(chosen.rows)) == len(chosen.rows) == sum(demand.gpus), "GPUs stand idle or a job runs twice"
        rows, type_indices = np.array(chosen.rows, np.int64), np.array(chosen.type_indices, np.int64)
        ledger.charge(rows, type_indices, np.full(len(rows), ROUND_S))
        owed_s = demand.shares * number * ROUND_S - (ledger.received_s - ledger.head_start_s)
        behind = float(owed_s.max()) / ROUND_S
        worst = max(worst, behind)
    assert worst <= 2.0 and behind / ROUNDS < 0.02


def _units(ledger: ShareLedger, gang: Ints, runs: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Candidates:
    priority = ledger.priority(runs)
    return Candidates(ledger.members, gang, runs, priority, ledger.owed_s, ledger.share, np.ones(runs.shape))
