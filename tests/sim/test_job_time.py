"""Where job time went: the parts add up to the completion time in every way of passing time, and are what they say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.tiny import Outcome, simulate
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.inputs.preset import load_preset
from trine.perf.throughput import ThroughputTable
from trine.sim.scenario import Scenario, run

MIXED = Cluster(
    (Node("a", 2, "v100", "r0"), Node("b", 2, "v100", "r0"), Node("c", 2, "k80", "r1")),
    scores={"A": (1.0, 1.5, 1.0, 0.9, 1.0, 1.2)},
)


def crowd(count: int = 24) -> list[Job]:
    """Jobs of one to four GPUs, more than fit at once."""
    return [Job(f"j{i}", 200.0 * i, 1 + i % 4, 900.0 + 130 * (i % 5), 1.0, app_class="A") for i in range(count)]


def test_a_job_alone_is_split_by_chip_and_network() -> None:
    cluster = Cluster((Node("a", 1), Node("b", 1)), scores={"A": (1.0, 1.5)})
    found = simulate([Job("j", 0.0, 2, 1000.0, 1.0, app_class="A")], cluster, locality_penalty=2.0)
    time = found.records["j"].time
    assert time is not None
    assert time._asdict() == pytest.approx(
        {
            "wait_s": 0.0,
            "ideal_s": 1000.0,
            "type_s": 0.0,
            "chip_s": 500.0,
            "network_s": 1500.0,
            "sharing_s": 0.0,
            "restart_s": 0.0,
            "round_end_s": 0.0,
        }
    )


def test_a_stop_costs_its_restore_and_the_work_since_the_checkpoint() -> None:
    jobs = [Job("long", 0.0, 1, 2000.0, 1.0), Job("short", 250.0, 1, 100.0, 1.0)]
    values: dict[str, Any] = {"restore_s": 60.0, "checkpoint_every_s": 200.0, "round_s": 300.0}
    found = simulate(jobs, Cluster.uniform(1, 1), "srtf", **values)
    time = found.records["long"].time
    assert time is not None
    assert found.records["long"].preemptions == 1
    assert (time.restart_s, time.wait_s, time.ideal_s) == pytest.approx((60.0 + 100.0, 300.0, 2000.0))


def test_gpus_that_are_held_to_the_end_of_the_round_count() -> None:
    found = simulate([Job("j", 0.0, 1, 400.0, 1.0)], Cluster.uniform(1, 1), finish="round", round_s=300.0)
    time = found.records["j"].time
    assert time is not None
    assert (time.ideal_s, time.round_end_s) == pytest.approx((400.0, 200.0))


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf", "tiresias"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"finish": "round", "checkpoint_every_s": 250.0},
        {"event_driven": True},
        {"fill": True},
        {"network": "ethernet-50g"},
    ],
)
@pytest.mark.parametrize("placement", ["packed-sticky", "random-sticky"])
def test_the_parts_add_up(policy: str, placement: str, values: dict[str, Any]) -> None:
    penalty: dict[str, Any] = {} if "network" in values else {"locality_penalty": 1.4}
    found = simulate(crowd(), MIXED, policy, placement, restore_s=30.0, **penalty, **values)
    check(found)


def check(found: Outcome) -> None:
    for record in found.records.values():
        time = record.time
        assert time is not None
        assert sum(time) == pytest.approx(record.jct_s, rel=1e-12)
        assert time.wait_s == pytest.approx(record.wait_s, abs=1e-6)
        assert time.ideal_s == pytest.approx(record.jct_s / record.slowdown, rel=1e-9), "all of its work, once"
        assert min(time.wait_s, time.restart_s, time.round_end_s) >= -1e-6


@pytest.mark.parametrize("preset", ["gavel-static", "gavel-continuous-multiple"])
def test_they_add_up_in_rounds_of_shares_as_published(preset: str) -> None:
    chosen = load_preset(preset)
    few = {"workload.jobs": 40, "window": ""}
    result = run(
        Scenario(
            cluster="v100=4x1,p100=4x1,k80=4x1",
            workload=chosen.workload,
            throughputs=chosen.throughputs,
            authors=chosen.authors,
            policy="max-min-fairness",
            placement=chosen.placement or "packed-sticky",
            values=chosen.settings | few,
        )
    )
    times = [record.time for record in result.jobs if record.time is not None]
    assert len(times) == len(result.jobs)
    assert all(sum(j.time or ()) == pytest.approx(j.jct_s, rel=1e-9) for j in result.jobs)
    assert sum(t.type_s for t in times) > 0, "some ran on slower types than their best"


def test_a_job_next_to_another_is_split_by_sharing() -> None:
    pair = ThroughputTable({("m", 1): {"fast": 2.0}}, {("m", "m", 1): {"fast": (1.5, 1.5)}})
    jobs = [Job("short", 0.0, 1, 300.0, None, "m"), Job("long", 0.0, 1, 700.0, None, "m")]
    cluster, shares = Cluster((Node("f", 1, "fast"),)), "max-min-fairness"
    found = simulate(jobs, cluster, shares, throughputs=pair, round_s=100.0, space_sharing=True)
    time = found.records["long"].time
    assert time is not None
    assert (time.ideal_s, time.sharing_s, sum(time)) == pytest.approx((350.0, 50.0, 400.0))


def test_without_gpus_nothing_is_said_of_where_time_went() -> None:
    jobs = [Job(f"j{i}", 0.0, 1, 600.0, 1.0) for i in range(3)]
    found = simulate(jobs, Cluster.uniform(1, 2), "max-min-fairness", ideal=True)
    assert [record.time for record in found.records.values()] == [None] * 3
