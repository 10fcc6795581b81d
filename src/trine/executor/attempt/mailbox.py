"""What a part reads and writes in the directory of its attempt, in a thread of its own: lease, requests to stop, news.

A file server that is away stops the thread, and nothing else: the part goes on timing its lease, and ends its ranks
when that is over. Light: every supervisor loads this."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH118

from __future__ import annotations

import _thread
import os
import sys

from trine.executor.attempt import rundir
from trine.executor.attempt.processes import is_same, uptime_s

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LOOKS_PER_LEASE, _LEAST_S, _MOST_S = 8, 0.05, 10.0


class Mailbox:
    """Looks at the files every ``look_s`` seconds (``None``: as often as the lease asks for) and on request; does
    what is posted, in order; calls ``wake`` when there is something new. The part reads the attributes as they are."""

    def __init__(
        self,
        run_dir: str,
        wake: Callable[[], None],
        look_s: float | None = None,
        parent: int = 0,
        keeper: dict[str, Any] | None = None,
        beat: Callable[[], None] | None = None,
    ) -> None:
        self.run_dir, self._wake = run_dir, wake
        self._beat = beat
        """Writes a sign of life, where others watch for one."""
        self.stop: dict[str, Any] | None = None
        """The request to stop: with ``grace_s``, with ``kill``, or with neither if ``parent`` or ``keeper`` is gone."""
        self._parent, self._keeper = parent, keeper
        self.halt: dict[str, Any] | None = None
        """The first failure of the attempt, which ends all parts."""
        self.deadline: float | None = None
        """When the lease is over, on the clock ``uptime_s``; ``None``: it holds for ever."""
        self.answers = 0
        """How many requests to look now were answered."""
        self._nudged = self._runs = False
        self._mark: tuple[object, int] | None = None
        self._seen_s = uptime_s()
        self._every_s = look_s
        self._posts: list[Callable[[], None]] = []
        self._bell, self._flushed = _thread.allocate_lock(), _thread.allocate_lock()
        self._bell.acquire()

    def read(self) -> None:
        """The lease as it is when the part begins; it runs from here on. OSError if it cannot be read."""
        self._seen_s = uptime_s()
        lease, self._mark = rundir.read_lease(self.run_dir)
        self._time_lease(lease, self._seen_s)

    def start(self) -> None:
        """Look at the files from here on. Not before the ranks are forked, which have no use for a second thread."""
        _thread.start_new_thread(self._run, ())
        self._runs = True

    def post(self, call: Callable[[], None]) -> None:
        """Have the thread do this, after all that was posted before."""
        self._posts.append(call)  # no lock: appending to a list and popping from it are atomic
        self.ring()

    def look_now(self) -> None:
        """Look at once, and wake the part even if nothing is new."""
        self._nudged = True
        self.ring()

    def ring(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:
            return  # rung already

    def flush(self) -> None:
        """Return when all that was posted is done, however long the files take."""
        if not self._runs:  # the part could not even begin
            self._do_posts()
            return
        # The lock as an event: taken here, released by the thread when it comes to this post.
        self._flushed.acquire()
        self.post(self._flushed.release)
        self._flushed.acquire()
        self._flushed.release()

    def _run(self) -> None:
        while True:
            self._bell.acquire(timeout=-1 if self._every_s is None else self._every_s)
            self._do_posts()
            if self._beat is not None:
                self._guarded(self._beat)
            self._guarded(self._look)

    def _do_posts(self) -> None:
        while self._posts:
            self._guarded(self._posts.pop(0))

    def _guarded(self, call: Callable[[], None]) -> None:
        """What fails must not end the looks at the files, nor keep the part waiting for what was posted after it."""
        try:
            call()
        except Exception:
            sys.excepthook(*sys.exc_info())

    def _look(self) -> None:
        before, nudged, self._nudged = (self.stop, self.halt), self._nudged, False
        self.stop = rundir.read_json(os.path.join(self.run_dir, rundir.STOP)) or self.stop
        if self.stop is None and self._is_given_up():
            self.stop = {}
        self.halt = self.halt or rundir.read_json(os.path.join(self.run_dir, rundir.HALT))
        self._look_at_lease()
        self.answers += nudged
        # A machine that was suspended wakes up with its timers as they were: the part may have to look at the clock.
        over = self.deadline is not None and uptime_s() >= self.deadline
        if nudged or over or before != (self.stop, self.halt):
            self._wake()

    def _is_given_up(self) -> bool:
        """What the engine started this part by is gone."""
        if self._keeper is not None:
            return not is_same(self._keeper)
        return bool(self._parent) and os.getppid() != self._parent

    def _look_at_lease(self) -> None:
        began_s = uptime_s()
        try:
            lease, mark = rundir.read_lease(self.run_dir)
        except OSError:
            return  # looked at again soon; it runs on meanwhile
        if mark != self._mark:
            # Renewed at some moment after the look before began: counted from there, it never ends too late.
            self._time_lease(lease, self._seen_s)
        self._mark, self._seen_s = mark, began_s

    def _time_lease(self, lease: dict[str, Any], from_s: float) -> None:
        lease_s = lease.get("lease_s")
        if not isinstance(lease_s, int | float) or isinstance(lease_s, bool):
            self.deadline = None
            return
        self.deadline = from_s + lease_s
        often_s = max(_LEAST_S, min(lease_s / _LOOKS_PER_LEASE, _MOST_S))
        self._every_s = often_s if self._every_s is None else min(often_s, self._every_s)
