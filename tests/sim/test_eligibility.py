"""Simulated jobs that have to wait for others: eligible when the last of them ends, under every policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.tiny import simulate
from trine.assembly.registry import ordering_policies, share_policies
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.job import Job
from trine.sim.arrivals import repeat
from trine.trace.formats.trine import write_trace
from trine.trace.importer import load
from trine.trace.options import ImportOptions

CHAIN = [
    Job("a", 0.0, 1, 100.0),
    Job("b", 0.0, 1, 50.0, after=("a",)),
    Job("c", 10.0, 1, 30.0, after=("a", "b")),
    Job("d", 20.0, 1, 40.0),
]


def test_a_job_starts_when_the_last_predecessor_has_ended_and_not_before() -> None:
    outcome = simulate(CHAIN, Cluster.uniform(1, 4), "fifo", "packed-sticky", event_driven=True)
    assert outcome.times == {"a": (0, 100), "b": (100, 150), "c": (150, 180), "d": (20, 60)}


def test_waits_count_from_submission_and_once_more_from_eligibility() -> None:
    outcome = simulate(CHAIN, Cluster.uniform(1, 1), "fifo", "packed-sticky", event_driven=True)
    assert outcome.times == {"a": (0, 100), "b": (100, 150), "c": (150, 180), "d": (180, 220)}
    waits = {job_id: (record.wait_s, record.blocked_s) for job_id, record in outcome.records.items()}
    assert waits == {"a": (0, 0), "b": (100, 100), "c": (140, 140), "d": (160, 0)}
    summary = outcome.summary.as_dict()
    assert (summary["dependents"], summary["wait_mean_s"], summary["eligible_wait_mean_s"]) == (2, 100, 40)


def test_without_dependencies_nothing_is_said_of_them() -> None:
    outcome = simulate([Job("a", 0.0, 1, 100.0)], Cluster.uniform(1, 1), "fifo", "packed-sticky")
    assert not {"dependents", "eligible_wait_mean_s"} & outcome.summary.as_dict().keys()


@pytest.mark.parametrize("policy", sorted({*ordering_policies(), *share_policies()}))
def test_every_policy_honours_dependencies(policy: str) -> None:
    jobs = [Job(str(i), 7.0 * i, 1 + i % 2, 200.0, after=(str(i - 2),) if i > 1 else (), group="g") for i in range(12)]
    cluster = replace(Cluster.uniform(2, 2), prices_per_gpu_h={"gpu": 1.0})
    outcome = simulate(jobs, cluster, policy, "packed-sticky", round_s=60.0)
    assert len(outcome.records) == len(jobs)
    for job in jobs:
        assert all(outcome.start(job.id) >= outcome.finish(before) for before in job.after)


SWEEP = [
    *(Job(f"s{number}", 10.0 * number, 1, 100.0, array="sweep%2") for number in range(4)),
    Job("other", 0.0, 1, 10.0, array="other%1"),
    Job("late", 500.0, 1, 100.0, array="sweep%2"),
    Job("sum", 500.0, 1, 10.0, after=("s3", "late")),
]


def test_of_an_array_with_a_limit_so_many_are_under_way_at_once() -> None:
    jobs = sorted(SWEEP, key=lambda job: job.submit_s)
    outcome = simulate(jobs, Cluster.uniform(1, 8), "fifo", "packed-sticky", event_driven=True)
    assert [outcome.times[f"s{number}"] for number in range(4)] == [(0, 100), (10, 110), (100, 200), (110, 210)]
    assert outcome.times["other"] == (0, 10), "an array of its own"
    assert (outcome.times["late"], outcome.times["sum"]) == ((500, 600), (600, 610)), "turns come back"
    assert outcome.records["s2"].blocked_s == 80


@pytest.mark.parametrize("policy", sorted({*ordering_policies(), *share_policies()}))
def test_every_policy_honours_the_limit_of_an_array(policy: str) -> None:
    jobs = [Job(str(i), 7.0 * i, 1, 200.0, group="g", array="a%1" if i % 2 else "b%2") for i in range(10)]
    cluster = replace(Cluster.uniform(2, 4), prices_per_gpu_h={"gpu": 1.0})
    outcome = simulate(jobs, cluster, policy, "packed-sticky", round_s=60.0)
    for odd, most in ((1, 1), (0, 2)):
        spans = [outcome.times[str(i)] for i in range(odd, 10, 2)]
        for begin, _ in spans:
            assert sum(start <= begin < finish for start, finish in spans) <= most


def test_shares_without_rounds_honour_dependencies() -> None:
    outcome = simulate(CHAIN, Cluster.uniform(1, 4), "max-min-fairness", "packed-sticky", ideal=True)
    assert outcome.finish("b") == pytest.approx(150)
    assert outcome.finish("c") == pytest.approx(180)


def test_traces_keep_the_column_only_where_it_says_something(tmp_path: Path) -> None:
    write_trace(CHAIN, tmp_path / "chain.csv")
    assert [job.after for job in load(tmp_path / "chain.csv").jobs] == [job.after for job in CHAIN]
    write_trace([CHAIN[0]], tmp_path / "plain.csv")
    assert "after" not in (tmp_path / "plain.csv").read_text()


@pytest.mark.parametrize(
    ("after", "found"),
    [("zz", "there is no such job"), ("b", "not submitted before it"), ("late", "not submitted before it")],
)
def test_unknown_predecessors_and_cycles_are_refused(tmp_path: Path, after: str, found: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(f"job_id,submit_s,gpus,duration_s,after\na,0,1,60,\nb,5,1,60,{after}\nlate,6,1,60,b\n")
    with pytest.raises(InputError, match=found) as error:
        load(trace)
    assert error.value.where.endswith("trace.csv:3")


def test_predecessors_outside_a_window_count_as_ended(tmp_path: Path) -> None:
    write_trace(CHAIN, tmp_path / "chain.csv")
    jobs = load(tmp_path / "chain.csv", options=ImportOptions(since="5")).jobs
    outcome = simulate(jobs, Cluster.uniform(1, 4), "fifo", "packed-sticky", event_driven=True)
    assert outcome.start("c") == jobs[0].submit_s


def test_background_copies_wait_for_nobody() -> None:
    copies = repeat(CHAIN, jobs_per_h=60.0, seed=0)
    assert all(next(copies).after == () for _ in range(8))


def test_arrays_are_written_and_read_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    write_trace(sorted(SWEEP, key=lambda job: job.submit_s), file)
    found = {job.id: (job.array, job.after) for job in load(file).jobs}
    assert found == {job.id: (job.array, job.after) for job in SWEEP}
    for wrong in ("sweep", "sweep%", "sweep%0", "%3", "sweep%-1", "sweep%x"):
        file.write_text(f"job_id,submit_s,gpus,duration_s,array\na,0,1,60,{wrong}\n")
        with pytest.raises(InputError, match=r"sweep.csv:2: array: .*expected a name and how many"):
            load(file)


def test_background_copies_of_an_array_are_jobs_of_their_own() -> None:
    copies = repeat([Job("a", 0.0, 1, 60.0, array="x%1")], 10.0, 1)
    assert {next(copies).array for _ in range(3)} == {""}
