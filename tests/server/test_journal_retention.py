"""Old records of the journal go where that was asked for; starts, snapshots and jobs do not notice."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.server.site import OWNER, Site, spec
from trine.core.errors import InputError
from trine.server import prune, scheduler
from trine.server.interface import Caller, Refused
from trine.server.prune import Pruner, Retention
from trine.server.scheduler import Scheduler
from trine.server.snapshot import to_snapshot
from trine.server.store import Store


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


async def _with_past(site: Site) -> Scheduler:
    """Three days with a job each; the daemon was stopped in order every evening."""
    for day in range(3):
        daemon = await site.up()
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        if day < 2:
            site.world.end(str(day + 1))
            await site.quiet()
            await daemon.stop()
            daemon.executor.close()
            daemon.store.close()
            site.now += 86_400.0
    assert site.daemon is not None
    return site.daemon


def _pruner(site: Site, daemon: Scheduler, journal_s: float | None) -> Pruner:
    kept = Retention(journal_s=journal_s)
    journal = (daemon.journal, daemon.store)
    daemon.pruner = Pruner(
        daemon.executor.storage, kept, lambda: daemon.controller.state, lambda: (), lambda: site.now, journal
    )
    return daemon.pruner


def test_records_that_no_snapshot_needs_go_and_the_daemon_goes_on_as_if_nothing_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "_RECORDS_AT_ONCE", 2)

    async def script() -> None:
        site = Site(tmp_path)
        daemon = await _with_past(site)
        pruner = _pruner(site, daemon, 3600.0)
        foreseen = await daemon.collect(OWNER, dry_run=True)
        assert (await pruner.once()).records == foreseen.records > 3
        assert (await pruner.once()).records == 0, "nothing is left to remove"
        before = to_snapshot(daemon.controller.state)
        await site.crash()
        again = await site.up()
        state = to_snapshot(again.controller.state)
        assert state["jobs"] == before["jobs"]
        site.world.end("3")
        await site.quiet()
        assert again.job("3", OWNER).state == "done"
        assert [job.id for job in again.jobs(OWNER, frozenset(["done"]))] == ["3", "2", "1"]
        await site.crash()

    asyncio.run(script())
    store = Store.open(tmp_path / "journal.db")
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database:
        [older] = database.execute("SELECT min(seq) FROM snapshots").fetchone()
    assert (store.removed, store.removable(before_s=1e12)) == (older, 0), "what the older snapshot needs stays"
    with pytest.raises(InputError, match="records were removed because of their age; expected a journal kept from"):
        list(store.records())
    assert list(store.records(after=store.removed)), "the rest is whole"
    with pytest.raises(InputError, match="--truncate"):
        store.truncate(store.removed - 1)
    store.close()


@pytest.mark.parametrize("journal_s", [None, 30 * 86_400.0])
def test_records_stay_that_are_young_or_kept_for_ever(tmp_path: Path, journal_s: float | None) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        daemon = await _with_past(site)
        assert (await _pruner(site, daemon, journal_s).once()).records == 0
        assert daemon.store.removed == 0
        await site.crash()

    asyncio.run(script())


def test_without_two_snapshots_nothing_goes(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        daemon = await site.up()
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        site.now += 1e6
        assert (await _pruner(site, daemon, 1.0).once()).records == 0
        with pytest.raises(Refused, match="only the owner"):
            await daemon.collect(Caller("ada"))
        await site.crash()

    asyncio.run(script())
