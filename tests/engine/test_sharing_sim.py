"""Pairs in the simulator: jobs that share GPUs end when the arithmetic of the pair table says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.engine.test_sharing import ONE, TABLE
from tests.sim.tiny import Outcome, simulate
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.events import Decision, Event, Start
from trine.policy.base import Policy, Selection
from trine.policy.view import View


@dataclass
class Pairs(Policy):
    """The jobs in order of arrival, two to a GPU: the first with the second, the third with the fourth."""

    name: ClassVar[str] = "pairs"
    title: ClassVar[str] = "for tests"
    changes_with_time: ClassVar[bool] = False

    def rank(self, view: View) -> Selection:
        order = np.arange(len(view))
        co_runners = np.where(order ^ 1 < len(view), order ^ 1, -1)
        return Selection.of(view.job_indices, co_runners=co_runners)


class Told(Engine):
    """Remembers the starts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.starts: list[Start] = []

    def handle(self, event: Event) -> list[Decision]:
        decisions = super().handle(event)
        self.starts += [d for d in decisions if isinstance(d, Start)]
        return decisions


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    def with_pairs(jobs: Sequence[Job], cluster: Cluster = ONE, placement: str = "packed-sticky", **v: Any) -> Outcome:
        monkeypatch.setattr("tests.sim.tiny.resolve", lambda *a: replace(resolve(*a), policy=Pairs()))
        return simulate(jobs, cluster, "fifo", placement, throughputs=TABLE, engine=Told, **v)

    return with_pairs


def big(name: str, steps: float, submit_s: float = 0) -> Job:
    """10 steps/s alone, 8 next to a small one, 5 next to a big one."""
    return Job(name, submit_s, 1, steps, None, "big")


def small(name: str, steps: float, submit_s: float = 0) -> Job:
    """4 steps/s alone, 3 next to a big one."""
    return Job(name, submit_s, 1, steps, None, "small")


def started(out: Outcome) -> list[str]:
    assert isinstance(out.engine, Told)
    return [out.engine.table.jobs[start.job_index].id for start in out.engine.starts]


@pytest.mark.parametrize("placement", ["packed", "packed-sticky"])
def test_a_pair_runs_at_the_speeds_of_the_table_and_the_survivor_speeds_up(
    run: Callable[..., Outcome], placement: str
) -> None:
    """b needs 300 / 3 = 100 s; by then a did 800 of 1000 steps, and does the rest at 10 steps/s."""
    out = run([big("a", 1000), small("b", 300)], event_driven=True, placement=placement)
    assert (out.start("a"), out.start("b")) == (0, 0)
    assert out.finish("a") == pytest.approx(120)
    assert out.finish("b") == pytest.approx(100)
    assert started(out) == ["a", "b"]


def test_a_partner_that_comes_later_slows_the_one_that_runs(run: Callable[..., Outcome]) -> None:
    """a does 500 steps in 50 s and the other 500 in 62.5; b does 187.5 steps meanwhile and the rest at 4 steps/s."""
    out = run([big("a", 1000), small("b", 300, 50)], event_driven=True)
    assert out.finish("a") == pytest.approx(112.5)
    assert out.finish("b") == pytest.approx(140.625)
    assert started(out) == ["a", "b"]


def test_in_rounds_the_survivor_speeds_up_at_the_end_of_the_round(run: Callable[..., Outcome]) -> None:
    """b ends at 96.7 s and its GPU share is idle to the end of the round at 100 s."""
    out = run([big("a", 1000), small("b", 290)], round_s=10)
    assert out.finish("b") == pytest.approx(290 / 3)
    assert out.finish("a") == pytest.approx(120)


def test_a_job_may_have_several_partners_in_turn(run: Callable[..., Outcome]) -> None:
    """a next to b for 10 s (80 steps) and, b being done, next to c for 20 s (100 steps); then 2 s alone."""
    out = run([big("a", 200), small("b", 30), big("c", 100)], event_driven=True)
    assert out.finish("b") == pytest.approx(10)
    assert out.finish("c") == pytest.approx(30)
    assert out.finish("a") == pytest.approx(32)
    assert started(out) == ["a", "b", "c"]


def test_nobody_is_restarted_for_a_partner(run: Callable[..., Outcome]) -> None:
    """However dear restores and moves are, coming and going of the other costs nothing."""
    jobs = [big("a", 1000), small("b", 300, 50)]
    dear = run(jobs, event_driven=True, restore_s=500, migration_s=500)
    assert dear.times == run(jobs, event_driven=True).times
    assert dear.summary.preemptions == dear.summary.migrations == dear.summary.lost_work_s == 0


def test_slow_chips_slow_a_pair_as_they_slow_one(run: Callable[..., Outcome]) -> None:
    slow = Cluster((Node("n0", 1, "x"),), scores={"A": (2.0,)})
    jobs = [replace(job, app_class="A") for job in (big("a", 1000), small("b", 300))]
    out = run(jobs, slow, event_driven=True)
    assert out.finish("a") == pytest.approx(240)
    assert out.finish("b") == pytest.approx(200)


def test_shared_gpus_are_busy_and_paid_for_once(run: Callable[..., Outcome]) -> None:
    paid = Cluster((Node("n0", 1, "x"),), prices_per_gpu_h={"x": 36.0})
    out = run([big("a", 1000), small("b", 300)], paid, event_driven=True)
    assert out.summary.utilization == pytest.approx(1)
    assert out.summary.cost == pytest.approx(1.2)


def test_pairs_finish_a_queue_sooner_where_the_table_says_so(run: Callable[..., Outcome]) -> None:
    jobs = [big("a", 800), small("b", 300), big("c", 800), small("d", 300)]
    out = run(jobs, Cluster((Node("n0", 2, "x"),)), event_driven=True)
    assert [out.finish(i) for i in "abcd"] == pytest.approx([100] * 4)


def test_two_that_end_in_the_same_round_end_each_at_its_own_time(run: Callable[..., Outcome]) -> None:
    out = run([big("a", 808), small("b", 309)], round_s=10)
    assert out.finish("a") == pytest.approx(101)
    assert out.finish("b") == pytest.approx(103)
