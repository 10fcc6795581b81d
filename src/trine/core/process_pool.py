"""Work on many items in processes: results in the order of the items, whatever the number of workers.

Used by sweeps and by the reproduction of papers. Ctrl-C and the first error end all of it at once.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from trine.core.errors import TrineError, require_extra

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Done = Callable[[], None]
"""Called after every item, for a progress bar."""


_ENDED = (
    "a worker process ended before its work was done: too little memory, or a script that starts processes outside "
    'of `if __name__ == "__main__":`, which every worker reads again; one process (workers=1) needs neither'
)


def work_through(
    work: Callable[[Item], Outcome],
    todo: Sequence[Item],
    workers: int = 0,
    done: Done = lambda: None,
    *,
    first_here: bool = True,
    by_value: bool = False,
) -> list[Outcome]:
    """``work`` applied to every item; ``workers`` 0 takes all cores. ``work`` must be a function of a module.

    ``first_here``: the first item is worked on in this process, so that a mistake in the input shows before any
    process is started. Without it, no core waits for the first item.
    ``by_value``: items may hold classes that no module has, such as those of a notebook cell, and take them along.
    """
    results: list[Outcome] = []
    if first_here and todo:
        results, todo = [work(todo[0])], todo[1:]
        done()
    count = min(workers or os.cpu_count() or 1, len(todo))
    if count > 1:
        if by_value:
            require_extra("notebook", "cloudpickle", purpose="a class of a notebook in several processes needs")
        return results + _in_processes(work, [_ByValue(item) for item in todo] if by_value else todo, count, done)
    for item in todo:
        results.append(work(item))
        done()
    return results


class _ByValue:
    """An item on its way: it arrives as itself, with the code of classes that only the sending process knows."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        import cloudpickle

        return pickle.loads, (cloudpickle.dumps(self._item),)


def _in_processes(work: Callable[[Any], Outcome], todo: Sequence[Any], workers: int, done: Done) -> list[Outcome]:
    # Fresh processes: a fork would copy the progress bar's thread in whatever state it is in.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupt) as pool:
        try:
            with _interrupts_wait():  # every submission starts a worker, and one that is half started cannot be ended
                futures = [pool.submit(work, item) for item in todo]
            _wait_for(futures, done)
        except BaseException as error:
            for process in multiprocessing.active_children():
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise TrineError(_ENDED) from error
            raise
        return [future.result() for future in futures]


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block. Only the main thread is ever interrupted by it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


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
