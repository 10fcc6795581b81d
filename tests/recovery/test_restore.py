"""An older journal is put back: what has started since is adopted, or ended and started again, and never failed."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.e2e.live import daemon as real_daemon
from tests.e2e.live import processes_of, until
from tests.server.site import OWNER, Site, spec
from trine.engine.invariants import check
from trine.executor.base import Handle
from trine.server.build import Model
from trine.server.replay import redecide
from trine.server.store import Store


def save(home: Path) -> None:
    """As `sqlite3 journal.db ".backup"` does, with the daemon running."""
    with sqlite3.connect(home / "journal.db") as source, sqlite3.connect(home / "backup.db") as target:
        source.backup(target)
    source.close()
    target.close()


def put_back(home: Path) -> None:
    shutil.copy(home / "backup.db", home / "journal.db")
    for rest in ("journal.db-wal", "journal.db-shm"):
        (home / rest).unlink(missing_ok=True)


def restored(home: Path, before: Callable[[Site], Awaitable[None]], after: Callable[[Site], Awaitable[None]]) -> None:
    """``before`` saves the journal at some point; ``after`` finds it put back, and the processes as they were."""

    async def whole() -> None:
        site = Site(home)
        await site.up()
        await before(site)
        for handle in site.world.launches:
            (home / "jobs" / handle.job_id / str(handle.epoch)).mkdir(parents=True, exist_ok=True)
        await site.crash()
        put_back(home)
        daemon = await site.up()
        try:
            await site.quiet()
            await after(site)
            check(daemon.controller.deciding)
        finally:
            await site.crash()

    asyncio.run(whole())
    agreement, _ = redecide(Store.open(home / "journal.db").records(), Model())
    assert agreement.difference == "", "a restored run is decided the same again"


def states(site: Site) -> dict[str, tuple[str, int]]:
    assert site.daemon is not None
    return {job.id: (job.state, job.epoch) for job in site.daemon.controller.state.jobs.values()}


async def submitted(site: Site, *gangs: int) -> None:
    assert site.daemon is not None
    await site.daemon.submit([spec(gpus) for gpus in gangs], OWNER)
    await site.quiet()


def test_an_attempt_that_still_runs_is_adopted(tmp_path: Path) -> None:
    async def before(site: Site) -> None:
        assert site.daemon is not None
        for node in ("node0", "node1"):
            await site.daemon.drain(node, "test", OWNER)
        await submitted(site, 1)
        save(site.home)
        await site.daemon.undrain("node0", OWNER)
        await site.quiet()
        assert states(site) == {"1": ("running", 1)}

    async def after(site: Site) -> None:
        assert states(site) == {"1": ("running", 1)}
        assert site.world.launches == [Handle("1", 1)], "it goes on as if nothing had happened"
        site.world.end("1")
        await site.quiet()
        assert states(site) == {"1": ("done", 1)}

    restored(tmp_path, before, after)


def test_an_attempt_on_gpus_of_another_job_on_record_is_ended_and_started_again(tmp_path: Path) -> None:
    async def before(site: Site) -> None:
        await submitted(site, 4, 4)
        save(site.home)
        site.world.end("1")
        await site.quiet()
        assert states(site) == {"1": ("done", 1), "2": ("running", 1)}
        site.world.lingering = True

    async def after(site: Site) -> None:
        assert states(site) == {"1": ("done", 1), "2": ("starting", 2)}, "the end of job 1 is still known"
        assert site.world.killed == [Handle("2", 1)]
        assert site.world.launches == [Handle("1", 1), Handle("2", 1)], "its GPUs are not free yet"
        site.world.end("2", "failed", 137)
        await site.quiet()
        assert states(site)["2"] == ("running", 2)
        site.world.end("2")
        await site.quiet()
        assert states(site)["2"] == ("done", 2)

    restored(tmp_path, before, after)


def test_attempts_that_came_and_went_are_not_given_their_numbers_again(tmp_path: Path) -> None:
    async def before(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submitted(site, 4)
        save(site.home)
        for _ in range(2):
            await daemon.hold("1", OWNER)
            await site.quiet()
            await daemon.release("1", OWNER)
            await site.quiet()
        assert states(site) == {"1": ("running", 3)}
        site.world.end("1", "lost", 137)
        daemon.executor.events()  # the daemon dies before it hears of it

    async def after(site: Site) -> None:
        assert states(site) == {"1": ("running", 4)}
        assert site.world.launches[-1] == Handle("1", 4)

    restored(tmp_path, before, after)


def test_a_job_that_waits_or_is_held_on_record_keeps_what_was_asked_for(tmp_path: Path) -> None:
    async def before(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submitted(site, 4)
        await daemon.hold("1", OWNER)
        await site.quiet()
        save(site.home)
        await daemon.release("1", OWNER)
        await submitted(site, 1)
        assert states(site)["1"] == ("running", 2)

    async def after(site: Site) -> None:
        assert states(site) == {"1": ("held", 2)}, "job 2 is not on record"
        assert site.world.running() == {}
        assert site.daemon is not None
        await site.daemon.release("1", OWNER)
        await site.quiet()
        assert states(site)["1"] == ("running", 3)

    restored(tmp_path, before, after)


@pytest.mark.slow
def test_a_restored_daemon_ends_what_it_does_not_know_and_runs_it_again(tmp_path: Path) -> None:
    """Real processes: a job that has started since the backup ends well, under a new number, and nothing runs twice."""
    code = "import sys, time, pathlib\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)"

    def job(name: str) -> dict[str, object]:
        return {"run": [sys.executable, "-c", code, str(tmp_path / name)], "gpus": 2}

    home = tmp_path / "state"
    with real_daemon(home, "--gpus", "1x2", "--round", "1") as site:
        client = site.up()
        [first] = client.submit(job("first"))
        until(lambda: client.job(first)["state"] == "running", "the first job to run")
        [second] = client.submit(job("second"))
        save(home)
        (tmp_path / "first").touch()
        until(lambda: client.job(second)["state"] == "running", "the second job to run")
        assert client.job(second)["attempt"] == 1
        old = processes_of(second, home)
        assert site.stop() == 0
        put_back(home)
        client = site.up()
        assert client.wait(first, 30)["state"] == "done", "its end is still on disk"
        until(lambda: client.job(second)["state"] == "running", "the second job to run again")
        assert client.job(second)["attempt"] == 2
        assert not set(old) & set(processes_of(second, home))
        (tmp_path / "second").touch()
        ended = client.wait(second, 30)
        assert (ended["state"], ended["exit_code"]) == ("done", 0)
        assert site.stop() == 0
