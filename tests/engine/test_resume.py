"""Jobs with a past in a new engine: what they had they keep, and nothing about the new engine can refuse them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sim.tiny import build_engine
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.engine import events as ev
from trine.engine.engine import Engine
from trine.engine.invariants import check
from trine.engine.job_table import State
from trine.engine.resume import Past, rate_resumed, resume

CLUSTER = Cluster.uniform(3, 4)


def engine(policy: str = "srtf", placement: str = "packed-sticky", cluster: Cluster = CLUSTER) -> Engine:
    return build_engine(cluster, resolve(policy, placement, {}))


def running(gpus: tuple[int, ...], **values: Any) -> Past:
    return replace(Past(epoch=3, gpus=gpus, state=State.RUNNING), **values)


@pytest.mark.parametrize("placement", ["packed", "packed-sticky"])
def test_a_running_job_keeps_its_gpus_epoch_and_work(placement: str) -> None:
    new = engine(placement=placement)
    job_index = resume(
        new, 50.0, Job("a", 0, 4, 100), running((0, 1, 2, 3), done=40.0, attained_s=40.0, run_from_s=50.0)
    )
    check(new)
    assert new.handle(ev.Tick(51)) == [], "nobody is restarted because the scheduler was"
    new.handle(ev.Held(60, job_index))
    new.handle(ev.Stopped(61, job_index, 45.0))
    new.handle(ev.Released(62, job_index))
    (start,) = new.handle(ev.Tick(63))
    assert start.epoch == 4, "epochs go on where they were"
    assert new.table.attained_s[job_index] == pytest.approx(51.0)


def test_a_job_that_was_stopping_holds_its_gpus_until_it_is_seen_to_be_gone() -> None:
    new = engine()
    resume(new, 0, Job("old", 0, 12, 100), running(tuple(range(12)), state=State.STOPPING, held=True))
    resume(new, 0, Job("next", 0, 12, 10), Past())
    assert new.handle(ev.Tick(1)) == []
    assert [d.job_index for d in new.handle(ev.Terminated(2, 0))] == [1]
    check(new)


def test_a_held_job_is_not_offered_until_it_is_released() -> None:
    new = engine()
    job_index = resume(new, 0, Job("a", 0, 1, 100), Past(held=True))
    assert new.handle(ev.Tick(1)) == []
    new.handle(ev.Released(2, job_index))
    assert len(new.handle(ev.Tick(3))) == 1


def test_what_a_job_told_of_its_pace_counts_for_its_length_after_a_restart() -> None:
    """Both told before that they run ten times as fast, or as slow, as was guessed."""
    new = engine(cluster=Cluster.uniform(1, 2))
    resume(new, 0, Job("slow", 0, 1, 1000), running((0,), rate=0.1, work_from_s=0.0))
    resume(new, 0, Job("fast", 0, 1, 2000), running((1,), rate=10.0, work_from_s=0.0))
    resume(new, 0, Job("middle", 0, 1, 1000), Past())
    rate_resumed(new)
    (stop,) = new.handle(ev.Tick(1))
    assert (stop.job_index, type(stop)) == (0, ev.Stop), "10000 s left, 200 s left, 1000 s left"


def test_jobs_on_gpus_that_are_now_excluded_run_on_and_the_gpus_are_not_used_again() -> None:
    slow = Cluster(CLUSTER.nodes, scores={"A": (6.0, *(1.0,) * 11)})
    new = engine(placement="exclude-outliers-sticky", cluster=slow)
    job_index = resume(new, 0, Job("a", 0, 2, 100), running((0, 1)))
    check(new)
    assert new.handle(ev.Tick(1)) == []
    new.handle(ev.Finished(2, job_index))
    check(new)
    assert new.free.total == 11


def test_a_job_for_which_the_cluster_became_too_small_waits_and_does_not_stop_the_engine() -> None:
    small = Cluster((Node("n0", 2),))
    for policy in ("fifo", "srtf", "las", "fifo-backfill"):
        new = engine(policy, cluster=small)
        big = resume(new, 0, Job("big", 0, 8, 100), Past(epoch=2))
        resume(new, 0, Job("small", 0, 2, 100), Past())
        check(new)
        assert [d.job_index for d in new.handle(ev.Tick(1))] == [1], f"{policy}: the others run"
        new.handle(ev.Held(2, big))
        new.handle(ev.Released(3, big))
        new.handle(ev.Tick(4))
        new.handle(ev.CancelRequested(5, big))
        assert new.table.state[big] is State.FINISHED
        check(new)
