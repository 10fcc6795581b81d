"""Work that people gave to the engine itself and that asks trine for a place: put on record as a job, once; ended when
its owner takes it back; the engine shows why it waits. Of what such work says of itself only its size and its name are
believed: whose it is the engine's settings say, and limits hold for it as for any user."""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from trine.core.errors import InputError
from trine.executor.base import ExternalJob
from trine.inputs.job_rules import MAX_NAME_LENGTH
from trine.inputs.job_spec import JobSpec, parse_jobs
from trine.server import records as rec
from trine.server import views
from trine.server.interface import Caller, Refused, Unavailable
from trine.server.service import LiveService

_TELL_AFTER_S = 1.0
"""Reasons are sent at most so often."""


class ExternalWork(LiveService):
    """The jobs that came by the engine, kept in line with what the engine has."""

    log: Any

    def __init__(self) -> None:
        self._external: tuple[ExternalJob, ...] = ()
        self._external_known = False
        """The engine has said which work of others there is; before that nothing follows from what is missing."""
        self._refusals: dict[str, str] = {}
        """Why work is no job, by key, in sentences."""
        self._telling: asyncio.TimerHandle | None = None

    @abstractmethod
    def _note(self, record: rec.Record | None) -> None:
        """Write a record for which no caller waits; ``None``: there is nothing to write."""

    @abstractmethod
    def _guarded(self, call: Callable[[], None]) -> None:
        """A bug of ours is reported, and what is on record counts: the engine is built anew from it."""

    def _take_external(self, jobs: tuple[ExternalJob, ...]) -> None:
        """All work of others that the engine has now."""
        self._external, self._external_known = jobs, True
        self._compare_external()

    def _compare_external(self) -> None:
        """Put on record what is new, end what was taken back. What was refused is looked at again each time: the
        cluster, or what others have waiting, may have changed."""
        if not self._external_known or self.closing or self.journal.failure is not None:
            return
        state, found = self.controller.state, {job.key for job in self._external}
        for job in [job for job in state.live.values() if job.external and job.external not in found]:
            if job.requested_action != "cancel":
                by = f"its owner in {self.setup.engine}"
                self._note(self.controller.ask(self.now(), job.id, "cancel", by))
        refusals = {}
        for work in self._external:
            if work.key not in state.external and (why := self._accept(work)):
                refusals[work.key] = why
        for work in self._external:
            why = refusals.get(work.key, "")
            if why and why != self._refusals.get(work.key):
                self.log.info("not accepted", pod=work.name, why=why)
        self._refusals = refusals
        self._tell_external_soon()

    def _accept(self, work: ExternalJob) -> str:
        """Put it on record; or why it cannot be a job now, in a sentence."""
        if work.refused:
            return work.refused
        try:
            (spec,) = self.access_now.admit([_spec_of(work)], Caller(work.user), self._waiting_jobs())
            self._check_can_run(spec)
        except (Refused, Unavailable, InputError) as refusal:
            return str(refusal)
        weight = self.access.queues[spec.queue].weight
        self._note(self.controller.submit(self.now(), weight, spec, external=work.key))
        return ""

    def _tell_external_soon(self) -> None:
        if self._external and self._telling is None and not self.closing:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(_TELL_AFTER_S, self._guarded, self._tell_external)

    def _tell_external(self) -> None:
        """Bring the reasons of what waits to its owners."""
        self._telling = None
        if self.closing or self.journal.failure is not None:
            return
        state, reasons = self.controller.state, {}
        for work in self._external:
            job = state.external.get(work.key)
            if job is None:
                reasons[work.key] = self._refusals.get(work.key, "")
            elif not job.live:
                reasons[work.key] = f"Job {job.id} of it is {job.state} in trine; it is not started any more."
            elif not job.holds_gpus:
                reasons[work.key] = views.reason_of(self.controller, job).sentence
        self.executor.tell_external({key: reason for key, reason in reasons.items() if reason})


def _spec_of(work: ExternalJob) -> JobSpec:
    """As a job without a model, which nothing is known of but its size. Its command is for people to read: executors
    never run it."""
    known: dict[str, Any] = {
        "run": ["pod", work.name],
        "name": work.name[:MAX_NAME_LENGTH],
        "user": work.user,
        "queue": work.queue,
        "gpus": {"count": work.gpus, "types": list(work.types)},
        "nodes": work.nodes,
        "preemptible": work.preemptible,
        "retries": 0,
    }
    (spec,) = parse_jobs(json.dumps({key: value for key, value in known.items() if value not in (None, "")}), "pod")
    return spec
