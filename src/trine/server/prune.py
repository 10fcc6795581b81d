"""Removes the directories of jobs that ended long ago: logs, attempts, and checkpoints kept there. Slowly, and never
anything of a live job or outside the state directory. What happened stays in the journal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from trine.core.errors import InputError
from trine.executor.base import JobStorage
from trine.server.state import LiveState

_DAY_S = 86_400.0
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY_S, "w": 7 * _DAY_S}
_EVERY_S = 3600.0
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Retention:
    """How long directories of ended jobs stay, and how many at most."""

    keep_s: float | None = 30 * _DAY_S
    """``None``: for ever."""
    keep_ended: int = 100_000
    checkpoints: bool = False
    """Directories with checkpoints in them go, too: only where the operator said so, since they may be all that is
    left of a long training."""


def keep_seconds(text: str) -> float | None:
    """``--keep-jobs``: seconds, a duration such as 30d, or ``forever``."""
    if text == "forever":
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw]?)", text)
    if match is None:
        raise InputError("--keep-jobs", repr(text), "a duration such as 12h, 30d or 8w, or forever")
    return float(match[1]) * _UNITS_S[match[2]]


@dataclass
class Pruner:
    """Looks once an hour at what is due for removal."""

    storage: JobStorage
    retention: Retention
    state: Callable[[], LiveState]
    busy: Callable[[], Iterable[str] | None]
    """Jobs with attempts whose end is not on record yet; ``None``: not known now, so that none is removed."""
    now: Callable[[], float]

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.once()
            await asyncio.sleep(_EVERY_S)

    async def once(self) -> None:
        loop, log = asyncio.get_running_loop(), structlog.get_logger("prune")
        for name in self.due(await loop.run_in_executor(None, self.storage.changed_s)):
            busy = self.busy()
            if busy is None or name in self.state().live or name in busy:
                continue
            if not self.retention.checkpoints and await loop.run_in_executor(None, self.storage.has_checkpoints, name):
                continue
            try:
                await loop.run_in_executor(None, self.storage.remove, name)
                log.info("pruned", job=name)
            except OSError as error:
                log.warning("prune", job=name, problem=error.strerror)
            await asyncio.sleep(_PAUSE_S)

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
