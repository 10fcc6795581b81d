"""Predictions made in the middle of a replayed trace, beside what became of the jobs: what scores are made of.

The scheduler and the forecaster know of a job what a time limit says; how long it really takes, only the world does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trine.assembly.factory import make_engine, performance_model
from trine.assembly.settings import Settings
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.forecast.calibration import Calibration
from trine.forecast.draws import Futures
from trine.forecast.predictions import Interval, forecast
from trine.forecast.present import of_engine
from trine.forecast.slurm_start import slurm_starts
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.policy.view import Floats
from trine.sim.recorder import Life, Recorder
from trine.sim.world import World

_MENU_H = (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 96, 168, 336, 672, 8760)
"""Limits that users ask for are round ones (Tsafrir, Etsion and Feitelson, JSSPP'05)."""
_MOST_TIMES = 5.0


@dataclass(frozen=True, slots=True)
class CheckedPrediction:
    """One prediction and what happened, seconds."""

    job: str
    kind: str
    """``start``, ``end``, or ``rest``: the end of a job that runs."""
    at_s: float
    waited_s: float
    """How long the job had waited for its first start when the prediction was made."""
    predicted: Interval
    """As it would have been shown."""
    real_s: float
    slurm_s: float | None = None
    """What Slurm would have said of the start."""
    drawn: Interval | None = None
    """As the futures had it, where that was put right by the score of earlier ones; ``None``: shown as drawn."""
    trace: str = ""
    """Which of several replays it is of: their moments are not the same although their times may be."""
    queue: int | None = None
    """Which queue of its replay (``Waits.queues``), whose fate all predictions in it share; ``None``: no job waited."""


def with_limits(jobs: Sequence[Job], seed: int) -> tuple[list[Job], dict[str, float]]:
    """The jobs with time limits in place of their lengths, which come back by id, in steps.

    A user asks for between once and five times what the job takes, rounded up to a round figure: the f-model (Mu'alem
    and Feitelson 2001) with f = 4.
    """
    rng, limited = np.random.default_rng(seed), []
    for job in jobs:
        asked_s = (job.ideal_s or job.steps) * rng.uniform(1.0, _MOST_TIMES)
        limit_s = next((3600.0 * hours for hours in _MENU_H if 3600.0 * hours >= asked_s), asked_s)
        limited.append(replace(job, steps=limit_s, step_s=1.0))
    return limited, {job.id: job.ideal_s or job.steps for job in jobs}


def replay(
    jobs: Sequence[Job], cluster: Cluster, settings: Settings, times_s: Sequence[float], draws: int, seed: int
) -> list[CheckedPrediction]:
    """Replay ``jobs``; predict at each of ``times_s``; then let all of them end."""
    world = _world(jobs, cluster, settings, seed)
    engine, recorder = world.engine, world.recorder
    made: list[CheckedPrediction] = []
    scored = Calibration()
    for at_s in times_s:
        if world.advance(at_s):
            break
        lives = {life.job.id: life for life in recorder.lives}
        scored.settle(lambda job_id, kind, lives=lives: _seen(lives[job_id], kind))  # type: ignore[misc]
        made += _shown(_predict(engine, at_s, settings, draws, seed), scored, at_s)
    world.advance()
    return _with_outcomes(made, recorder)


@dataclass(frozen=True)
class Waits:
    """What became of the jobs of a replay in which nothing was predicted, in order of submission; seconds."""

    submits_s: Floats
    starts_s: Floats
    """First starts."""
    runs_s: Floats
    """How long each takes."""

    @property
    def mean_wait_s(self) -> float:
        return float((self.starts_s - self.submits_s).mean())

    @property
    def per_run(self) -> float:
        """Mean wait over mean length."""
        return self.mean_wait_s / float(self.runs_s.mean())

    def queues(self) -> list[tuple[float, float]]:
        """From when to when jobs waited: each begins with a job that has to wait, and ends when none does."""
        found: list[tuple[float, float]] = []
        for submit_s, start_s in zip(self.submits_s.tolist(), self.starts_s.tolist(), strict=True):
            if found and submit_s <= found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], start_s))
            elif start_s > submit_s:
                found.append((submit_s, start_s))
        return found


