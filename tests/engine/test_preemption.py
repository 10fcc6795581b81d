"""Preemption is planned before anybody is stopped: nobody loses GPUs for a job that then does not get them."""

from __future__ import annotations

import pytest

from tests.engine.live import LiveWorld
from tests.sim.tiny import one_node, simulate
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.reason import Reason, Why


def test_nothing_is_stopped_for_a_job_that_would_not_fit_all_the_same() -> None:
    """wide has less left than low but not than high: stopping low alone would not make room for it."""
    world = LiveWorld(one_node(4), "srtf")
    world.submit(Job("high", 0, 3, 50), Job("low", 0, 1, 1000))
    world.start_all()
    world.submit(Job("wide", 1, 4, 500))
    assert world.tick(1) == []
    assert len(world.held) == 2


def test_a_placement_that_refuses_leaves_everybody_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """There would be enough GPUs, but the placement does not want them for this job: nobody is stopped for it."""
    world = LiveWorld(one_node(2), "srtf")
    world.submit(Job("a", 0, 1, 500), Job("b", 0, 1, 600))
    world.start_all()
    no = Reason(Why.REFUSED, "not together")
    monkeypatch.setattr(world.engine.placement, "place", lambda job, pool: no)
    world.submit(Job("picky", 1, 2, 10))
    assert world.tick(1) == []
    assert world.explain("picky") is no
    assert world.engine.free.total == 0 and set(world.held) == {"a", "b"}


def test_keep_evictions_stops_them_all_the_same() -> None:
    """The published behaviour: low loses its GPU for the round, and a strict order ends at wide."""
    world = LiveWorld(one_node(4), "srtf", compat__keep_evictions=True, strict=True)
    world.submit(Job("high", 0, 3, 50), Job("low", 0, 1, 1000))
    world.start_all()
    world.submit(Job("wide", 1, 4, 500))
    assert world.tick(1) == ["stop low"]
    world.confirm_stop("low", done=1)
    assert world.tick(2) == []
    assert world.engine.free.total == 1
    world.finish("high", 50)
    assert world.tick(50) == ["start wide 0,1,2,3"]


def test_keep_evictions_never_bites_under_fifo() -> None:
    jobs = [Job(f"j{i}", i * 11.0, 1 + i % 4, 40 + 31 * (i % 5)) for i in range(20)]
    for placement in ("packed", "packed-sticky"):
        plain = simulate(jobs, one_node(4), "fifo", placement, round_s=10)
        published = simulate(jobs, one_node(4), "fifo", placement, round_s=10, compat__keep_evictions=True)
        assert plain.times == published.times


def test_the_lowest_ranks_go_first_and_no_more_than_needed() -> None:
    world = LiveWorld(one_node(4), "srtf")
    world.submit(Job("a", 0, 1, 100), Job("b", 0, 1, 400), Job("c", 0, 1, 300), Job("d", 0, 1, 200))
    world.start_all()
    world.submit(Job("two", 1, 2, 50))
    assert sorted(world.tick(1)) == ["stop b", "stop c"]


def test_a_job_whose_gpus_were_not_needed_after_all_goes_on() -> None:
    """small ranks last and is thought of first, but four GPUs come from big: small keeps its own."""
    world = LiveWorld(Cluster((Node("n0", 4), Node("n1", 1))), "srtf")
    world.submit(Job("big", 0, 4, 500), Job("small", 0, 1, 1000))
    world.start_all()
    assert world.held == {"big": (0, 1, 2, 3), "small": (4,)}
    world.submit(Job("new", 1, 4, 50))
    assert world.tick(1) == ["stop big"]


def test_gpus_left_over_by_an_eviction_go_to_the_next_in_line() -> None:
    """wide (4 GPUs) goes for one (1 GPU): of the three left over, two go to the next in line that fits."""
    world = LiveWorld(one_node(4), "srtf")
    world.submit(Job("wide", 0, 4, 1000))
    world.start_all()
    world.submit(Job("one", 1, 1, 10), Job("two", 1, 2, 5000))
    assert world.tick(1) == ["stop wide"]
    assert sorted(world.confirm_stop("wide", done=1)) == ["start one 0", "start two 1,2"]


def test_a_type_is_searched_for_victims_only_if_it_can_hold_the_gang() -> None:
    """Three x or one y: the gang of three can only come from x, the job on y is left alone."""
    world = LiveWorld(Cluster((Node("n0", 3, "x"), Node("n1", 1, "y"))), "srtf")
    world.submit(Job("on-x", 0, 3, 500), Job("on-y", 0, 1, 9000, gpu_types=("y",)))
    world.start_all()
    world.submit(Job("gang", 1, 3, 50))
    assert world.tick(1) == ["stop on-x"]


def test_priority_preempts_under_fifo_too() -> None:
    world = LiveWorld(one_node(1), "fifo")
    world.submit(Job("a", 0, 1, 100))
    world.start_all()
    world.submit(Job("urgent", 1, 1, 100, priority=5))
    assert world.tick(1) == ["stop a"]


def test_backfilling_never_preempts_not_even_for_priority() -> None:
    world = LiveWorld(one_node(1), "fifo-backfill")
    world.submit(Job("a", 0, 1, 100))
    world.start_all()
    world.submit(Job("urgent", 1, 1, 100, priority=5))
    assert world.tick(1) == []
