"""The live scheduler without its surroundings: requests and news in, records with orders out. No clock, no I/O.

Each method changes state and engine together and returns the record to be written; orders are carried out only once
their record is durable. ``again`` repeats a record, so that a journal can be decided a second time and compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from trine.config.job_spec import JobSpec
from trine.core.cluster import Cluster
from trine.core.reason import Reason
from trine.engine import events as ev
from trine.engine.engine import Engine
from trine.engine.table import State
from trine.server import records as rec
from trine.server.build import KNOWN, Model, build_engine, engine_job, gpus_of, known_speeds
from trine.server.cluster_record import cluster_to_record
from trine.server.live_job import LiveJob, fate, node_after, pace_now
from trine.server.state import LiveState


class Controller:
    """State and engine, always in step."""

    def __init__(self, state: LiveState, model: Model) -> None:
        self.state = state
        self.model = model
        self.engine: Engine | None = None
        self.slots: dict[str, int] = {}
        self._speeds = [0, 0]
        """What the engine was built with; see ``build.known_speeds``."""

    @property
    def deciding(self) -> Engine:
        """The engine; there is one as soon as the cluster is known."""
        assert self.engine is not None, "the controller was not configured yet"
        return self.engine

    # -- requests ------------------------------------------------------------------------------------------------

    def configure(
        self,
        now: float,
        version: str,
        cluster: Cluster,
        policy: str,
        placement: str,
        settings: dict[str, Any],
        round_s: float = 60.0,
        sharing: rec.Sharing = "user",
    ) -> rec.Record:
        """The cluster and how it is scheduled, from now on."""
        body = cluster_to_record(cluster)
        return self._enter(rec.Configured(now, version, body, policy, placement, settings, round_s, sharing))

    def submit(self, now: float, weight: float, spec: JobSpec, request_id: str = "") -> rec.Accepted:
        """Take in a job whose user and queue are filled in; whether it can ever run was checked before."""
        record = rec.Accepted(now, str(self.state.next_id), spec.user, spec.queue, weight, spec, request_id)
        self._enter(record)
        return record

    def ask(self, now: float, job_id: str, verb: str, by: str) -> rec.Record:
        """Cancel, hold or release a job that is still live."""
        return self._enter(rec.Asked(now, job_id, verb, by))

    def change_node(self, now: float, node: str, state: str, reason: str, by: str) -> rec.Record:
        return self._enter(rec.NodeChanged(now, node, state, reason, by))

    # -- time and news -------------------------------------------------------------------------------------------

    def tick(self, now: float, heard: Iterable[rec.Heard] = (), fill: bool = False) -> rec.Ticked:
        """Decide a round, or (``fill``) only what to do with GPUs nobody holds."""
        record = self._enter(rec.Ticked(now, fill, tuple(heard)))
        assert isinstance(record, rec.Ticked)
        return record

    def refine(self, now: float) -> rec.Record | None:
        """Rebuild the engine if what was observed changed the model of the cluster noticeably."""
        learnt = self.state.observations
        if learnt is None or not learnt.changed_materially_since(self._speeds[1]):
            return None
        return self._enter(rec.Refined(now))

    def started(self, now: float, job_id: str, epoch: int) -> rec.Record | None:
        """The processes of a start are up; ``None`` if that is old news."""
        job = self.state.live.get(job_id)
        if job is None or job.epoch != epoch or job.state not in ("starting", "stopping") or self._runs(job):
            return None
        return self._enter(rec.Started(now, job_id, epoch))

    def exited(
        self, now: float, job_id: str, epoch: int, outcome: str, rc: int | None, step: float | None, detail: str = ""
    ) -> rec.Record | None:
        """The processes of a start are gone; ``None`` if that is old news."""
        job = self.state.live.get(job_id)
        if job is None or job.epoch != epoch or not job.holds_gpus:
            return None
        return self._enter(rec.Exited(now, job_id, epoch, outcome, rc, step, detail))

    # -- one record at a time ------------------------------------------------------------------------------------

    def again(self, record: rec.Record) -> rec.Record:
        """The record as it would be written if it happened now, with the orders decided anew."""
        return self._enter(_without_orders(record))

    def rebuild(self, now: float) -> None:
        """A new engine from the state as it is."""
        self.engine, self.slots = build_engine(self.state, self.model, now)
        self._speeds = known_speeds(self.state, self.model)

    def _enter(self, record: rec.Record) -> rec.Record:
        """Hand the record to the engine, note what it decides, and bring the state up to date with both."""
        if isinstance(record, rec.Configured | rec.Refined):
            self.state.apply(record)
            self.rebuild(record.at_s)
            return record
        known = self._told(record) if not isinstance(record, rec.Accepted) else []
        decided = [decision for event in known for decision in self.deciding.handle(event)]
        full = _with_orders(record, self._orders(decided))
        if isinstance(full, rec.Ticked):
            full = replace(full, accounts=self._accounts(full.at_s))
        self.state.apply(full)
        if isinstance(record, rec.Accepted):
            self._admit(record)
        return full

    def _accounts(self, now: float) -> dict[str, Any]:
        """What the round changed in the policy's accounts, against those on record."""
        known, kept = self.state.accounts, self.deciding.policy.state(self.deciding.view(now))
        if kept:
            kept[KNOWN] = self._speeds
        changed = {name: value for name, value in kept.items() if known.get(name) != value}
        return changed | dict.fromkeys(known.keys() - kept.keys())

    def _admit(self, record: rec.Accepted) -> None:
        job = self.state.jobs[record.job]
        self.deciding.handle(
            ev.Submitted(record.at_s, engine_job(job, self.deciding.perf, self.state.sharing)),
        )
        self.slots[record.job] = slot = len(self.deciding.table) - 1
        self.deciding.reported.add(slot)  # a live job may come back with less than it once told

    def _told(self, record: rec.Record) -> list[ev.Event]:
        """The record in the engine's words; the state is still as it was before the record."""
        now = record.at_s
        if isinstance(record, rec.Asked):
            return self._told_ask(now, record)
        if isinstance(record, rec.NodeChanged):
            assert self.state.cluster is not None
            gpus = gpus_of(self.state.cluster, record.node)
            before = self.state.nodes.get(record.node)
            if node_after(before, record) is None:
                return [ev.Restored(now, gpus)]
            return [] if before is not None else [ev.Withheld(now, gpus)]
        if isinstance(record, rec.Ticked):
            news: list[ev.Event] = [event for heard in record.heard for event in self._told_progress(heard)]
            return [*news, ev.Fill(now) if record.fill else ev.Tick(now)]
        if isinstance(record, rec.Started):
            return [self._running(now, self.state.live[record.job])]
        if isinstance(record, rec.Exited):
            return self._told_exit(now, record)
        raise AssertionError(f"no words for {record}")

    def _told_ask(self, now: float, record: rec.Asked) -> list[ev.Event]:
        slot = self.slots[record.job]
        if record.verb == "cancel":
            return [ev.Withdrawn(now, slot)]
        return [ev.Held(now, slot) if record.verb == "hold" else ev.Released(now, slot)]

    def _told_progress(self, heard: rec.Heard) -> list[ev.Event]:
        job = self.state.live.get(heard.job)
        if job is None or job.epoch != heard.epoch or not self._runs(job):
            return []
        return [ev.Progressed(heard.at_s, self.slots[job.id], heard.step, heard.total, pace_now(job, heard))]

    def _told_exit(self, now: float, record: rec.Exited) -> list[ev.Event]:
        job = self.state.live[record.job]
        slot = self.slots[job.id]
        news: list[ev.Event] = []
        if self.deciding.table.state[slot] is State.STARTING and job.state == "starting":
            news.append(self._running(now, job))  # it ended before its start was reported
        state = fate(job, record)
        if state == "done":
            return [*news, ev.Finished(now, slot)]
        if state in ("failed", "cancelled"):
            return [*news, ev.Left(now, slot)]
        safe = record.step if record.step is not None else job.safe
        stopping = job.state == "stopping"
        return [*news, ev.Stopped(now, slot, safe) if stopping else ev.Lost(now, slot, safe)]

    def _running(self, now: float, job: LiveJob) -> ev.Started:
        slot = self.slots[job.id]
        return ev.Started(now, slot, self.deciding.speed(slot).steps_per_s, now)

    def _runs(self, job: LiveJob) -> bool:
        return self.deciding.table.state[self.slots[job.id]] is State.RUNNING

    def _orders(self, decided: list[ev.Decision]) -> rec.Orders:
        starts, stops = [], []
        for decision in decided:
            job_id = self.deciding.table.jobs[decision.slot].id
            if isinstance(decision, ev.Start):
                # Who is next to it changes; whoever asks is told by ``views``.
                reason = self.deciding.reason(decision._replace(partner=-1))
                starts.append(self._start_order(job_id, decision, reason))
            else:
                reason = self.deciding.reason(decision)
                stops.append(rec.StopOrder(job_id, decision.epoch, decision.moves, reason.code.value, reason.sentence))
        return rec.Orders(tuple(starts), tuple(stops))

    def _start_order(self, job_id: str, start: ev.Start, reason: Reason) -> rec.StartOrder:
        job, table = self.state.live[job_id], self.deciding.table
        expected_s = None
        if (job.total or job.spec.steps) and start.partner < 0:
            left = float(table.steps[start.slot]) - job.safe
            expected_s = left / self.deciding.perf.speed(table.jobs[start.slot], start.gpus).steps_per_s
        partner = "" if start.partner < 0 else table.jobs[start.partner].id
        return rec.StartOrder(job_id, start.epoch, start.gpus, reason.code.value, reason.sentence, expected_s, partner)


def _with_orders(record: rec.Record, orders: rec.Orders) -> rec.Record:
    if not orders and not record.orders:
        return record
    return replace(record, orders=orders)


def _without_orders(record: rec.Record) -> rec.Record:
    bare = _with_orders(record, rec.Orders())
    return replace(bare, accounts={}) if isinstance(bare, rec.Ticked) else bare
