"""EASY backfilling: overtaking where it is harmless, and never at the cost of the head of the queue."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.tiny import Outcome, one_node, simulate
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.perf.throughput import ThroughputTable


def backfilled(jobs: Sequence[Job], gpus: int, placement: str = "packed-sticky") -> Outcome:
    return simulate(jobs, one_node(gpus), "fifo-backfill", placement, event_driven=True)


def test_a_job_that_ends_in_time_overtakes() -> None:
    jobs = [Job("a", 0, 2, 100), Job("b", 0, 4, 100), Job("c", 0, 2, 100)]
    assert backfilled(jobs, 4).times == {"a": (0, 100), "b": (100, 200), "c": (0, 100)}
    assert simulate(jobs, one_node(4), "fifo", event_driven=True).start("c") == 200


def test_a_job_that_would_end_too_late_waits() -> None:
    jobs = [Job("a", 0, 2, 100), Job("b", 0, 4, 100), Job("c", 0, 2, 101)]
    assert backfilled(jobs, 4).times == {"a": (0, 100), "b": (100, 200), "c": (200, 301)}


def test_a_long_job_overtakes_on_gpus_the_head_will_not_need() -> None:
    jobs = [Job("a", 0, 2, 100), Job("b", 0, 3, 100), Job("c", 0, 1, 1000), Job("d", 0, 1, 1000)]
    assert backfilled(jobs, 4).times == {"a": (0, 100), "b": (100, 200), "c": (0, 1000), "d": (200, 1200)}


def test_spare_gpus_are_given_out_once() -> None:
    """At 100 six GPUs are free, the head needs four: two long jobs may overtake, not three."""
    jobs = [Job("a", 0, 3, 100), Job("b", 0, 4, 100), *(Job(f"c{i}", 0, 1, 1000) for i in range(3))]
    out = backfilled(jobs, 6)
    assert [out.start(j.id) for j in jobs] == [0, 100, 0, 0, 200]


def test_a_late_arrival_is_judged_by_the_time_left_to_the_reservation() -> None:
    jobs = [Job("a", 0, 2, 100), Job("b", 10, 4, 100), Job("c", 40, 1, 60), Job("d", 41, 1, 60)]
    out = backfilled(jobs, 4)
    assert (out.start("b"), out.start("c"), out.start("d")) == (100, 40, 200)


def test_backfill_is_in_order_of_submission_and_priority() -> None:
    """One GPU beside the head's reservation: the first in line that fits gets it."""
    jobs = [Job("a", 0, 3, 100), Job("b", 0, 4, 10), Job("c", 0, 1, 90), Job("d", 0, 1, 90, priority=1)]
    out = simulate(jobs, one_node(4), "fifo-backfill", event_driven=True)
    assert out.start("d") == 0 and out.start("c") > 0


def test_with_strict_nobody_overtakes() -> None:
    jobs = [Job("a", 0, 2, 100), Job("b", 0, 4, 100), Job("c", 0, 2, 100)]
    out = simulate(jobs, one_node(4), "fifo-backfill", event_driven=True, strict=True)
    assert out.times == simulate(jobs, one_node(4), "fifo", event_driven=True).times


def test_several_gpu_types_are_counted_apart() -> None:
    """The head waits for the two x at 100; the y are of no use to it and free for anybody, however long."""
    cluster = Cluster((Node("n0", 2, "x"), Node("n1", 2, "y")))
    jobs = [Job("a", 0, 1, 100, gpu_types=("x",)), Job("b", 0, 2, 50, gpu_types=("x",)), Job("c", 0, 2, 1000)]
    jobs += [Job("d", 0, 1, 100, gpu_types=("x",)), Job("e", 0, 1, 101, gpu_types=("x",))]
    out = simulate(jobs, cluster, "fifo-backfill", event_driven=True)
    assert [out.start(j.id) for j in jobs] == [0, 100, 0, 0, 150]


SPEEDS = ThroughputTable({("m", 1): {"slow": 1.0, "fast": 10.0}})


