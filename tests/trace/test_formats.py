"""Contract of every trace format, present and future: each example is recognised, read the same in all wrappings."""

from __future__ import annotations

import gzip
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.trace import ImportOptions, inspect, load, write_trace
from trine.trace.format import Format
from trine.trace.formats import by_name, known
from trine.trace.source import first_line

EXAMPLES = [pytest.param(f, text, id=f"{f.name}-{i}") for f in known().values() for i, text in enumerate(f.examples)]
WITH_HEADER = [pytest.param(f, f.examples[0], id=f.name) for f in known().values() if f.has_header]
OPTIONS = ImportOptions(duration_s=600.0)
DOCS = Path(__file__).parents[2] / "docs" / "traces.md"


@pytest.mark.parametrize(("fmt", "text"), EXAMPLES)
def test_an_example_is_recognised_as_its_own_format_and_no_other(fmt: Format, text: str) -> None:
    sample = first_line("trace", text)
    assert [f.name for f in known().values() if f.detects(sample)] == [fmt.name]


@pytest.mark.parametrize(("fmt", "text"), EXAMPLES)
def test_jobs_of_an_example_can_run(fmt: Format, text: str, tmp_path: Path) -> None:
    path = _file(tmp_path / "trace", text)
    trace = load(path, options=OPTIONS)
    assert trace.summary.format == fmt.name
    assert trace.jobs == sorted(trace.jobs, key=lambda j: j.submit_s)
    assert len({j.id for j in trace.jobs}) == len(trace.jobs) > 0
    for job in trace.jobs:
        assert job.gpus >= 1 and job.steps > 0 and math.isfinite(job.submit_s) and job.submit_s >= 0
        assert job.ideal_s is None or 0 < job.ideal_s < math.inf


@pytest.mark.parametrize(("fmt", "text"), EXAMPLES)
def test_every_row_is_accounted_for_once(fmt: Format, text: str, tmp_path: Path) -> None:
    summary = inspect(_file(tmp_path / "trace", text))
    assert summary.rows == summary.jobs + summary.skipped_rows
    assert summary.rows == _rows_in(fmt, text)
    assert len(summary.sentences) >= 1 + len(summary.skipped) + len(summary.changed)


@pytest.mark.parametrize(("fmt", "text"), EXAMPLES)
def test_wrapping_does_not_matter(fmt: Format, text: str, tmp_path: Path) -> None:
    """gzip under any name, byte order mark, line ends, a forced format: the same jobs."""
    jobs = load(_file(tmp_path / "trace", text), options=OPTIONS).jobs
    wrapped = {
        "packed.csv": gzip.compress(text.encode()),
        "plain.gz": text.encode(),
        "mark": b"\xef\xbb\xbf" + text.encode(),
        "crlf": text.replace("\r\n", "\n").replace("\n", "\r\n").encode(),
    }
    for name, data in wrapped.items():
        (tmp_path / name).write_bytes(data)
        assert load(tmp_path / name, options=OPTIONS).jobs == jobs, name
        assert load(tmp_path / name, fmt.name, OPTIONS).jobs == jobs, name


@pytest.mark.parametrize(("fmt", "text"), EXAMPLES)
def test_converting_keeps_every_job_as_it_is(fmt: Format, text: str, tmp_path: Path) -> None:
    jobs = load(_file(tmp_path / "trace", text), options=OPTIONS).jobs
    write_trace(jobs, tmp_path / "copy.csv.gz")
    copy = load(tmp_path / "copy.csv.gz").jobs
    assert [replace(j, line=0) for j in copy] == [replace(j, line=0) for j in jobs]


@pytest.mark.parametrize(("fmt", "text"), WITH_HEADER)
def test_a_renamed_column_is_an_error_on_the_first_line(fmt: Format, text: str, tmp_path: Path) -> None:
    header, *rest = text.splitlines()
    for column in fmt.layouts[0].columns:
        renamed = ",".join("nonsense" if c == column else c for c in header.split(","))
        path = _file(tmp_path / "trace", "\n".join([renamed, *rest]))
        for forced in (fmt.name, None):
            with pytest.raises(InputError, match=r"trace:1: "):
                load(path, forced, OPTIONS)


@pytest.mark.parametrize("fmt", known().values(), ids=lambda f: f.name)
def test_a_format_states_its_facts_and_stands_in_the_reference(fmt: Format) -> None:
    assert fmt.title and fmt.source and fmt.units
    assert f"`{fmt.name}`" in DOCS.read_text(encoding="utf-8")
    assert all(by_name(alias) is fmt for alias in (*fmt.aliases, fmt.name, fmt.name.replace("-", "_")))


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'gavel'"):
        by_name("gavle")


def _rows_in(fmt: Format, text: str) -> int:
    """Jobs of a text as a person counts them: lines but for the header and comments, or objects with an id."""
    if text.startswith(("[", "{")):
        return len(re.findall(r'"(?:job)?id":', text))
    lines = [line for line in text.strip().splitlines() if not line.startswith(";")]
    return len(lines) - any(set(layout.columns) <= set(lines[0].split(",")) for layout in fmt.layouts)


def _file(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path
