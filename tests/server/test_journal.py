"""Group commit: who waits is told when its record is durable, or that it never will be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, MortalStore, Site, spec
from trine.server import records as rec
from trine.server.interface import OutcomeUnknown, Unavailable
from trine.server.journal import JournalWriter
from trine.server.snapshot import to_snapshot
from trine.server.store import OutcomeUnknownError, Store, StoreError


class Disk:
    """Stands for the store: keeps what it is given, waits or fails when told to."""

    def __init__(self) -> None:
        self.batches: list[list[rec.Record]] = []
        self.error: Exception | None = None
        self.may_go = threading.Event()
        self.may_go.set()

    def append(self, batch: Sequence[rec.Record]) -> int:
        assert self.may_go.wait(10)
        if self.error is not None:
            raise self.error
        self.batches.append(list(batch))
        return len(batch)


def tick(at_s: float) -> rec.Record:
    return rec.Ticked(at_s, False)


def run(script: Callable[[Disk, JournalWriter, list[rec.Record]], Awaitable[None]], ends_badly: bool = False) -> None:
    async def whole() -> None:
        disk, durable = Disk(), list[rec.Record]()
        journal = JournalWriter(disk, durable.extend)  # type: ignore[arg-type]
        task = asyncio.create_task(journal.run())
        try:
            await script(disk, journal, durable)
        finally:
            task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)
            journal.close()
        assert ends_badly or isinstance(results[0], asyncio.CancelledError), results

    asyncio.run(whole())


def test_records_that_come_while_a_batch_is_written_go_together_and_in_order() -> None:
    async def script(disk: Disk, journal: JournalWriter, durable: list[rec.Record]) -> None:
        disk.may_go.clear()
        first = journal.add([tick(1)])
        while journal._waiting:
            await asyncio.sleep(0)
        others = [journal.add([tick(n), tick(n + 0.5)]) for n in (2, 3, 4)]
        assert not first.done()
        disk.may_go.set()
        await asyncio.gather(first, *others)
        assert [len(batch) for batch in disk.batches] == [1, 6]
        assert [record.at_s for record in durable] == [1, 2, 2.5, 3, 3.5, 4, 4.5]
        assert (journal.batches, journal.written) == (2, 7)

    run(script)


def test_whoever_is_answered_finds_the_orders_of_its_record_carried_out() -> None:
    async def script(disk: Disk, journal: JournalWriter, durable: list[rec.Record]) -> None:
        await journal.add([tick(1)])
        assert durable == [tick(1)]

    run(script)


def test_after_a_failed_write_everybody_is_told_and_nothing_is_taken_until_reset() -> None:
    async def script(disk: Disk, journal: JournalWriter, durable: list[rec.Record]) -> None:
        disk.may_go.clear()
        disk.error = StoreError("disk is full")
        first = journal.add([tick(1)])
        while journal._waiting:
            await asyncio.sleep(0)
        second = journal.add([tick(2)])
        disk.may_go.set()
        for future in (first, second):
            with pytest.raises(Unavailable, match="disk is full"):
                await future
        disk.error = None
        with pytest.raises(Unavailable):
            await journal.add([tick(3)])
        await journal.drained()
        journal.reset()
        await journal.add([tick(4)])
        assert durable == [tick(4)] and disk.batches == [[tick(4)]]

    run(script)


def test_an_unforeseen_error_leaves_nobody_waiting() -> None:
    async def script(disk: Disk, journal: JournalWriter, durable: list[rec.Record]) -> None:
        disk.error = TypeError("cannot be written as JSON")
        with pytest.raises(Unavailable, match="cannot be written as JSON"):
            await asyncio.wait_for(journal.add([tick(1)]), 5)

    run(script, ends_badly=True)


def test_drained_means_that_nothing_is_on_its_way_when_it_returns() -> None:
    """A snapshot is taken then: it must not hold what the journal does not hold yet."""

    async def script(disk: Disk, journal: JournalWriter, durable: list[rec.Record]) -> None:
        loop, added = asyncio.get_running_loop(), list[rec.Record]()

        def again(records: Sequence[rec.Record]) -> None:
            durable.extend(records)
            if len(added) < 3:  # an order was carried out, and its outcome comes at once
                added.append(tick(float(len(durable))))
                loop.call_soon(journal.add, [added[-1]])

        journal._durable = again
        journal.add([tick(0)])
        await journal.drained()
        assert len(durable) == 4 and not journal._waiting, "more was added before the waiter's turn came"
        assert await journal.in_thread(lambda: len(disk.batches)) == 4

    run(script)


def test_a_bug_in_the_writer_ends_the_daemon_instead_of_hanging_it(tmp_path: Path) -> None:
    async def script() -> None:
        site, crashes = Site(tmp_path), list[BaseException]()
        daemon = await site.up()
        daemon.on_crash = crashes.append

        def count(*_: Any) -> None:
            raise RuntimeError("no such thing as a number")

        daemon.observed.count = count  # type: ignore[method-assign, assignment]
        await asyncio.wait_for(daemon.submit([spec(1)], OWNER), 5)
        async with asyncio.timeout(5):
            while not crashes:
                await asyncio.sleep(0.005)
            assert "no such thing as a number" in str(crashes[0])
            await daemon.stop(keep_snapshot=False)
        await site.crash()

    asyncio.run(script())
    store = Store.open(tmp_path / "journal.db")
    assert list(store.load().jobs) == ["1"], "what was acknowledged is on record"
    store.close()


def test_a_snapshot_taken_under_load_holds_what_the_journal_holds(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, policy="las")
        daemon = await site.up()

        async def load() -> None:
            for _ in range(12):
                await daemon.submit([spec(1), spec(2)], OWNER)
                for job_id in list(site.world.running()):
                    site.world.end(job_id)

        async def snapshots() -> None:
            for _ in range(12):
                await daemon._snapshot()
                await asyncio.sleep(0.003)

        await asyncio.gather(load(), snapshots())
        await site.quiet()
        expected = to_snapshot(daemon.controller.state)
        await site.crash()
        store = MortalStore.open(tmp_path / "journal.db")
        assert to_snapshot(store.load()) == expected, "from the last snapshot"
        with store._engine.begin() as connection:
            connection.exec_driver_sql("delete from snapshots")
        assert to_snapshot(store.load()) == expected, "from the beginning"
        store.close()

    asyncio.run(script())


def test_requests_are_answered_while_a_snapshot_of_many_ended_jobs_is_taken(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        daemon = await site.up()
        ids = [job_id for _ in range(2) for job_id in await daemon.submit([spec(1)] * 1000, OWNER)]
        for job_id in ids:
            daemon.journal.add([daemon.controller.ask(site.now, job_id, "cancel", "test")])
        for job_id in list(site.world.running()):
            site.world.end(job_id)
        await site.quiet()
        taking = asyncio.create_task(daemon._snapshot())
        for _ in range(10):
            await asyncio.wait_for(daemon.submit([spec(4)], OWNER), 5)
            assert not taking.done(), "requests do not wait for the snapshot"
        await taking
        assert not daemon.controller.state.unsaved
        await daemon.submit([spec(4)], OWNER)
        await site.quiet()
        expected = to_snapshot(daemon.controller.state)
        await daemon.stop()  # with another snapshot
        daemon.executor.close()
        daemon.store.close()
        store = Store.open(tmp_path / "journal.db")
        assert to_snapshot(store.load()) == expected
        store.close()

    asyncio.run(script())


def test_an_unknown_outcome_is_told_to_those_it_concerns_only() -> None:
    async def script(disk: Disk, journal: JournalWriter, durable: list[rec.Record]) -> None:
        disk.may_go.clear()
        disk.error = OutcomeUnknownError("connection lost")
        first = journal.add([tick(1)])
        while journal._waiting:
            await asyncio.sleep(0)
        behind, again = journal.add([tick(2)]), journal.add([])
        disk.may_go.set()
        for future in (first, again):
            with pytest.raises(OutcomeUnknown, match="whether this was carried out is not known; connection lost"):
                await future
        with pytest.raises(Unavailable) as told:
            await behind
        assert told.value.code == "unavailable", "what was never sent was not written"

    run(script)


def test_nobody_waits_for_a_writer_that_has_ended() -> None:
    async def script(disk: Disk, journal: JournalWriter, durable: list[rec.Record]) -> None:
        def fails(_: Sequence[rec.Record]) -> None:
            raise RuntimeError("a bug")

        journal._durable = fails
        await journal.add([tick(1)])
        async with asyncio.timeout(5):
            await journal.drained()
            with pytest.raises(Unavailable, match="closed"):
                await journal.add([tick(2)])
            await journal.drained()

    run(script, ends_badly=True)
