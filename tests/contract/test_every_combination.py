"""Contract of every policy with every placement, and of every trace format with every policy, present and future.

All of them are found by name: a file added to ``trine.policy``, ``trine.placement`` or ``trine.trace.formats`` is
covered without a change here.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trine.core.job import Job
from trine.core.plugins import discover
from trine.core.result import RunResult
from trine.placement.base import Placement
from trine.policy.base import Policy
from trine.report.files import write_run
from trine.sim.scenario import Scenario, run
from trine.trace import ImportOptions, load, write_trace
from trine.trace.formats import known

POLICIES = sorted(discover("trine.policy", Policy))
PLACEMENTS = [name + suffix for name in sorted(discover("trine.placement", Placement)) for suffix in ("", "-sticky")]
EXAMPLES = [pytest.param(text, id=f"{f.name}-{i}") for f in known().values() for i, text in enumerate(f.examples)]
TYPES = ("v100m32", "a100")
SUMMARY_KEYS = [
    *(
        "jobs",
        "finished",
        "jct_mean_s",
        "jct_p50_s",
        "jct_p95_s",
        "jct_p99_s",
        "makespan_s",
        "wait_mean_s",
        "wait_p95_s",
    ),
    *("utilization", "preemptions", "migrations", "lost_work_s", "comm_gpu_s", "cost", "rounds", "sim_cpu_s"),
    *("policy", "placement", "seed"),
]
"""The keys that other programs rely on, in this order."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-six jobs of one to six GPUs, some for one type only: three times what the cluster can do at once."""
    rng = random.Random(11)
    jobs = [
        Job(
            f"job-{i}",
            submit_s=rng.randrange(1950),
            gpus=rng.choice((1, 1, 1, 2, 2, 3, 4, 6)),
            steps=rng.randrange(50, 2000),
            model=rng.choice(("bert", "vgg19")),
            user=rng.choice(("ann", "bob")),
            app_class=rng.choice("AB"),
            gpu_types=rng.choice(((), (), TYPES[:1])),
        )
        for i in range(26)
    ]
    path = tmp_path_factory.mktemp("contract") / "jobs.csv"
    write_trace(sorted(jobs, key=lambda j: j.submit_s), path)
    return path


def small_run(trace: Path, policy: str, placement: str, seed: int = 3) -> RunResult:
    values: dict[str, Any] = {"validate": True, "round_s": 120, "restore_s": 10, "locality_penalty": 1.3}
    cluster = f"{TYPES[0]}=2x4,{TYPES[1]}=3x2"
    return run(Scenario(cluster, policy, placement, str(trace), seed=seed, values=values))


def assert_sound(result: RunResult, jobs: Sequence[Job], policy: str, placement: str) -> None:
    """Every tracked job is there once and in order, and the summary says what the records say."""
    records, s = result.jobs, result.summary
    assert [r.job_id for r in records] == [j.id for j in jobs if j.tracked]
    assert list(s.as_dict())[: len(SUMMARY_KEYS)] == SUMMARY_KEYS
    assert (s.policy, s.placement) == (policy, placement)
    assert s.jobs == s.finished == len(records)
    jct = np.array([r.jct_s for r in records])
    wait = np.array([r.wait_s for r in records])
    for r in records:
        assert r.submit_s <= r.start_s < r.finish_s
        assert r.jct_s == pytest.approx(r.finish_s - r.submit_s)
        assert 0 <= r.wait_s <= r.jct_s
        assert r.tier in ("gpu", "node", "rack", "network")
    assert [s.jct_mean_s, s.jct_p50_s, s.wait_mean_s] == pytest.approx([jct.mean(), np.median(jct), wait.mean()])
    assert s.jct_p50_s <= s.jct_p95_s <= s.jct_p99_s <= jct.max()
    assert s.makespan_s == pytest.approx(max(r.finish_s for r in records) - min(r.submit_s for r in records))
    assert s.preemptions == sum(r.preemptions for r in records)
    assert s.migrations == sum(r.migrations for r in records)
    busy = sum((g.end_s - g.start_s) * len(g.gpus) for g in result.segments)
    assert s.utilization == pytest.approx(busy / (s.makespan_s * result.cluster.gpu_count))
    assert 0 < s.utilization <= 1 + 1e-9
    json.dumps(s.as_dict(), allow_nan=False)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_policy_and_placement(policy: str, placement: str, trace: Path) -> None:
    result = small_run(trace, policy, placement)
    assert_sound(result, load(trace).jobs, policy, placement)
    again = small_run(trace, policy, placement)
    assert (again.jobs, again.segments) == (result.jobs, result.segments)
    assert again.summary.results() == result.summary.results()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("text", EXAMPLES)
def test_trace_format(text: str, policy: str, tmp_path: Path) -> None:
    """Every example of every format can be simulated as it is, given a speed for models that carry none."""
    path = tmp_path / "trace"
    path.write_bytes(text.encode())
    jobs = load(path, options=ImportOptions(duration_s=600.0)).jobs
    longest_s = max(job.ideal_s or 1.0 for job in jobs)
    values: dict[str, Any] = {"validate": True, "round_s": max(60.0, longest_s / 20), "trace.duration_s": 600}
    scenario = Scenario(f"{TYPES[0]}=6x8,{TYPES[1]}=6x8", policy, trace=str(path), values=values)
    result = run(replace(scenario, throughputs=_speeds(jobs, tmp_path)))
    assert_sound(result, jobs, policy, "packed-sticky")
    assert result.notes


def _speeds(jobs: Sequence[Job], folder: Path) -> str:
    """A throughput file for all models if the trace does not tell the speed of some; nothing otherwise."""
    if all(job.step_s is not None for job in jobs):
        return ""
    speeds = {str((job.model, job.gpus)): {"null": 1.0 / (job.step_s or 0.1)} for job in jobs}
    path = folder / "speeds.json"
    path.write_text(json.dumps(dict.fromkeys(TYPES, speeds)))
    return str(path)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_files_of_a_run_say_what_the_result_says(placement: str, trace: Path, tmp_path: Path) -> None:
    result = small_run(trace, "srtf", placement)
    write_run(result, tmp_path / "one")
    write_run(small_run(trace, "srtf", placement), tmp_path / "two")
    names = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert {"summary.json", "jobs.csv", "timeline.parquet", "report.html"} <= set(names)
    assert [(tmp_path / "one" / n).read_bytes() == (tmp_path / "two" / n).read_bytes() for n in names] == [True] * len(
        names
    )
    with (tmp_path / "one" / "jobs.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["job_id"] for row in rows] == [r.job_id for r in result.jobs]
    assert [float(row["finish_s"]) for row in rows] == pytest.approx([r.finish_s for r in result.jobs])


@pytest.mark.parametrize("placement", [p for p in PLACEMENTS if p.startswith("random")])
def test_chance_follows_the_seed(placement: str, trace: Path) -> None:
    assert small_run(trace, "fifo", placement, seed=1).segments != small_run(trace, "fifo", placement, seed=2).segments
