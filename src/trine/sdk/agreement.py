"""How the ranks of a gang leave after the same step, although each learns of a stop at a moment of its own.

A rank that left alone would let the others wait for it in their next collective operation. Steps are counted here from
the start of the attempt, over all loops of a script, so that they mean the same on every rank.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

NEVER = 1 << 62
AHEAD_S = 0.5
"""How far ahead, in seconds of work, a rank says where it will look next."""
AHEAD_API_S = 2.0
"""The same where every look is a call of the daemon's API."""
DECISION_S = 5.0
"""How long a rank waits for a decision that another one has begun to take, at most."""


class StopAgreement(Protocol):
    """Asked after a step, at the latest after step ``due``; answers whether all ranks leave after this one."""

    due: int

    def leave(self, done: int, asked: bool, steps_per_s: float) -> bool:
        """``done`` steps are done, ``asked``: this rank knows of a stop."""


class Alone:
    """One rank, or no folder to agree in: leave as soon as a stop is asked for."""

    due = NEVER

    def leave(self, done: int, asked: bool, steps_per_s: float) -> bool:  # noqa: ARG002
        return asked


class ByCall:
    """The script's own operation, such as an all-reduce, every ``every`` steps: true if any rank says true."""

    def __init__(self, agree: Callable[[bool], bool], every: int, done: int) -> None:
        self._agree, self._every = agree, every
        self.due = done + every

    def leave(self, done: int, asked: bool, steps_per_s: float) -> bool:  # noqa: ARG002
        if done < self.due:
            return False
        self.due = done + self._every
        return bool(self._agree(asked))


class ByFiles:
    """Agreement over files in a folder that all ranks share.

    Every rank writes to a file up to which step it will go without looking (its horizon), and looks before it extends
    that. The rank that learns of a stop first raises a flag and then reads all horizons: the largest is where all
    leave. It is safe because both sides write before they read: a rank that extends its horizon either sees the flag,
    or its new horizon is seen by the rank that raised it. So no rank is past that step, however unevenly they run.
    """

    def __init__(
        self,
        folder: Path,
        attempt: int,
        rank: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder, self._attempt = folder, attempt
        self._horizon = _Number(folder / f"horizon-{attempt}-{rank}")
        self._flag, self._decision = str(folder / f"stopping-{attempt}"), _Number(folder / f"stop-at-{attempt}")
        self._clock, self._sleep = clock, sleep
        self._stop_at: int | None = None
        self._ahead = 1
        self.due = 0

    def leave(self, done: int, asked: bool, steps_per_s: float) -> bool:
        if self._stop_at is None:
            try:
                self._look(done, asked, steps_per_s)
            except OSError:  # a full disk must not end the training; without files each rank leaves when it is asked
                self._stop_at, self.due = done if asked else None, done + 1
        return self._stop_at is not None and done >= self._stop_at

    def _look(self, done: int, asked: bool, steps_per_s: float) -> None:
        if asked and self._raise_flag():
            self._decide(done)
            return
        if not asked and not _exists(self._flag):
            # Growing slowly, a few quick steps do not put the next look, and with it a stop, far away.
            self._ahead = max(1, min(int(steps_per_s * AHEAD_S), 2 * self._ahead))
            self._horizon.write(done + self._ahead)
            if not _exists(self._flag):  # again: a rank that raised it meanwhile may have read the old horizon
                self.due = done + self._ahead
                return
        self._await_decision(done)

    def _raise_flag(self) -> bool:
        """True for the one rank that takes the decision."""
        try:
            os.close(os.open(self._flag, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        except FileExistsError:
            return False
        return True

    def _decide(self, done: int) -> None:
        paths = [path for path in self._folder.glob(f"horizon-{self._attempt}-*") if path != self._horizon.path]
        stop_at = max([done, *(_Number(path).await_whole(self._clock, self._sleep) or 0 for path in paths)])
        self._decision.write(stop_at)
        self._stop_at = self.due = stop_at

    def _await_decision(self, done: int) -> None:
        stop_at = self._decision.await_whole(self._clock, self._sleep)
        self._stop_at = self.due = done if stop_at is None else stop_at


class ByApi:
    """Agreement through the daemon, for ranks whose nodes share no files: each says up to which step it will go, and
    asks again before it goes on. The daemon hears one after the other, so the largest of those steps is past for none.

    Calls cost more than files, so horizons are wider; a stop comes that much later.
    """

    def __init__(self, ask: Callable[[int, int, int, bool], int | None], rank: int) -> None:
        self._ask, self._rank = ask, rank
        self._stop_at: int | None = None
        self._ahead = 1
        self._told = False
        self.due = 0

    def leave(self, done: int, asked: bool, steps_per_s: float) -> bool:
        if self._stop_at is None and (done >= self.due or (asked and not self._told)):
            self._ahead = max(1, min(int(steps_per_s * AHEAD_API_S), 2 * self._ahead))
            try:
                self._stop_at = self._ask(self._rank, done, self._ahead, asked)
            except OSError:  # the daemon is away: as without files, each rank leaves when it is asked
                self._stop_at = done if asked else None
            self._told = asked
            self.due = done + self._ahead if self._stop_at is None else self._stop_at
        return self._stop_at is not None and done >= self._stop_at


class _Number:
    """A file that holds one number, twice: a reader that meets a writer half way sees that the two differ.

    Written in place, which costs a tenth of replacing the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def write(self, number: int) -> None:
        if self._file < 0:
            self._file = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        os.pwrite(self._file, b"%020d %020d" % (number, number), 0)

    def read(self) -> int | None:
        with suppress(OSError, ValueError):
            first, second = self.path.read_text().split()
            return int(first) if first == second else None
        return None

    def await_whole(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> int | None:
        """The number, as soon as it is there; ``None`` if that takes too long."""
        deadline_s = clock() + DECISION_S
        while (number := self.read()) is None and clock() < deadline_s:
            sleep(0.001)
        return number


def _exists(path: str) -> bool:
    return os.access(path, os.F_OK)
