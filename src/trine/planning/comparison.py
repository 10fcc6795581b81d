"""Who gains and who loses: the same futures with a change and without it, job by job."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from trine.forecast.draws import Draw, Futures
from trine.forecast.predictions import interval
from trine.policy.view import Floats

_NOTICED_S = 1.0
"""Differences of less are none."""


def compared(
    before: Futures, draws: Sequence[Draw], after: Futures, other_draws: Sequence[Draw], moved: Collection[str] = ()
) -> dict[str, Any]:
    """By job id: start and end before and after, and by how much later (below 0: earlier) each ends, as intervals.

    The draws of the same number have the same lengths and arrivals, so that differences are of the change. ``moved``:
    jobs whose coming or going is the change itself, which are not counted for it; others that would end now and would
    not after it lose, and those for which it is the other way round gain.
    """
    one, two = _by_id(before, draws), _by_id(after, other_draws)
    jobs = {job_id: _job(one.get(job_id), two.get(job_id)) for job_id in dict.fromkeys([*one, *two])}
    for job_id, job in jobs.items():
        job["never_runs"] = job_id not in moved and _ends(job["before"]) and not _ends(job["after"])
    shifts = [shift for job_id, job in jobs.items() if (shift := _shift(job, job_id in moved)) is not None]
    gains, losses = (sum(sign * shift > _NOTICED_S for shift in shifts) for sign in (-1, 1))
    return {
        "made_at_s": before.present.now_s,
        "draws": len(draws),
        "gain": gains,
        "lose": losses,
        "same": len(shifts) - gains - losses,
        "mean_change_s": _mean_change(one, two),
        "jobs": jobs,
    }


def _ends(times: dict[str, Any] | None) -> bool:
    return times is not None and times["end_s"] is not None


def _shift(job: dict[str, Any], moved: bool) -> float | None:
    """By how much later the job ends, in the median; ``None`` if it is not to be counted."""
    if job["change_s"] is not None:
        return float(job["change_s"]["median"])
    if moved or _ends(job["before"]) == _ends(job["after"]):
        return None
    return math.inf if job["never_runs"] else -math.inf


def _by_id(futures: Futures, draws: Sequence[Draw]) -> dict[str, tuple[Floats, Floats]]:
    """Starts and ends in all futures."""
    starts, ends = (np.stack([getattr(draw, name) for draw in draws]) for name in ("start_s", "end_s"))
    jobs = futures.present.engine.table.jobs
    return {jobs[i].id: (starts[:, at], ends[:, at]) for at, i in enumerate(futures.job_indices.tolist())}


def _job(one: tuple[Floats, Floats] | None, two: tuple[Floats, Floats] | None) -> dict[str, Any]:
    shift = None
    if one is not None and two is not None:
        with np.errstate(invalid="ignore"):
            shift = two[1] - one[1]
    return {
        "before": _times(one),
        "after": _times(two),
        "change_s": None if shift is None else _interval(np.where(np.isnan(shift), np.inf, shift)),
    }


def _times(found: tuple[Floats, Floats] | None) -> dict[str, Any] | None:
    return None if found is None else {"start_s": _interval(found[0]), "end_s": _interval(found[1])}


def _interval(times_s: Floats) -> dict[str, float] | None:
    found = interval(times_s)
    return None if found is None else found.as_json()


def _mean_change(
    one: dict[str, tuple[Floats, Floats]], two: dict[str, tuple[Floats, Floats]]
) -> dict[str, float] | None:
    """Of the ends of all jobs that are in both, in each future."""
    both = [job_id for job_id in one if job_id in two]
    if not both:
        return None
    with np.errstate(invalid="ignore"):
        shifts = np.stack([two[job_id][1] - one[job_id][1] for job_id in both])
    known = np.isfinite(shifts).all(axis=1)
    return _interval(shifts[known].mean(axis=0)) if known.any() else None
