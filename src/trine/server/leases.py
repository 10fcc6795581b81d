"""From a decided start to the lease an executor takes, and what running jobs said of themselves since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from trine.executor.base import AttemptProgress, Handle, JobLease
from trine.inputs.job_relations import parse_array
from trine.server.interface import PlacementView
from trine.server.live_job import LiveJob
from trine.server.records import Heard
from trine.server.state import LiveState


@dataclass
class Leases:
    """Makes leases, and keeps the last report of each attempt."""

    lease_s: float
    """A lease that is not renewed for this long is over: the job saves its work and leaves."""
    api_url: str = ""
    run_as: Callable[[str], str | None] = field(default=lambda _: None)
    """The system user a trine user's jobs run as; ``None``: the account of the daemon."""

    def __post_init__(self) -> None:
        self._last: dict[Handle, AttemptProgress] = {}
        self._told: dict[Handle, float] = {}
        """When the news that was used last is from."""
        self._saved: dict[Handle, tuple[float, float]] = {}
        """Step of the last checkpoint of an attempt, and when it was first heard of."""

    def lease(self, job: LiveJob, placement: Sequence[PlacementView]) -> JobLease:
        """What the executor needs to know of a start."""
        spec = job.spec
        return JobLease(
            job.id,
            job.epoch,
            tuple((part.node, part.gpus) for part in placement),
            spec.run,
            {**spec.env, "TRINE_API": self.api_url, **_array_variables(job)},
            spec.workdir or "",
            spec.checkpoint.dir or "",
            self.run_as(job.user),
            spec.ranks,
            spec.checkpoint.grace_s,
            self.lease_s,
            job.co_runner,
            job.external,
        )

    def hear(self, news: AttemptProgress) -> None:
        """Keep what a job said until the next round; a checkpoint it reported before still counts."""
        last = self._last.get(news.handle)
        if news.checkpoint_step is None and last is not None and last.checkpoint_step is not None:
            news = replace(news, checkpoint_step=last.checkpoint_step)
        if news.checkpoint_step is not None and (last is None or last.checkpoint_step != news.checkpoint_step):
            self._saved[news.handle] = (float(news.checkpoint_step), news.at_s)
        self._last[news.handle] = news

    def news(self, state: LiveState) -> list[Heard]:
        """What running jobs said since the last time this was asked, in order of arrival of the jobs."""
        holders = {Handle(job.id, job.epoch) for job in state.holders()}
        self._last = {handle: news for handle, news in self._last.items() if handle in holders}
        self._told = {handle: at_s for handle, at_s in self._told.items() if handle in holders}
        self._saved = {handle: saved for handle, saved in self._saved.items() if handle in holders}
        found = self.not_on_record(state)
        self._told |= {Handle(heard.job, heard.epoch): heard.at_s for heard in found}
        return found

    def not_on_record(self, state: LiveState) -> list[Heard]:
        """What ``news`` would say now, and still says afterwards."""
        found = []
        for job in state.holders():
            handle = Handle(job.id, job.epoch)
            last, since = self._last.get(handle), self._told.get(handle, job.run_from_s)
            if last is not None and last.at_s > since and job.state == "running":
                found.append(
                    Heard(job.id, job.epoch, last.at_s, last.step, last.total, last.steps_per_s, last.at_s - since)
                )
        return found

    def latest(self, job: LiveJob) -> AttemptProgress | None:
        """The last thing the present start of a job said."""
        return self._last.get(Handle(job.id, job.epoch))

    def checkpoint(self, job: LiveJob) -> tuple[float, float] | None:
        """Step of the last checkpoint that the present start reported, and when (Unix seconds)."""
        return self._saved.get(Handle(job.id, job.epoch))

    def safe_step(self, handle: Handle) -> float | None:
        """The step of the last checkpoint the attempt reported; ``None`` if it reported none."""
        last = self._last.get(handle)
        return None if last is None or last.checkpoint_step is None else float(last.checkpoint_step)


def _array_variables(job: LiveJob) -> dict[str, str]:
    if job.array_index is None:
        return {}
    return {
        "TRINE_ARRAY_ID": job.array_id,
        "TRINE_ARRAY_INDEX": str(job.array_index),
        "TRINE_ARRAY_COUNT": str(len(parse_array(job.spec.array).indices)),
    }
