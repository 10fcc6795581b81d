"""Skipping is exact: a run that decides in every single round gives every job the same times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.tiny import simulate
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.plugins import discover
from trine.engine.engine import Engine
from trine.placement.base import Placement
from trine.policy.base import Policy

POLICIES = sorted(discover("trine.policy", Policy))
PLACEMENTS = [name + suffix for name in sorted(discover("trine.placement", Placement)) for suffix in ("", "-sticky")]
CLUSTER = Cluster((Node("n0", 2), Node("n1", 3), Node("n2", 1)), scores={"A": (1.0, 1.2, 1.0, 1.5, 1.0, 1.1)})


class Restless(Engine):
    """Never says that it may be left alone."""

    @property
    def can_wait(self) -> bool:
        return False


def workloads() -> st.SearchStrategy[list[Job]]:
    row = st.tuples(st.integers(0, 900), st.integers(1, 6), st.integers(1, 500), st.sampled_from((0, 0, 0, 1)))
    return st.lists(row, min_size=1, max_size=8).map(
        lambda rows: [Job(f"j{i}", s, g, t, priority=p) for i, (s, g, t, p) in enumerate(sorted(rows))]
    )


def costs() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "restore_s": st.sampled_from((0, 7)),
            "checkpoint_every_s": st.sampled_from((0, 20)),
            "finish": st.sampled_from(("exact", "round")),
            "event_driven": st.booleans(),
            "strict": st.sampled_from((None, True, False)),
            "locality_penalty": st.sampled_from((1.0, 1.4)),
        }
    )


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", POLICIES)
@settings(derandomize=True, database=None, deadline=None, max_examples=4)
@given(jobs=workloads(), values=costs())
def test_skipping_changes_nothing(policy: str, placement: str, jobs: list[Job], values: dict[str, Any]) -> None:
    skipping = simulate(jobs, CLUSTER, policy, placement, round_s=30, **values)
    restless = simulate(jobs, CLUSTER, policy, placement, round_s=30, engine=Restless, **values)
    assert skipping.records == restless.records
    assert skipping.segments == restless.segments


RACKS = Cluster(
    (Node("n0", 2, rack="r0"), Node("n1", 2, rack="r0"), Node("n2", 2, rack="r1"), Node("n3", 1, rack="r1")),
    scores={"A": (1.0, 1.2, 1.0, 1.5, 1.0, 1.1, 1.0)},
)


TIMERS: dict[str, dict[str, Any]] = {
    "delay": {"machine_timer_s": 77.7, "rack_timer_s": 100.0},
    "consolidate-sticky": {"max_wait_s": 133.3},
}


@pytest.mark.parametrize("placement", ["packed-sticky", "pal", "pal-sticky", "random", *TIMERS])
@pytest.mark.parametrize("policy", ["dally", "fifo-backfill", "las", "max-min-fairness", "srtf", "tiresias"])
@settings(derandomize=True, database=None, deadline=None, max_examples=6)
@given(
    jobs=workloads(),
    mode=st.sampled_from(({}, {"event_driven": True}, {"fill": True})),
    sharing=st.sampled_from(("max-min", "duty")),
    finish=st.sampled_from(("exact", "round")),
)
def test_skipping_changes_nothing_where_links_are_shared(
    policy: str, placement: str, jobs: list[Job], mode: dict[str, Any], sharing: str, finish: str
) -> None:
    """Speeds change whenever a gang comes or goes; deciding again in between must change nothing more."""
    jobs = [replace(job, model="VGG-16", app_class="A") for job in jobs]
    network: dict[str, Any] = {"network": "cloud-tcp", "oversubscription": 2.0, "link_sharing": sharing}
    values = network | mode | TIMERS.get(placement, {}) | {"finish": finish, "restore_s": 7}
    if policy == "dally":
        values["quantum_s"] = 60.0
    skipping = simulate(jobs, RACKS, policy, placement, round_s=30, **values)
    restless = simulate(jobs, RACKS, policy, placement, round_s=30, engine=Restless, **values)
    assert skipping.records == restless.records
    assert skipping.segments == restless.segments


@pytest.mark.parametrize("policy", ["las", "srtf"])
def test_skipping_changes_nothing_with_the_published_quirks(policy: str) -> None:
    jobs = [Job(f"j{i}", 37.0 * (i % 7), 1 + i % 5, 90 + 53 * (i % 6)) for i in range(20)]
    jobs.sort(key=lambda j: j.submit_s)
    quirks: dict[str, Any] = {"compat__keep_evictions": True, "compat__wall_attained": True, "strict": True}
    runs = [
        simulate(jobs, CLUSTER, policy, "packed-sticky", round_s=30, finish="round", engine=engine, **quirks)
        for engine in (Engine, Restless)
    ]
    assert runs[0].records == runs[1].records


@pytest.mark.parametrize("mode", [{}, {"event_driven": True}, {"fill": True}], ids=["rounds", "events", "fill"])
def test_turns_of_share_policies_come_when_they_are_due_whether_or_not_rounds_are_skipped(mode: dict[str, Any]) -> None:
    """Off the grid of rounds, too, where a turn ends at any moment."""
    jobs = [Job(f"j{i}", 37.0 * (i % 7), 1 + i % 5, 90 + 53 * (i % 6)) for i in range(20)]
    jobs.sort(key=lambda j: j.submit_s)
    runs = [
        simulate(jobs, CLUSTER, "max-min-fairness", "packed-sticky", round_s=30, engine=engine, **mode)
        for engine in (Engine, Restless)
    ]
    assert runs[0].records == runs[1].records and runs[0].segments == runs[1].segments
