"""One rule per kind of problem: repaired or skipped and counted, or an error that names line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.trace import ImportOptions, inspect, load

HEADER = "job_id,submit_s,gpus,duration_s"


def trace(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (["a,0,0,60"], "zero-gpu"),
        (["a,0,1,0"], "zero-duration"),
        (["b,10,2,60"], "duplicate-row"),
    ],
)
def test_rows_without_a_job_are_skipped_and_counted(tmp_path: Path, rows: list[str], reason: str) -> None:
    loaded = load(trace(tmp_path, "b,10,2,60", *rows))
    assert [j.id for j in loaded.jobs] == ["b"]
    assert loaded.summary.skipped == {reason: 1}


def test_a_share_of_a_gpu_becomes_whole_gpus(tmp_path: Path) -> None:
    loaded = load(trace(tmp_path, "a,0,0.25,60", "b,0,2.5,60", "c,0,4.0,60"))
    assert [j.gpus for j in loaded.jobs] == [1, 3, 4]
    assert loaded.summary.changed == {"fractional-gpu": 2}


def test_unsorted_rows_are_sorted_and_equal_times_keep_file_order(tmp_path: Path) -> None:
    loaded = load(trace(tmp_path, "a,50,1,60", "b,10,1,60", "c,50,1,60", "d,10,1,60"))
    assert [j.id for j in loaded.jobs] == ["b", "d", "a", "c"]
    assert loaded.summary.changed == {"unsorted": 2}
    assert [j.line for j in loaded.jobs] == [3, 5, 2, 4]


def test_a_relative_clock_is_kept_and_unix_time_is_not(tmp_path: Path) -> None:
    assert load(trace(tmp_path, "a,500,1,60")).jobs[0].submit_s == 500
    header = f"{HEADER},deadline_s"
    job = load(trace(tmp_path, "a,1700000000,1,60,1700003600", "b,1700000010,1,60,inf", header=header)).jobs[0]
    assert (job.submit_s, job.deadline_s) == (0, 3600)


def test_an_infinite_deadline_is_none_and_an_impossible_one_is_kept_and_told(tmp_path: Path) -> None:
    loaded = load(trace(tmp_path, "a,0,1,60,inf", "b,0,1,60,30", "c,0,1,60,", header=f"{HEADER},deadline_s"))
    assert [j.deadline_s for j in loaded.jobs] == [None, 30, None]
    assert loaded.summary.found == {"impossible-deadline": 1}
    assert any("empty cluster would miss" in s for s in loaded.summary.sentences)


@pytest.mark.parametrize(
    ("row", "field", "complaint"),
    [
        ("a,0,1,-5", "duration_s", "at least 0"),
        ("a,-1,1,60", "submit_s", "at least 0"),
        ("a,0,-2,60", "gpus", "at least 0"),
        ("a,0,1,inf", "duration_s", "a finite number"),
        ("a,nan,1,60", "submit_s", "a finite number"),
        ("a,0,one,60", "gpus", "found 'one'; expected a number"),
        ("a,0,1_0,60", "gpus", "found '1_0'; expected a number"),
        ("a,0,,60", "gpus", "the cell is empty"),
        ("a,0,1,", "steps", "no amount of work"),
        (",0,1,60", "", "the job id is empty"),
        ("a,0,1", "", "3 columns; expected 4"),
        ("a,0,1,60,7", "", "5 columns; expected 4"),
        ("ok,0,2,60", "", "job id 'ok' again"),
        ("a,0,1e9,60", "", "at most 1,000,000 GPUs"),
        ("a,0,1,1e-320", "", None),
    ],
)
def test_bad_values_are_errors_with_line_and_field(tmp_path: Path, row: str, field: str, complaint: str | None) -> None:
    path = trace(tmp_path, "ok,0,1,60", "", row)
    if complaint is None:
        assert load(path).jobs[-1].steps > 0
        return
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.where == f"{path}:4"
    assert caught.value.field == field
    assert complaint in str(caught.value)


def test_an_unknown_column_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace.csv:1: unknown column 'prioritty' \(did you mean 'priority'\?\)"):
        load(trace(tmp_path, "a,0,1,60,3", header=f"{HEADER},prioritty"))


def test_two_statements_of_the_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="both step_s and duration_s"):
        load(trace(tmp_path, "a,0,1,60,2,30", header=f"{HEADER},step_s,steps"))


def test_steps_and_duration_together_give_the_step_time(tmp_path: Path) -> None:
    assert load(trace(tmp_path, "a,0,1,60,30", header=f"{HEADER},steps")).jobs[0].step_s == 2


def test_a_column_that_appears_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gpus: the column appears twice"):
        load(trace(tmp_path, "a,0,1,60,1", header=f"{HEADER},gpus"))


def test_a_trace_of_skipped_rows_only_is_an_error_but_can_be_counted(tmp_path: Path) -> None:
    path = trace(tmp_path, "a,0,0,60")
    with pytest.raises(InputError, match=r"none of 1 rows is a job \(1 zero-gpu\)"):
        load(path)
    assert inspect(path).skipped == {"zero-gpu": 1}


def test_missing_run_times_are_asked_for_but_can_be_counted(tmp_path: Path) -> None:
    path = trace(tmp_path, "p,1,1,1,1000", header="name,cpu_milli,memory_mib,num_gpu,gpu_milli")
    with pytest.raises(InputError, match="--set duration_s=SECONDS"):
        load(path)
    assert (inspect(path).jobs, inspect(path).duration_p50_s) == (1, None)
    assert load(path, options=ImportOptions(duration_s=5)).summary.changed == {
        "assumed-duration": 1,
        "drawn-arrival": 1,
    }


def test_negative_run_times_of_pods_are_errors(tmp_path: Path) -> None:
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    with pytest.raises(InputError, match=r"trace.csv:2: deletion_time: a duration of -5 s"):
        load(trace(tmp_path, "p,1,1,1,1000,,LS,Failed,0,10,15", header=header))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"jobs_per_hour": "3"}, "did you mean 'jobs_per_h'"),
        ({"jobs_per_h": "0"}, "a positive, finite number"),
        ({"jobs_per_h": "many"}, "expected a number"),
        ({"duration_s": "-1"}, "a positive, finite number"),
        ({"seed": "1.5"}, "a whole number"),
    ],
)
def test_bad_options_are_errors(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ImportOptions.parse(settings)


def test_options_are_parsed() -> None:
    parsed = ImportOptions.parse({"jobs_per_h": "2.5", "seed": "7", "duration_s": "60"})
    assert parsed == ImportOptions(2.5, 7, 60.0)
