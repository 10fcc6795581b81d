"""Background load: it takes GPUs and appears in no metric but the use of the cluster."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.sim.tiny import one_node, simulate
from trine.assembly.settings import TraceSettings
from trine.core.job import Job
from trine.sim.arrivals import read_jobs, repeat


def untracked(name: str, submit_s: float, gpus: int, steps: float) -> Job:
    return Job(name, submit_s, gpus, steps, tracked=False)


def test_background_jobs_load_the_cluster_and_are_not_reported() -> None:
    jobs = [Job("a", 0, 1, 100), untracked("x", 10, 1, 500), Job("b", 20, 1, 100)]
    out = simulate(jobs, one_node(1), event_driven=True)
    assert out.times == {"a": (0, 100), "b": (600, 700)}
    assert (out.summary.jobs, out.summary.finished, out.summary.jct_mean_s) == (2, 2, 390)
    assert out.summary.utilization == 1.0
    assert {s.job_id: s.tracked for s in out.segments} == {"a": True, "b": True, "x": False}


def test_the_run_ends_with_the_last_tracked_job() -> None:
    out = simulate([Job("a", 0, 1, 100)], one_node(2), background=[untracked("x", 0, 1, 1e9)], event_driven=True)
    assert out.summary.makespan_s == 100
    assert out.stretches("x") == [(0, 100)]


def test_stops_of_background_jobs_are_nobody_s_preemptions() -> None:
    jobs = [untracked("x", 0, 1, 1000), Job("a", 50, 1, 10)]
    out = simulate(jobs, one_node(1), "srtf", event_driven=True, restore_s=5)
    assert (out.summary.preemptions, out.summary.lost_work_s) == (0, 0)


@pytest.mark.parametrize("finish", ["exact", "round"])
def test_the_cluster_is_never_more_than_fully_used(finish: str) -> None:
    """What background jobs do between the last tracked completion and the end of its round is not counted."""
    background = [untracked("x", 300, 1, 1000), untracked("y", 300, 1, 50)]
    out = simulate([Job("a", 299, 1, 1)], one_node(4), background=background, round_s=300, finish=finish)
    last = 301 if finish == "exact" else 600
    busy = 3 if finish == "exact" else 300 + 300 + 300
    assert out.summary.makespan_s == last - 299
    assert out.summary.utilization == pytest.approx(busy / (4 * (last - 299)))


def test_the_trace_is_repeated_with_new_arrivals() -> None:
    trace = [Job("a", 0, 1, 10), Job("b", 77, 2, 20)]
    drawn = list(islice(repeat(trace, 60.0, seed=1), 2000))
    assert [j.id for j in drawn[:3]] == ["background-2", "background-3", "background-4"]
    assert not any(j.tracked for j in drawn)
    assert [(j.gpus, j.steps) for j in drawn[:4]] == [(1, 10), (2, 20), (1, 10), (2, 20)]
    gaps = [b.submit_s - a.submit_s for a, b in zip([trace[-1], *drawn], drawn, strict=False)]
    assert all(gap == int(gap) >= 0 for gap in gaps)
    assert sum(gaps) / len(gaps) == pytest.approx(60.5, rel=0.05)  # rounded up to whole seconds


def test_a_seed_repeats_its_arrivals() -> None:
    trace = [Job("a", 0, 1, 10)]
    one, again, other = (list(islice(repeat(trace, 2.0, seed), 20)) for seed in (1, 1, 2))
    assert one == again != other


def test_a_trace_is_read_again_when_a_file_beside_it_changes(tmp_path: Path) -> None:
    """The job table of a PAI trace says when jobs were submitted, and by whom."""
    trace, beside = tmp_path / "pai_task_table.csv", tmp_path / "pai_job_table.csv"
    trace.write_text("j1,worker,1.0,Terminated,100.0,700.0,600.0,29.3,100.0,V100\n")
    found = []
    for table in (None, "j1,i1,ann,Terminated,80.0,700.0\n", "j1,i1,barbara,Terminated,50.0,700.0\n"):
        if table is not None:
            beside.write_text(table)
        (job,), _ = read_jobs(str(trace), "", TraceSettings(), 0)
        found.append((job.user, job.submit_s))
    assert found == [("", 100.0), ("ann", 80.0), ("barbara", 50.0)]
