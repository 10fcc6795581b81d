"""Alibaba PAI, 2020: the task table, whose rows (ps, worker, evaluator ...) make up jobs; published without a header.

The job table, if it lies beside the task table under its published name, adds users and submission times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trine.core.errors import InputError
from trine.inputs.csv_table import Row, table_lines, table_rows
from trine.trace.format import Draft, Format, Layout, Likeness, Observed, observed
from trine.trace.source import FirstLine, read_text

TASK = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
STATUSES = ("Terminated", "Failed", "Running", "Waiting")
JOB_TABLES = ("pai_job_table.csv", "pai_job_table.csv.gz")
FURTHER_TASK = "further-task"


class Submission(NamedTuple):
    """What the job table knows about a job."""

    user: str
    submit_s: float | None


class Pai(Format):
    name = "pai"
    title = "Alibaba PAI 2020, pai_task_table"
    source = "github.com/alibaba/clusterdata, cluster-trace-gpu-v2020"
    units = (
        "seconds; GPUs of a job are the sum of `inst_num` x `plan_gpu` (PERCENT) / 100 over its tasks, rounded up; run "
        "time is from the first start to the last end of its GPU tasks; submission and user from `pai_job_table.csv` "
        "beside the file, otherwise submission is the first start; a `start_time` of 0 means not started"
    )
    aliases = ("alibaba-pai", "pai-task-table", "alibaba-gpu-2020")
    layouts = (Layout(TASK),)
    has_header = False
    examples = (
        "4b3f,ps,1.0,Terminated,100.0,700.0,600.0,29.3,,CPU\n"
        "4b3f,worker,2.0,Terminated,110.0,690.0,400.0,29.3,50.0,T4\n"
        "9c1d,tensorflow,1.0,Running,300.0,,600.0,29.3,100.0,P100\n"
        "a077,PyTorchWorker,8.0,Failed,320.0,920.0,600.0,29.3,100.0,V100\n"
        "b000,worker,1.0,Waiting,,,600.0,29.3,25.0,MISC\n",
        f"{','.join(TASK)}\na077,PyTorchWorker,8.0,Failed,320.0,920.0,600.0,29.3,100.0,V100\n",
    )
    identity = "none"
    companions = JOB_TABLES
    rules = {FURTHER_TASK: "a further task of a job that is counted already"}

    def detects(self, sample: FirstLine) -> bool:
        return sample.fields == TASK or (len(sample.fields) == len(TASK) and sample.fields[3] in STATUSES)

    def columns(self, sample: FirstLine) -> dict[str, int]:
        if len(sample.fields) != len(TASK):
            expected = f"the {len(TASK)} columns {','.join(TASK)} (format 'pai')"
            raise InputError(sample.where, f"{len(sample.fields)} columns", expected)
        return {name: position for position, name in enumerate(TASK)}

    def likeness(self, sample: FirstLine) -> Likeness:
        found, missing = set(sample.fields), ",".join(c for c in TASK if c not in sample.fields)
        if len(sample.fields) == len(JOB) and sample.fields[3] in STATUSES:
            return Likeness(1.0, "pai_task_table.csv: this looks like the job table, which is read beside it")
        if len(sample.fields) == 9 and sample.fields[5] in STATUSES:
            return Likeness(1.0, "pai_task_table.csv: this looks like the instance table, which is not needed")
        return Likeness(len(found.intersection(TASK)) / len(found.union(TASK)), f"also {missing} (closest format: pai)")

    def rows(self, sample: FirstLine) -> Iterator[Row]:
        lines = table_lines(sample.source, sample.whole)
        if sample.fields == TASK:
            next(lines)
        return table_rows(sample.source, lines, self.columns(sample), len(TASK), sample.line)

    def drafts(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Draft]]:
        """One job for all rows of a name, at the first of them; the others are counted as its further tasks."""
        tasks: dict[str, dict[tuple[str, ...], Row]] = {}
        in_order = list(rows)
        for row in in_order:
            tasks.setdefault(row.text("job_name"), {}).setdefault(tuple(row.cells), row)
        submissions = _job_table(in_order[0].source) if in_order else {}
        for row in in_order:
            own = tasks[row.text("job_name")]
            if next(iter(own.values())) is row:
                yield row, _job(list(own.values()), submissions.get(row.text("job_name")))
            else:
                reason = FURTHER_TASK if own[tuple(row.cells)] is row else "duplicate-row"
                yield row, Draft(f"{row.text('job_name')}/{row.text('task_name')}", 0.0, 1.0, skip=reason)

    def draft(self, row: Row) -> Draft:
        return _job([row], None)

    def notes(self, sample: FirstLine) -> tuple[str, ...]:
        found = _job_table_path(sample.source)
        if found:
            return (f"Submission times and users from {found.name} beside the file.",)
        return ("No pai_job_table.csv beside the file: jobs are submitted when their first task starts, by no user.",)


def _job(tasks: Sequence[Row], known: Submission | None) -> Draft:
    gpu_tasks = [row for row in tasks if _gpus(row) > 0] or list(tasks)
    starts = [start_s for row in gpu_tasks if (start_s := row.number_or_none("start_time"))]
    run = _run(gpu_tasks, min(starts, default=None))
    submit_s = min(starts, default=0.0) if known is None or known.submit_s is None else known.submit_s
    return Draft(
        id=tasks[0].text("job_name"),
        submit_s=submit_s,
        gpus=sum(_gpus(row) for row in tasks),
        duration_s=run.duration_s,
        user=known.user if known else "",
        skip=run.skip,
    )


def _run(tasks: Sequence[Row], start_s: float | None) -> Observed:
    """From the first start to the last end; a task without an end still runs."""
    ends = [row.number_or_none("end_time") or None for row in tasks if row.number_or_none("start_time")]
    last_s = None if None in ends else max((end_s for end_s in ends if end_s), default=None)
    return observed(start_s, last_s)


def _gpus(row: Row) -> float:
    instances = row.number_or_none("inst_num")
    return (1.0 if instances is None else instances) * (row.number_or_none("plan_gpu") or 0.0) / 100.0


def _job_table_path(source: str) -> Path | None:
    candidates = (Path(source).with_name(name) for name in JOB_TABLES) if Path(source).name else ()
    return next((path for path in candidates if path.is_file() and path != Path(source)), None)


def _job_table(source: str) -> dict[str, Submission]:
    path = _job_table_path(source)
    if path is None:
        return {}
    columns = {name: position for position, name in enumerate(JOB)}
    rows = table_rows(str(path), table_lines(str(path), read_text(path)), columns, len(JOB), 1)
    return {
        row.text("job_name"): Submission(row.text("user"), row.number_or_none("start_time"))
        for row in rows
        if row.text("job_name") != JOB[0]
    }
