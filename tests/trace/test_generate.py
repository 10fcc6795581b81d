"""The generator against its own tables and, where the public data lies, against the published curves themselves."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from trine.cli.trace import generate as generate_command
from trine.core.errors import InputError
from trine.core.job import Job
from trine.trace.duration import fit_durations
from trine.trace.generate import ARRIVALS, DAY_S, HOUR_S, every_workload, generate, offered_load
from trine.trace.workload import TABLES, Cdf, Workload, load_workload, read_workload, workload_names

JOBS = 20_000
# 99.9 % of samples of 20,000 lie within 1.95 / sqrt(20,000) = 0.014 of the law they are drawn from.
KS_TABLE = 0.014
KS_PUBLISHED = 0.02
EVERY = pytest.mark.parametrize("name", workload_names())
PHILLY: dict[str, Any] = {"workload": "philly", "jobs": 500, "seed": 3, "gpus": 64}
CDF_FILES = {
    "size": ("helios_fig_job_gpunum_cdf.csv", "acme_fig_job_gpunum_cdf.csv"),
    "duration": ("acme_fig_job_duration_cdf.csv",),
}
PANELS = {"size": "jobs", "duration": "gpu_jobs", "gpu_time": "gpu_time"}


def draw(name: str, **changes: Any) -> list[Job]:
    """A large sample on a cluster so large that no size is left out."""
    return generate(name, **{"jobs": JOBS, "seed": 7, "gpus": 4096, **changes})


def distance(values: list[float], points: dict[float, float]) -> float:
    """Largest gap between the share of values at or below each x and the curve."""
    below = np.searchsorted(np.sort(values), list(points), side="right") / len(values)
    return float(np.max(np.abs(below - np.array(list(points.values())))))


def points(curve: Cdf) -> dict[float, float]:
    return dict(zip(curve.x, curve.cdf, strict=True))


def published(folder: Path, names: tuple[str, ...], panel: str, cluster: str) -> dict[float, float]:
    """A published curve as fractions, without its last point (the edge of the plot); the first file that has it."""
    for name in names:
        with (folder / "traces" / "published_cdfs" / name).open() as file:
            rows = [row for row in csv.DictReader(file) if (row["panel"], row["cluster"]) == (panel, cluster)]
        if rows:
            return {float(row["x"]): float(row["cdf_percent"]) / 100 for row in rows[:-1]}
    pytest.skip(f"no published curve of {panel} for {cluster or 'a mixture'}")


def sizes(jobs: list[Job]) -> list[float]:
    return [float(job.gpus) for job in jobs]


def durations(jobs: list[Job]) -> list[float]:
    return [job.ideal_s or 0.0 for job in jobs]


@EVERY
def test_sizes_and_durations_follow_the_table(name: str) -> None:
    jobs, table = draw(name), load_workload(name)
    assert distance(sizes(jobs), points(table.sizes)) <= KS_TABLE
    assert distance(durations(jobs), points(table.durations)) <= KS_TABLE


@EVERY
def test_sizes_follow_the_published_curve(name: str, shared_data: Path) -> None:
    curve = published(shared_data, CDF_FILES["size"], PANELS["size"], load_workload(name).cluster)
    assert distance(sizes(draw(name)), curve) <= KS_PUBLISHED


@EVERY
def test_durations_follow_the_published_curve(name: str, shared_data: Path) -> None:
    curve = published(shared_data, CDF_FILES["duration"], PANELS["duration"], load_workload(name).cluster)
    assert distance(durations(draw(name)), curve) <= KS_PUBLISHED


def gpu_time_by_size(table: Workload) -> dict[float, float]:
    """Expected share of GPU time of jobs up to the largest size of each group."""
    mean_s = fit_durations(table).group_means_s()
    group = np.searchsorted(table.gpu_time.x, table.sizes.x)
    gpu_s = np.array(table.sizes.x) * np.array(table.sizes.mass) * mean_s[group]
    share = np.cumsum(np.bincount(group, weights=gpu_s)) / gpu_s.sum()
    return dict(zip(table.gpu_time.x, share.tolist(), strict=True))


@EVERY
def test_gpu_time_goes_to_the_sizes_that_use_it(name: str) -> None:
    table = load_workload(name)
    assert gpu_time_by_size(table) == pytest.approx(points(table.gpu_time), abs=0.005)


@EVERY
def test_gpu_time_follows_the_published_curve(name: str, shared_data: Path) -> None:
    table = load_workload(name)
    if table.basis["sizes"] != "published":
        pytest.skip("the table's GPU time is computed: its source line says how")
    curve = published(shared_data, CDF_FILES["size"], PANELS["gpu_time"], table.cluster)
    ours = {x: share for x, share in gpu_time_by_size(table).items() if x in curve}
    assert ours == pytest.approx({x: curve[x] for x in ours}, abs=0.01)


@EVERY
@pytest.mark.parametrize("arrivals", ["poisson", "diurnal"])
@pytest.mark.parametrize("load", [0.3, 1.2])
def test_load_is_the_one_asked_for(name: str, arrivals: str, load: float) -> None:
    jobs = generate(name, jobs=2000, seed=1, gpus=256, load=load, arrivals=arrivals)  # type: ignore[arg-type]
    assert offered_load(jobs, 256) == pytest.approx(load, rel=1e-3)
    assert jobs[0].submit_s == 0
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)


def test_rate_in_jobs_per_hour() -> None:
    jobs = generate(**PHILLY, jobs_per_h=20)
    assert jobs[-1].submit_s == pytest.approx(499 / 20 * HOUR_S)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff([job.submit_s for job in draw("philly")])
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(1, abs=0.03)
    assert np.mean(gaps > np.mean(gaps)) == pytest.approx(np.exp(-1), abs=0.01)


@EVERY
@pytest.mark.parametrize("start_hour", [0, 7.5])
def test_diurnal_hours_show_in_the_counts(name: str, start_hour: float) -> None:
    jobs = draw(name, arrivals="diurnal", jobs_per_h=JOBS / 24 / 10, start_hour=start_hour)
    hours = Counter(int((job.submit_s + start_hour * HOUR_S) % DAY_S // HOUR_S) for job in jobs)
    weights = np.array(load_workload(name).hour_weights)
    counts = np.array([hours[hour] for hour in range(24)])
    # An hour holds about 800 jobs, so 15 % is four standard deviations.
    assert counts / JOBS == pytest.approx(weights / weights.sum(), rel=0.15)


def test_philly_hours_are_those_of_the_trace(shared_data: Path) -> None:
    with gzip.open(shared_data / "traces" / "philly_flat" / "philly_sia_devVCs.csv.gz", "rt") as file:
        hours = Counter(int(row["timestamp"][11:13]) for row in csv.DictReader(file))
    assert [hours[hour] for hour in range(24)] == list(load_workload("philly").hour_weights)


def test_batch_arrives_at_once() -> None:
    assert {job.submit_s for job in generate(**PHILLY, arrivals="batch")} == {0.0}


@EVERY
@pytest.mark.parametrize("arrivals", ARRIVALS)
def test_same_arguments_same_jobs(name: str, arrivals: str) -> None:
    once, again = (generate(name, jobs=300, seed=5, gpus=64, arrivals=arrivals) for _ in range(2))  # type: ignore[arg-type]
    assert once == again
    assert once != generate(name, jobs=300, seed=6, gpus=64, arrivals=arrivals)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"arrivals": "diurnal"}, {"submit_s"}),
        ({"load": 0.5}, {"submit_s"}),
        ({"users": 7}, {"user"}),
        ({"models": 1}, {"model", "app_class"}),
        ({"max_gpus": 2}, {"gpus", "steps", "submit_s"}),
    ],
)
def test_changing_one_thing_leaves_the_rest(changes: dict[str, Any], moved: set[str]) -> None:
    table = load_workload("philly")
    options = {key: value for key, value in changes.items() if key in {"arrivals", "load", "max_gpus"}}
    other = replace(table, users=changes.get("users", table.users), models=table.models[: changes.get("models")])
    before = generate(**PHILLY)
    after = generate(**PHILLY | {"workload": other} | options)
    fields = ("submit_s", "gpus", "steps", "model", "app_class", "user")
    assert {f for f in fields if [getattr(j, f) for j in before] != [getattr(j, f) for j in after]} == moved


def test_a_longer_trace_starts_with_the_shorter_one() -> None:
    short = generate(**PHILLY, arrivals="batch")
    assert generate(**PHILLY | {"jobs": 900, "arrivals": "batch"})[:500] == short


@EVERY
def test_no_job_is_larger_than_allowed(name: str) -> None:
    assert max(job.gpus for job in generate(name, jobs=3000, seed=2, gpus=16)) <= 16
    assert max(job.gpus for job in generate(name, jobs=3000, seed=2, gpus=16, max_gpus=2)) <= 2


def test_leaving_out_large_sizes_keeps_the_proportions_of_the_rest() -> None:
    counts = Counter(job.gpus for job in draw("philly", max_gpus=2))
    assert counts[1] / JOBS == pytest.approx(82.42 / 84.48, abs=0.005)


@EVERY
def test_models_and_users_come_from_the_table(name: str) -> None:
    jobs, table = draw(name), load_workload(name)
    classes = {model.name: model.app_class for model in table.models}
    assert all(classes[job.model] == job.app_class for job in jobs)
    weight = sum(model.weight for model in table.models)
    seen = Counter(job.model for job in jobs)
    assert all(seen[m.name] / JOBS == pytest.approx(m.weight / weight, abs=0.015) for m in table.models)
    active = Counter(job.user for job in jobs)
    assert len(active) <= table.users
    assert active["user1"] / active["user8"] == pytest.approx(8**table.zipf, rel=0.35)


def test_a_job_is_work_in_seconds_with_an_id_of_its_own() -> None:
    jobs = generate(**PHILLY)
    assert len({job.id for job in jobs}) == len(jobs) == 500
    assert all(job.step_s == 1.0 and job.steps >= 1 and job.steps == int(job.steps) for job in jobs)


def test_one_job() -> None:
    assert [job.submit_s for job in generate(**PHILLY | {"jobs": 1})] == [0.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"jobs": 0}, ["jobs", "0", "at least 1"]),
        ({"gpus": 0}, ["gpus", "0", "at least 1"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"load": 0.0}, ["load", "above 0"]),
        ({"load": -0.5}, ["load", "-0.5"]),
        ({"load": float("nan")}, ["load", "nan"]),
        ({"jobs_per_h": 0.0}, ["jobs_per_h", "above 0"]),
        ({"load": 0.5, "jobs_per_h": 3.0}, ["both", "one of them"]),
        ({"load": 0.5, "arrivals": "batch"}, ["arrivals", "no load"]),
        ({"arrivals": "poison"}, ["arrivals", "did you mean 'poisson'?"]),
        ({"max_gpus": 0}, ["max_gpus", "smallest job of philly"]),
        ({"start_hour": 24.0}, ["start_hour", "24"]),
        ({"workload": "phily"}, ["did you mean 'philly'?", "helios"]),
        ({"workload": "nowhere.yaml"}, ["nowhere.yaml", "no such file"]),
    ],
)
def test_bad_arguments_are_named(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        generate(**PHILLY | changes)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("durations:", "duration:", ["'duration'", "did you mean 'durations'?"]),
        ("  zipf: 1.0", "  zip: 1.0", ["users", "'zip'", "did you mean 'zipf'?"]),
        ("basis: published", "basis: guessed", ["sizes.basis", "guessed", "assumed"]),
        ("82.42", "182.42", ["sizes.cdf_percent", "rise to 100"]),
        ("82.42", "many", ["sizes.cdf_percent.1", "'many'"]),
        ("count: 300", "count: 0", ["users.count", "at least 1"]),
        ("2588]", "0]", ["hours.weights", "above 0"]),
        (", 2588]", "]", ["hours.weights", "24"]),
        ("title:", "title: [", ["not valid YAML"]),
        ("64: 100}", "128: 100}", ["sizes.", "largest"]),
    ],
)
def test_a_bad_table_says_what_is_wrong(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    text = (TABLES / "philly.yaml").read_text()
    assert old in text
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        generate(str(path), jobs=1, seed=0, gpus=8)
    assert all(word in str(caught.value) for word in ["mine.yaml", *words]), str(caught.value)


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((TABLES / "philly.yaml").read_text())
    assert generate(**PHILLY | {"workload": str(path)}) == generate(**PHILLY)
    assert read_workload(path).name == "mine"


def cli(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(generate_command)
    return CliRunner().invoke(app, arguments, catch_exceptions=True)


def test_command_writes_a_trace_that_reads_back(tmp_path: Path) -> None:
    from trine.trace import load

    path = tmp_path / "jobs.csv"
    result = cli("philly", "--jobs", "50", "--gpus", "16", "--load", "0.7", "--seed", "3", "--out", str(path), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["load"] == pytest.approx(0.7, rel=1e-3)
    fields = ("id", "submit_s", "gpus", "steps", "model", "user", "app_class")
    expected = generate("philly", jobs=50, seed=3, gpus=16, load=0.7)
    assert [[getattr(j, f) for f in fields] for j in load(path).jobs] == [
        [getattr(j, f) for f in fields] for j in expected
    ]


def test_command_lists_every_workload_with_its_source() -> None:
    text = cli("--list").stdout
    listed = json.loads(cli("--list", "--json").stdout)["workloads"]
    assert [row["name"] for row in listed] == [workload.name for workload in every_workload()]
    assert {*workload_names(), "gavel-continuous-single"} <= {row["name"] for row in listed}
    assert all(row["name"] in text and row["source"] in text and row["title"] for row in listed)


@pytest.mark.parametrize(
    "arguments", [(), ("philly",), ("phily", "--out", "x.csv"), ("philly", "--jobs", "0", "--out", "x.csv")]
)
def test_command_refuses_without_leaving_a_file(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(cli(*arguments).exception, InputError)
    assert not list(tmp_path.iterdir())
