"""Removes what is kept no longer: directories of jobs that ended long ago (logs, attempts, checkpoints kept there), and
records of the journal. Slowly, and never anything of a live job, outside the state directory, or that a start needs."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from trine.core.errors import InputError
from trine.executor.base import JobStorage
from trine.server.interface import Collected
from trine.server.journal import JournalWriter
from trine.server.state import LiveState
from trine.server.store import Store, StoreError

_DAY_S = 86_400.0
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY_S, "w": 7 * _DAY_S}
_EVERY_S = 3600.0
_PAUSE_S = 0.05
_RECORDS_AT_ONCE = 1_000
"""Removed in one transaction, for which requests wait: a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long directories of ended jobs stay, and how many at most; how long records of the journal do."""

    keep_s: float | None = 30 * _DAY_S
    """``None``: for ever."""
    keep_ended: int = 100_000
    checkpoints: bool = False
    """Directories with checkpoints in them go, too: only where the operator said so, since they may be all that is
    left of a long training."""
    journal_s: float | None = None
    """``None``: for ever, so that the whole past can be decided again."""


def keep_seconds(text: str, option: str = "--keep-jobs") -> float | None:
    """``--keep-jobs``, ``--keep-journal``: seconds, a duration such as 30d, or ``forever``."""
    if text == "forever":
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw]?)", text)
    if match is None:
        raise InputError(option, repr(text), "a duration such as 12h, 30d or 8w, or forever")
    return float(match[1]) * _UNITS_S[match[2]]


@dataclass
class Pruner:
    """Looks once an hour, and when it is asked, at what is due for removal."""

    storage: JobStorage
    retention: Retention
    state: Callable[[], LiveState]
    busy: Callable[[], Iterable[str] | None]
    """Jobs with attempts whose end is not on record yet; ``None``: not known now, so that none is removed."""
    now: Callable[[], float]
    journal: tuple[JournalWriter, Store] | None = None
    """Where records are removed from; ``None``: from nowhere."""
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.once()
            await asyncio.sleep(_EVERY_S)

    async def once(self, dry_run: bool = False, within_s: float = math.inf) -> Collected:
        """Remove what is due, or (``dry_run``) only say what that would be; about ``within_s`` seconds' worth of it."""
        ends_s = asyncio.get_running_loop().time() + within_s
        async with self._one_at_a_time:
            found = await self._remove_jobs(dry_run, ends_s)
            return found if found.more else replace(found, records=await self._remove_records(dry_run))

    async def _remove_jobs(self, dry_run: bool, ends_s: float) -> Collected:
        loop, removed, used, kept = asyncio.get_running_loop(), 0, 0, 0
        for name in self.due(await loop.run_in_executor(None, self.storage.changed_s)):
            if loop.time() >= ends_s:
                return Collected(removed, used, kept, 0, more=True)
            busy = self.busy()
            if busy is None or name in self.state().live or name in busy:
                continue
            if not self.retention.checkpoints and await loop.run_in_executor(None, self.storage.has_checkpoints, name):
                kept += 1
                continue
            size = await loop.run_in_executor(None, self.storage.used_bytes, name)
            if dry_run or await self._remove(name):
                removed, used = removed + 1, used + size
        return Collected(removed, used, kept, 0)

    async def _remove(self, name: str) -> bool:
        log = structlog.get_logger("prune")
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.storage.remove, name)
            log.info("pruned", job=name)
        except OSError as error:
            log.warning("prune", job=name, problem=error.strerror)
            return False
        finally:
            await asyncio.sleep(_PAUSE_S)
        return True

    async def _remove_records(self, dry_run: bool) -> int:
        """How many records of the journal are removed, or would be."""
        if self.journal is None or self.retention.journal_s is None:
            return 0
        writer, store = self.journal
        try:
            upto = await writer.between(partial(store.removable, self.now() - self.retention.journal_s))
            if dry_run:
                return max(0, upto - await writer.between(lambda: store.removed))
            gone = 0
            while part := await writer.between(partial(store.remove_records, upto, _RECORDS_AT_ONCE)):
                gone += part
                await asyncio.sleep(_PAUSE_S)
        except StoreError as error:
            structlog.get_logger("prune").warning("prune", problem=str(error))
            return 0
        if gone:
            structlog.get_logger("prune").info("pruned", records=gone)
        return gone

    def due(self, found: dict[str, float]) -> list[str]:
        """Of the directories ``found`` (with the time each was last changed), those to be removed, oldest job first."""
        state, busy = self.state(), set(self.busy() or ())
        before = float("-inf") if self.retention.keep_s is None else self.now() - self.retention.keep_s
        ended_s = {}
        for name, changed_s in found.items():
            job = state.jobs.get(name)
            # The journal does not remember every job: what it has forgotten is as old as its directory.
            ended_s[name] = changed_s if job is None else float("inf") if job.live else job.finished_s or changed_s
        ended = sorted((name for name in ended_s if ended_s[name] < float("inf")), key=lambda name: ended_s[name])
        too_many = set(ended[: max(len(ended) - self.retention.keep_ended, 0)])
        return [name for name in ended if (ended_s[name] < before or name in too_many) and name not in busy]
