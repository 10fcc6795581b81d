"""``trine history``: a table for people, files for accounting, the same columns with and without jobs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.live.command import trine
from tests.client.fake_daemon import FakeDaemon


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("TRINE_STATE", str(state))
    monkeypatch.chdir(tmp_path)


def test_all_pages_are_shown_and_summed_up(daemon: FakeDaemon) -> None:
    for ended in ("done", "failed", "done", "running", "cancelled", "done"):
        daemon.add(ended)
    done = trine("history", "--since", "7d", "--user", "ada")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["id", "1", "2", "3", "5", "6"]
    assert done.err == "trine: 5 ended jobs, 10.0 GPU-hours\n"
    first = next(request for request in daemon.requests if "history" in request)
    assert "user=ada" in first and "since_s=" in first and "until_s" not in first


def test_csv_and_parquet_hold_the_same_rows_and_columns(daemon: FakeDaemon, tmp_path: Path) -> None:
    for ended in ("done", "failed", "cancelled"):
        daemon.add(ended)
    assert trine("history", "--out", "h.csv").code == trine("history", "--out", "h.parquet").code == 0
    rows = list(csv.DictReader((tmp_path / "h.csv").read_text().splitlines()))
    table = pq.read_table(tmp_path / "h.parquet")
    assert list(rows[0]) == table.column_names
    assert [row["id"] for row in rows] == table["id"].to_pylist() == ["1", "2", "3"]
    assert [float(row["gpu_h"]) for row in rows] == table["gpu_h"].to_pylist()
    assert (rows[0]["eligible_s"], table["eligible_s"][0].as_py()) == ("", None)
    assert json.loads(trine("history", "-o", "json").out)[0]["id"] == "1"


def test_a_file_of_no_jobs_has_its_columns_and_types_too(daemon: FakeDaemon, tmp_path: Path) -> None:
    assert trine("history", "--out", "none.parquet").code == 0
    empty = pq.read_table(tmp_path / "none.parquet")
    assert (empty.num_rows, str(empty.schema.field("gpus").type)) == (0, "int64")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--since", "yesterday"], "--since: 'yesterday'; expected a duration back from now"),
        (["--since", "1d", "--until", "2d"], "--until: '2d'; expected a time after --since, 1d"),
        (["--out", "history.xlsx"], "expected a file name that ends in .csv"),
        (["--only", "running"], "unknown state 'running'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(daemon: FakeDaemon, options: list[str], found: str) -> None:
    done = trine("history", *options)
    assert done.code == 2
    assert found in done.err
