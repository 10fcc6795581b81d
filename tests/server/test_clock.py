"""Time on record: wall clocks that are set, wrong at first, or behind the journal change no duration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.server.site import Site, run_site
from tests.server.test_scheduler import submit, view
from trine.server.clock import JournalClock
from trine.server.state import LiveState

HOUR = 3_600.0


@dataclass
class Machine:
    """A machine whose wall clock can be set."""

    wall_s: float = 1_000_000.0
    up_s: float = 50.0

    def pass_time(self, seconds: float) -> None:
        self.wall_s += seconds
        self.up_s += seconds

    def clock(self, boot: str = "one") -> JournalClock:
        return JournalClock(lambda: self.wall_s, lambda: self.up_s, boot)


def test_a_clock_that_is_set_makes_nothing_older_or_younger() -> None:
    machine = Machine()
    clock = machine.clock()
    began = clock()
    for step in (HOUR, -2 * HOUR):
        machine.wall_s += step
        machine.pass_time(10.0)
    assert clock() - began == 20.0


def test_time_runs_on_from_a_record_of_the_future() -> None:
    """One start with a clock ahead, then right again: time neither stands still nor goes back."""
    machine = Machine()
    state = LiveState(last_s=machine.wall_s + HOUR)
    clock = machine.clock()
    clock.go_on_from(state)
    assert clock() == state.last_s
    machine.pass_time(7.0)
    assert clock() == state.last_s + 7.0


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_clock_set_while_the_daemon_was_away_ages_no_job(tmp_path: Path, step: float) -> None:
    machine = Machine()

    async def script(site: Site) -> None:
        await submit(site, 1, max_runtime=1_000.0)
        await site.crash()
        machine.wall_s += step
        machine.pass_time(100.0)
        site.time = machine.clock()
        await site.up()
        await site.tick()
        assert view(site, "1").state == "running"
        job = site.daemon.controller.state.jobs["1"]  # type: ignore[union-attr]
        assert site.daemon.now() - job.run_from_s == pytest.approx(100.0, abs=1.0)  # type: ignore[union-attr]
        machine.pass_time(1_000.0)
        await site.tick()
        assert view(site, "1").state == "timed out", "and its limit is kept"

    run_site(Site(tmp_path, time=machine.clock()), script)


def test_after_a_reboot_or_when_nothing_runs_the_wall_clock_counts() -> None:
    machine, state = Machine(), LiveState(last_s=900_000.0)
    state.clock = {"boot": "another", "monotonic_s": 1.0, "at_s": 800_000.0}
    clock = machine.clock()
    clock.go_on_from(state)
    assert clock() == machine.wall_s
    machine.wall_s += HOUR
    assert clock.news(busy=False) == HOUR
    assert clock() == machine.wall_s, "nothing is measured, so time may step forward"


def test_a_jump_is_reported_once() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.news(busy=True) is None
    machine.wall_s += HOUR
    assert clock.news(busy=True) == HOUR
    machine.pass_time(60.0)
    assert clock.news(busy=True) is None
    assert clock.skew_s == HOUR
    machine.wall_s -= HOUR
    assert clock.news(busy=True) == 0.0


def test_a_clock_that_was_set_is_told_to_the_operator(tmp_path: Path) -> None:
    machine = Machine()

    async def script(site: Site) -> None:
        await submit(site, 1)
        machine.wall_s += HOUR
        await site.tick()
        daemon = site.daemon
        assert daemon is not None
        assert any("+3600 s" in problem for problem in daemon.daemon().problems)
        assert b"trine_clock_skew_seconds 3600.0" in daemon.metrics()

    run_site(Site(tmp_path, time=machine.clock()), script)
