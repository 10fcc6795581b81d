"""SIGTERM means: save and leave. The handler only notes it; the loop acts between two steps."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

Handler = Callable[[int, FrameType | None], object]


class SigtermCatcher:
    """Notes SIGTERM while installed, and passes it on to the handler that was there before."""

    def __init__(self, noted: Callable[[], None]) -> None:
        self._noted = noted
        self._before: Handler | int | None = None
        self._pid = 0
        self.caught = False

    @property
    def installed(self) -> bool:
        return self._pid == os.getpid()

    def install(self) -> bool:
        """Catch SIGTERM from now on. Only the main thread can; elsewhere this does nothing and returns False."""
        if self.installed:
            return True
        if threading.current_thread() is not threading.main_thread():
            return False
        self._before = signal.signal(signal.SIGTERM, self._handle)
        self._pid = os.getpid()
        return True

    def remove(self) -> None:
        """Give way to the earlier handler, unless another handler was installed since or this is another thread."""
        in_main = threading.current_thread() is threading.main_thread()
        if self.installed and in_main and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._earlier())
            self._pid = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.installed:
            self._end_child()
            return
        self.caught = True
        self._noted()
        if callable(self._before):
            self._before(number, frame)

    def _end_child(self) -> None:
        """A forked worker inherits the handler but not the loop: there SIGTERM does what it did before."""
        signal.signal(signal.SIGTERM, self._earlier())
        os.kill(os.getpid(), signal.SIGTERM)

    def _earlier(self) -> Handler | int:
        return signal.SIG_DFL if self._before is None else self._before
