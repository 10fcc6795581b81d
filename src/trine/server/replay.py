"""A recorded run, looked at again: does the engine decide the same, and does a simulation foresee what happened?

The simulation itself is ``sim.scenario.finish_times``; here is what it runs, and how its answer compares.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trine.assembly.settings import Settings, resolve
from trine.core.errors import InputError
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.inputs.job_relations import parse_array, predecessor
from trine.server import records as rec
from trine.server.build import Model, empty_engine
from trine.server.controller import Controller
from trine.server.live_job import LiveJob
from trine.server.state import LiveState


@dataclass(frozen=True)
class Agreement:
    """How a second run of the engine over the same events compares with the first."""

    decisions: int
    """Starts and stops on record."""
    agreed: int
    difference: str = ""
    """The first record that came out differently, in words."""
    model: Model = field(default_factory=Model)
    """What it was decided with in the end: limits of queues and users come from the record, where it has them."""


@dataclass(frozen=True)
class Forecast:
    """Completion of one job: real and simulated, in seconds after its submission."""

    job: str
    real_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """Relative to the real time."""
        return (self.simulated_s - self.real_s) / self.real_s if self.real_s > 0 else 0.0


def redecide(records: Iterable[rec.Record], model: Model) -> tuple[Agreement, LiveState]:
    """Feed the recorded events to a new engine and compare what it decides with what is on record.

    ``model`` holds what the record does not: throughputs, and in a journal of before the limits of queues and users.
    """
    controller = Controller(LiveState(), model)
    decisions = agreed = 0
    for number, record in enumerate(records, start=1):
        if number == 1 and not isinstance(record, rec.Configured):
            raise InputError("journal", f"begins with a record of kind {record.kind}", "a journal kept from its start")
        if isinstance(record, rec.Configured):
            controller.model = model.with_recorded(record.quotas)
        now = controller.again(record)
        count = len(record.orders.starts) + len(record.orders.stops)
        decisions += count
        if (now.orders.starts, now.orders.stops) != (record.orders.starts, record.orders.stops):
            difference = f"record {number} ({record.kind}): on record {_words(record)}, now {_words(now)}"
            return Agreement(decisions, agreed, difference, controller.model), controller.state
        agreed += count
    return Agreement(decisions, agreed, model=controller.model), controller.state


def _words(record: rec.Record) -> str:
    starts = [f"start {o.job} on {','.join(map(str, o.gpus))}" for o in record.orders.starts]
    stops = [f"stop {o.job}" for o in record.orders.stops]
    return "; ".join(stops + starts) or "nothing"


@dataclass(frozen=True)
class RecordedRun:
    """The jobs of a journal that ended well, as a simulation can run them again: with the lengths they turned out to
    have, and times that begin with the first submission."""

    engine: Engine
    settings: Settings
    jobs: list[Job]
    origin_s: float
    ended: list[LiveJob]

    def compare(self, finish_s: Mapping[str, float]) -> list[Forecast]:
        """Real completion times beside simulated ones; ``finish_s``: when each job of ``jobs`` ended, by id."""
        return [
            Forecast(
                job.id, (job.finished_s or 0.0) - job.submitted_s, finish_s[job.id] + self.origin_s - job.submitted_s
            )
            for job in self.ended
            if job.id in finish_s
        ]


def recorded_run(state: LiveState, model: Model) -> RecordedRun | None:
    """What there is to simulate; ``None`` if no job ended well."""
    ended = [job for job in state.jobs.values() if job.state == "done" and job.attained_s > 0]
    if state.cluster is None or not ended:
        return None
    origin_s = min(job.submitted_s for job in ended)
    settings = resolve(state.policy, state.placement, {**state.settings, "fill": True, "round_s": state.round_s})
    engine = empty_engine(state, model, settings, f"{model.seed}/placement")
    jobs = [_simulated(job, origin_s) for job in sorted(ended, key=lambda job: job.submitted_s)]
    jobs = [job for job in jobs if engine.perf.types_for(job)]  # the cluster may have become smaller since
    return RecordedRun(engine, settings, jobs, origin_s, ended)


def _simulated(job: LiveJob, origin: float) -> Job:
    """The job with the time it really held its GPUs; no model name, so that no table overrules that."""
    spec = job.spec
    most_at_once = parse_array(spec.array).most_at_once if job.array_id else None
    return Job(
        job.id,
        job.submitted_s - origin,
        spec.gpus.count,
        job.attained_s,
        1.0,
        "",
        job.user,
        job.queue,
        spec.app_class,
        priority=spec.priority,
        weight=job.weight,
        gpu_types=spec.gpus.types,
        after=tuple(predecessor(term).job for term in spec.after),
        array="" if most_at_once is None else f"{job.array_id}%{most_at_once}",
    )


def error_sentence(forecasts: list[Forecast]) -> str:
    """How far the simulator was off, in one sentence."""
    if not forecasts:
        return "No job ended well: there is nothing to compare."
    errors = [abs(f.error) for f in forecasts]
    bias = statistics.median(f.error for f in forecasts)
    worst = max(forecasts, key=lambda f: abs(f.error))
    jobs = "1 job" if len(forecasts) == 1 else f"{len(forecasts):,} jobs"
    return (
        f"Simulated completion times of {jobs} are off by {statistics.median(errors):.1%} in the median "
        f"(bias {bias:+.1%}, largest {worst.error:+.1%} for job {worst.job})."
    )
