"""The forecaster's process: a pickled ``ForecastRequest`` on stdin, one JSON object on stdout.

``python -m trine.planning.worker``; started by the daemon, which does not import the simulator.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from trine.core.errors import InputError
from trine.forecast.draws import Draw, Futures
from trine.forecast.predictions import Forecast, JobPrediction, of_draws
from trine.inputs.job_relations import predecessor
from trine.planning.changes import Moment, changed, instead_of
from trine.planning.comparison import compared
from trine.planning.live_present import live_present, live_state
from trine.server.build import Model, performance_with, why_too_small
from trine.server.live_job import LiveJob
from trine.server.predictions import WITHOUT_TIMES, ForecastRequest
from trine.server.state import LiveState

_LEAST_DRAWS = 10
"""Fewer make no interval, whatever the budget."""
_WHATIF_S = 3.0
"""Processor seconds of a what-if: somebody waits for it."""
_WITHOUT_GPUS = {
    **WITHOUT_TIMES,
    "waiting": "does not take part in decisions now",
    "stopping": "is being stopped for good",
}


def answer(
    request: ForecastRequest, make_state: Callable[[], LiveState] | None = None, exact: Collection[str] = ()
) -> dict[str, Any]:
    """Predictions, or what the changes of the request would do.

    ``make_state``: makes the state, if it is not that of the request; ``exact``: jobs whose time limit is their length.
    """
    started_s = time.process_time()
    make_state = make_state or (lambda: live_state(request))
    state = make_state()
    # Before anything is computed: a change may be a mistake.
    other = changed(make_state(), request.changes, Moment(request.now_s, request.user, request.queue))
    futures = Futures(live_present(request, state, request.model, exact), request.seed)
    if request.changes:
        _check_can_run(state, other, request.model)
        others = Futures(live_present(request, other, request.model, exact), request.seed)
        draws, other_draws = _draws_within([futures, others], request.draws, min(request.budget_s, _WHATIF_S))
        moved = _come_or_gone(state, other)
        found = compared(futures, draws, others, other_draws, moved) | {"instead": instead_of(request.changes)}
    else:
        (draws,) = _draws_within([futures], request.draws, request.budget_s)
        found = _with_all(of_draws(futures, draws), state).as_json()
    return found | {"cpu_s": time.process_time() - started_s}


def _check_can_run(state: LiveState, other: LiveState, model: Model) -> None:
    """``InputError`` about a job that was submitted as a change and that the daemon would refuse."""
    for job in other.live.values():
        if job.id not in state.live and (never := why_too_small(performance_with(other, model, ()), job.spec)):
            raise InputError("what-if", f"the job can never run: {never}", "a job that the cluster can hold")


def _come_or_gone(state: LiveState, other: LiveState) -> set[str]:
    """Jobs that the changes themselves submit, or take out of the queue."""
    held = {job.id for job in state.live.values() if job.state == "held"}
    return {
        job.id
        for job in other.live.values()
        if job.id not in state.live or (job.state == "held" and job.id not in held)
    }


def _draws_within(futures: Sequence[Futures], most: int, budget_s: float) -> list[list[Draw]]:
    """As many draws of each as the budget of processor seconds has room for, the same number of all."""
    until_s, found = time.process_time() + budget_s, [list[Draw]() for _ in futures]
    while len(found[0]) < most and (len(found[0]) < _LEAST_DRAWS or time.process_time() < until_s):
        number = len(found[0])
        for each, draws in zip(futures, found, strict=True):
            draws.append(each.draw(number))
    return found


def _with_all(found: Forecast, state: LiveState) -> Forecast:
    """With the jobs that no future can say anything of, and with what jobs wait for before they wait for GPUs."""
    for job in state.live.values():
        if job.id not in found.jobs:
            found.jobs[job.id] = _without_times(job)
        elif job.blocked:
            reason, blocker = _waits_for(job)
            found.jobs[job.id] = replace(found.jobs[job.id], reason=reason, blocker=blocker)
    return found


def _waits_for(job: LiveJob) -> tuple[str, str | None]:
    """The jobs that have to end before this one may start, in a sentence, and the id of the first."""
    if not job.after:
        return "waits for others of its array to end", None
    first, *more = map(predecessor, job.after)
    others = f" and {len(more)} more" if more else ""
    return f"waits for job {first.job}{others} to {'fail' if first.condition == 'failed' else 'end'}", first.job


def _without_times(job: LiveJob) -> JobPrediction:
    """Why there is nothing to predict of a job."""
    if job.state == "waiting" and job.blocked:
        reason, blocker = _waits_for(job)
        return JobPrediction(None, None, f"{reason}; predicted once that is in sight", blocker)
    if job.state == "waiting" and job.not_before_s:
        return JobPrediction(None, None, "pauses before its next start; predicted once the pause is over")
    return JobPrediction(None, None, _WITHOUT_GPUS.get(job.state, "is not decided about"))


def main() -> None:
    os.nice(10)  # rounds and jobs come first
    request = pickle.load(sys.stdin.buffer)  # from the daemon that started this process
    try:
        found = answer(request)
    except InputError as error:
        found = {"refused": str(error)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
