"""A lease is a duration: it ends by the monotonic clock of the job, and no wall clock ends it."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.conftest import EXAMPLES, FakeJob, ended, wait_for
from trine.sdk.lease import LOOK_S, LeaseWatch
from trine.sdk.session import JobEnvironment, Session

TOY = EXAMPLES / "toy_sdk.py"
HOUR_S = 3600.0
SET_CLOCK = """
import os, time

def shifted(real=time.time):
    with open(os.environ["CLOCK_AHEAD"]) as file:
        return real() + float(file.read())

time.time = shifted
"""


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _watch(job: FakeJob, clock: Clock) -> LeaseWatch:
    return LeaseWatch(job.run_dir / "lease.json", job.attempt, None, clock)


def test_a_lease_ends_after_its_seconds_unless_it_is_renewed(job: FakeJob, clock: Clock) -> None:
    job.lease(lease_s=60.0)
    watch = _watch(job, clock)
    for _ in range(5):
        assert watch.over() is None
        clock.now_s += 59.0
        assert watch.over() is None
        job.lease(lease_s=60.0)
        clock.now_s += LOOK_S
    assert watch.over() is None
    clock.now_s += 60.0
    assert watch.over() == "expired"


def test_another_change_of_the_file_is_no_renewal(job: FakeJob, clock: Clock) -> None:
    job.lease(lease_s=60.0)
    watch = _watch(job, clock)
    assert watch.over() is None
    job.lease(lease_s=60.0, renew=False)
    clock.now_s += 30.0
    assert watch.over() is None
    clock.now_s += 30.0
    assert watch.over() == "expired"


def test_a_process_that_was_stopped_looks_at_its_lease_before_it_leaves(job: FakeJob, clock: Clock) -> None:
    """Also when the last look is so fresh that the next one is not due."""
    job.lease(lease_s=LOOK_S / 2)
    watch = _watch(job, clock)
    assert watch.over() is None
    job.lease(lease_s=60.0)
    clock.now_s += LOOK_S / 2
    assert watch.over() is None
    job.lease(lease_s=60.0)
    clock.now_s += HOUR_S
    assert watch.over() is None
    clock.now_s += 60.0
    assert watch.over() == "expired"


def test_a_lease_that_was_let_go_holds_for_ever(job: FakeJob, clock: Clock) -> None:
    job.lease(lease_s=60.0)
    watch = _watch(job, clock)
    assert watch.over() is None
    job.lease(lease_s=None)
    clock.now_s += 1e9
    assert watch.over() is None


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_a_session_does_not_ask_what_time_it_is(job: FakeJob, clock: Clock, ahead_s: float) -> None:
    job.lease(lease_s=900.0)
    wall_s = [time.time() + ahead_s]
    environment = JobEnvironment.read(job.environment() | {"TRINE_LEASE_DEADLINE": str(time.time() + 900.0)})
    session = Session(environment, clock, lambda: wall_s[0])
    for step_s in (0.0, 5 * ahead_s, -10 * ahead_s):
        wall_s[0] += step_s
        clock.now_s += 10.0
        assert session.asked() is None
    clock.now_s += 900.0
    assert session.asked() == "expired"


def test_an_end_that_is_past_at_the_start_tells_of_two_clocks_and_not_of_the_lease() -> None:
    told = {"TRINE_LEASE_DEADLINE": "5000"}
    assert JobEnvironment.read(told, lambda: 4000.0).lease_s == 1000.0
    assert JobEnvironment.read(told, lambda: 6000.0).lease_s is None
    assert JobEnvironment.read(told | {"TRINE_LEASE_S": "60"}, lambda: 6000.0).lease_s == 60.0
    with pytest.raises(ValueError, match="TRINE_LEASE_S: found 'soon'; expected seconds"):
        JobEnvironment.read({"TRINE_LEASE_S": "soon"})


def _clock_of_ones_own(folder: Path, ahead_s: float) -> dict[str, Any]:
    """Variables under which Python's wall clock is ahead by what the file ``ahead`` says."""
    (folder / "sitecustomize.py").write_text(SET_CLOCK)
    (folder / "ahead").write_text(str(ahead_s))
    return {"PYTHONPATH": str(folder), "CLOCK_AHEAD": str(folder / "ahead")}


def _set_clock(folder: Path, ahead_s: float) -> None:
    aside = folder / "ahead.tmp"
    aside.write_text(str(ahead_s))
    aside.replace(folder / "ahead")


def test_a_clock_that_is_stepped_forward_and_back_does_not_end_a_job(job: FakeJob, tmp_path: Path) -> None:
    job.lease(lease_s=60.0)
    process = job.start(TOY, "--steps", 100_000, "--step-s", 0.001, **_clock_of_ones_own(tmp_path, HOUR_S))
    job.reached(1, process)
    assert job.progress()["t"] > time.time() + HOUR_S / 2, "the job's clock is ahead"
    for ahead_s in (2 * HOUR_S, -HOUR_S, 0.0):
        _set_clock(tmp_path, ahead_s)
        job.lease(lease_s=60.0)
        job.reached(job.progress()["step"] + 300, process)
    process.send_signal(signal.SIGTERM)
    code, _, err = ended(process)
    assert (code, "(SIGTERM)" in err) == (85, True)


def test_a_job_that_was_stopped_past_its_lease_goes_on_if_it_was_renewed(job: FakeJob) -> None:
    job.lease(lease_s=3.0)
    process = job.start(TOY, "--steps", 100_000, "--step-s", 0.001)
    job.reached(1, process)
    process.send_signal(signal.SIGSTOP)
    woken_s = time.monotonic() + 3.5
    wait_for(lambda: time.monotonic() > woken_s, "its lease has run out", process)
    job.lease(lease_s=60.0)
    process.send_signal(signal.SIGCONT)
    job.reached(job.progress()["step"] + 200, process)
    process.send_signal(signal.SIGTERM)
    assert "(SIGTERM)" in ended(process)[2]
