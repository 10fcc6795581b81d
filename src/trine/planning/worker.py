"""The forecaster's process: a pickled ``ForecastRequest`` on stdin, one JSON object on stdout.

``python -m trine.planning.worker``; started by the daemon, which does not import the simulator.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trine.core.errors import InputError, TrineError
from trine.core.plugins import mistakes_in_files
from trine.forecast.draws import Draw, Futures
from trine.forecast.predictions import Forecast, JobPrediction, of_draws
from trine.inputs.job_relations import predecessor
from trine.planning.changes import Moment, assumed_of, cancelled_by, changed, instead_of
from trine.planning.comparison import compared
from trine.planning.live_present import live_present, live_state
from trine.server.build import Model, performance_with, why_too_small
from trine.server.live_job import LiveJob
from trine.server.predictions import WITHOUT_GPUS, ForecastRequest
from trine.server.state import LiveState

_LEAST_DRAWS = 10
"""Fewer make no interval, whatever the budget."""
_WHATIF_S = 3.0
"""Processor seconds of a what-if: its caller waits for the answer."""


@mistakes_in_files()
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
    measured_types = () if request.model.throughputs is None else request.model.throughputs.types
    moment = Moment(request.now_s, request.user, request.queue, measured_types)
    other = changed(make_state(), request.changes, moment) if request.changes else state
    present = live_present(request, state, request.model, exact)
    futures = Futures(present, request.seed)
    if request.changes:
        _check_can_run(state, other, request.model)
        others = Futures(live_present(request, other, request.model, exact, unchanged=present), request.seed)
        draws, other_draws = _draws_within([futures, others], request.draws, min(request.budget_s, _WHATIF_S))
        moved = _come_or_gone(state, other) | cancelled_by(request.changes)
        found = compared(futures, draws, others, other_draws, moved)
        assert state.cluster is not None and other.cluster is not None
        found["assumed"] = assumed_of(state.cluster, other.cluster, measured_types)
        found["instead"] = instead_of(request.changes)
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
    """Jobs that the changes themselves submit or hold."""
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
    return JobPrediction(None, None, WITHOUT_GPUS.get(job.state, "does not take part in decisions now"))


def main() -> None:
    os.nice(10)  # rounds and jobs come first
    most_bytes = _limit_memory()
    try:
        request = pickle.load(sys.stdin.buffer)  # from the daemon that started this process
        found = answer(request)
    except TrineError as error:
        found = {"refused": str(error)}
    except MemoryError:
        sys.exit(f"it needs more than {most_bytes / 2**30:.1f} GB of memory")
    sys.stdout.write(json.dumps(found))


def _limit_memory() -> int:
    """Take half of the machine's memory at most, and be what a machine without any left ends first; the bytes."""
    most_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard == resource.RLIM_INFINITY or most_bytes < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, hard))
    with contextlib.suppress(OSError):  # Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000")
    return most_bytes


if __name__ == "__main__":
    main()
