"""Group commit: records queue up while a batch is being written, then go to disk together in one transaction.

To add a record gives a future that is done when the record is durable. After a failed write nothing more is
taken until ``reset``: what the writer had in hand is lost, and every future of it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from trine.server.interface import OutcomeUnknown, Unavailable
from trine.server.live_job import LiveJob
from trine.server.records import Record
from trine.server.snapshot import capture, job_text, live_text, saved
from trine.server.state import LiveState
from trine.server.store import OutcomeUnknownError, Position, Store, StoreError

T = TypeVar("T")
Durable = Callable[[Sequence[Record]], None]
_Batch = list[tuple[Sequence[Record], asyncio.Future[None]]]
_SLICE = 100
"""Jobs serialised and written at once: a few milliseconds."""
PAUSE_S = 0.01
"""Between two slices, for requests that wait for the writer."""


class JournalWriter:
    """The writer's queue. Lives in one event loop; the database is touched in one thread of its own."""

    def __init__(self, store: Store, durable: Durable) -> None:
        self._store = store
        self._durable = durable
        """Called in order with every batch that is on disk."""
        self._thread = ThreadPoolExecutor(1, "journal")
        self._waiting: _Batch = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.failure: StoreError | None = None
        self.failed = asyncio.Event()
        """Set while ``failure`` is."""
        self._over = False
        self.batches = 0
        self.written = 0

    @property
    def idle(self) -> bool:
        """Nothing is queued: all that was added before the batch in hand is on disk with it."""
        return not self._waiting

    def add(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Queue records; the future is done when they are durable and fails with ``Unavailable`` if they never were.

        ``OutcomeUnknown``, if that cannot be said. Without records: when all that was added before is durable.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.failure is not None or self._over:
            future.set_exception(Unavailable(str(self.failure or "the journal is closed")))
            return future
        self._waiting.append((records, future))
        self._idle.clear()
        self._wake.set()
        return future

    async def run(self) -> None:
        """Write batch after batch, for ever."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                batch, self._waiting = self._waiting, []
                if batch:
                    await self._write(batch)
                if not self._waiting:
                    self._idle.set()
        finally:
            self._over = True
            self._idle.set()  # nothing is written any more, so waiting for that ends

    async def _write(self, batch: _Batch) -> None:
        records = [record for part, _ in batch for record in part]
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.append, records)
        except StoreError as error:
            self._fail(error, batch)
        except Exception as error:
            self._fail(StoreError(f"the journal cannot be written: {error}"), batch)
            raise
        else:
            self.batches += 1
            self.written += len(records)
            for _, future in batch:
                if not future.done():
                    future.set_result(None)  # its waiters run in the next cycle of the loop, so after ``_durable``
            self._durable(records)

    def _fail(self, error: StoreError, batch: _Batch) -> None:
        """Records that queued up behind were decided on top of the lost ones: they are lost too."""
        self.failure = error
        self.failed.set()
        for _, future in batch:
            _refuse(future, error, isinstance(error, OutcomeUnknownError))
        for records, future in self._waiting:
            _refuse(future, error, isinstance(error, OutcomeUnknownError) and not records)
        self._waiting = []

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run ``call`` where the database may be touched, after all that is queued."""
        await self.drained()
        return await self.between(call)

    async def between(self, call: Callable[[], T]) -> T:
        """Run ``call`` where the database may be touched, between two batches: those that come meanwhile wait."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def reset(self) -> None:
        """Take records again, after the state was loaded anew."""
        self.failure = None
        self.failed.clear()

    async def drained(self) -> None:
        """Returns when nothing is left to be written."""
        while not (self._over or self._idle.is_set()):  # before a waiter runs, more may have been added
            await self._idle.wait()

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _refuse(future: asyncio.Future[None], error: StoreError, unknown: bool) -> None:
    if not future.done():
        lost = OutcomeUnknown(f"whether this was carried out is not known; {error}")
        future.set_exception(lost if unknown else Unavailable(str(error)))
        future.exception()  # not every future is awaited; asyncio would complain


async def take_snapshot(journal: JournalWriter, store: Store, state: LiveState, pause_s: float = PAUSE_S) -> None:
    """The state as of the last durable record; raises ``StoreError`` if it could not be kept, and nothing is lost."""
    await journal.drained()
    # Until the next ``await`` nothing is on its way: state and journal say the same.
    at, found = store.position, capture(state)
    await journal.between(partial(store.begin_snapshot, at))
    for jobs in _slices(found.ended, _SLICE):
        await journal.between(partial(_keep, store, at, jobs))
        await asyncio.sleep(pause_s)
    for gone in _slices(found.forgotten, _SLICE):
        await journal.between(partial(store.drop_ended, at, gone))
        await asyncio.sleep(pause_s)
    run = asyncio.get_running_loop().run_in_executor
    live = []
    for values in _slices(found.live, _SLICE):
        live.append(await run(None, live_text, values))
        await asyncio.sleep(pause_s)
    text = await run(None, found.text, live)
    await journal.between(partial(store.finish_snapshot, at, text))
    saved(state, found)


def _keep(store: Store, at: Position, jobs: Sequence[LiveJob]) -> None:
    store.keep_ended(at, [(job.id, job_text(job)) for job in jobs])


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))
