"""Takes a snapshot beside the running daemon: captured at one moment, written down a slice at a time.

Requests wait for the writer of the journal, and a snapshot needs the same writer: so it is handed over in slices short
enough that nobody notices. What ended since the last snapshot is all that is written of the ended jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

from trine.server.journal import Journal
from trine.server.live_job import LiveJob
from trine.server.snapshot import capture, job_text, live_text, saved
from trine.server.state import LiveState
from trine.server.store import Position, Store

T = TypeVar("T")
_SLICE = 100
"""Jobs put into words and written at once: a few milliseconds."""
PAUSE_S = 0.01
"""Between two slices, for those who wait."""


async def take_snapshot(journal: Journal, store: Store, state: LiveState, pause_s: float = PAUSE_S) -> None:
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