def waits(jobs: Sequence[Job], cluster: Cluster, settings: Settings, seed: int) -> Waits:
    """Of a replay as ``replay`` makes it."""
    world = _world(jobs, cluster, settings, seed)
    world.advance()
    lives = world.recorder.lives
    rows = np.array([(life.job.submit_s, life.start_s, life.steps) for life in lives])
    return Waits(*rows[np.argsort(rows[:, 0], kind="stable")].T)


def _world(jobs: Sequence[Job], cluster: Cluster, settings: Settings, seed: int) -> World:
    """Jobs that take as long as they do, under a scheduler that knows their limits only."""
    limited, true_steps = with_limits(jobs, seed)
    perf = performance_model(settings.run, cluster, VariabilityTable.of_cluster(cluster), ThroughputTable())
    engine, recorder = make_engine(settings, perf, f"{seed}/placement"), Recorder(cluster, keep_segments=False)
    steps_of = lambda job: true_steps[job.id]  # noqa: E731 - one line
    world = World(engine, iter(limited), len(limited), settings.run, recorder, true_steps=steps_of)
    world.now = limited[0].submit_s
    return world


def _seen(life: Life, kind: str) -> float | None:
    """When it started or ended, if it has."""
    time_s = life.start_s if kind == "start" else life.finish_s
    return time_s if time_s >= 0 else None


def _shown(made: Sequence[CheckedPrediction], scored: Calibration, at_s: float) -> list[CheckedPrediction]:
    """Predictions of one moment as they are shown, by what is known then; all of them will count for later ones."""
    corrections, shown = scored.corrections(at_s), []
    for each in made:
        found = corrections.of(each.kind, each.waited_s, each.predicted.as_json())
        scored.note(each.job, each.kind, each.waited_s, at_s, each.predicted.as_json(), found)
        right = each if found is None else replace(each, predicted=Interval(**found), drawn=each.predicted)
        shown.append(right)
    return shown


def _predict(engine: Engine, at_s: float, settings: Settings, draws: int, seed: int) -> list[CheckedPrediction]:
    """Of all jobs that run or wait; outcomes are not known yet."""
    present = of_engine(engine, at_s, settings.run, lambda job: (False, job.steps))
    found, slurm = forecast(Futures(present, seed), range(draws)), _by_slurm(engine, at_s)
    submits = {job.id: job.submit_s for job in engine.table.jobs}
    made = []
    for job_id, job in found.jobs.items():
        waited_s = at_s - submits[job_id] if job.start_s is not None else 0.0
        if job.start_s is not None:
            made.append(CheckedPrediction(job_id, "start", at_s, waited_s, job.start_s, -1.0, slurm.get(job_id)))
        if job.end_s is not None:
            kind = "rest" if job.start_s is None else "end"
            made.append(CheckedPrediction(job_id, kind, at_s, waited_s, job.end_s, -1.0))
    return made


def _by_slurm(engine: Engine, now_s: float) -> dict[str, float]:
    view, jobs = engine.view(now_s), engine.table.jobs
    runs = view.assigned
    ends = list(zip(view.ends_s[runs].tolist(), view.gpus[runs].tolist(), strict=True))
    waiting = [(jobs[i], left_s) for i, left_s in zip(view.job_indices[~runs], view.remaining_s[~runs], strict=True)]
    starts = slurm_starts(now_s, engine.free.total, ends, [(job.gpus, float(left_s)) for job, left_s in waiting])
    return {job.id: start_s for (job, _), start_s in zip(waiting, starts, strict=True)}


def _with_outcomes(made: Sequence[CheckedPrediction], recorder: Recorder) -> list[CheckedPrediction]:
    lives = {life.job.id: life for life in recorder.lives}
    return [replace(each, real_s=_seen(lives[each.job], each.kind) or -1.0) for each in made]
