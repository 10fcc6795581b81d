"""What many futures say of each job: median and 80 % interval of its start and end, and what it waits for most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.engine.engine import Engine
from trine.forecast.draws import Draw, Futures
from trine.forecast.queue_run import NEW_JOB, NO_JOB
from trine.policy.view import Floats
from trine.report.text import count, duration

INTERVAL = (0.1, 0.5, 0.9)
"""Quantiles of low, median and high: four of five jobs should fall between the first and the last."""
_OFTEN = 0.5
_NEVER = 0.1
"""In more than this part of the futures it does not happen: then there is no interval."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Times in seconds on the clock of the present."""

    low: float
    median: float
    high: float

    def holds(self, at_s: float) -> bool:
        return self.low <= at_s <= self.high

    def as_json(self) -> dict[str, float]:
        return {"low": self.low, "median": self.median, "high": self.high}


@dataclass(frozen=True, slots=True)
class JobPrediction:
    """``None``: it has started already, or will not as things are."""

    start_s: Interval | None
    end_s: Interval | None
    reason: str
    blocker: str | None = None
    """Id of the job that the reason names."""

    def as_json(self) -> dict[str, Any]:
        start, end = (None if each is None else each.as_json() for each in (self.start_s, self.end_s))
        return {"start_s": start, "end_s": end, "reason": self.reason, "blocker": self.blocker}


@dataclass(frozen=True)
class Forecast:
    """All jobs by id."""

    made_at_s: float
    draws: int
    jobs: dict[str, JobPrediction] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        jobs = {job_id: job.as_json() for job_id, job in self.jobs.items()}
        return {"made_at_s": self.made_at_s, "draws": self.draws, "jobs": jobs}


def forecast(futures: Futures, draws: Iterable[int]) -> Forecast:
    """The forecast of these draws, by number."""
    return of_draws(futures, [futures.draw(number) for number in draws])


def of_draws(futures: Futures, found: Sequence[Draw]) -> Forecast:
    """The forecast of what was drawn."""
    present, engine = futures.present, futures.present.engine
    starts, ends = (np.stack([getattr(draw, name) for draw in found]) for name in ("start_s", "end_s"))
    blockers = np.stack([draw.blockers for draw in found])
    predictions = {}
    for at, job_index in enumerate(futures.job_indices.tolist()):
        if futures.started[at]:
            start, reason, blocker = None, _length_sentence(futures, job_index), None
            reason = reason if job_index in engine.assigned else f"waits to go on; {reason}"
        else:
            start = interval(starts[:, at])
            reason, blocker = _waits_for(engine, blockers[:, at].tolist(), start is not None)
        predictions[engine.table.jobs[job_index].id] = JobPrediction(start, interval(ends[:, at]), reason, blocker)
    return Forecast(present.now_s, len(found), predictions)


def interval(times_s: Floats) -> Interval | None:
    """Of what the futures say; none if it does not happen in many of them."""
    finite = times_s[np.isfinite(times_s)]
    if len(finite) < (1.0 - _NEVER) * len(times_s) or not len(finite):
        return None
    # At rank q (n + 1): what happens is one more of the same kind as the n draws, and lies below that with chance q.
    # At the usual q (n - 1) + 1 intervals are too narrow, with 20 draws so much that 72 % hold instead of 80 %.
    return Interval(*(float(q) for q in np.quantile(finite, INTERVAL, method="weibull")))


def _waits_for(engine: Engine, blockers: Sequence[int], starts: bool) -> tuple[str, str | None]:
    """What weighs most for a job that waits: the job whose GPUs it gets last, in the most futures; and its id."""
    if not starts:
        return "does not start as things are", None
    blocker, futures = Counter(blockers).most_common(1)[0]
    share = futures / len(blockers)
    if blocker == NO_JOB:
        return "waits for its turn, not for GPUs", None
    if blocker == NEW_JOB:
        return "waits for jobs that are yet to come", None
    other = engine.table.jobs[blocker].id
    what = f"job {other} to end" if blocker in engine.assigned else f"job {other}, which waits too, to run and end"
    if share >= _OFTEN:
        return f"waits for {what}", other
    jobs = len(set(blockers) - {NO_JOB, NEW_JOB})
    one_of = f"waits for one of {jobs} jobs to end; most often" if jobs > 1 else "waits most often"
    return f"{one_of} for {what} ({share:.0%})", other


def _length_sentence(futures: Futures, job_index: int) -> str:
    """On what the end of a job that has run rests."""
    job = futures.present.engine.table.jobs[job_index]
    known = futures.by_id[job.id]
    if known.exact:
        return "its length and speed are known"
    like = futures.history.ended_like(known)
    limit = "" if known.limit_s == float("inf") else f", and its limit of {duration(known.limit_s)}"
    return (
        f"its length is guessed from {count(like, 'job')} like it{limit}" if like else f"its length is not known{limit}"
    )
