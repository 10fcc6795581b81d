"""The daemon dies at every record of a scenario, and at random moments under load: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, MortalStore, Site, spec
from trine.engine.invariants import check
from trine.server import scheduler
from trine.server.build import Model
from trine.server.interface import LIVE_STATES, Refused
from trine.server.replay import redecide
from trine.server.snapshot import to_snapshot
from trine.server.store import Store

ENDED = {"done", "failed", "cancelled"}


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gained by waiting for requests that come close together: each step here waits for its outcome."""
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


class Book:
    """What the daemon acknowledged, and what was seen to be over."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.ended: dict[str, str] = {}

    def look(self, site: Site) -> None:
        assert site.daemon is not None
        state = site.daemon.controller.state
        check(site.daemon.controller.deciding)
        assert len(set(state.jobs)) == len(state.jobs)
        for job_id in self.accepted:
            assert job_id in state.jobs, f"job {job_id} was acknowledged and is gone"
        for job_id, ended in self.ended.items():
            assert state.jobs[job_id].state == ended, f"job {job_id} was {ended}"

    def note_ended(self, site: Site) -> None:
        """Only what is durable counts as known to the outside."""
        assert site.daemon is not None
        self.ended |= {
            job.id: job.state for job in site.daemon.controller.state.jobs.values() if job.state not in LIVE_STATES
        }


async def scenario(site: Site, book: Book) -> None:
    """Submissions, preemption, a move, hold, cancel, a failure, a drain: one of everything."""
    daemon = site.daemon
    assert daemon is not None

    async def step(action: Awaitable[object]) -> None:
        result = await action
        await site.quiet()
        if isinstance(result, list):
            book.accepted += result
        book.note_ended(site)
        book.look(site)

    await step(daemon.submit([spec(2, steps=100.0), spec(1), spec(1)], OWNER, "first"))
    site.world.work("1", 10)
    await step(site.tick(60))
    await step(daemon.submit([spec(4, priority=3.0)], OWNER))
    await step(site.tick(60))
    await step(daemon.hold("2", OWNER))
    await step(daemon.submit([spec(1), spec(3)], OWNER, "second"))
    await step(daemon.cancel("5", OWNER))
    site.world.end("4")
    await step(site.quiet())
    await step(daemon.drain("node0", "test", OWNER))
    await step(daemon.release("2", OWNER))
    for job_id in list(site.world.running()):
        site.world.end(job_id, *(("failed", 3) if job_id == "3" else ("done", 0)))
    await step(site.tick(60))
    await step(daemon.undrain("node0", OWNER))


async def finish_everything(site: Site) -> None:
    """From wherever it stands, the rest of the work gets done."""
    daemon = site.daemon
    assert daemon is not None
    for name in list(daemon.controller.state.nodes):
        await daemon.undrain(name, OWNER)
    for job in list(daemon.controller.state.live.values()):
        if job.state == "held":
            await daemon.release(job.id, OWNER)
    for _ in range(50):
        await site.tick(60)
        if not daemon.controller.state.live:
            return
        for job_id in list(site.world.running()):
            site.world.end(job_id)
        await site.quiet()
    raise AssertionError({job.id: job.state for job in daemon.controller.state.live.values()})


async def until_death(site: Site, script: Callable[[], Awaitable[None]]) -> bool:
    """Run the script until the daemon dies; true if it got to its end."""
    assert site.daemon is not None
    work, writer = asyncio.ensure_future(script()), site.daemon._tasks[0]
    await asyncio.wait([work, writer], return_when=asyncio.FIRST_COMPLETED)
    finished = work.done() and not writer.done()  # a script that went on after the death fails at whatever is missing
    work.cancel()
    results = await asyncio.gather(work, return_exceptions=True)
    if finished and isinstance(results[0], BaseException):
        raise results[0]
    return finished


async def one_life(home: Path, dies_at: int | None, after_commit: bool) -> tuple[bool, int]:
    site, book = Site(home, policy="srtf"), Book()
    store = MortalStore.open(home / "journal.db")
    await site.up(store=store)
    store.dies_at, store.after_commit = dies_at, after_commit
    whole = await until_death(site, lambda: scenario(site, book))
    written = store.seq
    await site.crash()
    daemon = await site.up()
    try:
        await site.quiet()
        book.look(site)
        assert await daemon.submit([spec(2, steps=100.0), spec(1), spec(1)], OWNER, "first") == ["1", "2", "3"]
        await finish_everything(site)
        book.look(site)
        assert {job.state for job in daemon.controller.state.jobs.values()} <= ENDED
        starts = [(handle.job_id, handle.epoch) for handle in site.world.launches]
        assert len(set(starts)) == len(starts), "a start was carried out twice"
    finally:
        await site.crash()
    return whole, written


def test_killed_at_every_record_of_a_scenario(tmp_path: Path) -> None:
    async def all_positions() -> int:
        home = tmp_path / "undisturbed"
        home.mkdir()
        whole, records = await one_life(home, None, False)
        assert whole
        for position in range(2, records + 1):
            for after_commit in (False, True):
                home = tmp_path / f"{position}-{after_commit}"
                home.mkdir()
                await one_life(home, position, after_commit)
        return records

    assert asyncio.run(all_positions()) > 20


def test_killed_again_and_again_under_load(tmp_path: Path) -> None:
    rng = random.Random(7)

    async def load(site: Site, book: Book, seed: int) -> None:
        """Jobs come, work, end, fail, are cancelled; for ever."""
        draw = random.Random(seed)
        daemon = site.daemon
        assert daemon is not None
        while True:
            action = draw.random()
            running = list(site.world.running())
            try:
                if action < 0.45 and len(daemon.controller.state.live) < 20:
                    jobs = [spec(draw.choice((1, 1, 2, 4)), priority=float(draw.randrange(3))) for _ in range(3)]
                    book.accepted += await daemon.submit(jobs, OWNER)
                elif action < 0.75 and running:
                    site.world.end(draw.choice(running), *draw.choice((("done", 0), ("failed", 1), ("lost", 137))))
                elif action < 0.85 and daemon.controller.state.live:
                    await daemon.cancel(draw.choice(list(daemon.controller.state.live)), OWNER)
                else:
                    await site.tick(30)
            except Refused:
                pass  # it ended in the meantime
            await asyncio.sleep(0)

    async def lives() -> None:
        site, book = Site(tmp_path, gpus="3x2", policy="las"), Book()
        for life in range(60):
            store = MortalStore.open(tmp_path / "journal.db")
            daemon = await site.up(store=store)
            book.look(site)
            store.dies_at, store.after_commit = store.seq + rng.randrange(1, 25), rng.random() < 0.5
            assert not await until_death(site, lambda: load(site, book, rng.randrange(10**9)))
            durable = Store.open(tmp_path / "journal.db").load()
            book.ended |= {job.id: job.state for job in durable.jobs.values() if not job.live}
            await site.crash()
            if life % 10 == 0:
                daemon = await site.up()
                await site.quiet()
                await daemon.stop()  # an orderly stop in between: its snapshot must hold the same
                daemon.executor.close()
                daemon.store.close()
        daemon = await site.up()
        await finish_everything(site)
        book.look(site)
        assert len(book.accepted) > 100
        starts = [(handle.job_id, handle.epoch) for handle in site.world.launches]
        assert len(set(starts)) == len(starts)
        await site.crash()

    asyncio.run(lives())


def test_a_recorded_run_is_decided_the_same_again(tmp_path: Path) -> None:
    async def record() -> None:
        site = Site(tmp_path, policy="srtf", placement="pal")
        await site.up()
        await scenario(site, Book())
        await finish_everything(site)
        await site.crash()

    asyncio.run(record())
    agreement, state = redecide(Store.open(tmp_path / "journal.db").records(), Model())
    assert agreement.difference == ""
    assert agreement.agreed == agreement.decisions > 10
    assert {job.state for job in state.jobs.values()} <= ENDED


def test_a_full_disk_refuses_requests_and_loses_nothing(tmp_path: Path) -> None:
    from trine.server.interface import Unavailable
    from trine.server.store import StoreError

    class FullStore(Store):
        full = False

        def append(self, batch: object) -> int:
            if self.full:
                raise StoreError("journal.db: the journal cannot be written: database or disk is full")
            return super().append(batch)  # type: ignore[arg-type]

    async def script() -> None:
        site, book = Site(tmp_path), Book()
        store = FullStore.open(tmp_path / "journal.db")
        daemon = await site.up(store=store)
        book.accepted += await daemon.submit([spec(4), spec(1)], OWNER)
        await site.quiet()
        store.full = True
        with pytest.raises(Unavailable, match="disk is full"):
            await daemon.submit([spec(1)], OWNER)
        with pytest.raises(Unavailable):
            await daemon.cancel("2", OWNER)
        [problem] = daemon.daemon().problems
        assert problem.startswith("Nothing is accepted or decided: ") and problem.endswith("disk is full.")
        site.world.end("1")  # its end cannot be written down now
        await site.heard()
        store.full = False
        await site.recovered()
        assert daemon.daemon().problems == ()
        book.look(site)
        assert {job.id: job.state for job in daemon.controller.state.jobs.values()} == {"1": "done", "2": "running"}
        assert await daemon.submit([spec(1)], OWNER) == ["3"]
        await site.crash()

    asyncio.run(script())


def test_while_the_disk_is_full_answers_come_from_what_is_on_record(tmp_path: Path) -> None:
    from trine.server.interface import Unavailable
    from trine.server.store import StoreError

    class FullStore(Store):
        full = False

        def append(self, batch: object) -> int:
            self._fail()
            return super().append(batch)  # type: ignore[arg-type]

        def _claim(self, take_over: bool = False) -> None:
            self._fail()
            super()._claim(take_over)

        def _fail(self) -> None:
            if self.full:
                raise StoreError("journal.db: the journal cannot be written: database or disk is full")

    async def script() -> None:
        site = Site(tmp_path)
        store = FullStore.open(tmp_path / "journal.db")
        store.claim()
        daemon = await site.up(store=store)
        await daemon.submit([spec(4), spec(1)], OWNER)
        await site.quiet()
        store.full = True
        with pytest.raises(Unavailable, match="disk is full"):
            await daemon.cancel("2", OWNER)  # refused, so it must not look carried out
        async with asyncio.timeout(5.0):
            while daemon.job("2", OWNER).state != "waiting":
                await asyncio.sleep(0.01)
        assert daemon.journal.failure is not None
        store.full = False
        await site.recovered()
        assert (await daemon.cancel("2", OWNER)).state == "cancelled"
        await site.crash()

    asyncio.run(script())


def test_what_somebody_else_asked_for_is_acknowledged_only_once_it_is_on_record(tmp_path: Path) -> None:
    from threading import Event

    from trine.server.interface import Unavailable
    from trine.server.store import StoreError

    class SlowStore(Store):
        gate: Event | None = None

        def append(self, batch: object) -> int:
            if self.gate is not None:
                self.gate.wait(10)
                raise StoreError("journal.db: the journal cannot be written: database or disk is full")
            return super().append(batch)  # type: ignore[arg-type]

    async def script() -> None:
        site = Site(tmp_path)
        store = SlowStore.open(tmp_path / "journal.db")
        daemon = await site.up(store=store)
        await daemon.submit([spec(4)], OWNER)
        await site.quiet()
        store.gate = Event()
        asked: list[asyncio.Future[Any]] = [asyncio.ensure_future(daemon.hold("1", OWNER)) for _ in range(2)]
        asked += [asyncio.ensure_future(daemon.drain("node0", "", OWNER)) for _ in range(2)]
        await asyncio.sleep(0)
        store.gate.set()
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in told] == [Unavailable] * 4
        await site.crash()

    asyncio.run(script())


def test_a_damaged_journal_is_refused_with_a_sentence_and_can_be_cut(tmp_path: Path) -> None:
    import sqlite3

    from trine.server.store import DamagedJournalError

    async def record() -> None:
        site = Site(tmp_path)
        daemon = await site.up()
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        await site.crash()

    asyncio.run(record())
    path = tmp_path / "journal.db"
    with sqlite3.connect(path) as database:
        last = database.execute("select max(seq) from journal").fetchone()[0]
        database.execute("update journal set body = replace(body, '1', '2') where seq = ?", (last,))
    database.close()
    with pytest.raises(DamagedJournalError, match=rf"record {last} of the journal is damaged.*--truncate {last - 1}"):
        Store.open(path).load()
    store = Store.open(path)
    assert store.truncate(last - 1) == 1
    assert set(store.load().jobs) == {"1", "2"}
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
    (tmp_path / "journal.db-wal").unlink(missing_ok=True)
    with pytest.raises(Exception, match=r"journal\.db.*") as told:
        Store.open(path).load()
    assert "Traceback" not in str(told.value)


def test_a_snapshot_holds_exactly_what_the_journal_adds_up_to(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, policy="srtf")
        daemon = await site.up()
        await scenario(site, Book())
        before = to_snapshot(daemon.controller.state)
        replayed = Store.open(tmp_path / "journal.db").load()
        assert to_snapshot(replayed) == before
        await daemon.stop()
        daemon.executor.close()
        daemon.store.close()
        assert to_snapshot(Store.open(tmp_path / "journal.db").load()) == before

    asyncio.run(script())
