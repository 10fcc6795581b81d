"""uvicorn's HTTP protocol with bounds that it lacks: on the time and size of headers, and on connections."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trine.server.api.limits import Limits

_TOO_LARGE = b"The headers are larger than %d bytes.\n"


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose headers come too slowly or are too large, and bounds the number of connections.

    Too many connections are no reason to refuse one that may show a token: the oldest that has shown none and asks for
    nothing makes room for it.
    """

    limits = Limits()
    strangers: dict[LimitedProtocol, None] = {}
    """Connections over which no token was shown yet, oldest first; shared by all of a server."""
    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0
    """Bytes received since the last request's headers ended."""
    _header_size = 0
    """Size of the present request's headers, as far as they were parsed."""
    _in_headers = True
    _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections and not self._make_room():
            transport.abort()
            return
        self.strangers[self] = None
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self.strangers.pop(self, None)
        self._got_headers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._refused:
            return
        if self._in_headers and self._header_bytes > self.limits.header_bytes:
            self._refuse()
        elif self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            self._expect_headers()  # bytes that begin no request must not keep an idle connection alive

    def on_message_begin(self) -> None:
        self._header_size = 0
        self._expect_headers()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._header_size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_size += len(name) + len(value) + 4  # ": " and the end of the line
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._got_headers()
        if self._header_size > self.limits.header_bytes:
            # They came in one piece, with their end: counting what is received finds only those that are cut up.
            self._refuse()
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.cycle is not None and "caller" in self.cycle.scope:
            self.strangers.pop(self, None)
        super().on_response_complete()

    def _make_room(self) -> bool:
        """Close the oldest connection that showed no token and waits for no answer; false if there is none."""
        for stranger in self.strangers:
            if stranger.cycle is None or stranger.cycle.response_complete:
                del self.strangers[stranger]
                stranger._cut()
                return True
        return False

    def _expect_headers(self) -> None:
        self._in_headers = True
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_s, self._cut)

    def _got_headers(self) -> None:
        self._in_headers, self._header_bytes = False, 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self) -> None:
        """Say why, if nothing else is being said, and hang up."""
        self._refused = True
        self._got_headers()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._cut()
            return
        text = _TOO_LARGE % self.limits.header_bytes
        head = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
        self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(text) + text)
        self.transport.close()

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """The protocol class with these limits; uvicorn makes one object per connection."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits, "strangers": {}})