def test_whether_a_job_ends_in_time_depends_on_the_type_it_would_get() -> None:
    """b takes 50 s on a fast GPU, but only a slow one is free: 500 s there would delay the head (reserved: 100)."""
    cluster = Cluster((Node("n0", 2, "slow"), Node("n1", 1, "fast")))
    jobs = [Job("a", 0, 1, 100, gpu_types=("slow",)), Job("f", 0, 1, 1e4, gpu_types=("fast",))]
    jobs += [Job("head", 0, 2, 10, gpu_types=("slow",)), Job("b", 1, 1, 500, step_s=None, model="m")]
    out = simulate(jobs, cluster, "fifo-backfill", event_driven=True, throughputs=SPEEDS)
    assert (out.start("head"), out.start("b")) == (100, 110)
    short = [*jobs[:3], Job("b", 1, 1, 99, step_s=None, model="m")]
    assert simulate(short, cluster, "fifo-backfill", event_driven=True, throughputs=SPEEDS).start("b") == 1


def test_jobs_take_the_fastest_type_that_has_room() -> None:
    cluster = Cluster((Node("n0", 1, "slow"), Node("n1", 4, "fast")))
    jobs = [Job(f"j{i}", 0, 1, 500, step_s=None, model="m") for i in range(5)]
    out = simulate(jobs, cluster, "fifo-backfill", event_driven=True, throughputs=SPEEDS)
    assert sorted(out.finish(j.id) for j in jobs) == [50, 50, 50, 50, 500]


def workloads(largest: int) -> st.SearchStrategy[list[Job]]:
    row = st.tuples(st.integers(0, 60), st.integers(1, largest), st.integers(1, 80))
    return st.lists(row, min_size=2, max_size=14).map(
        lambda rows: [Job(f"j{i}", s, g, t) for i, (s, g, t) in enumerate(sorted(rows, key=lambda r: r[0]))]
    )


def reservation(out: Outcome, jobs: Sequence[Job], head: int, gpus: int) -> float:
    """When the job would start if nobody had been let in after it became head of the queue; from the record alone."""
    before = jobs[:head]
    became_head = max([jobs[head].submit_s, *(out.start(j.id) for j in before)])
    holders = [
        j
        for i, j in enumerate(jobs)
        if i != head
        and out.finish(j.id) > became_head
        and (out.start(j.id) < became_head or (i < head and out.start(j.id) == became_head))
    ]
    for at in sorted({became_head, *(out.finish(j.id) for j in holders)}):
        if gpus - sum(j.gpus for j in holders if out.finish(j.id) > at) >= jobs[head].gpus:
            return at
    raise AssertionError("a job that never fits")


@pytest.mark.parametrize("placement", ["packed-sticky", "packed", "random-sticky"])
@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(jobs=workloads(4))
def test_the_head_is_never_later_than_its_reservation(placement: str, jobs: list[Job]) -> None:
    """With exact run times and one GPU type: whoever overtakes, no job starts later than it would have."""
    out = backfilled(jobs, 4, placement)
    for head in range(len(jobs)):
        assert out.start(jobs[head].id) <= reservation(out, jobs, head, 4)
    assert out.summary.preemptions == 0


@settings(derandomize=True, database=None, deadline=None, max_examples=30)
@given(jobs=workloads(4))
def test_no_gpus_idle_that_a_job_could_use_without_harm(jobs: list[Job]) -> None:
    """Jobs of one GPU that end before every reservation never wait while a GPU is free."""
    tiny = [Job("tiny", 30, 1, 1e-3)]
    mixed = sorted([*jobs, *tiny], key=lambda j: j.submit_s)
    out = backfilled(mixed, 4)
    busy = sum(j.gpus for j in jobs if out.start(j.id) <= 30 < out.finish(j.id))
    if busy < 4 and not any(j.submit_s == 30 or out.finish(j.id) == 30 for j in jobs):
        assert out.start("tiny") == 30
