"""Single upsets and what a user or an operator may rely on when they happen; ``test_upsets_walk`` mixes them all."""

from __future__ import annotations

import pytest

from tests.engine.live import LiveWorld
from trine.core.cluster import Cluster, Node, Tier
from trine.core.job import Job, Shape
from trine.engine import events as ev
from trine.engine.invariants import check
from trine.engine.job_table import State

TWO_NODES = Cluster.uniform(2, 2)


def world(policy: str = "srtf", placement: str = "packed-sticky", cluster: Cluster = TWO_NODES) -> LiveWorld:
    return LiveWorld(cluster, policy, placement)


def handle(live: LiveWorld, event: ev.Event) -> list[str]:
    """Tell the engine, take its decisions into the world's book, and return them in words."""
    before = len(live.log)
    live._heard(live.engine.handle(event))
    return live.log[before:]


def test_nothing_new_starts_on_gpus_that_were_withheld_while_the_start_waited() -> None:
    live = world()
    live.submit(Job("old", 0, 4, 1000))
    live.start_all(0)
    live.submit(Job("new", 1, 2, 10, priority=1))
    assert live.tick(60) == ["stop old"]
    cordoned = live.engine.assigned[live.job_indices["new"]]
    assert handle(live, ev.GpusCordoned(61, cordoned)) == []
    assert live.confirm_stop("old", now=62) == []
    (start,) = live.tick(63)
    assert start.startswith("start new") and not {str(g) for g in cordoned} & set(start.split()[2].split(","))


def moving(live: LiveWorld) -> None:
    """A job that was told to go from GPU 2 to GPU 0."""
    live.submit(Job("first", 0, 2, 10), Job("mover", 0, 1, 1000))
    live.start_all(0)
    live.finish("first", now=5)
    assert live.tick(6) == ["move mover"]


def test_a_moving_job_whose_new_gpus_were_withheld_stops_and_is_placed_again() -> None:
    live = world("fifo", "packed")
    moving(live)
    handle(live, ev.GpusCordoned(7, (0, 1)))
    assert live.state("mover") == "STOPPING"
    assert live.confirm_stop("mover", now=8) == []
    assert live.state("mover") == "WAITING"
    assert live.tick(9) == ["start mover 2"]


@pytest.mark.parametrize("event", [ev.Stopped, ev.Interrupted])
def test_a_job_that_claims_more_than_all_its_steps_is_taken_to_have_all(
    event: type[ev.Stopped] | type[ev.Interrupted],
) -> None:
    live = world()
    live.submit(Job("a", 0, 1, 100))
    live.start_all(0)
    handle(live, ev.Progressed(5, 0, 50, None, 1.0))
    if event is ev.Stopped:
        handle(live, ev.Held(6, 0))
    live.held.clear()
    live.told_to_stop.clear()
    handle(live, event(7, 0, 5000.0))
    assert live.engine.table.done[0] == 100


def test_a_preference_gives_way_by_itself_when_its_time_has_come() -> None:
    """No event says so: the engine must say when deciding again changes something."""
    for placement in ("packed-sticky", "packed"):
        live = world("fifo", placement)
        live.submit(Job("both", 0, 2, 1000, shape=Shape(nodes=2)))
        live.start_all(0)
        live.submit(Job("wide", 1, 2, 10, shape=Shape(None, None, Tier.NODE, 100.0)))
        assert live.tick(10) == []
        assert live.engine.wakes_s == 100.0, f"{placement}: the world would not ask again"
        assert "within the network 99 s after its submission" in live.explain("wide").change
        assert live.tick(99) == []
        assert live.tick(100) == ["start wide 1,3"], placement


def test_filling_is_not_a_round_the_next_round_may_still_preempt() -> None:
    live = world("fifo")
    live.submit(Job("low", 0, 3, 1000))
    live.start_all(0)
    live.submit(Job("high", 1, 4, 10, priority=5))
    assert handle(live, ev.Fill(2)) == []
    assert not live.engine.can_wait
    assert live.tick(60) == ["stop low"]


