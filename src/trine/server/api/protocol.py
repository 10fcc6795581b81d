"""uvicorn's HTTP protocol with bounds that it lacks: on the time and size of headers, and on connections."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trine.server.api.limits import Limits


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose headers come too slowly or are too large, and those beyond the limit."""

    limits = Limits()
    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _in_headers = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._got_headers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > self.limits.header_bytes:
            self._cut()
        elif self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            self._expect_headers()  # bytes that begin no request must not keep an idle connection alive

    def on_message_begin(self) -> None:
        self._expect_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._got_headers()
        super().on_headers_complete()

    def _expect_headers(self) -> None:
        self._in_headers = True
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_s, self._cut)

    def _got_headers(self) -> None:
        self._in_headers, self._header_bytes = False, 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """The protocol class with these limits; uvicorn makes one object per connection."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
