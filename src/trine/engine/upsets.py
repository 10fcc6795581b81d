"""Transitions no plan foresees: jobs that are withdrawn, held or lost, GPUs that leave and return, news of progress.

Functions over the engine, one per event; ``engine.handle`` finds them here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trine.core.reason import Why
from trine.engine import sharing
from trine.engine.events import (
    Decision,
    Fill,
    Held,
    Left,
    Lost,
    Progressed,
    Released,
    Restored,
    Stop,
    Withdrawn,
    Withheld,
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
        Withdrawn: _withdrawn,
        Held: _held,
        Released: _released,
        Left: _left,
        Lost: _lost,
        Withheld: _withheld,
        Restored: _restored,
    }
    return {kind: _bound(engine, handler) for kind, handler in table.items()}


def _bound(engine: Engine, handler: Callable[[Engine, Any], list[Decision]]) -> Handler:
    return lambda event: handler(engine, event)


def _fill(engine: Engine, event: Fill) -> list[Decision]:
    return engine.decide(event.now, fill=True)


def _progressed(engine: Engine, event: Progressed) -> list[Decision]:
    """What a job says of itself replaces what was guessed of it: length, speed, and so the time it needs anywhere."""
    slot, table = event.slot, engine.table
    if event.total is not None and event.total > 0:
        table.ideal_s[slot] *= event.total / table.steps[slot]
        table.steps[slot] = event.total
        table.open_ended[slot] = False
    table.done[slot] = min(event.done, table.steps[slot])
    engine.reported.add(slot)
    table.work_from_s[slot] = event.now
    if event.rate > 0 and table.state[slot] is State.RUNNING:
        run_at(engine, slot, event.rate)
    engine.settled = False
    return []


def run_at(engine: Engine, slot: int, rate: float) -> None:
    """The job runs at ``rate`` steps/s where another was expected: so much does it differ everywhere."""
    table = engine.table
    guess = float(table.rate[slot])
    if guess > 0:
        table.ideal_s[slot] *= guess / rate
        table.step_s[slot] = tuple(s * guess / rate for s in table.step_s[slot])
        table.revision += 1
    table.rate[slot] = rate


def _withdrawn(engine: Engine, event: Withdrawn) -> list[Decision]:
    engine.stop_offering(event.slot)
    decisions = _take_back(engine, event.now, event.slot, Why.CANCELLED)
    if event.slot not in engine.handover.holding:
        _gone(engine, event.now, event.slot)
    return decisions


def _held(engine: Engine, event: Held) -> list[Decision]:
    engine.stop_offering(event.slot)
    engine.tell(event.now, event.slot, "held")
    return _take_back(engine, event.now, event.slot, Why.HELD)


def _released(engine: Engine, event: Released) -> list[Decision]:
    if engine.table.types[event.slot]:
        engine.offer_again(event.slot)
    engine.tell(event.now, event.slot, "released")
    return []


def _left(engine: Engine, event: Left) -> list[Decision]:
    """Its processes are gone, for whatever reason: nothing of it stays behind."""
    slot = event.slot
    if engine.table.state[slot] is State.FINISHED:
        return []
    engine.stop_offering(slot)
    _unassign(engine, slot)
    if slot not in engine.handover.holding:
        _gone(engine, event.now, slot)
        return []
    engine.book_service(event.now, slot)
    decisions = engine.release(event.now, slot)
    _gone(engine, event.now, slot)
    return decisions


def _lost(engine: Engine, event: Lost) -> list[Decision]:
    slot, table = event.slot, engine.table
    if table.state[slot] is not State.STOPPING:
        _unassign(engine, slot)
    table.done[slot] = min(event.done, table.steps[slot])
    engine.book_service(event.now, slot)
    table.rate[slot] = 0.0
    table.state[slot] = State.STARTING if slot in engine.assigned else State.WAITING
    engine.settled = False
    engine.tell(event.now, slot, "lost")
    return engine.release(event.now, slot)


def _withheld(engine: Engine, event: Withheld) -> list[Decision]:
    for gpu in event.gpus:
        engine.free.withhold(gpu)
        engine.withheld.add(gpu)
    # A start that still waits for such a GPU would be a new one there: the next round decides it again.
    for slot in [s for s in engine.assigned if engine.handover.waits(s)]:
        if engine.withheld.intersection(engine.assigned[slot]):
            _take_back(engine, event.now, slot, Why.PREEMPTED)
    engine.capacity_changed()
    return []


def _restored(engine: Engine, event: Restored) -> list[Decision]:
    used = {gpu for gpus in engine.assigned.values() for gpu in gpus}
    for gpu in event.gpus:
        if gpu not in engine.excluded:
            engine.free.restore(gpu, in_use=gpu in used)
        engine.withheld.discard(gpu)
    engine.capacity_changed()
    return []


def _take_back(engine: Engine, now: float, slot: int, why: Why) -> list[Decision]:
    """Undo an assignment; a job that holds its GPUs is told to stop, unless it has been told already."""
    if slot not in engine.assigned:
        return []
    waited = engine.handover.waits(slot)
    _unassign(engine, slot)
    if waited:
        engine.table.state[slot] = State.STOPPING if slot in engine.handover.holding else State.WAITING
        return []
    engine.book_service(now, slot)
    engine.table.state[slot] = State.STOPPING
    engine.tell(now, slot, "told to stop")
    return [Stop(slot, engine.table.epoch[slot], False, why)]


def _unassign(engine: Engine, slot: int) -> None:
    if engine.handover.waits(slot):
        engine.handover.cancel(slot)
    if sharing.drop(engine, slot):
        engine.table.running[slot] = False
        engine.settled = False
        engine.assignment_changed()


def _gone(engine: Engine, now: float, slot: int) -> None:
    engine.table.state[slot] = State.FINISHED
    engine.table.finished[slot] = True
    engine.table.running[slot] = False
    engine.count_finished(slot)
    engine.tell(now, slot, "left")
