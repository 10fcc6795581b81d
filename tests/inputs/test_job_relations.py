"""``after`` and ``array`` as people write them: in files, on the command line, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.inputs.job_file import read_job_file
from trine.inputs.job_relations import Array, parse_array
from trine.inputs.job_spec import JobSpec, parse_jobs


def job(**keys: object) -> JobSpec:
    return parse_jobs(json.dumps({"run": "true", **keys}))[0]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (17, ("17",)),
        ("17", ("17",)),
        ("17, any:18\nfailed:19", ("17", "any:18", "failed:19")),
        ([17, "ok:18", "007"], ("17", "18", "7")),
        (["first stage", "any:first stage"], ("first stage", "any:first stage")),
        ("17,17", ("17",)),
        ([], ()),
    ],
)
def test_predecessors_are_read_in_all_their_forms(written: object, read: tuple[str, ...]) -> None:
    spec = job(after=written)
    assert spec.after == read
    assert parse_jobs(spec.as_json())[0] == spec


@pytest.mark.parametrize(
    "written", ["", " ", " ,\n", "17,", ",17", "any:", "0", ["a\x1bb"], True, 1.5, {"ok": 1}, [[1]], "x" * 200]
)
def test_predecessors_that_are_none_are_refused(written: object) -> None:
    with pytest.raises(InputError, match=r"after.*expected ids of jobs"):
        job(after=written)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0-3", Array((0, 1, 2, 3))),
        ("0-30:10%2", Array((0, 10, 20, 30), 2)),
        ("5-7,1,3,5", Array((1, 3, 5, 6, 7))),
        (4, Array((4,))),
        (" 1 - 2 ", Array((1, 2))),
    ],
)
def test_arrays_are_read_as_slurm_reads_them(written: object, read: Array) -> None:
    assert parse_array(job(array=written).array) == read


@pytest.mark.parametrize("written", ["3-1", "a", "0-9%0", "0-9%", "1-2:0", "-1", "0-1000", "1,,2", "0-9999999", True])
def test_arrays_that_are_none_are_refused(written: object) -> None:
    with pytest.raises(InputError, match=r"array.*expected indices of up to 1,000 elements"):
        job(array=written)


def test_a_job_file_names_earlier_jobs_and_the_line_of_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("name: a\nrun: 'true'\narray: 0-9%3\n---\nrun: 'true'\nafter: [a, any:17]\n")
    assert [(spec.array, spec.after) for spec in read_job_file(file)] == [("0-9%3", ()), ("", ("a", "any:17"))]
    file.write_text("run: 'true'\nafter: 17\n---\nrun: 'true'\narray: 9-1\n")
    with pytest.raises(InputError, match=r"jobs\.yaml:5.*array"):
        read_job_file(file)
