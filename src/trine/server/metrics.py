"""Prometheus metrics of the daemon. Gauges are read off the state when asked for; only events are counted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trine.server import records as rec
from trine.server.build import withheld_gpus
from trine.server.controller import Controller
from trine.server.journal import JournalWriter
from trine.server.state import LiveState

TABLE = {
    "trine_jobs": "jobs by state (live ones, and ended ones still remembered)",
    "trine_jobs_blocked": "waiting and held jobs that wait for other jobs to end: `after`, or a turn in their array",
    "trine_gpus": "GPUs by type and use: held, free, out (of service)",
    "trine_gpu_flagged": "GPUs whose observed speed has drifted from their profile",
    "trine_queue_waiting_gpus": "GPUs that waiting jobs ask for, by queue; without jobs that wait for other jobs",
    "trine_oldest_wait_seconds": "how long the longest-waiting job has waited for GPUs since it last held some, or "
    "since the jobs it had to wait for ended",
    "trine_journal_batches_total": "transactions written to the journal",
    "trine_journal_records_total": "records written to the journal",
    "trine_journal_failing": "1 while the journal cannot be written",
    "trine_decisions_total": "starts and stops decided, by reason",
    "trine_exits_total": "starts that ended, by outcome: done, failed, preempted, lost, host-fault, "
    "cancelled, timed out",
    "trine_submissions_total": "jobs accepted",
    "trine_round_seconds": "processor time of deciding a round",
    "trine_internal_errors_total": "errors of trine, a policy or a placement that were contained",
    "trine_policy_fallback": "1 while FIFO is used because the configured policy fails for all jobs",
    "trine_engine_up": "1 while the engine that runs the jobs can be asked",
    "trine_host_trouble": "1 while the host cannot start jobs (disk, descriptors, memory)",
    "trine_lost_work_seconds_total": "work of jobs that had to be done again",
    "trine_clock_skew_seconds": "by how much the wall clock is ahead of the time on record",
    "trine_forecast_draws": "futures behind the last predictions",
    "trine_forecast_age_seconds": "how old the last predictions are",
    "trine_forecast_cpu_seconds": "processor time of the last predictions",
    "trine_forecast_failing": "1 while predictions cannot be made",
    "trine_forecast_start_coverage": "part of the 80 % intervals of starts that held, of the last 2,000",
    "trine_forecast_end_coverage": "the same of ends",
    "trine_forecast_start_error_seconds": "median absolute error of predicted starts",
    "trine_forecast_end_error_seconds": "the same of ends",
    "trine_webhook_deliveries_total": "notices of changed jobs, by result: delivered, retried, given up, dropped",
    "trine_webhook_queue": "notices that wait to be delivered",
    "trine_skipped_records": "records of the journal that could not be applied at the last start",
}
"""Name and meaning of every metric; the documentation's table is made from this."""


