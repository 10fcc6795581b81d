"""Between the journal and the engine: a record becomes events of the engine, its decisions become orders on record.

Jobs are ids in the journal and numbers (``job_index``) in the engine; this is where the one becomes the other."""

from __future__ import annotations

from trine.core.reason import Reason, Why
from trine.engine import events as ev
from trine.engine.engine import Engine
from trine.engine.job_table import State
from trine.server import records as rec
from trine.server.build import withheld_gpus
from trine.server.interface import LIVE_STATES
from trine.server.live_job import LiveJob, NodeState, node_after, pace_now
from trine.server.outcome import state_after_exit
from trine.server.state import LiveState

_LEAST_WORK_S = 0.001
"""A job that ended has done something, also where it was never seen running."""


class EngineAdapter:
    """An engine that was built from ``state``, and the numbers it gave to the jobs."""

    def __init__(self, state: LiveState, engine: Engine, job_indices: dict[str, int]) -> None:
        self.state, self.engine, self.job_indices = state, engine, job_indices

    def events_of(self, record: rec.Record) -> list[ev.Event]:
        """The record as events of the engine; the state is still as it was before the record."""
        now = record.at_s
        if isinstance(record, rec.ActionRequested):
            return self._events_of_request(now, record)
        if isinstance(record, rec.PriorityChanged):
            return [ev.PriorityChanged(now, self.job_indices[record.job], record.priority)]
        if isinstance(record, rec.NodeChanged):
            before = self.state.nodes.get(record.node)
            return self._events_of_node(now, record.node, before, node_after(before, record))
        if isinstance(record, rec.Ticked):
            news: list[ev.Event] = [
                ev.Released(now, self.job_indices[job.id]) for job in self.state.due(now) if job.id in self.job_indices
            ]
            news += [event for heard in record.heard for event in self._events_of_progress(heard)]
            return [*news, ev.Fill(now) if record.fill else ev.Tick(now)]
        if isinstance(record, rec.StartReported):
            return [self._running(now, self.state.live[record.job])]
        if isinstance(record, rec.ExitReported):
            return self._events_of_exit(now, record)
        raise AssertionError(f"no events for {record}")

    def _events_of_request(self, now: float, record: rec.ActionRequested) -> list[ev.Event]:
        job_index = self.job_indices[record.job]
        if record.verb in ("cancel", "timeout"):
            return [ev.CancelRequested(now, job_index)]
        self.engine.aside.discard(job_index)
        if record.verb == "release" and self.state.live[record.job].blocked:
            return []
        return [ev.Held(now, job_index) if record.verb == "hold" else ev.Released(now, job_index)]

    def events_of_ends(self, now: float) -> list[ev.Event]:
        """What the ends of jobs mean for those that waited for them; the state has taken them into account already."""
        events: list[ev.Event] = []
        for job_id in self.state.take_followers():
            job, job_index = self.state.jobs[job_id], self.job_indices[job_id]
            if not job.live:
                events.append(ev.CancelRequested(now, job_index))
            elif job.state == "waiting":
                events.append(ev.Eligible(now, job_index))
        return events

    def _events_of_node(
        self, now: float, name: str, before: NodeState | None, after: NodeState | None
    ) -> list[ev.Event]:
        assert self.state.cluster is not None
        out = withheld_gpus(self.state.cluster, name, before)
        stay_out = withheld_gpus(self.state.cluster, name, after)
        restored = tuple(gpu for gpu in out if gpu not in stay_out)
        cordoned = tuple(gpu for gpu in stay_out if gpu not in out)
        news: list[ev.Event] = [ev.GpusUncordoned(now, restored)] if restored else []
        return [*news, ev.GpusCordoned(now, cordoned)] if cordoned else news

    def _events_of_progress(self, heard: rec.Heard) -> list[ev.Event]:
        job = self.state.live.get(heard.job)
        if job is None or job.epoch != heard.epoch or not self.runs(job):
            return []
        return [ev.Progressed(heard.at_s, self.job_indices[job.id], heard.step, heard.total, pace_now(job, heard))]

    def _events_of_exit(self, now: float, record: rec.ExitReported) -> list[ev.Event]:
        job = self.state.live[record.job]
        job_index = self.job_indices[job.id]
        news: list[ev.Event] = []
        if self.engine.table.state[job_index] is State.STARTING and job.state == "starting":
            news.append(self._running(now, job))  # it ended before its start was reported
        after = state_after_exit(job, record)
        if after.state == "done":
            done = self._work_done(now, job, job_index)
            return [*news, ev.Progressed(now, job_index, done, done, 0.0), ev.Finished(now, job_index)]
        if after.state not in LIVE_STATES:
            return [*news, ev.Terminated(now, job_index)]
        safe = record.step if record.step is not None else job.safe
        pauses = after.pause_s or (after.state == "held" and job.requested_action != "hold")
        held: list[ev.Event] = [ev.Held(now, job_index)] if pauses else []
        if job.state == "stopping":
            # Held first: a job that was to move has new GPUs already and would be started there at once.
            return [*news, *held, ev.Stopped(now, job_index, safe)]
        return [*news, ev.Interrupted(now, job_index, safe), *held]

    def _work_done(self, now: float, job: LiveJob, job_index: int) -> float:
        """Steps that the job, which ends now, took: its length, which was guessed or a limit until here.

        Policies learn from it how long such jobs are."""
        table = self.engine.table
        worked_s, rate = now - float(table.work_from_s[job_index]), float(table.rate[job_index])
        if table.state[job_index] is State.STARTING:
            worked_s, rate = 0.0, self.engine.speed(job_index).steps_per_s
        done = float(table.done[job_index]) + max(worked_s, _LEAST_WORK_S) * rate
        return done if job.total is None else min(done, job.total)

    def _running(self, now: float, job: LiveJob) -> ev.Started:
        job_index = self.job_indices[job.id]
        return ev.Started(now, job_index, self.engine.speed(job_index).steps_per_s, now)

    def runs(self, job: LiveJob) -> bool:
        """The engine knows that the processes of the present attempt are up."""
        return self.engine.table.state[self.job_indices[job.id]] is State.RUNNING

    def orders_of(self, decided: list[ev.Decision], record: rec.Record) -> rec.Orders:
        """What the engine decided on ``record``, as the journal keeps it."""
        starts, stops = [], []
        over = isinstance(record, rec.ActionRequested) and record.verb == "timeout"
        for decision in decided:
            job_id = self.engine.table.jobs[decision.job_index].id
            if isinstance(decision, ev.Start):
                # Without the co-runner, which may change while the job runs: ``views`` says which it is now.
                reason = self.engine.reason(decision if decision.co_runner < 0 else decision._replace(co_runner=-1))
                starts.append(self._start_order(job_id, decision, reason))
            else:
                reason = self.engine.reason(decision)
                if over:
                    limit_s = self.state.live[job_id].spec.max_runtime
                    reason = Reason(Why.TIME_LIMIT, f"job {job_id} has run for its max_runtime of {limit_s:g} s.")
                stops.append(self._stop_order(job_id, decision, reason))
        return rec.Orders(tuple(starts), tuple(stops))

    def _stop_order(self, job_id: str, stop: ev.Stop, reason: Reason) -> rec.StopOrder:
        for_job = "" if stop.for_job < 0 else self.engine.table.jobs[stop.for_job].id
        gain_s = float(stop.gain_s)  # a speed may have come from a column of numpy's
        weighed = {} if stop.trade is None else stop.trade.figures()
        code, sentence = reason.code.value, reason.sentence
        return rec.StopOrder(job_id, stop.epoch, stop.moves, code, sentence, for_job, gain_s, weighed)

    def _start_order(self, job_id: str, start: ev.Start, reason: Reason) -> rec.StartOrder:
        job, table = self.state.live[job_id], self.engine.table
        expected_s = None
        if (job.total or job.spec.steps) and start.co_runner < 0:
            left = float(table.steps[start.job_index]) - job.safe
            expected_s = left / self.engine.quote(start.job_index, start.gpus).steps_per_s
        co_runner = "" if start.co_runner < 0 else table.jobs[start.co_runner].id
        gpus = start.gpus  # a placement may have taken them from a column of numpy's
        if type(gpus[0]) is not int:
            gpus = tuple(map(int, gpus))
        return rec.StartOrder(job_id, start.epoch, gpus, reason.code.value, reason.sentence, expected_s, co_runner)
