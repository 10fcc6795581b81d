"""What must hold after every step, whatever policy and placement do. Checked in tests and with ``validate=true``."""

from __future__ import annotations

from trine.engine.engine import Engine, EngineError
from trine.engine.table import State

_WITH_GPUS = {State.STARTING, State.RUNNING}


def check(engine: Engine) -> None:
    """Raise ``EngineError`` with the story of the job concerned if an invariant is broken."""
    _check_gangs(engine)
    _check_partners(engine)
    _check_no_gpu_twice(engine)
    _check_states(engine)
    _check_free_index(engine)
    _check_work(engine)
    _check_selected(engine)


def _fail(engine: Engine, slot: int, what: str) -> EngineError:
    job = engine.table.jobs[slot]
    return EngineError(
        f"invariant broken: job {job.id}: {what}. Its story: {'; '.join(engine.story(slot)) or 'none kept'}"
    )


def _check_gangs(engine: Engine) -> None:
    for book in (engine.assigned, engine.handover.holding):
        for slot, gpus in book.items():
            if len(set(gpus)) != engine.table.jobs[slot].gpus:
                raise _fail(engine, slot, f"has GPUs {gpus}, its gang is {engine.table.jobs[slot].gpus}")
            if len({engine.cluster.type_of(g) for g in gpus}) != 1:
                raise _fail(engine, slot, f"has GPUs of several types: {gpus}")


def _check_no_gpu_twice(engine: Engine) -> None:
    """Nobody but partners is assigned the same GPU, and nobody but them, or who is on its way out, holds it too."""
    owner: dict[int, int] = {}
    for slot, gpus in engine.assigned.items():
        for g in gpus:
            if owner.setdefault(g, slot) != slot and engine.partners.get(slot) != owner[g]:
                raise _fail(engine, slot, f"GPU {g} is also assigned to job {engine.table.jobs[owner[g]].id}")
    held: dict[int, list[int]] = {}
    for slot, gpus in engine.handover.holding.items():
        for g in gpus:
            held.setdefault(g, []).append(slot)
    for g, first in enumerate(engine.handover.holder):
        booked = sorted(slot for slot in (first, engine.handover.guests.get(g, -1)) if slot != -1)
        if sorted(held.get(g, [])) != booked:
            raise EngineError(f"invariant broken: GPU {g} is held by job numbers {booked}, the book says {held.get(g)}")
        if len(booked) == 2:
            _check_holders(engine, g, *booked)


def _check_holders(engine: Engine, gpu: int, one: int, other: int) -> None:
    leaving = State.STOPPING in (engine.table.state[one], engine.table.state[other])
    if not leaving and engine.partners.get(one) != other:
        raise _fail(engine, one, f"holds GPU {gpu} together with job {engine.table.jobs[other].id}, no partner of it")


def _check_partners(engine: Engine) -> None:
    for slot, mate in engine.partners.items():
        if slot == mate or engine.partners.get(mate) != slot:
            raise _fail(engine, slot, f"shares with job {engine.table.jobs[mate].id}, but not the other way round")
        if engine.assigned.get(slot, ()) != engine.assigned.get(mate):
            raise _fail(engine, slot, f"shares with job {engine.table.jobs[mate].id}, which has other GPUs")


def _check_states(engine: Engine) -> None:
    present = set(engine.roster.slots().tolist())
    if len(present) != len(engine.roster):
        raise EngineError(f"invariant broken: {len(engine.roster)} jobs are counted, {len(present)} stand in line")
    for slot in engine.assigned.keys() - present - engine.aside:
        raise _fail(engine, slot, "has GPUs and does not stand in line")
    for slot, state in enumerate(engine.table.state):
        assigned = slot in engine.assigned
        if bool(engine.table.running[slot]) != assigned:
            raise _fail(engine, slot, f"assigned is {assigned}, the table says {bool(engine.table.running[slot])}")
        if state in _WITH_GPUS and not assigned:
            raise _fail(engine, slot, f"is {state.name.lower()} without GPUs")
        if slot in engine.handover.holding and state not in (*_WITH_GPUS, State.STOPPING):
            raise _fail(engine, slot, f"is {state.name.lower()} and holds GPUs")
        if state in (State.WAITING, State.FINISHED) and (assigned or slot in engine.handover.holding):
            raise _fail(engine, slot, f"is {state.name.lower()} and has GPUs")
        if state is State.RUNNING and engine.handover.holding.get(slot) != engine.assigned[slot]:
            raise _fail(engine, slot, "runs on other GPUs than it was given")


def _check_free_index(engine: Engine) -> None:
    used = {g for gpus in engine.assigned.values() for g in gpus}
    free = {g for pool in engine.free.pools for g in pool.gpus()}
    out = engine.excluded | engine.withheld
    if free & (used | out) or len(used | free | out) != engine.cluster.gpu_count:
        lost = sorted(set(range(engine.cluster.gpu_count)) - used - free - out)[:8]
        raise EngineError(f"invariant broken: GPUs both free and not {sorted(free & (used | out))[:8]}, neither {lost}")


def _check_work(engine: Engine) -> None:
    table = engine.table
    for slot in range(len(table)):
        if not 0 <= table.done[slot] <= table.steps[slot] * (1 + 1e-9):
            raise _fail(engine, slot, f"has done {table.done[slot]} of {table.steps[slot]} steps")


def _check_selected(engine: Engine) -> None:
    """Where a selection is said to be realised, who was selected runs as selected, and nobody else runs."""
    selection, table = engine.realised, engine.table
    if selection is None:
        return
    for slot, pool in selection.wanted.items():
        gpus = engine.assigned.get(slot)
        if not table.finished[slot] and (gpus is None or pool not in (-1, engine.free.type_of(gpus))):
            raise _fail(engine, slot, f"was selected for the type with index {pool} and has GPUs {gpus}")
    for slot in engine.assigned:
        if slot not in selection.wanted and table.types[slot]:
            raise _fail(engine, slot, "has GPUs and was not selected")
