"""Choosing groups (virtual clusters) of a trace: ``group=NAME[,NAME]`` in every reader that knows groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trine.cli.main import app
from trine.core.errors import InputError
from trine.trace import ImportOptions, inspect, load

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:00:00,60,1,60,11cb48
2017-10-09 07:05:00,60,0,0,11cb48
2017-10-09 08:00:00,60,2,120,6214e9
2017-10-09 08:00:00,60,2,120,6214e9
2017-10-09 07:30:00,60,4,240,6214e9
2017-10-09 09:00:00,60,8,480,ee9e8c
"""
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,1,1,1,1000,,LS,Succeeded,0,100,0\np1,1,1,1,460,,BE,Succeeded,5,100,5\np2,1,1,1,460,,LS,Succeeded,9,100,9\n"
)
OWN = "job_id,submit_s,gpus,duration_s,group\na,5,1,60,web\nb,6,1,60,\nc,7,1,60,research\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def keep(*names: str) -> ImportOptions:
    return ImportOptions(group=names)


@pytest.mark.parametrize(
    ("text", "names", "ids"),
    [
        (PHILLY, ("11cb48",), ["0"]),
        (PHILLY, ("ee9e8c", "6214e9"), ["4", "2", "5"]),
        (PODS, ("LS",), ["p0", "p2"]),
        (OWN, ("web", "research"), ["a", "c"]),
    ],
)
def test_only_jobs_of_the_groups_asked_for_are_kept(
    tmp_path: Path, text: str, names: tuple[str, ...], ids: list[str]
) -> None:
    assert [job.id for job in load(written(tmp_path, text), options=keep(*names)).jobs] == ids


def test_dates_are_counted_from_the_first_job_that_is_kept(tmp_path: Path) -> None:
    assert [j.submit_s for j in load(written(tmp_path, PHILLY), options=keep("6214e9")).jobs] == [0, 1800]


def test_every_row_is_accounted_for_and_the_sentences_say_how_many_were_kept(tmp_path: Path) -> None:
    summary = load(written(tmp_path, PHILLY), options=keep("6214e9")).summary
    assert summary.rows == summary.jobs + summary.skipped_rows == 6
    assert summary.skipped == {"duplicate-row": 1, "other-group": 2, "zero-gpu": 1}
    assert "Only jobs of 1 of 3 groups: 6214e9 (2)." in summary.sentences
    assert summary.groups == {"11cb48": 1, "6214e9": 2, "ee9e8c": 1}


def test_repairs_are_counted_of_kept_rows_only(tmp_path: Path) -> None:
    assert load(written(tmp_path, PODS), options=keep("BE")).summary.changed == {"fractional-gpu": 1}


def test_a_trace_without_a_choice_is_read_as_before(tmp_path: Path) -> None:
    summary = load(written(tmp_path, OWN)).summary
    assert (summary.jobs, summary.skipped, summary.groups) == (3, {}, {"research": 1, "web": 1})
    assert len(summary.sentences) == 1


def test_an_unknown_group_is_told_with_the_nearest_and_all_there_are(tmp_path: Path) -> None:
    for read in (load, inspect):
        with pytest.raises(InputError) as caught:
            read(written(tmp_path, PHILLY), options=keep("11cb48", "6214e8"))
        told = str(caught.value)
        assert "unknown group '6214e8' (did you mean '6214e9'?); expected one of 11cb48, 6214e9, ee9e8c" in told


def test_a_trace_without_groups_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no job of this file .* belongs to a group"):
        load(written(tmp_path, "job_id,submit_s,gpus,duration_s\na,0,1,60\n"), options=keep("web"))


def test_info_and_convert_take_groups(tmp_path: Path) -> None:
    path, out = written(tmp_path, PHILLY), tmp_path / "out.csv"
    shown = CliRunner().invoke(app, ["trace", "info", str(path)])
    assert "groups          6214e9 (2), 11cb48 (1), ee9e8c (1)" in shown.stdout
    found = json.loads(CliRunner().invoke(app, ["trace", "info", str(path), "--json"]).stdout)
    assert found["groups"] == {"11cb48": 1, "6214e9": 2, "ee9e8c": 1}
    for key in ("group", "trace.group"):
        result = CliRunner().invoke(app, ["trace", "convert", str(path), str(out), "--set", f"{key}=ee9e8c, 11cb48"])
        assert result.exit_code == 0, result.stderr
        assert [job.group for job in load(out).jobs] == ["11cb48", "ee9e8c"]


def test_a_simulation_takes_groups_and_its_notes_say_so(tmp_path: Path) -> None:
    words = ["sim", "run", "--trace", str(written(tmp_path, PHILLY)), "--cluster", "2x4", "--json"]
    result = CliRunner().invoke(app, [*words, "--set", "trace.group=6214e9, ee9e8c"])
    assert json.loads(result.stdout)["jobs"] == 3
    assert "note: Only jobs of 2 of 3 groups: 6214e9 (2), ee9e8c (1)." in result.stderr


def test_philly_by_virtual_cluster(shared_data: Path) -> None:
    path = shared_data / "traces" / "philly_flat" / "philly_sia_devVCs.csv.gz"
    summary = load(path, options=keep("ee9e8c", "7f04ca")).summary
    assert (summary.rows, summary.jobs, len(summary.groups)) == (61_503, 1_511 + 723, 9)
