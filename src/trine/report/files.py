"""The files of a run (summary.json, jobs.csv, timeline.parquet, report.html) and of a comparison.

Same result in, same bytes out; all files of a report are written, or none (``data_files``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from trine.assembly.settings import TraceSettings, WorkloadSettings
from trine.core.errors import InputError, require_extra
from trine.core.result import JobRecord, RunResult
from trine.report.compare import Comparison, ComparisonRow, as_dict
from trine.report.compare_page import compare_page
from trine.report.data_files import (
    check_target,
    number_cell,
    plain,
    timeline_settings,
    write_all,
    write_csv,
    write_json,
    write_timeline,
)
from trine.report.run_page import run_page

NOT_WRITTEN = {"comm_gpu_s", "time", "blocked_s"}
"""Of a job's record: the columns of ``jobs.csv`` are a contract."""
JOB_COLUMNS = tuple(f.name for f in fields(JobRecord) if f.name not in NOT_WRITTEN)


_USUAL: dict[str, dict[str, Any]] = {
    "trace": plain(asdict(TraceSettings())),
    "workload": plain(asdict(WorkloadSettings())),
}
"""Settings of jobs where none are given."""


def require_files() -> None:
    """Raise unless this installation can write the files of a run."""
    require_extra("report", "plotly", "pyarrow", purpose="report.html and timeline.parquet need")


def run_title(policy: str, placement: str, seed: int, given: Mapping[str, Any]) -> str:
    """What a run is of, in words; the same for the same run. ``given``: as in the record of its settings."""
    return f"{policy} with {placement}, seed {seed}, {_jobs_title(given)}"


def comparison_title(
    policies: Sequence[str], placements: Sequence[str], seeds: Sequence[int], given: Mapping[str, Any]
) -> str:
    """What a comparison is of, in words."""
    seeds_text = ", ".join(map(str, seeds))
    return f"{', '.join(policies)} with {', '.join(placements)}, seeds {seeds_text}, {_jobs_title(given)}"


def _jobs_title(given: Mapping[str, Any]) -> str:
    """Which jobs, and where they run."""
    kind = next((name for name in ("world", "trace", "workload") if given.get(name)), "")
    jobs = " ".join([str(given[kind]) if kind else "no jobs", *_changed(kind, given.get("settings", {}))])
    return f"{jobs} on {given['cluster']}" if given.get("cluster") else jobs


def _changed(kind: str, settings: Mapping[str, Any]) -> list[str]:
    """The settings that make other jobs of the same trace or workload: ``scale_load=2``."""
    usual = _USUAL.get(kind)
    if usual is None:
        return []
    given = plain(settings.get(kind, {}))
    return [f"{name}={_short(value)}" for name, value in given.items() if value != usual.get(name)]


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def earlier_results(out_dir: Path | str) -> str:
    """What the results in a directory are of; empty if it holds none."""
    folder = Path(out_dir)
    try:
        if (folder / "compare.json").is_file():
            settings = json.loads((folder / "compare.json").read_text(encoding="utf-8"))["settings"]
            return comparison_title(settings["policies"], settings["placements"], settings["seeds"], settings)
        if (folder / "summary.json").is_file():
            found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            given = timeline_settings(folder / "timeline.parquet")
            return run_title(found["policy"], found["placement"], found["seed"], given)
    except (OSError, ValueError, KeyError, TypeError):
        return "files that cannot be read"
    return ""


def check_out(out_dir: Path | str, title: str, overwrite: bool) -> str:
    """Raise ``InputError`` where results of ``title`` may not be written; returns a sentence if they replace others.

    A repetition replaces what it repeats; results of something else are kept unless ``overwrite`` gives them up.
    """
    check_target(out_dir)
    earlier = earlier_results(out_dir)
    if earlier and earlier != title and not overwrite:
        found = f"holds the results of another run ({earlier})"
        raise InputError(str(out_dir), found, "an empty or new directory, or --overwrite")
    return f"The earlier results in {out_dir} ({earlier}) are replaced." if earlier else ""


def write_run(result: RunResult, out_dir: Path | str, command: str = "") -> None:
    """Write the four files of a run into ``out_dir``, all of them or none; ``command`` is what made it."""
    require_files()
    write_all(out_dir, lambda folder: _write_run_files(result, folder, command))


def _write_run_files(result: RunResult, folder: Path, command: str) -> None:
    write_json(folder / "summary.json", result.summary.results())
    write_csv(folder / "jobs.csv", JOB_COLUMNS, ([_cell(j, c) for c in JOB_COLUMNS] for j in result.jobs))
    write_timeline(folder / "timeline.parquet", result.segments, result.settings, result.cluster)
    (folder / "report.html").write_text(run_page(result, command), encoding="utf-8", newline="\n")


def _cell(job: JobRecord, column: str) -> str:
    value = getattr(job, column)
    return value if isinstance(value, str) else number_cell(value)


def write_comparison(comparison: Comparison, out_dir: Path | str, command: str = "") -> None:
    """Write ``compare.json``, ``compare.csv`` and ``report.html`` into ``out_dir``, all of them or none.

    ``command`` is what made them.
    """
    if not comparison.rows:
        raise InputError("comparison", "no runs", "at least one policy, placement and seed")
    write_all(out_dir, lambda folder: _write_comparison_files(comparison, folder, command))


def _write_comparison_files(comparison: Comparison, folder: Path, command: str) -> None:
    write_json(folder / "compare.json", as_dict(comparison))
    keys = [k for k in comparison.rows[0].results if k not in {"policy", "placement", "seed"}]
    header = ["policy", "placement", "seed", *keys]
    write_csv(folder / "compare.csv", header, (_csv_row(r, keys) for r in comparison.rows))
    (folder / "report.html").write_text(compare_page(comparison, command), encoding="utf-8", newline="\n")


def _csv_row(row: ComparisonRow, keys: Sequence[str]) -> list[str]:
    values = [row.results[k] for k in keys]
    return [row.policy, row.placement, str(row.seed), *(v if isinstance(v, str) else number_cell(v) for v in values)]
