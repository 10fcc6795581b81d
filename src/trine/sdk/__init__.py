"""What a training script imports: steps that end in time, checkpoints, progress. Standard library only.

Inside a trine job the loop reports its progress and ends with a checkpoint when the scheduler wants the GPUs back;
anywhere else the same script simply runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, overload

from trine.sdk.checkpoints import Checkpoint, CheckpointFolder
from trine.sdk.loop import Loop, LoopOptions
from trine.sdk.session import EXIT_STOPPED, current

__all__ = [
    "EXIT_STOPPED",
    "Checkpoint",
    "catch_sigterm",
    "checkpoint",
    "exit_if_stopped",
    "rank",
    "report",
    "restore",
    "save_bytes",
    "save_json",
    "should_stop",
    "step_done",
    "steps",
    "world_size",
]

Batch = TypeVar("Batch")
Folder = str | PathLike[str] | None


@overload
def steps(
    source: int,
    *,
    start: int | None = None,
    total: int | None = None,
    save: Callable[[int], object] | None = None,
    save_every: int = 0,
    agree: Callable[[bool], bool] | None = None,
    agree_every: int = 5,
    skip: bool = True,
    seed: int | None = None,
    exit: bool = True,
) -> Iterator[tuple[int, int]]: ...
@overload
def steps(
    source: Iterable[Batch],
    *,
    start: int | None = None,
    total: int | None = None,
    save: Callable[[int], object] | None = None,
    save_every: int = 0,
    agree: Callable[[bool], bool] | None = None,
    agree_every: int = 5,
    skip: bool = True,
    seed: int | None = None,
    exit: bool = True,
) -> Iterator[tuple[int, Batch]]: ...
def steps(
    source: int | Iterable[Any],
    *,
    start: int | None = None,
    total: int | None = None,
    save: Callable[[int], object] | None = None,
    save_every: int = 0,
    agree: Callable[[bool], bool] | None = None,
    agree_every: int = 5,
    skip: bool = True,
    seed: int | None = None,
    exit: bool = True,  # noqa: A002
) -> Iterator[tuple[int, Any]]:
    """Iterate over ``(step, batch)``; steps count from 0, and a number ``n`` stands for ``range(n)``.

    ``start``: steps done before; by default those of the checkpoint that ``restore()`` gave, else 0.
    ``total``: steps in all; by default the count, or one pass over ``source``. More than one pass starts it anew.
    ``save(done)``: write the state after ``done`` steps; called on every rank at a stop and every ``save_every`` steps.
    ``agree(stop)``: true if ``stop`` is true on any rank, such as an all-reduce; every rank calls it every
    ``agree_every`` steps. By default the ranks agree over files.
    ``skip``: pass over the batches of the first ``start`` steps. False if ``source`` already begins after them.
    ``seed``: what ``source`` draws at random depends on this and the number of the pass alone. By default that holds
    for loaders of torch, with torch's seed; give it for others that shuffle, and where every epoch has its own loop.
    ``exit``: at a stop, end the process with code 85. If false the loop just ends: call ``exit_if_stopped()`` then.
    """
    session = current()
    begin = session.restored_step if start is None else start
    if isinstance(source, int):
        total, source = source if total is None else total, range(source if total is None else total)
    for name, value, least in (("start", begin, 0), ("agree_every", agree_every, 1), ("save_every", save_every, 0)):
        if value < least:
            raise ValueError(f"trine.sdk.steps: {name}: found {value}; expected {least} or more")
    if save_every and save is None:
        raise ValueError(f"trine.sdk.steps: save_every: found {save_every} without save; expected both or neither")
    options = LoopOptions(begin, total, save, save_every, agree, agree_every, skip, exit, seed)
    return Loop(session, options).run(source)


def should_stop() -> bool:
    """Whether this process was asked to stop or its lease is over. Cheap: files are looked at by time.

    Other ranks may learn of it later; ``steps`` and ``step_done`` make all of them leave after the same step.
    """
    session = current()
    session.last_answer = session.stopped or session.asked()
    return session.last_answer is not None


def step_done(step: int, total: int | None = None) -> bool:
    """For loops that are not ours: ``step`` steps are done. True after the step at which all ranks leave.

    Every rank calls it after every step, and ``catch_sigterm()`` before the first.
    """
    return current().step_done(step, total)


def catch_sigterm() -> bool:
    """Note SIGTERM instead of dying of it, inside a trine job. ``steps`` does this by itself.

    An earlier handler is called too. False where it cannot be done: outside a job or not in the main thread.
    """
    session = current()
    return session.environment.inside and session.sigterm.install()


def exit_if_stopped() -> None:
    """End the process with code 85 if a stop ended its loop or ``should_stop()`` said so; go on if the work is done."""
    session = current()
    if session.stopped or session.last_answer:
        session.leave()


def report(step: int, total: int | None = None, checkpoint_step: int | None = None) -> None:
    """Report that ``step`` of ``total`` steps are done; ``steps`` does it by itself.

    Written at most about once per second, but at once with a ``checkpoint_step`` or when all steps are done.
    """
    progress = current().progress
    progress.at(step, total)
    if checkpoint_step is not None:
        progress.checkpoint_step = checkpoint_step
    if checkpoint_step is not None or step == progress.total:
        progress.flush()


@contextmanager
def checkpoint(step: int, folder: Folder = None, keep: int = 2) -> Iterator[Path]:
    """``with checkpoint(done) as path: torch.save(state, path)``: complete and on disk afterwards, or not there.

    ``path`` may become a file or a folder. The ``keep`` newest checkpoints stay. What ranks other than 0 write is
    dropped. ``folder`` is TRINE_CHECKPOINT_DIR by default, or ``checkpoints`` outside a job.
    """
    with _folder(folder).write(step, keep) as path:
        yield path
    current().progress.checkpoint_step = step


def save_json(step: int, state: Any, folder: Folder = None, keep: int = 2) -> None:
    """A checkpoint of anything that JSON can hold. Floats come back exactly as they were."""
    save_bytes(step, json.dumps(state).encode(), folder, keep)


def save_bytes(step: int, data: bytes, folder: Folder = None, keep: int = 2) -> None:
    """A checkpoint of bytes."""
    if rank() == 0:
        with checkpoint(step, folder, keep) as path:
            path.write_bytes(data)


def restore(folder: Folder = None, verify: bool = True) -> Checkpoint | None:
    """The newest complete checkpoint, or None. Without ``verify`` sizes are compared, but no check sums."""
    session = current()
    found = _folder(folder).newest(verify)
    session.restored_step = found.step if found else 0
    session.progress.checkpoint_step = found.step if found else None
    return found


def rank() -> int:
    """Number of this process in its gang, from 0."""
    return current().environment.rank


def world_size() -> int:
    """Processes of the gang; 1 outside a job."""
    return current().environment.world_size


def _folder(folder: Folder) -> CheckpointFolder:
    env = current().environment
    return CheckpointFolder(env.checkpoint_dir if folder is None else Path(folder), env.rank)
