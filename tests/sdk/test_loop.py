"""The loop itself: which batches it gives, when it saves and reports, and that it lets other people's signals be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trine.sdk
from tests.sdk.conftest import FakeJob, ended, outside
from trine.sdk.loop import Loop, LoopOptions
from trine.sdk.session import JobEnvironment, Session

LETTERS = ["a", "b", "c"]


class Loader:
    """Three batches per pass, and told which pass it is, as samplers are."""

    def __init__(self) -> None:
        self.number = 0

    def set_epoch(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[str]:
        return iter([f"{letter}{self.number}" for letter in LETTERS])


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        (3, {}, [(0, 0), (1, 1), (2, 2)]),
        (5, {"start": 3}, [(3, 3), (4, 4)]),
        (LETTERS, {}, [(0, "a"), (1, "b"), (2, "c")]),
        (LETTERS, {"start": 1}, [(1, "b"), (2, "c")]),
        (LETTERS, {"start": 1, "skip": False}, [(1, "a"), (2, "b"), (3, "c")]),
        (LETTERS, {"total": 2}, [(0, "a"), (1, "b")]),
        (LETTERS, {"start": 2, "total": 5}, [(2, "c"), (3, "a"), (4, "b")]),
        (LETTERS, {"start": 5, "total": 5}, []),
        (Loader(), {"start": 5, "total": 8}, [(5, "c1"), (6, "a2"), (7, "b2")]),
        ([], {"total": 5}, []),
        (iter(LETTERS), {"total": 9}, [(0, "a"), (1, "b"), (2, "c")]),
    ],
)
def test_batches_are_those_of_an_undisturbed_run(source: Any, options: dict[str, Any], expected: list[Any]) -> None:
    assert list(trine.sdk.steps(source, **{"start": 0, **options})) == expected


def test_no_batch_is_drawn_that_is_not_used() -> None:
    source = iter(range(10))
    list(trine.sdk.steps(source, start=0, total=4))
    assert next(source) == 4


def test_the_loop_goes_on_where_restore_found_the_last_checkpoint(tmp_path: Path) -> None:
    trine.sdk.save_bytes(4, b"state", tmp_path)
    assert trine.sdk.restore(tmp_path) is not None
    assert [step for step, _ in trine.sdk.steps(6)] == [4, 5]
    assert trine.sdk.restore(tmp_path / "none") is None
    assert [step for step, _ in trine.sdk.steps(2)] == [0, 1]


def test_saves_come_at_regular_steps() -> None:
    saved: list[int] = []
    for _ in trine.sdk.steps(10, start=1, save=saved.append, save_every=3):
        pass
    assert saved == [4, 7, 10]


@pytest.mark.parametrize("options", [{"start": -1}, {"agree_every": 0}, {"save_every": -1}, {"save_every": 5}])
def test_bad_options_are_refused_before_the_first_step(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))}: found .*expected"):
        trine.sdk.steps(3, **options)


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ValueError, match="WORLD_SIZE: found 'two'; expected a whole number"):
        JobEnvironment.read({"WORLD_SIZE": "two"})


def _inside(folder: Path, clock: list[float]) -> Session:
    environment = JobEnvironment(inside=True, job_id="7", attempt=1, run_dir=folder, progress_dir=folder)
    return Session(environment, lambda: clock[0], lambda: clock[0])


def test_time_spent_saving_does_not_count_as_slow_steps(tmp_path: Path) -> None:
    clock = [0.0]
    session = _inside(tmp_path, clock)

    def save(done: int) -> None:
        clock[0] += 100.0

    told = []
    for _ in Loop(session, LoopOptions(0, 40, save, save_every=10)).run(range(40)):
        clock[0] += 0.5
        told.append((tmp_path / "progress-0.json").read_text())
    assert '"steps_per_s": 2.0' in told[-1]


def test_files_are_looked_at_by_time_not_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks, stat = [0.0], list[str](), Path.stat

    def counted(path: Path) -> os.stat_result:
        looks.append(path.name)
        return stat(path)

    monkeypatch.setattr(Path, "stat", counted)
    for _ in Loop(_inside(tmp_path, clock), LoopOptions(0, 10_000)).run(range(10_000)):
        clock[0] += 0.001  # ten seconds in all
    assert 10 <= looks.count("lease.json") <= 50


SIGNALS = """
import signal, sys, time
import trine.sdk

