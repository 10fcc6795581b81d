"""What must hold after every step, whatever policy and placement do. Checked in tests and with ``validate=true``."""

from __future__ import annotations

from trine.engine.engine import Engine
from trine.engine.engine_state import EngineError
from trine.engine.job_table import State

_WITH_GPUS = {State.STARTING, State.RUNNING}


def check(engine: Engine) -> None:
    """Raise ``EngineError`` with the story of the job concerned if an invariant is broken."""
    _check_gangs(engine)
    _check_co_runners(engine)
    _check_no_gpu_twice(engine)
    _check_states(engine)
    _check_free_index(engine)
    _check_work(engine)
    _check_selected(engine)


def _fail(engine: Engine, job_index: int, what: str) -> EngineError:
    job = engine.table.jobs[job_index]
    return EngineError(
        f"invariant broken: job {job.id}: {what}. Its story: {'; '.join(engine.story(job_index)) or 'none kept'}"
    )


def _check_gangs(engine: Engine) -> None:
    for book in (engine.assigned, engine.ownership.holding):
        for job_index, gpus in book.items():
            if len(set(gpus)) != engine.table.jobs[job_index].gpus:
                raise _fail(engine, job_index, f"has GPUs {gpus}, its gang is {engine.table.jobs[job_index].gpus}")
            if len({engine.cluster.type_of(g) for g in gpus}) != 1:
                raise _fail(engine, job_index, f"has GPUs of several types: {gpus}")


def _check_no_gpu_twice(engine: Engine) -> None:
    """Only co-runners are assigned the same GPU, and only they, or a job that is stopping, hold it together."""
    owner: dict[int, int] = {}
    for job_index, gpus in engine.assigned.items():
        for g in gpus:
            if owner.setdefault(g, job_index) != job_index and engine.co_runners.get(job_index) != owner[g]:
                raise _fail(engine, job_index, f"GPU {g} is also assigned to job {engine.table.jobs[owner[g]].id}")
    held: dict[int, list[int]] = {}
    for job_index, gpus in engine.ownership.holding.items():
        for g in gpus:
            held.setdefault(g, []).append(job_index)
    for g, first in enumerate(engine.ownership.holder):
        second = engine.ownership.second_holder.get(g, -1)
        holders = sorted(job_index for job_index in (first, second) if job_index != -1)
        if sorted(held.get(g, [])) != holders:
            raise EngineError(
                f"invariant broken: GPU {g} is held by job numbers {holders}, but is listed with jobs {held.get(g)}"
            )
        if len(holders) == 2:
            _check_holders(engine, g, *holders)


def _check_holders(engine: Engine, gpu: int, one: int, other: int) -> None:
    leaving = State.STOPPING in (engine.table.state[one], engine.table.state[other])
    if not leaving and engine.co_runners.get(one) != other:
        raise _fail(engine, one, f"holds GPU {gpu} together with job {engine.table.jobs[other].id}, no co-runner of it")


def _check_co_runners(engine: Engine) -> None:
    for job_index, co_runner in engine.co_runners.items():
        if job_index == co_runner or engine.co_runners.get(co_runner) != job_index:
            raise _fail(
                engine, job_index, f"shares with job {engine.table.jobs[co_runner].id}, but not the other way round"
            )
        if engine.assigned.get(job_index, ()) != engine.assigned.get(co_runner):
            raise _fail(engine, job_index, f"shares with job {engine.table.jobs[co_runner].id}, which has other GPUs")


def _check_states(engine: Engine) -> None:
    present = set(engine.active_jobs.job_indices().tolist())
    if len(present) != len(engine.active_jobs):
        raise EngineError(f"invariant broken: {len(engine.active_jobs)} jobs are counted, {len(present)} are listed")
    for job_index in engine.assigned.keys() - present - engine.aside:
        raise _fail(engine, job_index, "has GPUs and is not active")
    for job_index, state in enumerate(engine.table.state):
        assigned = job_index in engine.assigned
        if bool(engine.table.assigned[job_index]) != assigned:
            raise _fail(
                engine, job_index, f"assigned is {assigned}, the table says {bool(engine.table.assigned[job_index])}"
            )
        if state in _WITH_GPUS and not assigned:
            raise _fail(engine, job_index, f"is {state.name.lower()} without GPUs")
        if job_index in engine.ownership.holding and state not in (*_WITH_GPUS, State.STOPPING):
            raise _fail(engine, job_index, f"is {state.name.lower()} and holds GPUs")
        if state in (State.WAITING, State.FINISHED) and (assigned or job_index in engine.ownership.holding):
            raise _fail(engine, job_index, f"is {state.name.lower()} and has GPUs")
        if state is State.RUNNING and engine.ownership.holding.get(job_index) != engine.assigned[job_index]:
            raise _fail(engine, job_index, "runs on other GPUs than it was given")


def _check_free_index(engine: Engine) -> None:
    used = {g for gpus in engine.assigned.values() for g in gpus}
    free = {g for pool in engine.free.pools for g in pool.gpus()}
    out = engine.excluded | engine.cordoned
    if free & (used | out) or len(used | free | out) != engine.cluster.gpu_count:
        lost = sorted(set(range(engine.cluster.gpu_count)) - used - free - out)[:8]
        raise EngineError(f"invariant broken: GPUs both free and not {sorted(free & (used | out))[:8]}, neither {lost}")


def _check_work(engine: Engine) -> None:
    table = engine.table
    for job_index in range(len(table)):
        if not 0 <= table.done[job_index] <= table.steps[job_index] * (1 + 1e-9):
            raise _fail(engine, job_index, f"has done {table.done[job_index]} of {table.steps[job_index]} steps")


def _check_selected(engine: Engine) -> None:
    """Where a selection is said to be realised, the selected jobs run as selected, and no others."""
    selection, table = engine.realised, engine.table
    if selection is None:
        return
    for job_index, type_index in selection.wanted.items():
        gpus = engine.assigned.get(job_index)
        if not table.finished[job_index] and (gpus is None or type_index not in (-1, engine.free.type_of(gpus))):
            raise _fail(engine, job_index, f"was selected for the type with index {type_index} and has GPUs {gpus}")
    for job_index in engine.assigned:
        if job_index not in selection.wanted and table.types[job_index]:
            raise _fail(engine, job_index, "has GPUs and was not selected")
