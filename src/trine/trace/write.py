"""Writes jobs as our own trace CSV, which reads back as exactly the same jobs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trine.core.atomic_file import write_output
from trine.core.errors import InputError
from trine.core.job import Job
from trine.trace.formats.trine import COLUMNS, TYPES_SEPARATOR


def write_trace(jobs: Iterable[Job], path: str | Path) -> None:
    """Write ``jobs`` as CSV in the order given, gzip'ed if the name ends in ``.gz``. Same jobs, same bytes."""
    write_output(path, trace_csv(jobs))


def trace_csv(jobs: Iterable[Job]) -> str:
    """The text that ``write_trace`` writes."""
    return "".join(f"{','.join(cells)}\n" for cells in (COLUMNS, *(_cells(job) for job in jobs)))


def _cells(job: Job) -> list[str]:
    if any(TYPES_SEPARATOR in t for t in job.gpu_types):
        raise InputError(f"job {job.id}", f"a GPU type with {TYPES_SEPARATOR!r}", "types without it", "gpu_types")
    values = {"job_id": job.id, "gpu_types": TYPES_SEPARATOR.join(job.gpu_types)}
    return [_cell(values[c] if c in values else getattr(job, c)) for c in COLUMNS]


def _cell(value: str | float | int | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    # csv.writer leaves a lone carriage return bare when lines end in "\n", and readers then split the row there.
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(c in text for c in ',"\r\n') else text
