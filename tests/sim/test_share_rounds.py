"""Share policies in the simulated world: newcomers, resets, pairs, prices, deadlines, no rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sim.tiny import Outcome, simulate
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.core.job import Job
from trine.perf.throughput import ThroughputTable

FAST_AND_SLOW = Cluster((Node("f", 1, "fast"), Node("s", 1, "slow")))
SPEEDS = ThroughputTable(
    {("m", 1): {"fast": 2.0, "slow": 1.0}, ("m", 2): {"fast": 3.0, "slow": 2.0}, ("picky", 1): {"fast": 1.0}},
    {("m", "m", 1): {"fast": (1.5, 1.5), "slow": (0.0, 0.0)}},
)


def job(name: str, submit_s: float, steps: float, gpus: int = 1, **more: Any) -> Job:
    return Job(name, submit_s, gpus, steps, None, "m", **more)


def rounds(jobs: list[Job], policy: str, cluster: Cluster = FAST_AND_SLOW, **values: Any) -> Outcome:
    return simulate(jobs, cluster, policy, throughputs=SPEEDS, **({"round_s": 100.0} | values))


def test_a_newcomer_takes_idle_gpus_at_once() -> None:
    jobs = [job("old", 0.0, 4000.0), job("new", 150.0, 300.0)]
    assert rounds(jobs, "max-min-fairness", reset_gap_s=5000.0).start("new") == 200.0


def test_as_published_a_newcomer_waits_for_the_next_reset() -> None:
    jobs = [job("old", 0.0, 4000.0), job("new", 150.0, 300.0)]
    out = rounds(jobs, "max-min-fairness", reset_gap_s=1000.0, compat__idle_until_reset=True)
    assert out.start("new") == 1000.0


def test_a_reset_at_time_0_may_count_as_none() -> None:
    jobs = [job("old", 0.0, 4000.0), job("new", 150.0, 300.0)]
    quirks: dict[str, Any] = {"compat__idle_until_reset": True, "compat__reset_at_zero": True}
    assert rounds(jobs, "max-min-fairness", reset_gap_s=1000.0, **quirks).start("new") == 200.0


def test_two_equal_jobs_take_turns_on_the_fast_type() -> None:
    out = rounds([job("a", 0.0, 1500.0), job("b", 0.0, 1500.0)], "max-min-fairness", stay_rounds=0)
    fast_s = {
        name: sum(s.end_s - s.start_s for s in out.segments if s.job_id == name and s.gpus == (0,)) for name in "ab"
    }
    assert abs(fast_s["a"] - fast_s["b"]) <= 100.0
    assert out.summary.makespan_s <= 1100.0


def test_the_order_of_types_can_be_given() -> None:
    out = rounds([job("a", 0.0, 100.0)], "isolated", type_order="slow,fast")
    assert out.segments[0].gpus == (1,)
    with pytest.raises(InputError, match="did you mean 'slow'"):
        rounds([job("a", 0.0, 100.0)], "isolated", type_order="slou")


def test_pairs_share_a_gpu_and_its_price() -> None:
    cluster = replace(Cluster((Node("f", 1, "fast"),)), prices_per_gpu_h={"fast": 3600.0})
    jobs = [job("a", 0.0, 600.0), job("b", 0.0, 600.0)]
    alone = rounds(jobs, "max-min-fairness", cluster)
    shared = rounds(jobs, "max-min-fairness", cluster, space_sharing=True)
    twice = rounds(jobs, "max-min-fairness", cluster, space_sharing=True, compat__pair_cost_twice=True)
    assert alone.summary.makespan_s == pytest.approx(600.0)
    assert shared.summary.makespan_s == pytest.approx(400.0)
    assert [shared.summary.cost, twice.summary.cost] == pytest.approx([400.0, 800.0])
    assert shared.summary.utilization == pytest.approx(1.0)


def test_the_one_left_of_a_pair_goes_on_at_full_speed() -> None:
    cluster = Cluster((Node("f", 1, "fast"),))
    out = rounds([job("short", 0.0, 300.0), job("long", 0.0, 700.0)], "max-min-fairness", cluster, space_sharing=True)
    assert out.finish("short") == pytest.approx(200.0)
    assert out.finish("long") == pytest.approx(200.0 + 400.0 / 2.0)
    assert out.records["long"].preemptions == 0


def test_missed_deadlines_are_counted_where_there_are_any() -> None:
    jobs = [job("in-time", 0.0, 200.0, deadline_s=1000.0), job("late", 0.0, 5000.0, deadline_s=1000.0)]
    summary = rounds([*jobs, job("free", 0.0, 10.0)], "max-throughput").summary
    assert (summary.deadlines, summary.deadlines_missed) == (2, 1)
    assert summary.as_dict()["deadlines_missed"] == 1
    assert "deadlines" not in rounds([job("free", 0.0, 10.0)], "isolated").summary.as_dict()


def test_without_rounds_jobs_flow_at_their_effective_throughput() -> None:
    out = rounds([job("a", 0.0, 1500.0), job("b", 0.0, 1500.0)], "max-min-fairness", ideal=True)
    assert [out.start("a"), out.start("b")] == [0.0, 0.0]
    assert [out.finish("a"), out.finish("b")] == pytest.approx([1000.0, 1000.0])
    with pytest.raises(InputError, match="a policy that computes shares"):
        rounds([job("a", 0.0, 100.0)], "srtf", ideal=True)


def test_a_job_that_only_one_type_can_run_gets_it() -> None:
    jobs = [Job("picky", 0.0, 1, 100.0, None, "picky"), job("any", 0.0, 100.0)]
    out = rounds(jobs, "max-throughput", reset_gap_s=0.0)
    assert all(s.gpus == (0,) for s in out.segments if s.job_id == "picky")


def test_groups_share_by_weight_under_the_hierarchical_policy() -> None:
    cluster = Cluster.uniform(1, 4, "fast")
    jobs = [job(f"{g}{i}", 0.0, 4000.0, group=g) for g in ("web", "lab") for i in range(4)]
    out = rounds(jobs, "hierarchical", cluster, entities="web=3,lab=1", round_s=10.0)
    until_s = 1000.0
    got = {
        g: sum(
            min(s.end_s, until_s) - s.start_s for s in out.segments if s.job_id.startswith(g) and s.start_s < until_s
        )
        for g in ("web", "lab")
    }
    assert got["web"] / got["lab"] == pytest.approx(3.0, rel=0.1)
    with pytest.raises(InputError, match="GROUP=WEIGHT"):
        rounds(jobs, "hierarchical", cluster, entities="web=no")


@pytest.mark.parametrize("deadline_s", [1050.0, 1200.0, 1500.0, 1900.0])
def test_deadlines_are_kept_by_rounds_too(deadline_s: float) -> None:
    """The slow type is cheap and takes 2000 s, the fast one 1000 s: rounds of both are planned with time to spare."""
    cluster = replace(FAST_AND_SLOW, prices_per_gpu_h={"fast": 9.0, "slow": 1.0})
    late = replace(job("a", 0.0, 2000.0), deadline_s=deadline_s)
    assert rounds([late], "min-cost", cluster).finish("a") <= deadline_s
    assert rounds([late], "min-cost", cluster, slo=False).finish("a") == 2000.0
