"""Work on many items in processes: results in the order of the items, whatever the number of workers.

Used by sweeps and by the reproduction of papers. Ctrl-C and the first error end all of it at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Done = Callable[[], None]
"""Called after every item, for a progress bar."""


def work_through(
    work: Callable[[Item], Outcome],
    todo: Sequence[Item],
    workers: int = 0,
    done: Done = lambda: None,
    *,
    first_here: bool = True,
) -> list[Outcome]:
    """``work`` applied to every item; ``workers`` 0 takes all cores. ``work`` must be a function of a module.

    ``first_here``: the first item is worked on in this process, so that a mistake in the input shows before any
    process is started. Without it, no core waits for the first item.
    """
    results: list[Outcome] = []
    if first_here and todo:
        results, todo = [work(todo[0])], todo[1:]
        done()
    count = min(workers or os.cpu_count() or 1, len(todo))
    if count > 1:
        return results + _in_processes(work, todo, count, done)
    for item in todo:
        results.append(work(item))
        done()
    return results


def _in_processes(work: Callable[[Item], Outcome], todo: Sequence[Item], workers: int, done: Done) -> list[Outcome]:
    # Fresh processes: a fork would copy the progress bar's thread in whatever state it is in.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupt) as pool:
        futures = [pool.submit(work, item) for item in todo]
        try:
            _wait_for(futures, done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        return [future.result() for future in futures]


def _wait_for(futures: list[Future[Outcome]], done: Done) -> None:
    """Until all are done; the first error is raised as soon as it is known."""
    pending = set(futures)
    while pending:
        finished, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in finished:
            future.result()
            done()


def _ignore_interrupt() -> None:
    """Ctrl-C is the parent's business; it cancels what is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
