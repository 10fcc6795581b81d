"""Transitions no plan foresees: jobs that are withdrawn, held or lost, GPUs that leave and return, news of progress.

Functions over the engine, one per event; ``engine.handle`` finds them here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trine.core.reason import Why
from trine.engine import sharing
from trine.engine.events import (
    CancelRequested,
    Decision,
    Fill,
    GpusCordoned,
    GpusUncordoned,
    Held,
    Interrupted,
    Progressed,
    Released,
    Stop,
    Terminated,
)
from trine.engine.table import State

if TYPE_CHECKING:
    from trine.engine.engine import Engine

Handler = Callable[[Any], list[Decision]]


def handlers(engine: Engine) -> dict[type, Handler]:
    """The handler of each event of this kind, bound to the engine."""
    table: dict[type, Callable[[Engine, Any], list[Decision]]] = {
        Fill: _fill,
        Progressed: _progressed,
        CancelRequested: _withdrawn,
        Held: _held,
        Released: _released,
        Terminated: _left,
        Interrupted: _lost,
        GpusCordoned: _withheld,
        GpusUncordoned: _restored,
    }
    return {kind: _bound(engine, handler) for kind, handler in table.items()}


def _bound(engine: Engine, handler: Callable[[Engine, Any], list[Decision]]) -> Handler:
    return lambda event: handler(engine, event)


def _fill(engine: Engine, event: Fill) -> list[Decision]:
    return engine.decide(event.now, fill=True)


def _progressed(engine: Engine, event: Progressed) -> list[Decision]:
    """What a job says of itself replaces what was guessed of it: length, speed, and so the time it needs anywhere."""
    job_index, table = event.job_index, engine.table
    if event.total is not None and event.total > 0:
        table.ideal_s[job_index] *= event.total / table.steps[job_index]
        table.steps[job_index] = event.total
        table.open_ended[job_index] = False
    table.done[job_index] = min(event.done, table.steps[job_index])
    engine.reported.add(job_index)
    table.work_from_s[job_index] = event.now
    if event.rate > 0 and table.state[job_index] is State.RUNNING:
        run_at(engine, job_index, event.rate)
    engine.settled = False
    return []


def run_at(engine: Engine, job_index: int, rate: float) -> None:
    """The job runs at ``rate`` steps/s where another was expected: so much does it differ everywhere."""
    table = engine.table
    guess = float(table.rate[job_index])
    if guess > 0:
        table.ideal_s[job_index] *= guess / rate
        table.step_s[job_index] = tuple(s * guess / rate for s in table.step_s[job_index])
        table.revision += 1
    table.rate[job_index] = rate


def _withdrawn(engine: Engine, event: CancelRequested) -> list[Decision]:
    engine.stop_offering(event.job_index)
    decisions = _take_back(engine, event.now, event.job_index, Why.CANCELLED)
    if event.job_index not in engine.ownership.holding:
        _gone(engine, event.now, event.job_index)
    return decisions


def _held(engine: Engine, event: Held) -> list[Decision]:
    engine.stop_offering(event.job_index)
    engine.tell(event.now, event.job_index, "held")
    return _take_back(engine, event.now, event.job_index, Why.HELD)


def _released(engine: Engine, event: Released) -> list[Decision]:
    if engine.table.types[event.job_index]:
        engine.offer_again(event.job_index)
    engine.tell(event.now, event.job_index, "released")
    return []


def _left(engine: Engine, event: Terminated) -> list[Decision]:
    """Its processes are gone, for whatever reason: nothing of it stays behind."""
    job_index = event.job_index
    if engine.table.state[job_index] is State.FINISHED:
        return []
    engine.stop_offering(job_index)
    _unassign(engine, job_index)
    if job_index not in engine.ownership.holding:
        _gone(engine, event.now, job_index)
        return []
    engine.book_service(event.now, job_index)
    decisions = engine.release(event.now, job_index)
    _gone(engine, event.now, job_index)
    return decisions


def _lost(engine: Engine, event: Interrupted) -> list[Decision]:
    job_index, table = event.job_index, engine.table
    if table.state[job_index] is not State.STOPPING:
        _unassign(engine, job_index)
    table.done[job_index] = min(event.done, table.steps[job_index])
    engine.book_service(event.now, job_index)
    table.rate[job_index] = 0.0
    table.state[job_index] = State.STARTING if job_index in engine.assigned else State.WAITING
    engine.settled = False
    engine.tell(event.now, job_index, "lost")
    return engine.release(event.now, job_index)


def _withheld(engine: Engine, event: GpusCordoned) -> list[Decision]:
    for gpu in event.gpus:
        engine.free.cordon(gpu)
        engine.cordoned.add(gpu)
    # A start that still waits for such a GPU would be a new one there: the next round decides it again.
    for job_index in [s for s in engine.assigned if engine.ownership.waits(s)]:
        if engine.cordoned.intersection(engine.assigned[job_index]):
            _take_back(engine, event.now, job_index, Why.PREEMPTED)
    engine.capacity_changed()
    return []


def _restored(engine: Engine, event: GpusUncordoned) -> list[Decision]:
    used = {gpu for gpus in engine.assigned.values() for gpu in gpus}
    for gpu in event.gpus:
        if gpu not in engine.excluded:
            engine.free.restore(gpu, in_use=gpu in used)
        engine.cordoned.discard(gpu)
    engine.capacity_changed()
    return []


def _take_back(engine: Engine, now: float, job_index: int, why: Why) -> list[Decision]:
    """Undo an assignment; a job that holds its GPUs is told to stop, unless it has been told already."""
    if job_index not in engine.assigned:
        return []
    waited = engine.ownership.waits(job_index)
    _unassign(engine, job_index)
    if waited:
        engine.table.state[job_index] = State.STOPPING if job_index in engine.ownership.holding else State.WAITING
        return []
    engine.book_service(now, job_index)
    engine.table.state[job_index] = State.STOPPING
    engine.tell(now, job_index, "told to stop")
    return [Stop(job_index, engine.table.epoch[job_index], False, why)]


def _unassign(engine: Engine, job_index: int) -> None:
    if engine.ownership.waits(job_index):
        engine.ownership.cancel(job_index)
    if sharing.drop(engine, job_index):
        engine.table.assigned[job_index] = False
        engine.settled = False
        engine.assignment_changed()


def _gone(engine: Engine, now: float, job_index: int) -> None:
    engine.table.state[job_index] = State.FINISHED
    engine.table.finished[job_index] = True
    engine.table.assigned[job_index] = False
    engine.count_finished(job_index)
    engine.tell(now, job_index, "left")
