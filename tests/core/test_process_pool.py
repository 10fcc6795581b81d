"""Results do not depend on the number of workers; an error or an interrupt ends everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from trine.core.errors import InputError
from trine.core.process_pool import work_through


def square(number: int) -> int:
    if number < 0:
        raise InputError("here", f"found {number}", "at least 0")
    return number * number


def process_of(_: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("first_here", [True, False])
def test_results_come_in_order_and_every_item_is_counted(workers: int, first_here: bool) -> None:
    counted: list[None] = []
    results = work_through(square, range(5), workers, lambda: counted.append(None), first_here=first_here)
    assert results == [0, 1, 4, 9, 16]
    assert len(counted) == 5


def test_no_items_no_results() -> None:
    assert work_through(square, []) == []


def test_where_the_first_item_runs() -> None:
    assert [pid == os.getpid() for pid in work_through(process_of, range(3), 2)] == [True, False, False]
    assert os.getpid() not in work_through(process_of, range(3), 2, first_here=False)


def test_an_error_of_a_worker_is_raised_as_it_was() -> None:
    with pytest.raises(InputError, match=r"^here: found -1; expected at least 0$"):
        work_through(square, [1, 2, -1, 3], 2)


_SLEEPERS = """
import os, signal, time
from multiprocessing.context import SpawnProcess
from trine.core.process_pool import work_through

started, plain = [], SpawnProcess.start

def start(process):
    plain(process)
    started.append(process)
    if len(started) == {interrupted_at}:
        os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    SpawnProcess.start = start
    work_through(time.sleep, [0, 600, 600], 2, lambda: print("done", flush=True))
"""


@pytest.mark.parametrize("interrupted_at", [1, 2])
def test_an_interrupt_while_workers_are_started_ends_them(interrupted_at: int) -> None:
    """By itself, so that it comes between the start of a worker and the next step, whatever the machine is doing."""
    script = _SLEEPERS.format(interrupted_at=interrupted_at)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert done.stdout == b"done\n" and done.returncode == -signal.SIGINT
    assert done.stderr.count(b"Traceback") == 1, "one of the parent, none of a worker"


def test_an_interrupt_ends_the_workers() -> None:
    """At any moment after the first item; the pipe closes when the last worker has ended."""
    script = [sys.executable, "-c", _SLEEPERS.format(interrupted_at=0)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == b"done\n"
        process.send_signal(signal.SIGINT)
        try:
            rest, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert rest == b"" and process.returncode != 0
