"""Calls that last: waiting for a job, following a log. Bounded in number, ended when the daemon stops."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from trine.server.api.errors import ApiError
from trine.server.api.limits import Limits
from trine.server.interface import Caller

LOOK_EVERY_S = 0.5
"""Logs grow without a word, so followers look this often; so do waiters whose client may have gone."""
NOT_BEFORE_S = 0.05
"""Least time between two looks, or every change would wake every watcher."""


class Watches:
    """The watchers of one daemon. ``changed`` is the service's."""

    def __init__(self, changed: Callable[[float], Awaitable[None]], limits: Limits) -> None:
        self._changed, self._most = changed, limits.watches
        self.longest_s, self.look_every_s = limits.wait_s, LOOK_EVERY_S
        self._now: Counter[str] = Counter()
        """How many each user has."""
        self._closing = False

    def close(self) -> None:
        """Let every watch end at its next look."""
        self._closing = True

    def check_room(self, caller: Caller) -> None:
        """Half of them are for others, whatever one user does."""
        if self._now.total() >= self._most or (not caller.admin and self._now[caller.user] >= max(self._most // 2, 1)):
            raise ApiError("busy", "Too many calls wait or follow a log at once; try again.")

    @contextmanager
    def one(self, caller: Caller) -> Iterator[None]:
        self.check_room(caller)
        self._now[caller.user] += 1
        try:
            yield
        finally:
            self._now[caller.user] -= 1

    async def next_look(self, until_s: float, request: Request) -> bool:
        """Wait for something to happen.

        False when time is up, the client went away, its token was revoked or the daemon stops.
        """
        now_s = asyncio.get_running_loop().time
        left_s = until_s - now_s()
        if left_s <= 0 or self._closing:
            return False
        await asyncio.sleep(min(left_s, NOT_BEFORE_S))
        await self._changed(max(0.0, min(until_s - now_s(), LOOK_EVERY_S)))
        return not self._closing and still_known(request) and not await request.is_disconnected()


def still_known(request: Request) -> bool:
    """Whether the caller's token is still valid; calls that last ask again and again."""
    known: bool = request.scope["still known"]()
    return known
