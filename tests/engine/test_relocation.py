"""Running jobs that sit badly move to better GPUs of a sticky placement, if that pays and not too often."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.live import LiveWorld
from tests.engine.named_victims import Named, named_world
from tests.property.strategies import Case, cases, stable
from tests.sim.test_skipping import Restless
from tests.sim.tiny import build_engine
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.reason import Why
from trine.core.result import Segment
from trine.engine.engine import Engine
from trine.engine.events import Decision, Event, Stop, Tick
from trine.engine.invariants import check
from trine.policy.base import Relocation
from trine.sim.recorder import Recorder
from trine.sim.world import World

RULE = Relocation(quantum_s=100)


def spread_gang(rule: Relocation | None, *, penalty: float = 2.0, **values: Any) -> LiveWorld:
    """A gang of two on two nodes since time 0, because a GPU of each was taken; from 50 s on node 0 is free."""
    world = named_world(Cluster.uniform(2, 2), Named(relocation=rule), locality_penalty=penalty, **values)
    world.submit(Job("a", 0, 1, 1000), Job("b", 0, 1, 1000), Job("c", 0, 1, 1000))
    world.start_all()
    assert world.held == {"a": (0,), "b": (1,), "c": (2,)}
    world.finish("b", 0)
    world.submit(Job("gang", 0, 2, 1000))
    world.tick(0)
    world.confirm_start("gang", rate=1 / penalty)
    assert world.held["gang"] == (1, 3)
    world.finish("a", 50)
    return world


def test_a_gang_moves_to_one_node_when_its_quantum_is_over() -> None:
    """At 100 s it has made 50 of 1000 steps, one in 2 s; on one node one takes 1 s: 950 s are gained."""
    world = spread_gang(RULE)
    assert world.tick(99) == []
    assert not world.engine.can_wait, "it could move but for its quantum"
    (stop,) = world.engine.handle(Tick(100))
    assert isinstance(stop, Stop) and stop.moves and stop.why is Why.MOVED
    assert stop.gain_s == pytest.approx(950)
    said = "job gang moves to better GPUs: it is expected to end 950 s earlier there. It is 2 times as fast there;"
    assert str(world.engine.reason(stop)).startswith(said)
    check(world.engine)


def test_it_goes_on_there_once_it_has_let_go() -> None:
    world = spread_gang(RULE)
    assert world.tick(100) == ["move gang"]
    assert world.confirm_stop("gang", done=50) == ["start gang 0,1"]


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (None, {}),
        (RULE, {"penalty": 1.05}),
        (replace(RULE, min_speedup=2.5), {}),
        (RULE, {"migration_s": 480}),
        (replace(RULE, horizon_s=100), {"migration_s": 30}),
    ],
    ids=["not wanted", "fast enough", "too small a step", "costs too much", "too far ahead"],
)
def test_it_stays_where_moving_does_not_pay(rule: Relocation | None, values: dict[str, Any]) -> None:
    world = spread_gang(rule, **values)
    assert world.tick(100) == []
    assert world.engine.can_wait, "and nothing but an event can change that"


def test_waiting_jobs_come_first() -> None:
    world = spread_gang(RULE)
    world.submit(Job("new", 100, 1, 10))
    assert world.start_all(100) == ["start new 0"]
    assert world.tick(101) == []


def test_a_wide_gang_in_its_best_tier_is_left_alone() -> None:
    """Three GPUs never fit a node of two: spread over a rack is as good as it gets."""
    world = named_world(Cluster.uniform(3, 2), Named(relocation=RULE), locality_penalty=2.0)
    world.submit(Job("wide", 0, 3, 1000))
    world.start_all()
    world.engine.handle(Tick(200))
    assert world.engine.can_wait and world.tick(500) == []


def test_a_job_moves_to_a_faster_type() -> None:
    """One step takes 1 s everywhere by itself, but the chips of node 0 are three times slower."""
    cluster = Cluster((Node("n0", 1), Node("n1", 1)), scores={"A": (3.0, 1.0)})
    world = named_world(cluster, Named(relocation=RULE), "pal-sticky")
    world.submit(Job("short", 0, 1, 10, app_class="A"), Job("long", 0, 1, 1000, app_class="A"))
    world.tick(0)
    world.confirm_start("short")
    world.confirm_start("long", rate=1 / 3)
    assert world.held == {"short": (1,), "long": (0,)}
    world.finish("short", 10)
    assert world.tick(100) == ["move long"]


def test_chance_relocates_nothing() -> None:
    world = spread_gang(RULE)
    settings = resolve("fifo", "random-sticky", {})
    assert not settings.placement.relocates and world.engine.placement.relocates


# -- whatever the jobs -------------------------------------------------------------------------------------------

QUANTUM_S = 60.0


class Watched(Engine):
    """After every decision: every stop makes room for a start on its GPUs, or is a move that gains."""

    def handle(self, event: Event) -> list[Decision]:
        held = dict(self.assigned)
        decisions = super().handle(event)
        check(self)
        for decision in decisions:
            if isinstance(decision, Stop):
                self._look_at(decision, held[decision.job_index])
        return decisions

    def _look_at(self, stop: Stop, gpus: tuple[int, ...]) -> None:
        if stop.for_job >= 0:
            assert not set(self.assigned[stop.for_job]).isdisjoint(gpus), "stopped in vain"
        else:
            assert stop.moves and stop.gain_s > 0 and self.assigned[stop.job_index] != gpus


class WatchedRestless(Watched, Restless):
    """Decides in every single round."""


def run_named(case: Case, levels: dict[str, float], values: dict[str, Any], engine: type[Engine]) -> list[Segment]:
    settings = resolve("fifo", "packed-sticky", {"validate": True, "round_s": 30, "strict": False} | values)
    policy = Named(levels, quantum_s=QUANTUM_S, relocation=Relocation(quantum_s=QUANTUM_S))
    built = build_engine(case.cluster, replace(settings, policy=policy), cls=engine)
    recorder = Recorder(case.cluster)
    World(built, chain(case.jobs), len(case.jobs), settings.run, recorder).run()
    return recorder.segments


@stable(150)
@given(
    case=cases(),
    draws=st.lists(st.integers(0, 3), min_size=9, max_size=9),
    penalty=st.sampled_from((1.0, 1.7, 4.0)),
    cost_s=st.sampled_from((0, 5)),
    event_driven=st.booleans(),
)
def test_nothing_is_stopped_in_vain_moves_are_bounded_and_skipping_is_exact(
    case: Case, draws: list[int], penalty: float, cost_s: float, event_driven: bool
) -> None:
    levels = {job.id: float(level) for job, level in zip(case.jobs, draws, strict=False)}
    values = {"locality_penalty": penalty, "restore_s": cost_s, "event_driven": event_driven}
    segments = run_named(case, levels, values, Watched)
    assert segments == run_named(case, levels, values, WatchedRestless)
    for job in case.jobs:
        runs = [s for s in segments if s.job_id == job.id]
        assert all(s.end_s - s.start_s >= QUANTUM_S - 1e-6 for s in runs if s.ended != "finished")


def test_the_property_test_sees_moves_and_stops() -> None:
    """Not vacuous: a job that is spread moves, and a deep one is stopped."""
    jobs = [Job("a", 0, 2, 100), Job("b", 0, 2, 400), Job("gang", 0, 2, 900), Job("new", 400, 6, 50)]
    case = Case(Cluster.uniform(2, 3), jobs)
    ended = [s.ended for s in run_named(case, {"gang": 2.0}, {"locality_penalty": 2.0}, Watched)]
    assert "moved" in ended and "preempted" in ended


@pytest.mark.parametrize("placement", ["delay", "consolidate-sticky"])
def test_placements_that_wait_do_not_keep_a_running_job_from_a_better_place(placement: str) -> None:
    """A gang over two racks, which would wait for a node, moves to one rack although no node is free."""
    cluster = Cluster.uniform(4, 2, nodes_per_rack=2)
    world = named_world(cluster, Named(relocation=RULE), placement, locality_penalty=1.5, rack_penalty=4.0)
    singles = [Job(f"s{i}", 0, 1, 1000) for i in range(8)]
    world.submit(*singles)
    world.start_all()
    for job_id in ("s0", "s4"):
        world.finish(job_id, 0)
    waits = 10**7
    world.submit(Job("gang", 0, 2, 10**8))
    world.tick(waits)
    world.confirm_start("gang", rate=0.25)
    assert world.held["gang"] == (0, 4)
    world.finish("s2", waits)
    assert world.tick(waits + 100) == ["move gang"]
    assert world.confirm_stop("gang", 25) == ["start gang 0,2"]
