"""The two-phase hand-over, driven by hand: a GPU goes on only after its last holder was seen to let go."""

from __future__ import annotations

from tests.engine.live import LiveWorld
from tests.sim.tiny import one_node
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.core.reason import Why


def srtf(gpus: int, placement: str = "packed-sticky") -> LiveWorld:
    return LiveWorld(one_node(gpus), "srtf", placement)


def test_a_start_waits_until_the_stop_is_confirmed() -> None:
    world = srtf(1)
    world.submit(Job("long", 0, 1, 1000))
    assert world.start_all() == ["start long 0"]
    world.submit(Job("short", 10, 1, 10))
    assert world.tick(10) == ["stop long"]
    assert world.explain("short").code is Why.STARTING
    assert world.tick(11) == [] and world.tick(12) == []
    assert world.confirm_stop("long", done=12, now=15) == ["start short 0"]
    assert (world.state("long"), world.state("short")) == ("WAITING", "STARTING")


def test_a_start_waits_for_the_last_of_several_holders() -> None:
    world = srtf(3)
    world.submit(*(Job(i, 0, 1, 1000) for i in "abc"))
    world.start_all()
    world.submit(Job("wide", 1, 3, 10))
    assert sorted(world.tick(1)) == ["stop a", "stop b", "stop c"]
    assert world.confirm_stop("b") == [] and world.confirm_stop("a") == []
    assert world.confirm_stop("c") == ["start wide 0,1,2"]


def test_free_gpus_start_at_once_while_others_wait() -> None:
    world = srtf(3)
    world.submit(Job("long", 0, 2, 1000))
    world.start_all()
    world.submit(Job("two", 1, 2, 10), Job("one", 1, 1, 500))
    assert sorted(world.tick(1)) == ["start one 2", "stop long"]
    assert world.confirm_stop("long") == ["start two 0,1"]


def test_gpus_promised_to_a_waiting_start_are_given_to_nobody_else() -> None:
    """two waits for GPU 0 of a, GPU 1 is free but promised: the later job does not get it."""
    world = srtf(2)
    world.submit(Job("a", 0, 1, 1000))
    world.start_all()
    world.submit(Job("two", 1, 2, 10))
    assert world.tick(1) == ["stop a"]
    world.submit(Job("late", 2, 1, 100))
    assert world.tick(2) == []
    assert world.confirm_stop("a") == ["start two 0,1"]


def test_a_start_that_still_waits_can_be_taken_back() -> None:
    """b was to follow a; before a lets go, c comes with less work: b never starts, a is told to stop only once."""
    world = srtf(1)
    world.submit(Job("a", 0, 1, 1000))
    world.start_all()
    world.submit(Job("b", 1, 1, 100))
    assert world.tick(1) == ["stop a"]
    world.submit(Job("c", 2, 1, 10))
    assert world.tick(2) == []
    assert (world.state("b"), world.explain("c").code) == ("WAITING", Why.STARTING)
    assert world.confirm_stop("a", done=2) == ["start c 0"]
    world.confirm_start("c")
    assert world.finish("c", 13) == []
    assert world.tick(13) == ["start b 0"]


def test_gpus_of_a_start_taken_back_go_to_whoever_is_next() -> None:
    """two was to follow wide on both GPUs; one takes GPU 0 of them, and nobody waits for GPU 1 any more."""
    world = srtf(2)
    world.submit(Job("wide", 0, 2, 1000))
    world.start_all()
    world.submit(Job("two", 1, 2, 100))
    assert world.tick(1) == ["stop wide"]
    world.submit(Job("one", 2, 1, 10))
    assert world.tick(2) == []
    assert world.explain("two").code is Why.NO_FREE_GPUS
    assert world.confirm_stop("wide", done=1) == ["start one 0"]
    world.submit(Job("last", 3, 1, 5000))
    assert world.tick(3) == ["start last 1"]


def test_a_stopped_job_may_win_its_gpus_back_before_it_let_go() -> None:
    """a is told to stop for b; while it stops, x ends: a goes on in its place, but not before its own stop."""
    world = srtf(2)
    world.submit(Job("a", 0, 1, 1000), Job("x", 0, 1, 50))
    world.start_all()
    world.submit(Job("b", 1, 1, 100))
    assert world.tick(1) == ["stop a"]
    world.finish("x", 50)
    assert world.tick(50) == []  # a gets the other GPU, but still holds its old one
    assert (world.state("a"), world.explain("a").code) == ("STOPPING", Why.STARTING)
    freed = world.confirm_stop("a", done=5, now=55)
    assert sorted(freed) == ["start a 0", "start b 1"]


def test_a_move_starts_only_after_its_own_stop() -> None:
    """Re-placed every round: when a ends, b moves from node 1 to node 0 and c out of its way. c is slow to stop."""
    world = LiveWorld(Cluster.uniform(2, 2), "fifo", "packed")
    world.submit(Job("a", 0, 1, 100), Job("b", 0, 2, 500), Job("c", 0, 1, 1000))
    world.start_all()
    assert world.held == {"a": (0,), "b": (2, 3), "c": (1,)}
    world.finish("a", 100)
    assert world.tick(100) == ["move b", "move c"]
    assert world.confirm_stop("b", done=100) == []  # needs GPU 1 of c
    assert world.tick(101) == []
    assert sorted(world.confirm_stop("c", done=105, now=105)) == ["start b 0,1", "start c 2"]