class Metrics(Collector):
    """Counts what happens and reads the rest."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._decisions = self._counter("trine_decisions_total", "action", "why")
        self._exits = self._counter("trine_exits_total", "outcome")
        self._submissions = self._counter("trine_submissions_total")
        self._problems = self._counter("trine_internal_errors_total")
        self._lost_work = self._counter("trine_lost_work_seconds_total")
        self._notices = self._counter("trine_webhook_deliveries_total", "result")
        for result in ("delivered", "retried", "given up", "dropped"):
            self._notices.labels(result)  # from 0 on, so that the first one is an increase
        self._round = Histogram("trine_round_seconds", TABLE["trine_round_seconds"], registry=self.registry)
        self._sources: tuple[Controller, JournalWriter, float] | None = None
        self.registry.register(self)

    def _counter(self, name: str, *labels: str) -> Counter:
        return Counter(name.removesuffix("_total"), TABLE[name], labels, registry=self.registry)

    def count(self, record: rec.Record, state: LiveState) -> None:
        """Take a durable record into account; ``state`` is what it led to."""
        if isinstance(record, rec.Accepted):
            self._submissions.inc()
        elif isinstance(record, rec.ExitReported):
            self._exits.labels(_outcome(record, state)).inc()
        for start in record.orders.starts:
            self._decisions.labels("start", start.why).inc()
        for stop in record.orders.stops:
            self._decisions.labels("stop", stop.why).inc()

    def problem(self) -> None:
        """An error was contained."""
        self._problems.inc()

    def lost(self, seconds: float) -> None:
        """Work has to be done again."""
        self._lost_work.inc(seconds)

    def notified(self, result: str) -> None:
        """How an attempt to deliver a notice ended; from any thread."""
        self._notices.labels(result).inc()

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """Measure a round."""
        before = time.process_time()
        yield
        self._round.observe(time.process_time() - before)

    def exposition(
        self, controller: Controller, journal: JournalWriter, now: float, surroundings: Mapping[str, float]
    ) -> bytes:
        """All metrics in Prometheus' text format; ``surroundings``: values of those that are not of the state."""
        self._sources = (controller, journal, now)
        self._surroundings = surroundings
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        if self._sources is None:
            return
        controller, journal, now = self._sources
        yield from _of_jobs(controller, now)
        yield from _of_gpus(controller)
        for name, count in (
            ("trine_journal_batches_total", journal.batches),
            ("trine_journal_records_total", journal.written),
        ):
            yield CounterMetricFamily(name, TABLE[name], value=count)
        gauges = {
            "trine_journal_failing": float(journal.failure is not None),
            "trine_policy_fallback": float(controller.state.fallback is not None),
            "trine_skipped_records": float(len(controller.state.skipped)),
            **self._surroundings,
        }
        for name, value in gauges.items():
            yield GaugeMetricFamily(name, TABLE[name], value=value)


def _outcome(record: rec.ExitReported, state: LiveState) -> str:
    """How a start ended. One that was stopped for good is not one that made room: the state of its job says so."""
    job = state.jobs.get(record.job)
    if job is None or job.live or job.state in ("done", "failed"):
        return record.outcome
    return job.state


def _of_jobs(controller: Controller, now: float) -> Iterator[GaugeMetricFamily]:
    state = controller.state
    counts: dict[str, int] = dict.fromkeys(("waiting", "held", "set aside", "starting", "running", "stopping"), 0)
    queues: dict[str, int] = {}
    oldest, blocked = 0.0, 0
    for job in state.jobs.values():
        counts[job.state] = counts.get(job.state, 0) + 1
        if job.blocked and job.live:
            blocked += 1
        elif job.state == "waiting":
            queues[job.queue] = queues.get(job.queue, 0) + job.spec.gpus.count
            oldest = max(oldest, now - job.idle_from_s)
    yield _family("trine_jobs", ("state",), {(name,): n for name, n in counts.items()})
    yield _family("trine_queue_waiting_gpus", ("queue",), {(name,): n for name, n in queues.items()})
    yield GaugeMetricFamily("trine_oldest_wait_seconds", TABLE["trine_oldest_wait_seconds"], value=oldest)
    yield GaugeMetricFamily("trine_jobs_blocked", TABLE["trine_jobs_blocked"], value=blocked)


def _of_gpus(controller: Controller) -> Iterator[GaugeMetricFamily]:
    cluster, state = controller.deciding.cluster, controller.state
    held = {gpu for job in state.holders() for gpu in job.gpus}
    out = {gpu for name, known in state.nodes.items() for gpu in withheld_gpus(cluster, name, known)}
    uses: dict[tuple[str, ...], float] = {(t, use): 0 for t in cluster.types for use in ("held", "free", "out")}
    for gpu in range(cluster.gpu_count):
        node = cluster.nodes[cluster.node_of[gpu]]
        use = "held" if gpu in held else "out" if gpu in out else "free"
        uses[(node.gpu_type, use)] += 1
    yield _family("trine_gpus", ("type", "use"), uses)
    flagged = len({drift.gpu for drift in state.observations.drifts()}) if state.observations else 0
    yield GaugeMetricFamily("trine_gpu_flagged", TABLE["trine_gpu_flagged"], value=flagged)


def _family(
    name: str, labels: tuple[str, ...], values: dict[tuple[str, ...], float] | dict[tuple[str], int]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, TABLE[name], labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
