"""Rankings that are a selection: the jobs chosen run, the others do not, and nobody is stopped in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest

from tests.engine.live import LiveWorld
from tests.sim.tiny import build_engine, one_node, simulate
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node, Tier
from trine.core.job import Job, Shape
from trine.core.plugins import discover
from trine.core.reason import Why
from trine.engine.events import Fill, GpusCordoned, Held, Interrupted, Start
from trine.engine.invariants import check
from trine.engine.quotas import Quotas
from trine.perf.throughput import ThroughputTable
from trine.placement.base import Placement
from trine.policy.base import Policy, PolicyError, Selection
from trine.policy.view import View

TWO_TYPES = Cluster((Node("n0", 4, "x"), Node("n1", 4, "y")))
PLACEMENTS = [name + suffix for name in sorted(discover("trine.placement", Placement)) for suffix in ("", "-sticky")]


@dataclass
class Chosen(Policy):
    """Selects what the test wrote down: ``a`` alone, ``a@1`` on GPU type 1, ``a+b`` on the same GPUs."""

    name: ClassVar[str] = "chosen"
    title: ClassVar[str] = "what the test says"
    choice: Sequence[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    """By job number."""

    def rank(self, view: View) -> Selection:
        position = {self.jobs[job_index].id: i for i, job_index in enumerate(view.job_indices.tolist())}
        order: list[int] = []
        pools: list[int] = []
        co_runners: list[int] = []
        for line in self.choice:
            names, _, pool = line.partition("@")
            members = [name for name in names.split("+") if name in position]
            first = len(order)
            order += [position[name] for name in members]
            pools += [int(pool or -1)] * len(members)
            co_runners += [first + 1, first] if len(members) == 2 else [-1] * len(members)
        arrays = [np.array(column, dtype=np.int64) for column in (order, pools, co_runners)]
        return Selection.of(view.job_indices[arrays[0]], arrays[1], arrays[2])


class ChosenWorld(LiveWorld):
    """A live world in which only declared partners may be on the same GPUs, and never three jobs."""

    def __init__(
        self, cluster: Cluster, placement: str = "packed-sticky", throughputs: ThroughputTable | None = None
    ) -> None:
        super().__init__(cluster, "fifo", placement)
        self.policy = Chosen()
        self.restart(cluster, placement, throughputs)

    def restart(self, cluster: Cluster, placement: str, throughputs: ThroughputTable | None = None) -> None:
        """A new engine that knows of no jobs."""
        settings = replace(resolve("fifo", placement, {}), policy=self.policy)
        self.engine = build_engine(cluster, settings, throughputs=throughputs)
        self.policy.jobs = self.engine.table.jobs

    def choose(self, *lines: str, now: float | None = None) -> list[str]:
        """A round with this selection; returns what was decided."""
        self.policy.choice = lines
        return self.tick(now)

    def run(self, *lines: str, now: float | None = None) -> list[str]:
        """The same, carried out at once."""
        decided = self.choose(*lines, now=now)
        for job_id in sorted(self.told_to_stop):
            decided += self.confirm_stop(job_id)
        for job_id in self.held:
            if self.state(job_id) == "STARTING":
                self.confirm_start(job_id)
        return decided

    def fill(self, *lines: str) -> list[str]:
        self.policy.choice = lines
        before = len(self.log)
        self._heard(self.engine.handle(Fill(self.now)))
        return self.log[before:]

    def _start(self, job_id: str, decision: Start) -> None:
        others = [i for i, gpus in self.held.items() if set(gpus) & set(decision.gpus)]
        co_runner = self.engine.table.jobs[decision.co_runner].id if decision.co_runner >= 0 else None
        assert job_id not in self.held, f"{job_id} starts while its old run holds GPUs"
        assert others in ([], [co_runner]), f"{job_id} starts next to {others}, declared is {co_runner}"
        assert not others or self.held[others[0]] == decision.gpus
        self.held[job_id] = decision.gpus
        self.log.append(f"start {job_id} {','.join(map(str, decision.gpus))}")


def world_of(cluster: Cluster, *gangs: tuple[str, int], placement: str = "packed-sticky") -> ChosenWorld:
    world = ChosenWorld(cluster, placement)
    world.submit(*(Job(name, 0, gpus, 1000) for name, gpus in gangs))
    return world


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_is_selected_runs_and_nothing_else(placement: str) -> None:
    world = world_of(TWO_TYPES, ("a", 2), ("b", 2), ("c", 4), ("d", 1), placement=placement)
    world.run("a@0", "b@0", "c@1")
    assert set(world.held) == {"a", "b", "c"}
    world.run("c@0", "a@1", "d@1")
    assert set(world.held) == {"a", "c", "d"}
    kinds = {job_id: world.engine.cluster.type_of(gpus[0]) for job_id, gpus in world.held.items()}
    assert kinds == {"c": "x", "a": "y", "d": "y"}
    world.run()
    assert not world.held


def test_who_stays_on_its_type_keeps_its_gpus_whatever_the_order() -> None:
    world = world_of(TWO_TYPES, ("a", 1), ("b", 1), ("c", 2), ("d", 1))
    world.run("a@0", "b@0", "c@0")
    assert world.choose("c@0", "b@0", "d@0") == ["stop a"]
    assert world.confirm_stop("a") == ["start d 2"]
    assert world.choose("d@0", "c@0", "b@0") == []


def test_a_job_without_a_wanted_type_stays_where_it_is() -> None:
    world = world_of(TWO_TYPES, ("a", 1), ("b", 1))
    world.run("a@1")
    assert world.run("b", "a") == ["start b 0"]


def test_larger_gangs_are_placed_first() -> None:
    """Were the small ones first, they would tear both nodes."""
    world = world_of(Cluster.uniform(2, 2), ("one", 1), ("two", 2), ("uno", 1))
    world.run("one", "uno", "two")
    assert world.held == {"two": (0, 1), "one": (2,), "uno": (3,)}


def test_equal_gangs_are_placed_in_the_order_given() -> None:
    world = world_of(one_node(2), ("a", 1), ("b", 1), ("c", 1))
    world.run("c", "a", "b")
    assert world.held == {"c": (0,), "a": (1,)}
    assert world.explain("b").code is Why.NO_FREE_GPUS


def test_who_does_not_fit_is_passed_over_and_the_next_are_served() -> None:
    world = world_of(one_node(4), ("wide", 4), ("a", 3), ("b", 2), ("c", 1))
    world.run("a", "b", "c")
    assert set(world.held) == {"a", "c"}
    world.run("a", "wide", "c")
    assert set(world.held) == {"a", "c"}
    assert "job wide needs 4 GPUs" in world.explain("wide").sentence


@pytest.mark.parametrize("placement", ["packed", "packed-sticky"])
def test_nothing_is_stopped_for_a_move_to_where_there_is_no_room(placement: str) -> None:
    """a should go to type y, which b fills: it stays on x. When b leaves, it goes."""
    world = world_of(TWO_TYPES, ("a", 2), ("b", 4), placement=placement)
    world.run("a@0", "b@1")
    assert world.choose("b@1", "a@1") == []
    assert world.run("a@1") == ["stop b", "move a", "start a 4,5"]


def test_who_finds_no_room_gives_way_to_who_does() -> None:
    """a should leave x for y, which is full, and c takes all of x."""
    world = world_of(TWO_TYPES, ("a", 2), ("b", 4), ("c", 4))
    world.run("a@0", "b@1")
    assert world.choose("b@1", "a@1", "c@0") == ["stop a"]
    assert world.confirm_stop("a") == ["start c 0,1,2,3"]


def test_jobs_can_swap_types() -> None:
    world = world_of(TWO_TYPES, ("a", 4), ("b", 4))
    world.run("a@0", "b@1")
    assert world.choose("a@1", "b@0") == ["move a", "move b"]
    assert world.confirm_stop("a") == []
    assert sorted(world.confirm_stop("b")) == ["start a 4,5,6,7", "start b 0,1,2,3"]


@pytest.mark.parametrize("placement", ["packed", "pal"])
def test_a_placement_that_places_anew_keeps_what_comes_out_the_same(placement: str) -> None:
    world = world_of(TWO_TYPES, ("a", 2), ("b", 2), ("c", 1), placement=placement)
    world.run("a@0", "b@0", "c@1")
    for _ in range(3):
        assert world.choose("a@0", "b@0", "c@1") == []


def test_a_placement_that_places_anew_does_not_stop_who_would_find_no_room_that_way() -> None:
    """Best fit would put a and b on one node and leave four no room; as they are, all fit."""
    world = ChosenWorld(Cluster.uniform(2, 2), "packed")
    near = Shape(required=Tier.NODE)
    world.submit(Job("a", 0, 1, 100), Job("x", 0, 1, 100), Job("b", 0, 2, 100, shape=near), Job("y", 0, 2, 100))
    world.run("a", "x", "b")
    assert world.held == {"b": (0, 1), "a": (2,), "x": (3,)}
    assert world.choose("y", "b", "a", "x") == []


def test_between_rounds_only_free_gpus_are_given_out() -> None:
    world = world_of(one_node(4), ("a", 2), ("b", 3), ("c", 1), ("d", 1), ("e", 1))
    world.run("a")
    assert world.fill("b", "c", "d", "e") == ["start c 2", "start d 3"]
    assert "a" in world.held and "a" not in world.told_to_stop
    assert world.choose("b", "c") == ["stop a", "stop d"]


def test_a_start_that_still_waits_is_kept_or_taken_back_like_a_run() -> None:
    world = world_of(one_node(2), ("a", 2), ("b", 2), ("c", 1))
    world.run("a")
    assert world.choose("b") == ["stop a"]
    assert world.choose("b") == []
    assert world.choose("c") == []
    assert world.confirm_stop("a") == ["start c 0"]
    assert world.state("b") == "WAITING"


def test_the_reasons_say_that_it_is_somebody_elses_turn() -> None:
    world = world_of(one_node(1), ("a", 1), ("b", 1))
    world.run("a")
    decisions = world.engine.decide(world.now)
    assert decisions == []
    assert str(world.explain("b")).startswith(
        "job b waits for its turn: the policy chose 1 other job (a) for this round."
    )
    world.policy.choice = ["b"]
    (stop,) = world.engine.decide(world.now)
    assert world.engine.reason(stop).sentence == "job a pauses: in this round its GPU is for other jobs."


def test_a_job_on_gpus_out_of_service_may_stay_but_nobody_comes() -> None:
    world = world_of(TWO_TYPES, ("a", 2), ("b", 2), ("c", 4))
    world.run("a@0", "c@1")
    world.engine.handle(GpusCordoned(world.now, (0, 1, 2, 3)))
    assert world.choose("a@0", "b@0", "c@1") == []
    assert world.choose("c@1", "a@1") == []  # no room there: it stays rather than stop for nothing
    check(world.engine)


def test_quotas_bind_a_selection_too() -> None:
    world = ChosenWorld(one_node(4))
    world.engine.quotas = Quotas(by_user={"ann": 2})
    world.submit(*(Job(i, 0, 1, 100, user="ann") for i in "abc"), Job("d", 0, 1, 100))
    world.run("a", "b", "c", "d")
    assert set(world.held) == {"a", "b", "d"}
    assert world.explain("c").code is Why.QUOTA


def test_a_lost_or_held_job_leaves_room_for_the_next_selection() -> None:
    world = world_of(one_node(1), ("a", 1), ("b", 1))
    world.run("a")
    world.held.pop("a")
    world.engine.handle(Interrupted(1, world.job_indices["a"], 0))
    assert world.run("a") == ["start a 0"]
    world._heard(world.engine.handle(Held(2, world.job_indices["a"])))
    assert world.choose("a", "b") == []
    assert world.confirm_stop("a") == ["start b 0"]


def test_a_policy_that_contradicts_itself_is_told_so() -> None:
    world = world_of(one_node(4), ("a", 1), ("b", 2))
    with pytest.raises(PolicyError, match="the same job twice"):
        world.choose("a", "a")
    with pytest.raises(PolicyError, match=r"job a \(1 GPUs\) to share GPUs with job b \(2 GPUs\)"):
        world.choose("a+b")


@dataclass
class TakingTurns(Policy):
    """Everybody runs every other round, and every job on each type in turn."""

    name: ClassVar[str] = "taking-turns"
    title: ClassVar[str] = "for tests"
    rounds: int = 0

    def rank(self, view: View) -> Selection:
        self.rounds += 1
        order = np.flatnonzero(view.job_indices % 2 == self.rounds % 2)
        pools = (view.job_indices[order] // 2 + self.rounds // 2) % 2
        return Selection.of(view.job_indices[order], pools.astype(np.int64))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_simulator_runs_a_selection_round_by_round(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four jobs of 100 s in rounds of 10 s, each in every other round: all done after 200 s and a round."""
    monkeypatch.setattr("tests.sim.tiny.resolve", lambda *a: replace(resolve(*a), policy=TakingTurns()))
    jobs = [Job(i, 0, 2, 100) for i in "abcd"]
    out = simulate(jobs, TWO_TYPES, "fifo", placement, round_s=10)
    assert sorted(record.finish_s for record in out.records.values()) == [190, 190, 200, 200]
    assert {len(out.stretches(i)) for i in "abcd"} == {10}
