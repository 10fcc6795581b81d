"""Which changes of which jobs are sent to the webhook, and in which words. Delivery is ``server.webhook``'s."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from trine.server import records as rec
from trine.server.live_job import LiveJob
from trine.server.state import LiveState

_FIELDS = (
    *("id", "user", "queue", "state", "submitted_s", "started_s", "finished_s", "exit_code", "array_id", "array_index"),
    *("preemptions", "failures"),
)


class Receiver(Protocol):
    """Where notices go."""

    def add(self, notice_id: str, notice: dict[str, Any]) -> None:
        """Takes a notice without delay."""


class Notices:
    """Compares the states of jobs with those last seen, whenever state and disk say the same.

    States that a job passed through between two looks are not sent."""

    def __init__(self, receiver: Receiver, states: frozenset[str], state: LiveState) -> None:
        self._receiver, self._states = receiver, states
        self._seen: dict[str, str] = {job.id: job.state for job in state.live.values()}
        """States of live jobs when they were last looked at."""
        self._touched: dict[str, None] = {}
        self._count = 0

    def touch(self, records: Iterable[rec.Record]) -> None:
        """These records are on disk: the jobs they are about may have changed."""
        for record in records:
            job_id = getattr(record, "job", "")
            if job_id:
                self._touched[job_id] = None
            self._touched |= dict.fromkeys(order.job for order in record.orders.starts)
            self._touched |= dict.fromkeys(order.job for order in record.orders.stops)

    def tell(self, state: LiveState) -> None:
        """All that is decided is on disk: tell what changed. Jobs may also end because others did."""
        over = [job_id for job_id in self._seen if job_id not in state.live]
        for job_id in dict.fromkeys([*self._touched, *over]):
            job = state.jobs.get(job_id)
            if job is None:
                self._seen.pop(job_id, None)
            elif job.state != self._seen.get(job_id):
                self._changed(job, state.last_s)
        self._touched.clear()

    def _changed(self, job: LiveJob, now: float) -> None:
        before = self._seen.pop(job.id, None)
        if job.live:
            self._seen[job.id] = job.state
        if job.state in self._states:
            self._count += 1
            self._receiver.add(f"{job.id}-{now:.3f}-{self._count}", notice(job, before, now))


def notice(job: LiveJob, before: str | None, now: float) -> dict[str, Any]:
    """What the receiver gets, as JSON. Times are Unix seconds; ``before`` is the state last seen, if there was one."""
    fields = {name: getattr(job, name) for name in _FIELDS}
    last = job.story[-1].sentence if job.story else ""
    more = {"name": job.spec.name, "gpus": job.spec.gpus.count, "attempt": job.epoch, "sentence": last}
    return {"event": "job.state", "at_s": now, "before": before, "job": fields | more}