def test_a_withdrawn_job_leaves_at_once_if_it_holds_nothing_and_else_when_its_processes_are_gone() -> None:
    live = world()
    live.submit(Job("runs", 0, 4, 100), Job("waits", 0, 4, 100))
    live.start_all(0)
    handle(live, ev.CancelRequested(1, 1))
    assert live.state("waits") == "FINISHED"
    assert handle(live, ev.CancelRequested(2, 0)) == ["stop runs"]
    assert handle(live, ev.CancelRequested(3, 0)) == [], "told once is enough"
    live.held.clear()
    handle(live, ev.Terminated(4, 0))
    assert live.engine.free.total == 4 and live.engine.waiting_count == 0
    assert handle(live, ev.Terminated(5, 0)) == [], "leaving twice changes nothing"


def test_a_job_held_while_it_moves_does_not_start_again() -> None:
    live = world("fifo", "packed")
    moving(live)
    assert handle(live, ev.Held(7, 1)) == [], "it was told to stop already"
    assert live.confirm_stop("mover", now=8) == []
    assert live.tick(60) == []
    handle(live, ev.Released(61, 1))
    assert live.tick(120) == ["start mover 0"]


def test_progress_sets_right_what_was_guessed_of_a_job() -> None:
    live = world()
    live.submit(Job("unknown", 0, 4, 3600), Job("short", 0, 4, 600))
    live.start_all(0)
    assert live.held.keys() == {"short"}, "shorter as far as anybody knows"
    handle(live, ev.Progressed(100, 1, 60, 6000, 1.0))
    assert live.tick(101) == ["stop short"], "it turned out to be the longer one"
    assert live.confirm_stop("short", done=60, now=102) == ["start unknown 0,1,2,3"]
    live.confirm_start("unknown")
    handle(live, ev.Progressed(110, 0, 10, None, 0.1))
    assert live.tick(111) == ["stop unknown"], "36000 s at this pace"


def test_gpus_come_back_free_or_to_whoever_still_has_them() -> None:
    live = world()
    live.submit(Job("a", 0, 2, 100))
    live.start_all(0)
    gpus = live.held["a"]
    for _ in range(2):  # twice is once
        handle(live, ev.GpusCordoned(1, (0, 1, 2, 3)))
    assert live.engine.free.total == 0
    for _ in range(2):
        handle(live, ev.GpusUncordoned(2, (0, 1, 2, 3)))
    assert live.engine.free.total == 2
    handle(live, ev.GpusCordoned(3, gpus))
    live.finish("a", now=4)
    assert live.engine.free.total == 2, "what was withheld does not come free by itself"
    handle(live, ev.GpusUncordoned(5, gpus))
    assert live.engine.free.total == 4


def test_a_job_lost_before_it_was_seen_to_run_waits_again_and_a_late_confirmation_is_an_error_with_a_story() -> None:
    live = world()
    live.submit(Job("a", 0, 1, 100))
    live.tick(0)
    live.held.clear()
    handle(live, ev.Interrupted(1, 0, 0.0))
    assert live.engine.table.state[0] is State.WAITING
    with pytest.raises(Exception, match=r"job a: is waiting where starting was expected\. Its story: .*lost"):
        live.engine.handle(ev.Started(2, 0, 1.0, 2))
    check(live.engine)


def test_excluded_gpus_stay_out_whatever_is_withheld_and_restored() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", 4) for i in range(3)), scores={"A": (6.0, *(1.0,) * 11)})
    live = world(placement="exclude-outliers-sticky", cluster=cluster)
    assert live.engine.excluded == {0} and live.engine.free.total == 11
    handle(live, ev.GpusCordoned(0, (0, 1, 2, 3)))
    handle(live, ev.GpusUncordoned(1, (0, 1, 2, 3)))
    assert live.engine.free.total == 11
    live.submit(Job("a", 0, 11, 100))
    assert live.start_all(2) == ["start a 1,2,3,4,5,6,7,8,9,10,11"]
