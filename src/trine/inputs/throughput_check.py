"""Whether a throughput table can run the jobs of a trace: one sentence about the first that it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trine.core.errors import InputError, nearest
from trine.core.job import Job
from trine.perf.throughput import ThroughputTable


def check_jobs(jobs: Iterable[Job], table: ThroughputTable, types: Sequence[str], source: str) -> None:
    """Raises ``InputError`` for a model that nobody knows, one that runs on none of ``types``, a deadline gone by.

    Jobs that bring a step time of their own need no entry in the table, if they name no model or there is one GPU type
    only: on several types a model that the table lacks would run equally fast on all of them.
    """
    several = bool(table.rates) and len(types) > 1
    judged: dict[tuple[str, int], bool] = {}
    for job in jobs:
        if job.deadline_s is not None and job.deadline_s <= job.submit_s:
            found = f"job {job.id} has its deadline at {job.deadline_s:g} s and is submitted at {job.submit_s:g} s"
            raise InputError(_where(source, job), found, "a deadline after the submission", "deadline")
        key = job.model, job.gpus
        if key not in judged:
            judged[key] = _runs(job, table, types, source)
        if not judged[key] and (job.step_s is None or (job.model and several)):
            raise _unknown(job, table, source)


def _runs(job: Job, table: ThroughputTable, types: Sequence[str], source: str) -> bool:
    """Whether the table knows the model; one that it knows to run on none of the types is an error."""
    rates = [table.rate(job.model, job.gpus, gpu_type) for gpu_type in types]
    if all(rate is None for rate in rates):
        return False
    if not any(rates):
        found = f"job {job.id}: model {job.model!r} makes 0 steps/s with {job.gpus} GPUs on all of {', '.join(types)}"
        raise InputError(_where(source, job), found, "a throughput above 0 on at least one GPU type", "model")
    return True


def _unknown(job: Job, table: ThroughputTable, source: str) -> InputError:
    hint = nearest(job.model, table.models)
    found = f"job {job.id}: the throughput table does not know model {job.model!r}{hint}"
    return InputError(_where(source, job), found, "a model of the table, or a table with this model", "model")


def _where(source: str, job: Job) -> str:
    return f"{source}:{job.line}" if job.line else source
