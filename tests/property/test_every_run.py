"""What holds in every run, whatever the cluster, the jobs, the policy and the placement."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import PLACEMENTS, POLICIES, Case, cases, costs, stable, times
from tests.sim.tiny import Outcome, simulate
from trine.engine.engine import Engine
from trine.engine.events import Decision, Event
from trine.engine.invariants import check

SLACK = 1 + 1e-9
ROUND_S = 30.0


class Watched(Engine):
    """Checks after every single event: the invariants, and that no job's safe work ever shrinks."""

    def handle(self, event: Event) -> list[Decision]:
        before = self.table.done.copy()
        decisions = super().handle(event)
        check(self)
        assert (self.table.done[: len(before)] >= before).all()
        return decisions


def watched_run(case: Case, policy: str, placement: str, **values: Any) -> Outcome:
    out = simulate(case.jobs, case.cluster, policy, placement, round_s=ROUND_S, engine=Watched, **values)
    every_job_ends_once(case, out)
    gangs_are_whole(case, out)
    no_gpu_is_used_twice(out)
    nobody_beats_physics(case, out)
    the_cluster_is_not_overfull(out)
    return out


def every_job_ends_once(case: Case, out: Outcome) -> None:
    assert list(out.records) == [job.id for job in case.jobs]
    ends = Counter(s.job_id for s in out.segments if s.ended == "finished")
    assert ends == Counter(job.id for job in case.jobs)
    for record in out.records.values():
        stretches = [s for s in out.segments if s.job_id == record.job_id]
        assert stretches[-1].ended == "finished" and stretches[-1].end_s == record.finish_s
        assert record.preemptions >= sum(s.ended == "preempted" for s in stretches)


def gangs_are_whole(case: Case, out: Outcome) -> None:
    jobs = {job.id: job for job in case.jobs}
    for segment in out.segments:
        job = jobs[segment.job_id]
        kinds = {case.cluster.type_of(g) for g in segment.gpus}
        assert len(set(segment.gpus)) == len(segment.gpus) == job.gpus
        assert len(kinds) == 1 and (not job.gpu_types or kinds <= set(job.gpu_types))
        assert segment.tier == case.cluster.tier(segment.gpus).label


def no_gpu_is_used_twice(out: Outcome) -> None:
    by_gpu: dict[int, list[tuple[float, float]]] = {}
    for segment in out.segments:
        for gpu in segment.gpus:
            by_gpu.setdefault(gpu, []).append((segment.start_s, segment.end_s))
    for stretches in by_gpu.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(stretches)))


def nobody_beats_physics(case: Case, out: Outcome) -> None:
    """No slowdown is below one here: a job takes its ideal time at least, and never runs before it is submitted."""
    for job in case.jobs:
        record = out.records[job.id]
        assert job.ideal_s is not None
        assert record.start_s >= job.submit_s
        assert record.finish_s * SLACK >= record.start_s + job.ideal_s
        assert record.jct_s * SLACK >= record.wait_s + job.ideal_s
        assert record.slowdown * SLACK >= 1


def the_cluster_is_not_overfull(out: Outcome) -> None:
    assert 0 < out.summary.utilization <= SLACK


@pytest.mark.parametrize("policy", POLICIES)
@stable(15)
@given(case=cases(), placement=st.sampled_from(PLACEMENTS), time=times(), cost=costs())
def test_every_policy(policy: str, case: Case, placement: str, time: dict[str, Any], cost: dict[str, Any]) -> None:
    watched_run(case, policy, placement, **time, **cost)


@pytest.mark.parametrize("placement", PLACEMENTS)
@stable(15)
@given(case=cases(), policy=st.sampled_from(POLICIES), time=times(), cost=costs())
def test_every_placement(placement: str, case: Case, policy: str, time: dict[str, Any], cost: dict[str, Any]) -> None:
    watched_run(case, policy, placement, **time, **cost)


@pytest.mark.parametrize("policy", POLICIES)
@stable(12)
@given(case=cases(), placement=st.sampled_from(PLACEMENTS), penalty=st.sampled_from((1.0, 1.7)))
def test_work_is_conserved(policy: str, case: Case, placement: str, penalty: float) -> None:
    """Where stops are free, the time a job held GPUs, each stretch at its own speed, is exactly its work."""
    out = simulate(case.jobs, case.cluster, policy, placement, round_s=ROUND_S, locality_penalty=penalty)
    for job in case.jobs:
        worked_s = sum((s.end_s - s.start_s) / s.slowdown for s in out.segments if s.job_id == job.id)
        assert worked_s == pytest.approx(job.ideal_s, rel=1e-6, abs=1e-6)
    assert out.summary.lost_work_s == 0


@pytest.mark.parametrize("policy", POLICIES)
@stable(12)
@given(case=cases(), placement=st.sampled_from(PLACEMENTS), time=times(), cost=costs())
def test_lost_time_is_what_was_held_beyond_the_work(
    policy: str, case: Case, placement: str, time: dict[str, Any], cost: dict[str, Any]
) -> None:
    """Held time = work + restores, moves and work done twice; ``lost_work_s`` is the difference."""
    values = time | cost | {"finish": "exact", "locality_penalty": 1.0}
    flat = Case(type(case.cluster)(case.cluster.nodes), case.jobs)
    out = simulate(flat.jobs, flat.cluster, policy, placement, round_s=ROUND_S, **values)
    held_s = sum(life.held_s for life in out.lives.values())
    assert held_s == pytest.approx(sum(job.ideal_s or 0 for job in case.jobs) + out.summary.lost_work_s, rel=1e-6)


@stable(24)
@given(
    case=cases(),
    policy=st.sampled_from(POLICIES),
    placement=st.sampled_from(PLACEMENTS),
    time=times(),
    cost=costs(),
    seed=st.integers(0, 3),
)
def test_the_same_again_gives_the_same(
    case: Case, policy: str, placement: str, time: dict[str, Any], cost: dict[str, Any], seed: int
) -> None:
    one, again = (
        simulate(case.jobs, case.cluster, policy, placement, round_s=ROUND_S, seed=seed, **time, **cost)
        for _ in range(2)
    )
    assert one.records == again.records
    assert one.segments == again.segments
    assert one.summary == again.summary


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill"])
@stable(12)
@given(case=cases(), placement=st.sampled_from([p for p in PLACEMENTS if p.endswith("-sticky")]), strict=st.booleans())
def test_where_nobody_is_preempted_sticky_jobs_stay_to_the_end(
    policy: str, case: Case, placement: str, strict: bool
) -> None:
    jobs = [replace(job, priority=0) for job in case.jobs]
    out = simulate(jobs, case.cluster, policy, placement, round_s=ROUND_S, strict=strict or policy == "fifo")
    assert out.summary.migrations == out.summary.preemptions == 0
    assert len(out.segments) == len(jobs)
