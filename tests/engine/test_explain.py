"""What a person is told about a job: the right code, a sentence with the right names and numbers."""

from __future__ import annotations

import pytest

from tests.engine.live import LiveWorld
from tests.sim.tiny import one_node
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.engine.events import Decision, Start, Stop
from trine.placement.base import Ask
from trine.placement.free_index import FreePool
from trine.placement.packed import Packed

BOTH = pytest.mark.parametrize("placement", ["packed", "packed-sticky"])


@BOTH
def test_running_and_finished(placement: str) -> None:
    world = LiveWorld(Cluster.uniform(2, 2), "fifo", placement)
    world.submit(Job("a", 0, 2, 100), Job("b", 0, 1, 100))
    world.start_all()
    assert world.explain("a") == Reason(Why.PLACED, "job a starts on 2 GPUs on node node0.", {"gpus": 2, "nodes": 1})
    assert world.explain("b").sentence == "job b starts on 1 GPU on node node1."
    world.finish("a", 100)
    assert (world.explain("a").code, world.explain("a").sentence) == (Why.FINISHED, "job a has finished.")


def test_running_over_several_nodes() -> None:
    world = LiveWorld(Cluster.uniform(2, 2), "fifo")
    world.submit(Job("a", 0, 3, 100))
    world.start_all()
    assert world.explain("a").sentence == "job a starts on 3 GPUs on 2 nodes."


@BOTH
def test_no_free_gpus(placement: str) -> None:
    world = LiveWorld(one_node(4), "fifo", placement)
    world.submit(Job("a", 0, 3, 100), Job("b", 0, 2, 100))
    world.start_all()
    reason = world.explain("b")
    assert reason.code is Why.NO_FREE_GPUS
    assert "job b needs 2 GPUs at once, 1 GPU free, 1 job ranks before it." in reason.sentence
    assert reason.counts == {"needed": 2, "free_gpu": 1, "ahead": 1}
    assert reason.change


@BOTH
@pytest.mark.parametrize("first", [3, 4], ids=["one GPU left", "none left"])
def test_behind_the_head_of_the_line(placement: str, first: int) -> None:
    """With a full cluster as with one that has room for the job behind: it is the head that must start first."""
    world = LiveWorld(one_node(4), "fifo", placement)
    world.submit(Job("a", 0, first, 100), Job("b", 0, 2, 100), Job("c", 0, 1, 100))
    world.start_all()
    assert world.explain("b").code is Why.NO_FREE_GPUS
    reason = world.explain("c")
    assert reason.code is Why.HEAD_OF_LINE
    free = "1 GPU" if first == 3 else "0 GPUs"
    assert f"job c waits behind job b, which needs 2 GPUs; {free} free." in reason.sentence
    assert "job b must start first" in reason.change


@BOTH
def test_backfilling(placement: str) -> None:
    """head waits for GPUs, not for itself; late is held back though it fits; wide does not fit anyway."""
    world = LiveWorld(one_node(4), "fifo-backfill", placement)
    jobs = [Job("a", 0, 2, 100), Job("head", 0, 4, 10), Job("late", 0, 1, 101), Job("wide", 0, 3, 10)]
    world.submit(*jobs, Job("quick", 0, 1, 100))
    world.start_all()
    assert {i: world.explain(i).code for i in world.job_indices} == {
        "a": Why.PLACED,
        "head": Why.NO_FREE_GPUS,
        "late": Why.RESERVED,
        "wide": Why.NO_FREE_GPUS,
        "quick": Why.PLACED,
    }
    assert world.explain("head").counts["ahead"] == 1
    assert "job late waits" in world.explain("late").sentence
    assert "reservation of the first job in line" in world.explain("late").sentence


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill", "srtf"])
def test_a_job_that_came_after_the_last_round_is_not_judged_yet(policy: str) -> None:
    world = LiveWorld(one_node(1), policy)
    world.submit(Job("a", 0, 1, 100))
    world.start_all()
    world.submit(Job("b", 1, 1, 100))
    assert world.explain("b").code is Why.NOT_DECIDED
    world.tick(2)
    assert world.explain("b").code is Why.NO_FREE_GPUS


def test_waiting_for_gpus_to_be_released() -> None:
    world = LiveWorld(one_node(1), "srtf")
    world.submit(Job("a", 0, 1, 100))
    world.start_all()
    world.submit(Job("b", 1, 1, 10))
    world.tick(1)
    assert world.explain("b").code is Why.STARTING
    assert world.explain("a").code is Why.NO_FREE_GPUS


def test_a_resumed_job_says_so() -> None:
    world = LiveWorld(one_node(1), "srtf")
    world.submit(Job("a", 0, 1, 100))
    world.start_all()
    world.submit(Job("b", 1, 1, 10))
    world.tick(1)
    world.confirm_stop("a", done=1)
    world.confirm_start("b")
    world.finish("b", 11)
    world.start_all()
    assert (world.explain("a").code, world.explain("a").sentence) == (
        Why.RESUMED,
        "job a resumes on 1 GPU on node node0.",
    )


def test_what_the_placement_said_is_passed_on_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    no = Reason(Why.REFUSED, "not here", {"racks": 2}, "elsewhere")
    monkeypatch.setattr(Packed, "place", lambda self, ask, pool: no)
    world = LiveWorld(one_node(1), "srtf", "packed")
    world.submit(Job("a", 0, 1, 100))
    world.tick(0)
    assert world.explain("a") is no


def test_a_type_that_refuses_does_not_keep_a_job_from_another_type(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = Packed.place

    def only_y(self: Packed, ask: Ask, pool: FreePool) -> list[int] | Reason:
        return packed(self, ask, pool) if pool.gpu_type == "y" else Reason(Why.REFUSED, "not x")

    monkeypatch.setattr(Packed, "place", only_y)
    world = LiveWorld(Cluster((Node("a", 1, "x"), Node("b", 1, "y"))), "fifo", "packed")
    world.submit(Job("a", 0, 1, 100))
    assert world.start_all() == ["start a 1"]
    assert world.explain("a").code is Why.PLACED


def test_sentences_of_decisions() -> None:
    world = LiveWorld(one_node(2), "srtf")
    world.submit(Job("a", 0, 2, 100))
    decisions: list[Decision] = [Start(0, 1, (0, 1), Why.PLACED), Start(0, 2, (0, 1), Why.RESUMED)]
    decisions += [Stop(0, 1, False, Why.PREEMPTED), Stop(0, 1, True, Why.MOVED)]
    said = [world.engine.reason(decision) for decision in decisions]
    assert [reason.code for reason in said] == [Why.PLACED, Why.RESUMED, Why.PREEMPTED, Why.MOVED]
    assert [str(reason) for reason in said] == [
        "job a starts on 2 GPUs on node node0.",
        "job a resumes on 2 GPUs on node node0.",
        "job a is preempted: jobs that rank before it need its 2 GPUs.",
        "job a moves to other GPUs.",
    ]
