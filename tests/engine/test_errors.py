"""Events that do not fit the state of a job are bugs of the world: the error tells the job's story."""

from __future__ import annotations

import pytest

from tests.engine.live import LiveWorld
from tests.sim.tiny import one_node
from trine.core.cluster import Cluster, Node
from trine.core.errors import TrineError
from trine.core.job import Job
from trine.engine.engine_state import EngineError
from trine.engine.events import Finished, Started, Stopped
from trine.engine.gpu_ownership import GpuOwnership, GpuOwnershipError
from trine.engine.invariants import check


def world_with(state: str) -> LiveWorld:
    """Job ``a`` in the state named; ``b`` ranks before it where that takes one."""
    world = LiveWorld(one_node(1), "srtf")
    world.submit(Job("a", 0, 1, 1000))
    if state == "WAITING":
        return world
    world.tick(0)
    if state == "STARTING":
        return world
    world.confirm_start("a")
    if state == "STOPPING":
        world.submit(Job("b", 5, 1, 10))
        world.tick(5)
    if state == "FINISHED":
        world.finish("a", 1000)
    assert world.state("a") == state
    return world


WRONG = [
    *[("WAITING", event) for event in (Started(9, 0, 1.0, 9), Stopped(9, 0, 1), Finished(9, 0))],
    *[("STARTING", event) for event in (Stopped(9, 0, 1), Finished(9, 0))],
    *[("RUNNING", event) for event in (Started(9, 0, 1.0, 9), Stopped(9, 0, 1))],
    *[("FINISHED", event) for event in (Started(9, 0, 1.0, 9), Stopped(9, 0, 1), Finished(9, 0))],
]


@pytest.mark.parametrize(("state", "event"), WRONG, ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_an_event_in_the_wrong_state_is_an_error_with_the_story(
    state: str, event: Started | Stopped | Finished
) -> None:
    world = world_with(state)
    with pytest.raises(EngineError) as error:
        world.engine.handle(event)
    message = str(error.value)
    assert message.startswith(f"job a: is {state.lower()} where ")
    assert "Its story: 0 s: submitted" in message
    if state != "WAITING":
        assert "0 s: started on GPUs (0,)" in message
    if state == "FINISHED":
        assert "1000 s: finished" in message
    assert world.state("a") == state
    check(world.engine)


def test_a_start_that_was_never_ordered_cannot_be_confirmed() -> None:
    """b is assigned GPU 0, but a has not let go of it."""
    world = world_with("STOPPING")
    with pytest.raises(EngineError, match="job b: is said to run, but its GPUs were not handed over"):
        world.confirm_start("b")


def test_work_that_shrinks_is_an_error_and_changes_nothing() -> None:
    world = world_with("STOPPING")
    world.confirm_stop("a", done=5)
    world.confirm_start("b")
    world.finish("b", 20)
    world.start_all()
    world.submit(Job("c", 21, 1, 10))
    world.tick(21)
    with pytest.raises(EngineError, match=r"work shrank from 5\.0 to 4\.0 steps.*stopping"):
        world.confirm_stop("a", done=4.0)
    assert world.state("a") == "STOPPING"
    assert world.confirm_stop("a", done=5.0) == ["start c 0"]


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job("j", 0, 5, 1), "asks for 5 GPUs, the cluster has 4 x, 2 y"),
        (Job("j", 0, 1, 1, gpu_types=("z",)), "asks for GPU type z, the cluster has x, y"),
        (Job("j", 0, 3, 1, gpu_types=("y",)), "no type of the cluster .* can hold its 3 GPUs"),
        (Job("j", 0, 1, 1, step_s=None, model="m"), "speed of model 'm' on 1 GPU of x, y is not known"),
    ],
)
def test_a_job_that_can_never_run_is_refused_when_it_is_submitted(job: Job, why: str) -> None:
    world = LiveWorld(Cluster((Node("a", 4, "x"), Node("b", 2, "y"))), "fifo")
    with pytest.raises(EngineError, match=f"job j can never run: .*{why}"):
        world.submit(job)


def test_a_gpu_with_two_holders_is_refused() -> None:
    book = GpuOwnership(2)
    book.take(0, (0, 1))
    with pytest.raises(GpuOwnershipError, match="GPU 1 is still held by job number 0, wanted by 7"):
        book.take(7, (1,))


def break_assignment(world: LiveWorld) -> None:
    world.engine.assigned[0] = (0, 0)


def break_free_index(world: LiveWorld) -> None:
    world.engine.free.give(world.engine.assigned[0])


def break_holder(world: LiveWorld) -> None:
    world.engine.ownership.holder[0] = 3


def break_work(world: LiveWorld) -> None:
    world.engine.table.done[0] = 2000


def break_state(world: LiveWorld) -> None:
    world.engine.table.assigned[0] = False


@pytest.mark.parametrize("damage", [break_assignment, break_free_index, break_holder, break_work, break_state])
def test_the_invariants_notice(damage: object) -> None:
    """The checker itself is checked: each kind of damage is found and named."""
    assert callable(damage)
    world = world_with("RUNNING")
    check(world.engine)
    damage(world)
    with pytest.raises(TrineError, match="invariant broken"):
        check(world.engine)
