"""A recorded run, looked at again: does the engine decide the same, and does the simulator foresee what happened?"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from trine.core.errors import InputError
from trine.core.job import Job
from trine.server import records as rec
from trine.server.build import Model, empty_engine
from trine.server.controller import Controller
from trine.server.live_job import LiveJob
from trine.server.state import LiveState
from trine.sim.recorder import Recorder
from trine.sim.settings import resolve
from trine.sim.world import World


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


def forecast(state: LiveState, model: Model) -> list[Forecast]:
    """Simulate the jobs that ended well, with the lengths they turned out to have, and compare when they ended."""
    ended = [job for job in state.jobs.values() if job.state == "done" and job.attained_s > 0]
    if state.cluster is None or not ended:
        return []
    origin = min(job.submitted_s for job in ended)
    settings = resolve(state.policy, state.placement, {**state.settings, "fill": True, "round_s": state.round_s})
    engine = empty_engine(state, model, settings, f"{model.seed}/placement")
    jobs = [_simulated(job, origin) for job in sorted(ended, key=lambda job: job.submitted_s)]
    jobs = [job for job in jobs if engine.perf.types_for(job)]  # the cluster may have become smaller since
    recorder = Recorder(state.cluster, keep_segments=False)
    World(engine, iter(jobs), len(jobs), settings.run, recorder).run()
    ends = {life.job.id: life.finish_s for life in recorder.lives}
    return [
        Forecast(job.id, (job.finished_s or 0.0) - job.submitted_s, ends[job.id] + origin - job.submitted_s)
        for job in ended
        if job.id in ends
    ]


def _simulated(job: LiveJob, origin: float) -> Job:
    """The job with the time it really held its GPUs; no model name, so that no table overrules that."""
    spec = job.spec
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
    )


def error_sentence(forecasts: list[Forecast]) -> str:
    """How far the simulator was off, in one sentence."""
    if not forecasts:
        return "No job ended well: there is nothing to compare."
    errors = [abs(f.error) for f in forecasts]
    bias = statistics.median(f.error for f in forecasts)
    worst = max(forecasts, key=lambda f: abs(f.error))
    return (
        f"Simulated completion times of {len(forecasts)} jobs are off by {statistics.median(errors):.1%} in the median "
        f"(bias {bias:+.1%}, largest {worst.error:+.1%} for job {worst.job})."
    )
