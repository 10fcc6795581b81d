"""What a run leaves on disk: columns, numbers, repeatable bytes, and nothing at all when something goes wrong."""

from __future__ import annotations

import csv
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.report.plausible import plausible_run, summary_of
from trine.core.errors import InputError
from trine.core.result import RunResult
from trine.report import files
from trine.report.compare import Comparison
from trine.report.data_files import number_cell
from trine.report.files import write_comparison, write_run

RUN_FILES = {"summary.json", "jobs.csv", "timeline.parquet", "report.html"}


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_a_run_leaves_four_files_and_no_traces(tmp_path: Path) -> None:
    write_run(plausible_run(), tmp_path / "deep" / "out")
    assert {p.name for p in (tmp_path / "deep" / "out").iterdir()} == RUN_FILES
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["out"]


def test_the_same_run_gives_the_same_bytes_whatever_processor_time_it_took(tmp_path: Path) -> None:
    first, again = plausible_run(), plausible_run()
    again = replace(again, summary=replace(again.summary, sim_cpu_s=99.0))
    write_run(first, tmp_path / "a")
    write_run(again, tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


def test_summary_holds_the_declared_keys_in_order(tmp_path: Path) -> None:
    result = plausible_run()
    write_run(result, tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary) == list(result.summary.results())
    assert "sim_cpu_s" not in summary
    assert summary["jct_mean_s"] == result.summary.jct_mean_s


def test_jobs_csv_has_the_contract_columns_and_the_order_of_the_result(tmp_path: Path) -> None:
    result = plausible_run()
    write_run(result, tmp_path / "out")
    with (tmp_path / "out" / "jobs.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert ",".join(header) == (
        "job_id,submit_s,start_s,finish_s,jct_s,wait_s,gpus,model,user,preemptions,migrations,tier,slowdown,rho"
    )
    assert [r[0] for r in rows] == [j.job_id for j in result.jobs]
    assert [float(r[4]) for r in rows] == pytest.approx([j.jct_s for j in result.jobs], abs=1e-6)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (360.0, "360"),
        (98.5, "98.5"),
        (7, "7"),
        (0.1 + 0.2, "0.3"),
        (1 / 3, "0.333333"),
        (-1e-9, "0"),
        (1e12, "1000000000000"),
        (math.nan, ""),
        (math.inf, ""),
    ],
)
def test_numbers_print_whole_where_they_are_whole(value: float, text: str) -> None:
    assert number_cell(value) == text


def test_timeline_gives_back_every_segment_and_the_settings(tmp_path: Path) -> None:
    result = plausible_run()
    write_run(result, tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "timeline.parquet")
    assert json.loads(table.schema.metadata[b"trine"]) == result.settings
    assert str(table.schema.field("gpus").type) == "list<element: int32>"
    rows = table.to_pylist()
    assert len(rows) == len(result.segments)
    for row, s in zip(rows, result.segments, strict=True):
        assert (row["job_id"], row["start_s"], row["end_s"], tuple(row["gpus"])) == (
            s.job_id,
            s.start_s,
            s.end_s,
            s.gpus,
        )
        assert (row["tier"], row["started"], row["ended"], row["tracked"]) == (s.tier, s.started, s.ended, s.tracked)


def test_our_own_files_are_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_run(plausible_run(seed=1), out)
    write_run(plausible_run(seed=2), out)
    assert json.loads((out / "summary.json").read_text())["seed"] == 2
    write_comparison(Comparison.of([plausible_run()]), out)
    assert {p.name for p in out.iterdir()} == {"compare.json", "compare.csv", "report.html"}


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"thesis\.tex.*expected an empty or new directory"):
        write_run(plausible_run(), tmp_path)
    assert bytes_of(tmp_path) == {"thesis.tex": b"precious"}


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="is a file"):
        write_run(plausible_run(), tmp_path / "out")


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write_run(plausible_run(), tmp_path / "file" / "out")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_a_stop_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    def interrupted(result: RunResult, command: str) -> str:
        raise stop

    monkeypatch.setattr(files, "run_page", interrupted)
    with pytest.raises(stop):
        write_run(plausible_run(), tmp_path / "deep" / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moves_done", range(8))
def test_a_stop_while_files_move_keeps_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves_done: int
) -> None:
    out = tmp_path / "out"
    write_run(plausible_run(seed=1), out)
    before = bytes_of(out)
    true_rename, calls = Path.rename, 0

    def rename(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == moves_done + 1:
            raise KeyboardInterrupt
        return true_rename(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        write_run(plausible_run(seed=2), out)
    assert bytes_of(out) == before


def test_the_new_directory_is_as_open_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_run(plausible_run(jobs=2), tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("jobs", [0, 1])
def test_results_of_no_or_one_job_can_be_written(tmp_path: Path, jobs: int) -> None:
    write_run(plausible_run(jobs=jobs), tmp_path / "out")
    assert len((tmp_path / "out" / "jobs.csv").read_text().splitlines()) == jobs + 1
    assert pq.read_table(tmp_path / "out" / "timeline.parquet").num_rows == jobs


def test_values_that_are_no_numbers_do_not_break_the_json(tmp_path: Path) -> None:
    empty = plausible_run(jobs=0)
    assert math.isnan(summary_of([], "fifo", "packed", 0).jct_mean_s)
    write_run(empty, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["jct_mean_s"] is None
