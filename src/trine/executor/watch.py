"""One thread that sleeps until something happens: a descriptor becomes readable, or a tick is due. And the queue of
events that it fills, with a descriptor of its own for event loops. What to do then is the executor's business."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

from trine.executor.base import Event


class EventQueue:
    """Events in order, from any thread to any thread."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._filled = threading.Condition()
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def put(self, event: Event) -> None:
        with self._filled:
            self._events.append(event)
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)
            self._filled.notify_all()

    def take_all(self, timeout_s: float | None = 0.0) -> list[Event]:
        """What waits; if nothing does, what comes first within the timeout (``None``: however long it takes)."""
        with self._filled:
            self._filled.wait_for(lambda: self._events or self._descriptor < 0, timeout_s)
            taken = list(self._events)
            self._events.clear()
            if taken and self._descriptor >= 0:
                os.eventfd_read(self._descriptor)
            return taken

    def close(self) -> None:
        with self._filled:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1
            self._filled.notify_all()


class Watch:
    """Calls back from its thread: ``add`` for descriptors, ``tick`` every ``tick_s`` while ``ticking`` says so."""

    def __init__(self, tick: Callable[[], None], ticking: Callable[[], bool], tick_s: float) -> None:
        self._tick, self._ticking, self._tick_s = tick, ticking, tick_s
        self._calls: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="trine-executor", daemon=True)
        self._thread.start()

    def add(self, descriptor: int, call: Callable[[], None]) -> None:
        """``call`` when ``descriptor`` is readable or hung up; it stays until removed."""
        self._calls[descriptor] = call
        try:
            self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLHUP)
        except OSError:
            del self._calls[descriptor]
            raise
        self.wake()

    def remove(self, descriptor: int) -> None:
        """Forget a descriptor and close it."""
        if self._calls.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
            os.close(descriptor)

    def wake(self) -> None:
        """Look again at whether and when to tick."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """End the thread; descriptors are closed, nothing is called any more."""
        self._closing = True
        self.wake()
        self._thread.join()
        for descriptor in list(self._calls):
            self.remove(descriptor)
        self._epoll.close()
        os.close(self._wake)

    def _run(self) -> None:
        due = time.monotonic() + self._tick_s
        while not self._closing:
            # The sleep is endless while nothing runs: an idle daemon costs nothing.
            timeout_s = max(due - time.monotonic(), 0.0) if self._ticking() else None
            # One at a time: a call may close a descriptor whose number the next one then means.
            for descriptor, _ in self._epoll.poll(timeout_s, 1):
                self._ready(descriptor)
            if time.monotonic() >= due:
                due = time.monotonic() + self._tick_s
                self._guarded(self._tick)

    def _ready(self, descriptor: int) -> None:
        if descriptor == self._wake:
            os.eventfd_read(self._wake)
        elif call := self._calls.get(descriptor):
            self._guarded(call)

    def _guarded(self, call: Callable[[], None]) -> None:
        """One attempt that cannot be looked at must not keep the executor from all others."""
        try:
            call()
        except Exception:
            logging.getLogger(__name__).exception("while looking at a job")
