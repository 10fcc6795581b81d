"""The training loop: counts steps, reports them, saves, and ends when the scheduler wants the GPUs back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from trine.sdk.agreement import NEVER, ByCall, StopAgreement
from trine.sdk.batches import batches_from
from trine.sdk.checkpoints import no_space
from trine.sdk.session import Session, say

Batch = TypeVar("Batch")


class LoopOptions(NamedTuple):
    """How a loop behaves; ``trine.sdk.steps`` explains each."""

    start: int
    total: int | None
    save: Callable[[int], object] | None = None
    save_every: int = 0
    agree: Callable[[bool], bool] | None = None
    agree_every: int = 5
    skip: bool = True
    leave: bool = True
    seed: int | None = None


class Loop:
    """One run through the steps of a training."""

    def __init__(self, session: Session, options: LoopOptions) -> None:
        self._session, self._options = session, options
        self._agreement = self._agreement_for(options)
        self._base = session.ticks - options.start
        self._saved = self._tried = options.start
        self._problem = ""
        """Why the last checkpoint could not be written."""

    def _agreement_for(self, options: LoopOptions) -> StopAgreement | None:
        session = self._session
        if options.agree is None or not session.environment.inside:
            return None
        return ByCall(options.agree, options.agree_every, session.ticks)

    def run(self, source: Iterable[Batch]) -> Iterator[tuple[int, Batch]]:
        session, options = self._session, self._options
        clock, done = session.clock, options.start
        self._begin()
        try:
            if session.stopped or self._look(done):
                self._end_early(done)
                return
            self._next_save(done)
            for batch in batches_from(source, done, options.total, options.skip, options.seed):
                yield done, batch
                done += 1
                session.ticks += 1
                if (session.ticks >= session.due_tick or clock() >= session.due_s) and self._pause(done):
                    self._end_early(done)
                    return
            session.last_answer = None
            self._end(done)
        finally:
            if not session.stopped:
                session.sigterm.remove()

    def _begin(self) -> None:
        session, options = self._session, self._options
        if session.environment.inside:
            session.sigterm.install()
        session.progress.begin(options.start, options.total)

    def _pause(self, done: int) -> bool:
        """Between two steps, now and then: save, report, and look whether to leave."""
        session = self._session
        if self._options.save_every and done - self._tried >= self._options.save_every:
            self._save(done)
        session.progress.at(done, None)
        leaves = self._look(done)
        self._next_save(done)
        return leaves

    def _look(self, done: int) -> bool:
        session, total = self._session, self._options.total
        finished = total is not None and done >= total
        return session.environment.inside and not finished and session.look(self._agreement)

    def _next_save(self, done: int) -> None:
        """Be woken in time for the next checkpoint."""
        session, every = self._session, self._options.save_every
        if not session.environment.inside:
            session.due_tick = NEVER
        if every:
            session.due_tick = min(session.due_tick, self._base + max(self._tried + every, done + 1))

    def _save(self, done: int) -> None:
        session, save = self._session, self._options.save
        if save is None or done == self._saved:
            return
        began_s, self._tried = session.clock(), done
        try:
            save(done)
        except OSError as error:
            if not no_space(error):
                raise
            self._not_saved(done, error)
        else:
            self._saved = session.progress.checkpoint_step = done
            self._problem = ""
        session.progress.pause(session.clock() - began_s)

    def _not_saved(self, done: int, error: OSError) -> None:
        """A full disk may have room again at the next checkpoint: the training goes on with the one before."""
        if not self._problem:
            what = f"no checkpoint after step {done} ({error.strerror}); {self._kept()} counts until one is written"
            say(what)
        self._problem = error.strerror or "no space"

    def _kept(self) -> str:
        kept = self._session.progress.checkpoint_step
        return "no checkpoint" if kept is None else f"checkpoint at step {kept}"

    def _end(self, done: int) -> None:
        self._session.progress.step = done
        self._session.progress.flush()

    def _end_early(self, done: int) -> None:
        """All ranks are here, after the same step."""
        session = self._session
        if session.stopped != "superseded":
            self._save(done)
        self._end(done)
        if session.environment.rank == 0:
            what = (
                f"{self._kept()}, the newest that could be written ({self._problem})" if self._problem else self._kept()
            )
            say(f"leaving after step {done} ({session.stop_reason()}), {what}")
        if self._options.leave:
            session.leave()
