"""Three jobs on two GPUs, followed with pencil and paper: completion times, waits and the metrics made of them.

Jobs a (1 GPU, 100 s) and b (2 GPUs, 50 s) come at 0, c (1 GPU, 20 s) at 10. With a share of the cluster each, always,
c has two thirds of a GPU from 10 to 40, and a and b end at 110.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from trine.core.result import RunResult
from trine.sim.scenario import Scenario, run

TRACE = "job_id,submit_s,gpus,duration_s\na,0,1,100\nb,0,2,50\nc,10,1,20\n"
FAIR_S = {"a": 110.0, "b": 110.0, "c": 30.0}
IDEAL_S = {"a": 100.0, "b": 50.0, "c": 20.0}


def simulated(folder: Path, policy: str, **values: object) -> RunResult:
    (folder / "trace.csv").write_text(TRACE)
    return run(Scenario("1x2", policy, "packed-sticky", trace=str(folder / "trace.csv"), values=values))


@pytest.mark.parametrize(
    ("policy", "finish_s", "wait_s", "preemptions"),
    [
        ("fifo", {"a": 100, "b": 150, "c": 170}, {"a": 0, "b": 100, "c": 140}, 0),
        ("fifo-backfill", {"a": 100, "b": 150, "c": 30}, {"a": 0, "b": 100, "c": 0}, 0),
        # c stops b, then b stops a, which ran beside c
        ("srtf", {"a": 150, "b": 70, "c": 30}, {"a": 50, "b": 20, "c": 0}, 2),
        # at 10 s b and c have had nothing, and b came first
        ("las", {"a": 150, "b": 60, "c": 80}, {"a": 50, "b": 10, "c": 50}, 1),
    ],
)
def test_decisions_at_events(
    tmp_path: Path, policy: str, finish_s: dict[str, float], wait_s: dict[str, float], preemptions: int
) -> None:
    result = simulated(tmp_path, policy, event_driven=True)
    jobs = {job.job_id: job for job in result.jobs}
    assert {name: job.finish_s for name, job in jobs.items()} == pytest.approx(finish_s)
    assert {name: job.wait_s for name, job in jobs.items()} == pytest.approx(wait_s)
    jct_s = {name: finish_s[name] - job.submit_s for name, job in jobs.items()}
    s = result.summary
    assert (s.preemptions, s.makespan_s) == (preemptions, max(finish_s.values()))
    assert s.jct_mean_s == pytest.approx(sum(jct_s.values()) / 3)
    assert s.utilization == pytest.approx(220 / (2 * s.makespan_s))
    assert {name: job.rho for name, job in jobs.items()} == pytest.approx({n: jct_s[n] / FAIR_S[n] for n in jct_s})
    assert s.bounded_slowdown_mean == pytest.approx(sum(jct_s[name] / IDEAL_S[name] for name in jct_s) / 3)


def test_in_rounds_jobs_start_at_their_beginning_and_the_fair_time_has_one_more(tmp_path: Path) -> None:
    """Rounds of 60 s: b has both GPUs from 120 to 170, c one from 180."""
    result = simulated(tmp_path, "fifo", round_s=60.0)
    jobs = {job.job_id: job for job in result.jobs}
    assert {name: (job.start_s, job.finish_s) for name, job in jobs.items()} == {
        "a": (0, 100),
        "b": (120, 170),
        "c": (180, 200),
    }
    jct_s = {"a": 100, "b": 170, "c": 190}
    assert {name: job.rho for name, job in jobs.items()} == pytest.approx(
        {name: jct_s[name] / (FAIR_S[name] + 60) for name in jct_s}
    )
