"""The files of a run (summary.json, jobs.csv, timeline.parquet, report.html) and of a comparison.

Same result in, same bytes out; all files of a report are written, or none (``data_files``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from trine.core.errors import InputError, require_extra
from trine.core.result import JobRecord, RunResult
from trine.report.compare import Comparison, ComparisonRow, as_dict
from trine.report.compare_page import compare_page
from trine.report.data_files import number_cell, write_all, write_csv, write_json, write_timeline
from trine.report.run_page import run_page

NOT_WRITTEN = {"comm_gpu_s"}
"""Of a job's record: the columns of ``jobs.csv`` are a contract."""
JOB_COLUMNS = tuple(f.name for f in fields(JobRecord) if f.name not in NOT_WRITTEN)


def require_files() -> None:
    """Raise unless this installation can write the files of a run."""
    require_extra("report", "plotly", "pyarrow", purpose="report.html and timeline.parquet need")


def write_run(result: RunResult, out_dir: Path | str) -> None:
    """Write the four files of a run into ``out_dir``, all of them or none."""
    require_files()
    write_all(out_dir, lambda folder: _write_run_files(result, folder))


def _write_run_files(result: RunResult, folder: Path) -> None:
    write_json(folder / "summary.json", result.summary.results())
    write_csv(folder / "jobs.csv", JOB_COLUMNS, ([_cell(j, c) for c in JOB_COLUMNS] for j in result.jobs))
    write_timeline(folder / "timeline.parquet", result.segments, result.settings)
    (folder / "report.html").write_text(run_page(result), encoding="utf-8", newline="\n")


def _cell(job: JobRecord, column: str) -> str:
    value = getattr(job, column)
    return value if isinstance(value, str) else number_cell(value)


def write_comparison(comparison: Comparison, out_dir: Path | str) -> None:
    """Write ``compare.json``, ``compare.csv`` and ``report.html`` into ``out_dir``, all of them or none."""
    if not comparison.rows:
        raise InputError("comparison", "no runs", "at least one policy, placement and seed")
    write_all(out_dir, lambda folder: _write_comparison_files(comparison, folder))


def _write_comparison_files(comparison: Comparison, folder: Path) -> None:
    write_json(folder / "compare.json", as_dict(comparison))
    keys = [k for k in comparison.rows[0].results if k not in {"policy", "placement", "seed"}]
    header = ["policy", "placement", "seed", *keys]
    write_csv(folder / "compare.csv", header, (_csv_row(r, keys) for r in comparison.rows))
    (folder / "report.html").write_text(compare_page(comparison), encoding="utf-8", newline="\n")


def _csv_row(row: ComparisonRow, keys: Sequence[str]) -> list[str]:
    values = [row.results[k] for k in keys]
    return [row.policy, row.placement, str(row.seed), *(v if isinstance(v, str) else number_cell(v) for v in values)]
