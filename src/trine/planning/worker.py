"""The forecaster's process: a pickled ``ForecastRequest`` on stdin, one JSON object on stdout.

``python -m trine.planning.worker``; started by the daemon, which does not import the simulator.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

from trine.core.errors import InputError
from trine.forecast.draws import Draw, Futures
from trine.forecast.predictions import Forecast, of_draws
from trine.planning.changes import changed
from trine.planning.comparison import compared
from trine.planning.live_present import live_present, live_state
from trine.server.predictions import ForecastRequest
from trine.server.state import LiveState

_LEAST_DRAWS = 10
"""Fewer make no interval, whatever the budget."""
_WITHOUT_GPUS = {
    "held": "is held",
    "set aside": "is set aside",
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
    other, model = changed(make_state(), request.model, request.changes, request.now_s)
    futures = Futures(live_present(request, state, request.model, exact), request.seed)
    share = 2 if request.changes else 1
    draws = _draws_within(futures, request.draws, request.budget_s / share)
    if request.changes:
        others = Futures(live_present(request, other, model, exact), request.seed)
        found = compared(futures, draws, others, [others.draw(number) for number in range(len(draws))])
    else:
        found = _with_all(of_draws(futures, draws), state).as_json()
    return found | {"cpu_s": time.process_time() - started_s}


def _draws_within(futures: Futures, most: int, budget_s: float) -> list[Draw]:
    """As many draws as the budget of processor seconds has room for."""
    until_s, found = time.process_time() + budget_s, list[Draw]()
    while len(found) < most and (len(found) < _LEAST_DRAWS or time.process_time() < until_s):
        found.append(futures.draw(len(found)))
    return found


def _with_all(found: Forecast, state: LiveState) -> Forecast:
    """With the jobs that no future can say anything of."""
    from trine.forecast.predictions import JobPrediction

    for job in state.live.values():
        if job.id not in found.jobs:
            found.jobs[job.id] = JobPrediction(None, None, _WITHOUT_GPUS.get(job.state, "is not decided about"))
    return found


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
