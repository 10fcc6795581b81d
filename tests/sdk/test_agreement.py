"""All ranks of a gang leave after the same step, however unevenly they run and whoever hears of the stop first."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.sdk.conftest import FakeJob, ended
from trine.sdk.agreement import Alone, ByCall, ByFiles

GANG = """
import os, socket, sys, time
import trine.sdk

rank, pace_s, coupled = trine.sdk.rank(), float(sys.argv[1]), sys.argv[2] == "coupled"

def connect():
    if rank == 0:
        server = socket.socket(socket.AF_UNIX)
        server.bind("meet.tmp")
        server.listen()
        os.rename("meet.tmp", "meet")
        return server.accept()[0]
    while not os.path.exists("meet"):
        time.sleep(0.01)
    client = socket.socket(socket.AF_UNIX)
    client.connect("meet")
    return client

other = connect() if coupled else None

def collective(value):
    other.sendall(bytes([value]))
    return max(value, other.recv(1)[0])

def agree(stop):
    return bool(collective(int(stop)))

def save(done):
    with open(f"left-{rank}", "w") as file:
        file.write(str(done))

for step, _ in trine.sdk.steps(1_000_000, save=save, agree=agree if sys.argv[3:] else None):
    time.sleep(pace_s)
    if coupled:
        collective(0)
"""


@pytest.mark.parametrize("how", [["free"], ["coupled"], ["coupled", "agree"]], ids=" ".join)
def test_two_ranks_leave_after_the_same_step_though_one_hears_of_it_alone(job: FakeJob, how: list[str]) -> None:
    (job.folder / "gang.py").write_text(GANG)
    gang = [job.start("gang.py", pace_s, *how, rank=rank, world=2) for rank, pace_s in enumerate((0.001, 0.002))]
    for rank, process in enumerate(gang):
        job.reached(20, process, rank)
    gang[1].send_signal(signal.SIGTERM)
    assert [ended(process)[0] for process in gang] == [85, 85]
    left = {(job.folder / f"left-{rank}").read_text() for rank in (0, 1)}
    assert len(left) == 1
    assert job.progress(0)["step"] == job.progress(1)["step"] == int(left.pop())


def test_a_rank_that_starts_late_hears_of_the_stop_before_its_first_step(job: FakeJob) -> None:
    (job.folder / "gang.py").write_text(GANG)
    job.lease(stop=True)
    first = job.start("gang.py", 0.001, "free", rank=0, world=2)
    assert ended(first)[0] == 85
    late = job.start("gang.py", 0.001, "free", rank=1, world=2)
    assert ended(late)[0] == 85
    assert job.progress(0)["step"] == job.progress(1)["step"] == 0


def _run(agreement: ByFiles, pace_s: list[float], told_after: int, left: list[int]) -> None:
    done, began_s = 0, time.monotonic()
    while not agreement.leave(done, done >= told_after, done / max(1e-9, time.monotonic() - began_s)):
        while True:  # steps until the next look, as the loop makes them
            time.sleep(pace_s[done % len(pace_s)])
            done += 1
            if done >= agreement.due or done == told_after:
                break
    left.append(done)


@pytest.mark.parametrize("seed", range(12))
def test_nobody_passes_the_agreed_step_at_any_pace(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    ranks, left = rng.randint(2, 5), list[int]()
    threads = []
    for rank in range(ranks):
        pace_s = [rng.choice((0.0, 0.0, 0.0002, 0.002)) for _ in range(7)]
        told_after = rng.randint(0, 60) if rank < 2 else 1 << 40
        arguments = (ByFiles(tmp_path, 1, rank, time.monotonic), pace_s, told_after, left)
        threads.append(threading.Thread(target=_run, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(left) == ranks
    assert len(set(left)) == 1


@pytest.mark.parametrize(("when", "leaves_after"), [("before", 1), ("after", 2)])
def test_a_stop_that_meets_a_rank_while_it_extends_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, leaves_after: int
) -> None:
    told, busy = (ByFiles(tmp_path, 1, rank, time.monotonic) for rank in (0, 1))
    assert not told.leave(0, False, 0.0)
    assert not busy.leave(0, False, 0.0)
    write = os.pwrite

    def meanwhile(file: int, data: bytes, at: int) -> int:
        monkeypatch.undo()
        if when == "after":
            write(file, data, at)
        told.leave(1, True, 0.0)
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", meanwhile)
    assert busy.leave(1, False, 0.0) == (leaves_after == 1)
    assert (busy.due, told.due) == (leaves_after, leaves_after)
    assert busy.leave(leaves_after, False, 0.0)


def test_a_decision_that_never_comes_does_not_hold_a_rank_for_ever(tmp_path: Path) -> None:
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    (tmp_path / "stopping-1").touch()
    assert ByFiles(tmp_path, 1, 0, lambda: now_s[0], sleep).leave(3, False, 10.0)


def test_without_a_folder_to_write_to_the_training_goes_on_until_it_is_asked(tmp_path: Path) -> None:
    agreement = ByFiles(tmp_path / "gone", 1, 0, time.monotonic)
    assert not agreement.leave(1, False, 10.0)
    assert agreement.leave(2, True, 10.0)


def test_the_operation_of_the_script_is_called_at_the_same_steps_on_every_rank() -> None:
    calls: list[bool] = []

    def agree(stop: bool) -> bool:
        calls.append(stop)
        return stop

    agreement = ByCall(agree, 5, 0)
    assert [done for done in range(1, 21) if agreement.leave(done, done >= 7, 1.0)] == [10, 15, 20]
    assert calls == [False, True, True, True]


def test_alone_a_rank_leaves_at_once() -> None:
    assert Alone().leave(3, True, 1.0)
    assert not Alone().leave(3, False, 1.0)
