"""Ended jobs as rows of a table: who used which GPUs for how long. For accounting; live jobs are not part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from trine.server.interface import HistoryQuery, HistoryRow
from trine.server.live_job import LiveJob


def history_page(jobs: Mapping[str, LiveJob], query: HistoryQuery) -> list[HistoryRow]:
    """The first jobs that fit, in order of submission."""
    return [_row(job) for job in islice(_chosen(jobs, query), query.limit)]


def _chosen(jobs: Mapping[str, LiveJob], query: HistoryQuery) -> Iterator[LiveJob]:
    last = int(query.after or 0)
    for job in jobs.values():
        if job.live or job.finished_s is None or not query.since_s <= job.finished_s < query.until_s:
            continue
        if query.user not in ("", job.user) or query.state not in ("", job.state):
            continue
        if int(job.id) > last:
            yield job


def _row(job: LiveJob) -> HistoryRow:
    spec, finished_s = job.spec, job.finished_s or 0.0
    began_s = finished_s if job.started_s is None else job.started_s
    return HistoryRow(
        job.id,
        spec.name,
        job.user,
        job.queue,
        job.state,
        spec.gpus.count,
        spec.model,
        spec.app_class,
        spec.priority,
        job.submitted_s,
        job.eligible_s,
        job.started_s,
        finished_s,
        began_s - job.submitted_s,
        job.attained_s,
        job.attained_s * spec.gpus.count / 3600,
        job.epoch,
        job.preemptions,
        job.migrations,
        job.lost_s,
        job.exit_code,
        job.array_id,
        job.array_index,
    )
