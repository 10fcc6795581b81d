"""An executor whose engine is reached over something that can fail: threads that query it, send it orders and look at
attempts, so that no caller ever waits for it, and what follows from its silence (nothing but ``EngineDown``).

Queries and orders are those of the engine at hand; what attempts are is in ``executor``."""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from trine.executor.attempt.executor import AttemptExecutor
from trine.executor.attempt.files import AttemptFiles
from trine.executor.attempt.spec import LaunchRefused
from trine.executor.attempt.storage import DirectoryStorage
from trine.executor.base import EngineDown, EngineUp, InventoryChanged, NodeInfo, Unreachable

_log = logging.getLogger(__name__)
_ORDER_THREADS = 4

AnswerT = TypeVar("AnswerT")


@dataclass
class RemoteAttempt(AttemptFiles):
    """Times are seconds of this process's monotonic clock."""

    submitting: bool = False
    """Its submission is under way; nothing else is done about it meanwhile."""
    ask_first_s: float = -math.inf
    """Nothing follows from what the engine says of it until the engine was queried after this moment."""


RemoteT = TypeVar("RemoteT", bound=RemoteAttempt)


class EngineUnreachable(Exception):  # noqa: N818 - a state of the engine, not an error of ours
    """The engine cannot be asked now; in a few words, why."""


class EngineRefused(Exception):  # noqa: N818 - an answer
    """The engine answered, and said no; its own words."""


class RemoteExecutor(AttemptExecutor[RemoteT], Generic[RemoteT, AnswerT]):
    """Attempts are looked at every ``look_s`` seconds, the engine is asked every ``ask_s`` seconds, both also when
    ``_look`` or ``_ask`` is set. An engine calls ``_open`` at the end of its ``__init__``."""

    engine: ClassVar[str]
    """What people call it: ``Slurm``."""

    def __init__(
        self,
        state_dir: str | Path,
        nodes: Sequence[NodeInfo],
        *,
        look_s: float,
        ask_s: float,
        clock: Callable[[], float] = time.time,
        cordoned: Mapping[str, str] | None = None,
        storage: DirectoryStorage | None = None,
    ) -> None:
        super().__init__(state_dir, nodes, clock=clock, cordoned=cordoned, storage=storage)
        self._away = ""
        """Why the engine cannot be asked; empty: it can."""
        self._asked_s = -math.inf
        """When the question was put that was answered last, on the monotonic clock."""
        self._closing, self._look, self._ask = threading.Event(), threading.Event(), threading.Event()
        name = f"trine-{self.engine.lower()}"
        self._orders = ThreadPoolExecutor(_ORDER_THREADS, f"{name}-order")
        self._threads = [
            threading.Thread(target=self._repeat, args=(call, wake, every_s), name=f"{name}-{what}", daemon=True)
            for what, call, wake, every_s in (
                ("look", self._look_at_all, self._look, look_s),
                ("ask", self._ask_engine, self._ask, ask_s),
            )
        ]

    @abstractmethod
    def _question(self, running: Sequence[RemoteT]) -> AnswerT:
        """Ask the engine about all there is; ``running``: the attempts that have not ended. Called without the lock;
        may block. ``EngineUnreachable`` or ``EngineRefused``: no answer."""

    @abstractmethod
    def _answered(self, answer: AnswerT, asked_s: float) -> None:
        """Note what the engine says; ``asked_s``: when it was asked, on the monotonic clock. Attempts are looked at
        afterwards."""

    def _hand_in(self, attempt: RemoteT) -> None:
        """Give the engine an attempt that it does not have. ``EngineRefused`` or ``LaunchRefused``: it does not take
        it; ``EngineUnreachable``: it may have taken it. Called without the lock; may block. To be filled in, as
        ``_handed_in``, by engines that leave ``_launched`` as it is."""
        raise NotImplementedError(type(self).__name__)

    def _handed_in(self, attempt: RemoteT, refused: str) -> None:
        """The engine took an attempt; or why it did not, in its words."""
        raise NotImplementedError(type(self).__name__)

    def _launched(self, attempt: RemoteT) -> None:
        if attempt.known:
            attempt.ask_first_s = -math.inf  # no other call can have submitted it
            self._submit(attempt)

    def _submit(self, attempt: RemoteT) -> None:
        if not attempt.submitting and not self._away:
            attempt.submitting = True
            self._order(lambda: self._submit_now(attempt))

    def _submit_now(self, attempt: RemoteT) -> None:
        refused = ""
        try:
            self._hand_in(attempt)
        except (EngineRefused, LaunchRefused) as error:
            refused = str(error)
        except Exception:
            # Unreachable, when its answer may be what was lost, or a fault of ours: the engine is asked whether it has
            # the attempt before it gets it again.
            with self._lock:
                attempt.submitting, attempt.ask_first_s = False, time.monotonic()
            raise
        with self._lock:
            attempt.submitting = False
            self._handed_in(attempt, refused)

    def _open(self) -> None:
        """Take up what runs, and begin to look and to ask: the last step of opening an executor."""
        self._adopt_all()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Returns when no order of ours is under way any more."""
        self._closing.set()
        self._look.set()
        self._ask.set()
        for thread in self._threads:
            thread.join()
        self._orders.shutdown(wait=True, cancel_futures=True)
        super().close()

    def inventory(self) -> list[NodeInfo] | Unreachable:
        with self._lock:
            return Unreachable(self._away) if self._away else self._nodes.inventory()

    def _trouble(self) -> str:
        return f"{self.engine} cannot be asked: {self._away}" if self._away else ""

    def _order(self, call: Callable[[], None]) -> None:
        """Carry it out soon, without the lock; it may block. What the engine refuses is logged, what it does not hear
        is found out by the next question."""

        def guarded() -> None:
            try:
                call()
            except EngineUnreachable as error:
                self._went_away(str(error))
            except EngineRefused as refusal:
                _log.warning("%s refused: %s", self.engine, refusal)
            except Exception:  # of ours: it must not end with the thread, unseen
                _log.exception("while telling %s", self.engine)

        with suppress(RuntimeError):  # closed meanwhile
            self._orders.submit(guarded)

    def _ask_engine(self) -> None:
        asked_s = time.monotonic()
        with self._lock:
            running = self._running()
        try:
            answer = self._question(running)
        except (
            EngineUnreachable,
            EngineRefused,
        ) as error:  # a refusal is no answer to the question: as good as silence
            self._went_away(str(error))
            return
        with self._lock:
            if self._away:
                self._queue.put(EngineUp(self._clock()))
            self._away, self._asked_s = "", asked_s
            self._answered(answer, asked_s)
        self._look.set()

    def _went_away(self, reason: str) -> None:
        with self._lock:
            if not self._away:
                self._queue.put(EngineDown(self._clock(), reason))
            self._away = reason

    def _note_nodes(self, nodes: Sequence[NodeInfo]) -> None:
        """These are all nodes there are now."""
        if self._nodes.update(nodes):
            self._queue.put(InventoryChanged(self._clock(), tuple(self._nodes.inventory())))

    def _repeat(self, call: Callable[[], None], wake: threading.Event, every_s: float) -> None:
        while not self._closing.is_set():
            try:
                call()
            except Exception:  # of ours: the thread must go on, or nothing would be seen any more
                _log.exception("while looking after jobs of %s", self.engine)
            wake.wait(every_s)
            wake.clear()
