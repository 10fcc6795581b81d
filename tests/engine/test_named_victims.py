"""Policies that name victims: which jobs are stopped for which, in which order, and none in vain."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from tests.engine.live import LiveWorld
from tests.engine.named_victims import Named, named_world
from tests.sim.tiny import one_node
from trine.core.cluster import Cluster, Tier
from trine.core.job import Job, Shape
from trine.core.reason import Why
from trine.engine.events import Stop, Tick
from trine.policy.base import PolicyError, Ranking, check_ranking


def stops(world: LiveWorld, now: float) -> list[Stop]:
    """The stops decided at ``now``, as they are."""
    return [d for d in world.engine.handle(Tick(now)) if isinstance(d, Stop)]


def test_only_jobs_of_a_larger_level_are_stopped() -> None:
    """low ranks behind new as well, but is less than one level above it."""
    world = named_world(one_node(2), Named({"low": 1.5, "deep": 2.0, "new": 1.0}))
    world.submit(Job("low", 0, 1, 500), Job("deep", 0, 1, 500))
    world.start_all()
    world.submit(Job("new", 1, 1, 50))
    assert world.tick(1) == ["stop deep"]


def test_a_smaller_gap_is_enough_if_the_policy_says_so() -> None:
    world = named_world(one_node(1), Named({"low": 1.5, "new": 1.0}, gap=0.5))
    world.submit(Job("low", 0, 1, 500))
    world.start_all()
    world.submit(Job("new", 1, 1, 50))
    assert world.tick(1) == ["stop low"]


def test_victims_are_taken_in_the_order_of_their_keys() -> None:
    levels = dict.fromkeys("abc", 3.0)
    world = named_world(one_node(3), Named(levels, keys={"a": 2, "b": 1, "c": 3}))
    world.submit(*(Job(i, 0, 1, 500) for i in "abc"))
    world.start_all()
    world.submit(Job("new", 1, 2, 50))
    assert sorted(world.tick(1)) == ["stop a", "stop b"]


def test_without_an_order_the_last_rank_goes_first() -> None:
    world = named_world(one_node(2), Named({"a": 2.0, "b": 3.0}))
    world.submit(Job("a", 0, 1, 500), Job("b", 0, 1, 500))
    world.start_all()
    world.submit(Job("new", 1, 1, 50))
    assert world.tick(1) == ["stop b"]


def test_victims_that_are_not_needed_go_on() -> None:
    """a is taken first, but only with the four GPUs of wide does new fit, and then a is not needed."""
    cluster = Cluster.uniform(2, 4)
    policy = Named(keys={"a": 1, "wide": 2})
    world = named_world(cluster, policy, locality_penalty=2.0)
    world.submit(Job("a", 0, 1, 500), Job("fixed", 0, 3, 500), Job("wide", 0, 4, 500))
    world.start_all()
    policy.levels = {"a": 9.0, "wide": 2.0}
    assert world.held == {"a": (0,), "fixed": (1, 2, 3), "wide": (4, 5, 6, 7)}
    world.submit(Job("new", 1, 4, 50))
    assert world.tick(1) == ["stop wide"]


def test_a_gang_takes_the_best_tier_that_stops_can_give_it() -> None:
    """Two single GPUs on two nodes would do, but the gang feels the network: it gets a whole node."""
    levels = {"a": 9.0, "b": 9.0, "c": 2.0, "d": 2.0}
    keys = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    for penalty, stopped in ((1.0, ["stop a", "stop b"]), (2.0, ["stop a", "stop c"])):
        policy = Named(keys=keys)
        world = named_world(Cluster.uniform(2, 2), policy, locality_penalty=penalty)
        world.submit(Job("a", 0, 1, 500), Job("c", 0, 1, 500), Job("b", 0, 1, 500), Job("d", 0, 1, 500))
        world.start_all()
        assert world.held == {"a": (0,), "c": (1,), "b": (2,), "d": (3,)}
        policy.levels = levels
        world.submit(Job("new", 1, 2, 50))
        assert sorted(world.tick(1)) == stopped


def test_nothing_is_stopped_for_a_gang_that_never_fits() -> None:
    policy = Named()
    world = named_world(Cluster.uniform(2, 2), policy)
    world.submit(Job("a", 0, 1, 500), Job("x", 0, 1, 500), Job("b", 0, 1, 500), Job("y", 0, 1, 500))
    world.start_all()
    policy.levels = {"a": 9.0, "b": 9.0}
    world.submit(Job("new", 1, 2, 50, shape=Shape(required=Tier.NODE)))
    assert world.tick(1) == []
    assert world.engine.free.total == 0 and world.explain("new").code is Why.TOPOLOGY


def test_a_run_is_safe_until_its_quantum_is_over() -> None:
    world = named_world(one_node(1), Named({"a": 9.0}, quantum_s=100))
    world.submit(Job("a", 0, 1, 500))
    world.start_all()
    world.submit(Job("new", 1, 1, 50))
    assert world.tick(99) == []
    assert not world.engine.can_wait
    assert world.tick(100) == ["stop a"]


def test_a_job_that_was_stopped_goes_elsewhere_if_there_is_room_but_stops_none_itself() -> None:
    """a makes room for new; it would be entitled to the GPU of c, but must not have it in the same round."""
    world = named_world(one_node(2), Named({"a": 3.0, "c": 9.0, "new": 1.0}, keys={"a": 1, "c": 2}))
    world.submit(Job("a", 0, 1, 500), Job("c", 0, 1, 500))
    world.start_all()
    world.submit(Job("new", 1, 1, 50))
    assert world.tick(1) == ["stop a"]
    world = named_world(one_node(3), Named({"wide": 9.0, "one": 3.0}, keys={"wide": 1, "one": 2}))
    world.submit(Job("wide", 0, 2, 500), Job("one", 0, 1, 500))
    world.start_all()
    world.submit(Job("new", 1, 1, 50))
    assert world.tick(1) == ["stop wide"]


def test_stops_say_for_which_job_and_why() -> None:
    world = named_world(one_node(3), Named({"a": 3.0, "b": 3.0}, keys={"a": 1, "b": 2}))
    world.submit(Job("a", 0, 1, 500), Job("b", 0, 2, 500))
    world.start_all()
    world.submit(Job("new", 1, 1, 50))
    (stop,) = stops(world, 1)
    assert (stop.job_index, stop.for_job, stop.moves) == (0, 2, False)
    assert str(world.engine.reason(stop)) == "job a is stopped for job new, which is more important."
    assert world.engine.reason(stop).code is Why.PREEMPTED


def test_a_job_that_makes_room_and_goes_on_elsewhere_says_so() -> None:
    """The gang gets the node of a, which goes on where GPUs were free all along but apart."""
    cluster = Cluster.uniform(2, 2)
    policy = Named()
    world = named_world(cluster, policy, locality_penalty=2.0)
    world.submit(Job("a", 0, 1, 500), Job("short", 0, 1, 1), Job("b", 0, 1, 500))
    world.start_all()
    world.finish("short", 1)
    policy.levels = {"a": 3.0}
    assert world.held == {"a": (0,), "b": (2,)}
    world.submit(Job("gang", 1, 2, 50, shape=Shape(required=Tier.NODE)))
    (stop,) = stops(world, 2)
    assert stop.moves and stop.for_job == 3
    assert str(world.engine.reason(stop)) == (
        "job a moves to other GPUs to make room for job gang, which is more important."
    )


def test_a_column_of_the_wrong_length_is_a_bug_of_the_policy() -> None:
    def ranking(column: str, values: list[float]) -> Ranking:
        return Ranking(np.arange(3), **cast(dict[str, Any], {column: np.array(values)}))

    for column in ("level", "victim_order", "quantum_s"):
        with pytest.raises(PolicyError, match=f"its {column} must be one number for each of the 3 jobs"):
            check_ranking("mine", ranking(column, [0, 0]), 3, 1)
        with pytest.raises(PolicyError, match=column):
            check_ranking("mine", ranking(column, [0, np.nan, 1]), 3, 1)
        check_ranking("mine", ranking(column, [0, 0, 0]), 3, 1)


def test_among_cuts_every_column() -> None:
    ranking = Ranking(np.arange(3), np.arange(3), level=np.arange(3.0), quantum_s=np.arange(3.0))
    cut = ranking.among(np.array([True, False, True]))
    assert cut.order.tolist() == [0, 2] and cut.type_indices is not None and cut.type_indices.tolist() == [0, 2]
    assert cut.level is not None and cut.level.tolist() == [0, 2] and cut.victim_order is None
