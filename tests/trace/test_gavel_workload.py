"""Gavel's workloads: job by job those that its generator draws."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.throughputs import load_throughputs
from trine.trace.gavel_workload import gavel_workloads, templates
from trine.trace.generate import generate

SINGLE, MULTIPLE, STATIC = "gavel-continuous-single", "gavel-continuous-multiple", "gavel-static"


def draw(name: str, **told: Any) -> list[Job]:
    return generate(name, **{"jobs": 2000, "seed": 1, "gpus": 108} | told)


@pytest.mark.parametrize(
    ("file", "name", "told"),
    [
        ("single_seed0_lam2700", SINGLE, {"gap_s": 2700.0}),
        ("single_seed0_lam2700", SINGLE, {"jobs_per_h": 3600 / 2700}),
        ("multi_seed0_lam1800", MULTIPLE, {}),
        ("multi_seed0_lam1800", MULTIPLE, {"jobs_per_h": 2.0}),
        ("static_multi_seed0", STATIC, {}),
    ],
)
def test_jobs_are_those_of_the_published_rules(file: str, name: str, told: dict[str, Any], shared_data: Path) -> None:
    with gzip.open(shared_data / f"traces/gavel_generated/{file}.csv.gz", "rt") as stream:
        rows = list(csv.DictReader(stream))
    jobs = draw(name, jobs=len(rows), seed=0, **told)
    for row, job in zip(rows, jobs, strict=True):
        assert (row["job_id"], row["job_type"], int(row["scale_factor"])) == (job.id, job.model, job.gpus)
        assert (float(row["total_steps"]), float(row["arrival_s"])) == (job.steps, job.submit_s)
        assert float(row["duration_s_on_v100"]) == pytest.approx(job.ideal_s)


def test_templates_are_the_job_types_of_the_throughput_table() -> None:
    table = load_throughputs("gavel-simulation")
    ours = {(t.model, gang): rate for t in templates() for gang, rate in t.v100_steps_per_s.items()}
    assert len(templates()) == 26 and sum(t.distributed for t in templates()) == 19
    assert ours == {key: rates["v100"] for key, rates in table.rates.items()}


def test_sizes_and_durations_follow_the_paper() -> None:
    jobs = draw(MULTIPLE, jobs=20_000)
    sizes = Counter(job.gpus for job in jobs)
    for gang, share in ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)):
        assert sizes[gang] / len(jobs) == pytest.approx(share, abs=0.015)
    hours = [(job.ideal_s or 0) / 3600 for job in jobs]
    assert min(hours) > 0.5 and max(hours) < 167
    assert sum(h > 1000 / 60 for h in hours) / len(jobs) == pytest.approx(0.2, abs=0.015)
    assert {job.gpus for job in draw(SINGLE)} == {1}


def test_mean_gap_is_the_one_asked_for() -> None:
    assert draw(SINGLE, jobs=20_000, gap_s=60.0)[-1].submit_s / 20_000 == pytest.approx(60, rel=0.03)
    assert draw(SINGLE)[0].submit_s == 0
    assert {job.submit_s for job in draw(SINGLE, arrivals="batch")} == {job.submit_s for job in draw(STATIC)} == {0.0}


def test_priorities() -> None:
    weights = Counter(job.weight for job in draw(f"{MULTIPLE}-priorities", jobs=10_000))
    assert set(weights) == {1.0, 5.0} and weights[5.0] / 10_000 == pytest.approx(0.2, abs=0.02)
    assert {job.weight for job in draw(MULTIPLE)} == {1.0}


def test_deadlines_leave_everything_else_as_it_was() -> None:
    plain, strict = draw(SINGLE, jobs=10_000), draw(f"{SINGLE}-slos", jobs=10_000)
    assert [(j.model, j.steps, j.submit_s) for j in plain] == [(j.model, j.steps, j.submit_s) for j in strict]
    slack = Counter(round(((j.deadline_s or 0) - j.submit_s) / (j.ideal_s or 1), 3) for j in strict)
    assert set(slack) == {1.2, 2.0, 10.0} and min(slack.values()) > 3000


def test_a_longer_trace_starts_with_the_shorter_one() -> None:
    assert draw(MULTIPLE, jobs=3000)[:2000] == draw(MULTIPLE)
    assert draw(MULTIPLE, seed=2) != draw(MULTIPLE)


def test_a_small_cluster_gets_small_gangs() -> None:
    assert {job.gpus for job in draw(MULTIPLE, max_gpus=2)} == {1, 2}


def test_three_entities() -> None:
    jobs = draw("gavel-hierarchical", jobs=18)
    assert Counter(job.group for job in jobs) == {"entity0": 6, "entity1": 6, "entity2": 6}
    assert [job.weight for job in jobs[:4]] == [1, 2, 1, 2]
    assert min(job.submit_s + (job.ideal_s or 0) for job in jobs) > jobs[-1].submit_s
    with pytest.raises(InputError, match="at most 18"):
        draw("gavel-hierarchical", jobs=19)


@pytest.mark.parametrize("name", sorted(gavel_workloads()))
def test_same_arguments_same_jobs(name: str) -> None:
    assert draw(name, jobs=18) == draw(name, jobs=18)


@pytest.mark.parametrize(
    ("name", "told", "words"),
    [
        (SINGLE, {"load": 0.5}, ["load", "jobs_per_h or gap_s"]),
        (SINGLE, {"arrivals": "diurnal"}, ["arrivals", "poisson or batch"]),
        (STATIC, {"jobs_per_h": 2.0}, ["all arrive at 0"]),
        (SINGLE, {"gap_s": 0.0}, ["gap_s", "above 0"]),
        (SINGLE, {"gap_s": 5.0, "jobs_per_h": 5.0}, ["both", "one of them"]),
        (MULTIPLE, {"max_gpus": 0}, ["max_gpus", "at least 1"]),
        ("gavel-continuous-singel", {}, [f"did you mean '{SINGLE}'?"]),
    ],
)
def test_bad_arguments_are_named(name: str, told: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        draw(name, **told)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_the_command_writes_the_workload(tmp_path: Path) -> None:
    import typer
    from typer.testing import CliRunner

    from trine.cli.trace import generate as command
    from trine.trace import load

    app, path = typer.Typer(), tmp_path / "jobs.csv"
    app.command()(command)
    told = [f"{SINGLE}-slos", "--jobs", "50", "--gap-s", "2700", "--out", str(path), "--json"]
    done = CliRunner().invoke(app, told)
    assert done.exit_code == 0 and json.loads(done.stdout)["jobs"] == 50
    drawn = draw(f"{SINGLE}-slos", jobs=50, seed=0, gap_s=2700.0)
    fields = ("id", "submit_s", "gpus", "model", "deadline_s")
    assert [[getattr(j, f) for f in fields] for j in load(path).jobs] == [
        [getattr(j, f) for f in fields] for j in drawn
    ]
