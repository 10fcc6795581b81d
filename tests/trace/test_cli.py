"""``trine trace``: data on stdout, talk on stderr, nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trine.cli.trace import app
from trine.core.errors import InputError
from trine.trace import load
from trine.trace.formats import known


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    path = tmp_path / "pods.csv"
    path.write_text(known()["alibaba"].examples[0])
    return path


def test_info_prints_one_json_object_with_the_agreed_keys(pods: Path) -> None:
    result = run("info", pods, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert {"rows", "jobs", "skipped", "span_s", "gpus_max", "duration_p50_s"} <= set(found)
    assert (found["rows"], found["jobs"], found["skipped"]) == (4, 2, {"never-scheduled": 1, "zero-gpu": 1})


def test_info_for_people_tells_what_was_skipped(pods: Path) -> None:
    result = run("info", pods, "--format", "openb")
    assert result.exit_code == 0
    assert "1 skipped: no GPU asked for." in result.stdout


def test_info_counts_where_run_times_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(known()["alibaba"].examples[1])
    assert json.loads(run("info", path, "--json").stdout)["duration_p50_s"] is None


def test_convert_writes_our_csv_and_talks_on_stderr(pods: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv.gz"
    result = run("convert", pods, out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "2 jobs from 4 rows" in result.stderr
    assert [j.id for j in load(out).jobs] == [j.id for j in load(pods).jobs]
    assert run("convert", pods, "-").stdout.startswith("job_id,submit_s,gpus")


def test_convert_takes_settings(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(known()["alibaba"].examples[1])
    assert run("convert", path, tmp_path / "out.csv", "--set", "duration_s=90", "--set", "seed=3").exit_code == 0
    assert {j.ideal_s for j in load(tmp_path / "out.csv").jobs} == {90}


@pytest.mark.parametrize("setting", ["duration_s", "durations_s=1", "seed=x"])
def test_bad_input_reaches_the_main_program_and_leaves_nothing(pods: Path, tmp_path: Path, setting: str) -> None:
    result = run("convert", pods, tmp_path / "out.csv", "--set", setting)
    assert isinstance(result.exception, InputError)
    assert [p.name for p in tmp_path.iterdir()] == ["pods.csv"]
