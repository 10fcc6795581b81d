"""Writing a trace: what is written is read back, whole or not at all."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trine.core.errors import InputError
from trine.core.job import Job
from trine.trace import load, write_trace

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
TYPE = st.text(st.characters(codec="utf-8", exclude_characters="\0|"), min_size=1, max_size=4)
POSITIVE = st.floats(min_value=1e-6, max_value=3e5)
TIME = st.floats(min_value=0, max_value=9e8)
JOB = st.builds(
    Job,
    id=TEXT.filter(bool),
    submit_s=TIME,
    gpus=st.integers(1, 1000),
    steps=POSITIVE,
    step_s=st.none() | POSITIVE,
    model=TEXT,
    user=TEXT,
    group=TEXT,
    app_class=st.sampled_from(["", "A", "D"]),
    batch_size=st.none() | st.integers(0, 1 << 40),
    priority=st.floats(-1e6, 1e6),
    weight=st.floats(0, 1e6),
    deadline_s=st.none() | TIME,
    gpu_types=st.lists(TYPE, max_size=3).map(tuple),
    restore_s=st.none() | TIME,
    migration_s=st.none() | TIME,
    checkpoint_every_s=st.none() | TIME,
    tracked=st.booleans(),
)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.lists(JOB, min_size=1, max_size=6, unique_by=lambda j: j.id), packed=st.booleans())
def test_every_job_survives_the_round_trip(tmp_path: Path, jobs: list[Job], packed: bool) -> None:
    path = tmp_path / ("trace.csv.gz" if packed else "trace.csv")
    write_trace(jobs, path)
    expected = sorted((replace(j, line=0) for j in jobs), key=lambda j: j.submit_s)
    assert [replace(j, line=0) for j in load(path).jobs] == expected
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_the_same_jobs_give_the_same_bytes_and_gz_is_gzip(tmp_path: Path) -> None:
    jobs = [Job("a", 0.0, 1, 60.0)]
    for name in ("a.csv", "a.csv.gz", "b.csv.gz"):
        write_trace(jobs, tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == (tmp_path / "a.csv").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    write_trace([Job("a", 0.0, 1, 60.0)], path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="gpu_types"):
        write_trace([Job("b", 0.0, 1, 60.0, gpu_types=("a|b",))], path)
    for bad in (tmp_path, tmp_path / "gone" / "x.csv", path / "x.csv"):
        with pytest.raises(InputError):
            write_trace([Job("b", 0.0, 1, 60.0)], bad)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["trace.csv"]
