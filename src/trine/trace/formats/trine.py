"""Our own trace CSV: one column per field of a job. What ``write_trace`` writes reads back as exactly the same jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from trine.core.atomic_file import write_output
from trine.core.errors import InputError, nearest
from trine.core.job import Job
from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout
from trine.trace.source import FirstLine

REQUIRED = ("job_id", "submit_s", "gpus")
OPTIONAL = (
    *("steps", "step_s", "model", "user", "group", "app_class", "batch_size", "priority", "weight", "deadline_s"),
    *("gpu_types", "restore_s", "migration_s", "checkpoint_every_s", "tracked"),
)
COLUMNS = REQUIRED + OPTIONAL
"""What is written; ``duration_s`` may be read in place of ``steps`` and ``step_s``."""
AFTER = "after"
"""Written only where some job has predecessors."""
ARRAY = "array"
"""Written only where there is an array with a limit."""
SEPARATOR = "|"
"""Between several GPU types, or several predecessors, in one cell."""


class Trine(Format):
    name = "trine"
    title = "trine CSV"
    source = "trine"
    units = (
        "seconds; work as `steps` and `step_s` (empty: only a throughput table can tell), or as `duration_s`, or as "
        "`duration_s` and `steps`; `gpu_types`, and `after` (ids of jobs, submitted before, that have to end first), "
        "separated by `|`; `array`: `sweep%3` where of the jobs that say so at most 3 may be under way at once; "
        "an empty cell is the default"
    )
    layouts = (Layout(REQUIRED, (*OPTIONAL, AFTER, ARRAY, "duration_s")),)
    examples = (
        "job_id,submit_s,gpus,steps,step_s,model,user,gpu_types,deadline_s,tracked\n"
        "a,0.0,1,100.0,0.5,bert,ann,,,true\nb,12.5,4,2000.0,,gpt2,ben,v100|a100,9000.0,false\n",
        "job_id,submit_s,gpus,duration_s\n0,0,1,60\n1,30,8,3600\n",
        "job_id,submit_s,gpus,duration_s,after\nprepare,0,1,60,\ntrain,0,4,900,prepare\ntest,5,1,30,prepare|train\n",
    )

    def detects(self, sample: FirstLine) -> bool:
        # Unknown columns do not make it another format: they are mistakes to be named.
        return set(REQUIRED) <= set(sample.fields)

    def columns(self, sample: FirstLine) -> dict[str, int]:
        known = self.layouts[0].columns + self.layouts[0].optional
        for column in sample.fields:
            if column not in known:
                found = f"unknown column {column!r}{nearest(column, known)}"
                raise InputError(sample.where, found, f"columns among {', '.join(known)}")
        columns = super().columns(sample)
        if not {"steps", "duration_s"} & set(columns):
            raise InputError(sample.where, "no amount of work", "a column steps (with step_s) or duration_s", "steps")
        return columns

    def draft(self, row: Row) -> Draft:
        steps, step_s, duration_s = (row.number_or_none(c) for c in ("steps", "step_s", "duration_s"))
        if duration_s is not None and step_s is not None:
            raise InputError(row.where, "both step_s and duration_s", "one of them", "duration_s")
        if duration_s is None and steps is None:
            raise InputError(row.where, "no amount of work", "steps or duration_s", "steps")
        weight, priority = row.number_or_none("weight"), row.number_or_none("priority", minimum=-float("inf"))
        return Draft(
            id=_verbatim(row, "job_id"),
            submit_s=row.number("submit_s"),
            gpus=row.number("gpus"),
            steps=steps,
            step_s=step_s,
            duration_s=duration_s,
            model=_verbatim(row, "model"),
            user=_verbatim(row, "user"),
            group=_verbatim(row, "group"),
            app_class=_verbatim(row, "app_class"),
            batch_size=row.whole_or_none("batch_size"),
            priority=0.0 if priority is None else priority,
            weight=1.0 if weight is None else weight,
            deadline_s=row.limit_or_none("deadline_s"),
            gpu_types=tuple(t for t in _verbatim(row, "gpu_types").split(SEPARATOR) if t),
            restore_s=row.number_or_none("restore_s"),
            migration_s=row.number_or_none("migration_s"),
            checkpoint_every_s=row.number_or_none("checkpoint_every_s"),
            tracked=row.flag("tracked", default=True),
            after=tuple(dict.fromkeys(t for t in _verbatim(row, AFTER).split(SEPARATOR) if t)),
            array=_array(row),
        )


def _array(row: Row) -> str:
    text = _verbatim(row, ARRAY)
    if text and re.fullmatch(r".+%0*[1-9][0-9]{0,6}", text) is None:
        expected = "a name and how many of its jobs may be under way at once, such as sweep%3"
        raise InputError(row.where, repr(text), expected, ARRAY)
    return text


def _verbatim(row: Row, column: str) -> str:
    """Blanks included: what was written is read back."""
    return row.cells[row.columns[column]] if row.has(column) else ""


def write_trace(jobs: Iterable[Job], path: str | Path) -> None:
    """Write ``jobs`` as CSV in the order given, gzip'ed if the name ends in ``.gz``. Same jobs, same bytes."""
    write_output(path, trace_csv(jobs))


def trace_csv(jobs: Iterable[Job]) -> str:
    """The text that ``write_trace`` writes."""
    jobs = list(jobs)
    relations = [name for name in (AFTER, ARRAY) if any(getattr(job, name) for job in jobs)]
    columns = (*COLUMNS, *relations)
    return "".join(f"{','.join(cells)}\n" for cells in (columns, *(_cells(job, columns) for job in jobs)))


def _cells(job: Job, columns: Iterable[str]) -> list[str]:
    lists = {"gpu_types": job.gpu_types, AFTER: job.after}
    for column, texts in lists.items():
        if any(SEPARATOR in text for text in texts):
            raise InputError(f"job {job.id}", f"{SEPARATOR!r} inside one of {column}", "texts without it", column)
    values = {"job_id": job.id, **{column: SEPARATOR.join(texts) for column, texts in lists.items()}}
    return [_cell(values[c] if c in values else getattr(job, c)) for c in columns]


def _cell(value: str | float | int | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    # csv.writer leaves a lone carriage return bare when lines end in "\n", and readers then split the row there.
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(c in text for c in ',"\r\n') else text
