"""The cluster at one moment, as a forecast needs it: an engine with its jobs, and what is known of their lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trine.assembly.settings import WorldSettings
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.events import Started, Stopped
from trine.engine.job_table import State
from trine.forecast.work_history import KnownJob
from trine.sim.eligibility import Dependents

Length = Callable[[Job], tuple[bool, float]]
"""Whether the steps of a job are what it has to do, and its limit in seconds of work."""


def stated(job: Job) -> tuple[bool, float]:
    """A job states its length, unless it is open-ended; none has a limit."""
    return not job.open_ended, float("inf")


@dataclass(frozen=True)
class Present:
    """What there is at ``now_s``."""

    now_s: float
    engine: Engine
    """As it stands; forecasts work on copies."""
    settings: WorldSettings
    known: Sequence[KnownJob]
    """Jobs submitted so far, ended or not."""
    dependents: Dependents = field(default_factory=Dependents)
    """Those that wait for others to end, as far as they will start once those have."""
    added: frozenset[str] = frozenset()
    """Ids of jobs that a change submits: what is drawn for all others is the same as without them."""

    @property
    def by_id(self) -> dict[str, KnownJob]:
        return {each.job.id: each for each in self.known}


def of_engine(engine: Engine, now_s: float, settings: WorldSettings, length: Length = stated) -> Present:
    """The moment at which a simulated world stands; its engine knows all jobs that ever came."""
    table, known = engine.table, []
    work_s = work_done_s(engine, now_s)
    for job_index, job in enumerate(table.jobs):
        exact, limit_s = length(job)
        known.append(KnownJob(job, work_s[job_index], bool(table.finished[job_index]), exact, limit_s))
    return Present(now_s, engine, settings, known, _dependents(engine))


def _dependents(engine: Engine) -> Dependents:
    """By what simulated jobs state."""
    table = engine.table
    present = {job.id for job, finished in zip(table.jobs, table.finished, strict=False) if not finished}
    after = {
        job_index: tuple(job_id for job_id in dict.fromkeys(job.after) if job_id in present)
        for job_index, job in enumerate(table.jobs)
        if job.after and job.id in present
    }
    return Dependents({job_index: job_ids for job_index, job_ids in after.items() if job_ids})


def work_done_s(engine: Engine, now_s: float) -> list[float]:
    """Work that each job has done by now, seconds on median GPUs of its best type. Never cut at what was believed."""
    table, count = engine.table, len(engine.table)
    since_s = (now_s - table.work_from_s[:count]).clip(min=0.0)
    done = table.done[:count] + since_s * table.rate[:count]
    done[table.finished[:count]] = table.done[:count][table.finished[:count]]
    work_s: list[float] = (done * table.ideal_s[:count] / table.steps[:count]).tolist()
    return work_s


def settle_transitions(engine: Engine, now_s: float) -> None:
    """Jobs that are on their way up or down have arrived there: a forecast begins between the two."""
    for job_index in list(engine.ownership.holding):
        state = engine.table.state[job_index]
        if state is State.STARTING and not engine.ownership.waits(job_index):
            engine.handle(Started(now_s, job_index, engine.speed(job_index).steps_per_s, now_s))
        elif state is State.STOPPING:
            engine.handle(Stopped(now_s, job_index, float(engine.table.done[job_index])))
