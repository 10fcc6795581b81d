"""One process's connection to the scheduler: is a stop asked, which step is it, where do all ranks leave.

The loop is in ``loop``, files of checkpoints in ``checkpoints``. Nothing here runs in the background.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NoReturn

from trine.sdk.agreement import NEVER, Agreement, Alone, ByFiles
from trine.sdk.environment import JobEnvironment
from trine.sdk.lease import LOOK_S, LeaseWatch, StopReason
from trine.sdk.progress import Progress
from trine.sdk.signals import SigtermCatcher

EXIT_STOPPED = 85
"""Exit code of a job that saved its state and gave its GPUs back."""

_REASONS = {
    "signal": "SIGTERM",
    "asked": "the scheduler asks for the GPUs",
    "expired": "the lease is over",
    "superseded": "a newer start of this job runs",
}


class Session:
    """State of one process. Steps are counted in ``ticks`` from its beginning, over all loops of the script."""

    def __init__(
        self,
        environment: JobEnvironment,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.environment = env = environment
        self.clock = clock
        self.progress = Progress(env.progress_dir if env.inside else None, env.rank, clock, unix_clock)
        self.sigterm = SigtermCatcher(self._hurry)
        self.restored_step = 0
        self.ticks = 0
        self.due_tick = 0 if env.inside else NEVER
        self.due_s = clock() if env.inside else float("inf")
        self.stopped: StopReason | None = None
        """Why the job leaves, once that is decided for all ranks."""
        self.heard: StopReason | None = None
        """Why it should, as ``should_stop()`` last answered the script."""
        lease = env.run_dir / "lease.json" if env.run_dir else None
        self._lease = LeaseWatch(lease, env.attempt, env.lease_s, clock)
        self._shared = self._by_files()
        self._last = (self.due_s, 0)
        self._steps_per_s = 0.0

    def _by_files(self) -> Agreement:
        env = self.environment
        if not env.inside or env.world_size == 1 or env.progress_dir is None:
            return Alone()
        return ByFiles(env.progress_dir, env.attempt, env.rank, self.clock)

    def _hurry(self) -> None:
        self.due_s = float("-inf")

    def asked(self) -> StopReason | None:
        """Why this rank should leave, as far as it knows by itself."""
        if not self.environment.inside:
            return None
        return "signal" if self.sigterm.caught else self._lease.over()

    def look(self, agreement: Agreement | None = None) -> bool:
        """Ask everything there is to ask after ``ticks`` steps: does this job leave now?"""
        agreement = agreement or self._shared
        now_s = self.clock()
        reason = self.asked()
        self._measure(now_s)
        leaves = agreement.leave(self.ticks, reason is not None, self._steps_per_s)
        self.due_tick, self.due_s = agreement.due, now_s + LOOK_S
        if leaves:
            self.stopped = reason or self.asked() or "asked"
        return leaves

    def _measure(self, now_s: float) -> None:
        then_s, ticks = self._last
        if now_s > then_s and self.ticks > ticks:
            self._steps_per_s = (self.ticks - ticks) / (now_s - then_s)
            self._last = now_s, self.ticks

    def step_done(self, step: int, total: int | None) -> bool:
        """One more step: for loops that are not ours. Every rank calls it after every step."""
        self.ticks += 1
        if not self.environment.inside:
            return False
        if self.stopped:
            return True
        if self.ticks < self.due_tick and self.clock() < self.due_s:
            self.progress.step = step
            return False
        self.progress.at(step, total)
        leaves = self.look()
        if leaves:
            self.progress.flush()
        return leaves

    def stop_reason(self) -> str:
        """Why the job leaves, as part of a sentence."""
        return _REASONS[self.stopped] if self.stopped else "nothing asks for a stop"

    def leave(self) -> NoReturn:
        sys.exit(EXIT_STOPPED)


_current: Session | None = None


def current() -> Session:
    """The session of this process, made from its environment when first asked for."""
    global _current  # noqa: PLW0603
    if _current is None:
        _current = Session(JobEnvironment.read())
    return _current
