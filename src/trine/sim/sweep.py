"""Many runs side by side in processes. Results come back in the order asked for, whatever the number of workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TypeVar

from trine.core.result import RunResult
from trine.sim.scenario import Scenario, run

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Done = Callable[[], None]
"""Called after every run, for a progress bar."""


@dataclass(frozen=True)
class Sweep:
    """Every policy with every placement and every seed, in this order."""

    base: Scenario
    policies: Sequence[str]
    placements: Sequence[str]
    seeds: Sequence[int]

    def scenarios(self) -> list[Scenario]:
        return [
            replace(self.base, policy=policy, placement=placement, seed=seed, others=(*self.policies, *self.placements))
            for policy in self.policies
            for placement in self.placements
            for seed in self.seeds
        ]


def run_all(sweep: Sweep, workers: int = 0, done: Done = lambda: None) -> list[RunResult]:
    """Run the whole sweep; ``workers`` 0 takes all cores. Only the first seed keeps its segments, for the report."""
    return run_each([(s, s.seed == sweep.seeds[0]) for s in sweep.scenarios()], workers, done)


def run_each(todo: list[tuple[Scenario, bool]], workers: int = 0, done: Done = lambda: None) -> list[RunResult]:
    """Run scenarios, each with whether to keep its segments; results in the same order."""
    return work_through(_run, todo, workers, done)


def work_through(
    work: Callable[[Item], Outcome], todo: Sequence[Item], workers: int = 0, done: Done = lambda: None
) -> list[Outcome]:
    """``work`` done on every item, in processes; results in the same order. ``work`` must be a function of a module.

    The first one runs here, so that a mistake in the input shows before any process is started.
    """
    results = [work(todo[0])]
    done()
    rest = todo[1:]
    count = min(workers or os.cpu_count() or 1, len(rest))
    if count > 1:
        return results + _in_processes(work, rest, count, done)
    for item in rest:
        results.append(work(item))
        done()
    return results


def _run(item: tuple[Scenario, bool]) -> RunResult:
    scenario, keep_segments = item
    return run(scenario, keep_segments=keep_segments)


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
    pending = set(futures)
    while pending:
        finished, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in finished:
            future.result()
            done()


def _ignore_interrupt() -> None:
    """Ctrl-C is the parent's business; it cancels what is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