def before(number, frame):
    print("earlier handler called", flush=True)

if sys.argv[1] == "chained":
    signal.signal(signal.SIGTERM, before)
for step, _ in trine.sdk.steps(10 if sys.argv[1] == "natural" else 100_000, exit=sys.argv[1] != "own exit"):
    time.sleep(0.001)
print("after the loop", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
trine.sdk.exit_if_stopped()
print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("how", "code", "expected"),
    [
        ("plain", 85, ""),
        ("chained", 85, "earlier handler called\n"),
        ("own exit", 85, "after the loop False\n"),
        ("natural", 0, "after the loop True\ndone\n"),
    ],
)
def test_sigterm_ends_the_loop_and_respects_who_was_there_before(
    job: FakeJob, how: str, code: int, expected: str
) -> None:
    (job.folder / "script.py").write_text(SIGNALS)
    process = job.start("script.py", how)
    if how != "natural":
        job.reached(0, process)
        process.send_signal(signal.SIGTERM)
    assert ended(process)[:2] == (code, expected)


FORKING = """
import multiprocessing, time
import trine.sdk

def work(ready):
    ready.send(True)
    time.sleep(60)

for step, _ in trine.sdk.steps(1):
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    child = fork.Process(target=work, args=(there,))
    child.start()
    here.recv()
    child.terminate()
    child.join(30)
    print(child.exitcode, flush=True)
"""


def test_a_forked_worker_still_ends_when_it_is_terminated(job: FakeJob) -> None:
    (job.folder / "script.py").write_text(FORKING)
    assert ended(job.start("script.py"))[1] == "-15\n"


THREADED = """
import threading, time
import trine.sdk

def train():
    for step, _ in trine.sdk.steps(100_000, exit=False):
        time.sleep(0.001)

thread = threading.Thread(target=train)
thread.start()
thread.join()
trine.sdk.exit_if_stopped()
"""


def test_in_another_thread_the_lease_still_works(job: FakeJob) -> None:
    (job.folder / "script.py").write_text(THREADED)
    process = job.start("script.py")
    job.reached(0, process)
    job.lease(stop=True)
    assert ended(process)[0] == 85


OWN_LOOP = """
import time
import trine.sdk

trine.sdk.catch_sigterm()
for done in range(1, 100_000):
    time.sleep(0.001)
    trine.sdk.report(done, 100_000)
    if trine.sdk.should_stop():
        trine.sdk.save_json(done, {"done": done})
        trine.sdk.report(done, checkpoint_step=done)
        trine.sdk.exit_if_stopped()
"""


def test_a_loop_of_ones_own_can_ask_whether_to_stop(job: FakeJob) -> None:
    (job.folder / "script.py").write_text(OWN_LOOP)
    process = job.start("script.py")
    job.reached(1, process)
    assert job.progress()["total"] == 100_000
    job.stop(process)
    assert ended(process)[0] == 85
    found = trine.sdk.checkpoints.CheckpointFolder(job.checkpoints).newest()
    assert found is not None
    assert found.read_json() == {"done": found.step}


PLAIN = """
import signal, time
import trine.sdk

assert trine.sdk.rank() == 0 and trine.sdk.world_size() == 1 and not trine.sdk.catch_sigterm()
for step, _ in trine.sdk.steps(100_000):
    assert not trine.sdk.should_stop() and not trine.sdk.step_done(step)
    trine.sdk.report(step)
    print(step, flush=True)
    time.sleep(0.001)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_outside_trine_signals_do_what_they_always_do(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PLAIN]
    with subprocess.Popen(
        command, cwd=tmp_path, env=outside(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            process.send_signal(number)
            assert ended(process)[0] == -number
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_no_thread_is_left_running() -> None:
    before = threading.active_count()
    list(trine.sdk.steps(100, start=0))
    assert threading.active_count() == before