def test_two_jobs_can_swap_gpus() -> None:
    """The other way round: whoever stops first waits for the other."""
    world = LiveWorld(Cluster.uniform(2, 2), "fifo", "packed")
    world.submit(Job("a", 0, 1, 100), Job("b", 0, 2, 500), Job("c", 0, 1, 1000))
    world.start_all()
    world.finish("a", 100)
    world.tick(100)
    assert world.confirm_stop("c", done=100) == []  # needs GPU 2 of b
    assert sorted(world.confirm_stop("b", done=100)) == ["start b 0,1", "start c 2"]


def test_a_move_can_be_taken_back_while_the_old_run_stops() -> None:
    """b is told to move to node 0; before it stopped, a job that ranks first takes node 0: b goes on elsewhere."""
    world = LiveWorld(Cluster.uniform(2, 2), "fifo", "packed")
    world.submit(Job("a", 0, 2, 100), Job("b", 0, 2, 500))
    world.start_all()
    world.finish("a", 100)
    assert world.tick(100) == ["move b"]
    world.submit(Job("first", 100, 2, 10, priority=1))
    assert world.tick(101) == ["start first 0,1"]
    assert world.confirm_stop("b", done=100) == ["start b 2,3"]


def test_service_and_work_go_on_counting_while_a_job_is_being_stopped() -> None:
    """What a policy sees of a job that is told to stop: no step back in time, no sudden starvation."""
    world = LiveWorld(one_node(1), "las")
    world.submit(Job("a", 0, 1, 1000))
    world.start_all()
    world.submit(Job("b", 100, 1, 1000))
    assert world.tick(100) == ["stop a"]
    seen = world.engine.view(110)
    assert (seen.attained_s[0], seen.done[0], seen.idle_s[0]) == (100, 110, 10)
    world.confirm_stop("a", done=105, now=120)
    seen = world.engine.view(120)
    assert (seen.attained_s[0], seen.done[0], seen.idle_s[0]) == (120, 105, 0)


def test_service_counts_to_the_stop_even_if_the_job_is_to_go_on_by_then() -> None:
    """Told to stop at 10 and given other GPUs at 50, a lets go at 55: it has held GPUs for 55 s."""
    world = srtf(2)
    world.submit(Job("a", 0, 1, 1000), Job("x", 0, 1, 50))
    world.start_all()
    world.submit(Job("b", 10, 1, 100))
    world.tick(10)
    world.finish("x", 50)
    world.tick(50)
    world.confirm_stop("a", done=5, now=55)
    assert world.engine.table.attained_s[world.job_indices["a"]] == 55


def test_service_survives_a_move_that_takes_its_time() -> None:
    world = LiveWorld(Cluster.uniform(2, 2), "fifo", "packed")
    world.submit(Job("a", 0, 2, 100), Job("b", 0, 2, 500))
    world.start_all()
    world.finish("a", 100)
    assert world.tick(100) == ["move b"]
    assert world.confirm_stop("b", done=100, now=110) == ["start b 0,1"]
    world.now = 115
    world.confirm_start("b")
    job_index = world.job_indices["b"]
    assert world.engine.table.attained_s[job_index] == 110
    world.finish("b", 600)
    assert world.engine.table.attained_s[job_index] == 110 + 485


def test_a_job_may_end_by_itself_while_it_is_being_stopped() -> None:
    world = srtf(1)
    world.submit(Job("long", 0, 1, 1000))
    world.start_all()
    world.submit(Job("short", 10, 1, 10))
    world.tick(10)
    assert world.finish("long", 12) == ["start short 0"]
    assert world.state("long") == "FINISHED"


def test_a_job_may_end_by_itself_while_it_is_being_moved() -> None:
    """Its new GPUs are free again, and the start that waited is forgotten."""
    world = LiveWorld(Cluster.uniform(2, 2), "fifo", "packed")
    world.submit(Job("a", 0, 2, 100), Job("b", 0, 2, 500))
    world.start_all()
    world.finish("a", 100)
    assert world.tick(100) == ["move b"]
    assert world.finish("b", 101) == []
    assert world.engine.free.total == 4
    world.submit(Job("c", 102, 4, 10))
    assert world.tick(102) == ["start c 0,1,2,3"]


def test_a_start_confirmed_after_the_job_was_told_to_stop_is_no_error() -> None:
    world = srtf(1)
    world.submit(Job("a", 0, 1, 1000))
    world.tick(0)
    world.submit(Job("b", 1, 1, 10))
    assert world.tick(1) == ["stop a"]
    world.confirm_start("a")
    assert world.confirm_stop("a") == ["start b 0"]


def test_a_lease_is_bound_to_its_epoch() -> None:
    """Every start of a job has a new number, and a stop names the start it ends."""
    world = srtf(1)
    world.submit(Job("a", 0, 1, 1000))
    world.start_all()
    epochs = []
    for i in range(3):
        world.submit(Job(f"s{i}", world.now, 1, 1))
        world.tick()
        world.confirm_stop("a", done=i)
        world.confirm_start(f"s{i}")
        world.finish(f"s{i}", world.now + 1)
        world.start_all()
        epochs.append(world.engine.table.epoch[world.job_indices["a"]])
    assert epochs == [2, 3, 4]
