from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.live import LiveWorld
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.core.reason import Why
from trine.engine import events as ev
from trine.engine.quotas import Quotas

GROUPS, USERS = ("a", "b", ""), ("ann", "bob", "")
jobs = st.builds(
    Job,
    id=st.just("j"),
    submit_s=st.just(0.0),
    gpus=st.integers(1, 6),
    steps=st.just(1.0),
    user=st.sampled_from(USERS),
    group=st.sampled_from(GROUPS),
)
limits = st.builds(
    Quotas,
    by_group=st.dictionaries(st.sampled_from(("a", "b")), st.integers(0, 8)),
    by_user=st.dictionaries(st.sampled_from(("ann", "bob")), st.integers(0, 8)),
)


def held(taken: list[Job], **who: str) -> int:
    (key, name), *_ = who.items()
    return sum(job.gpus for job in taken if getattr(job, key) == name)


@given(limits, st.lists(jobs, max_size=4), st.lists(jobs, max_size=8))
def test_those_let_through_stay_within_every_quota_and_those_refused_would_not(
    quotas: Quotas, running: list[Job], waiting: list[Job]
) -> None:
    taken = list(running)
    for job, refused in zip(waiting, quotas.exceeded(running, waiting), strict=True):
        group, user = quotas.by_group.get(job.group), quotas.by_user.get(job.user)
        fits = (group is None or held(taken, group=job.group) + job.gpus <= group) and (
            user is None or held(taken, user=job.user) + job.gpus <= user
        )
        assert refused != fits, f"{job.gpus} GPUs for {job.user} in {job.group}: {quotas}, taken {taken}"
        if fits:
            taken.append(job)


def test_gpus_that_a_stopping_job_still_holds_count() -> None:
    live = LiveWorld(Cluster.uniform(2, 2), "srtf")
    live.engine.quotas = Quotas(by_group={"q": 2})
    live.submit(Job("old", 0, 2, 100, group="q"), Job("new", 0, 2, 200, group="q"))
    live.start_all(0)
    assert live.held.keys() == {"old"}
    live._heard(live.engine.handle(ev.CancelRequested(1, 0)))
    assert live.tick(2) == [], "two GPUs are free, but the group holds all it may until the old job is gone"
    assert live.explain("new").code is Why.QUOTA
    del live.held["old"]
    live._heard(live.engine.handle(ev.Terminated(3, 0)))
    assert live.tick(4) == ["start new 0,1"]


def test_a_quota_of_one_group_does_not_hold_up_others_in_a_strict_order() -> None:
    live = LiveWorld(Cluster.uniform(2, 2), "fifo")
    live.engine.quotas = Quotas(by_group={"q": 2})
    live.submit(Job("a", 0, 2, 100, group="q"), Job("b", 1, 2, 100, group="q"), Job("c", 2, 2, 100, group="r"))
    live.start_all(3)
    assert live.held.keys() == {"a", "c"}
    assert "queue q may hold 2 GPUs" in live.explain("b").sentence


def test_running_jobs_above_a_quota_that_was_lowered_run_on_and_nothing_is_added() -> None:
    live = LiveWorld(Cluster.uniform(2, 2), "las", "packed")
    live.submit(Job("a", 0, 2, 100, user="ann"), Job("b", 0, 1, 100, user="ann"), Job("c", 0, 1, 100, user="ann"))
    live.start_all(0)
    live.engine.quotas = Quotas(by_user={"ann": 1})
    live.submit(Job("d", 1, 1, 100, user="ann"))
    assert live.tick(60) == []
    live.finish("b", now=61)
    live.finish("c", now=62)
    assert not [line for line in live.tick(120) if line.startswith("start d")]
    live.finish("a", now=121)
    assert live.tick(180) == ["start d 0"]
