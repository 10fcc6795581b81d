"""What every request passes before any verb: token, size, time and number; and the request log.

Plain ASGI, outside the framework, so that a refused request costs next to nothing and errors show nothing inside.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trine.executor.faults import is_exhausted
from trine.server.api.browser import Browsers, session_cookie
from trine.server.api.errors import ApiError
from trine.server.api.limits import Limits
from trine.server.dashboard.pages import is_page
from trine.server.interface import Caller

_PROBE = "/healthz"
LONGEST_TOKEN = 256
Shortcuts = Mapping[tuple[str, str], Callable[[Scope], Awaitable[Response]]]
"""Handlers by method and path that are called without the framework, which would cost more than they do."""


def is_open(path: str) -> bool:
    """No token is needed: the probe, which says nothing, and the pages, which say nothing of the daemon."""
    return path == _PROBE or is_page(path)


class StalledClientError(Exception):
    """The client no longer reads: there is no point in an answer."""


class Authority(Protocol):
    """Finds the caller of a token, or of the digest of one."""

    def caller(self, token: str) -> Caller | None: ...

    def holder(self, digest: str) -> Caller | None: ...


class RequestLog(Protocol):
    """The part of a structlog logger that is used."""

    def info(self, event: str, **values: Any) -> Any: ...

    def error(self, event: str, **values: Any) -> Any: ...


class Gate:
    """Middleware: ``app`` sees only requests with a known caller (``scope["caller"]``) and a complete, small body."""

    def __init__(
        self,
        app: ASGIApp,
        auth: Authority,
        limits: Limits,
        log: RequestLog | None,
        shortcuts: Shortcuts,
        browsers: Browsers,
        log_requests: bool = True,
        attempts: Shortcuts | None = None,
    ) -> None:
        self._app, self._auth, self._limits, self._log, self._shortcuts = app, auth, limits, log, shortcuts
        self._log_requests, self._browsers = log_requests, browsers
        self._attempts = attempts or {}
        """Handlers that check the token (``scope["token"]``) themselves: it is that of an attempt, not of a user."""
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        started_s = time.perf_counter()
        answer = _Answer(send, self._limits.send_s)
        self._requests += 1
        try:
            await self._pass(scope, receive, answer)
        except ApiError as error:
            await answer.instead(error, scope, receive)
        except StalledClientError:
            pass  # an answer that has begun can only be cut off
        except Exception as error:
            if isinstance(error, OSError) and is_exhausted(error):
                message = "The daemon has no files or memory left for this now; try again."
                await answer.instead(ApiError("unavailable", message), scope, receive)
            else:
                await self._bug(scope, receive, answer)
        finally:
            self._requests -= 1
            self._note(scope, answer.status, time.perf_counter() - started_s)

    async def _pass(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        attempt = self._attempts.get((scope["method"], scope["path"]))
        if attempt is not None:
            scope["token"] = _token(scope)
        elif is_page(scope["path"]):
            self._browsers.check_host(scope)
        elif scope["path"] != _PROBE:
            scope["caller"] = self._caller(scope)
            scope["still known"] = lambda: self._still_known(scope)
        if self._requests > self._limits.requests + self._limits.watches:
            raise ApiError("busy", "Too many requests at once; try again.")
        try:
            body = await read_body(scope, receive, self._limits)
        except ApiError as error:
            if error.code == "body-too-large":
                await _discard(scope, receive, self._limits)
            raise
        scope["body"] = body
        shortcut = attempt or self._shortcuts.get((scope["method"], scope["path"]))
        if shortcut is None:
            await self._app(scope, _replay(body, receive), answer)
        else:
            response = await shortcut(scope)
            await response(scope, receive, answer)

    def _caller(self, scope: Scope) -> Caller:
        if not _header(scope, b"authorization") and session_cookie(scope):
            return self._browsers.caller(scope)
        caller = self._auth.caller(_token(scope))
        if caller is None:
            raise ApiError("unauthorized", "The token is not known to this daemon.", "Authorization")
        return caller

    def _still_known(self, scope: Scope) -> bool:
        """Whether the token of a call that lasts has not been revoked since."""
        try:
            return bool(self._caller(scope) == scope["caller"])
        except ApiError:
            return False

    async def _bug(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """The caller learns nothing of the inside; the operator finds the traceback in the log."""
        if self._log is not None:
            self._log.error("request failed", method=scope["method"], path=_path(scope), exc_info=True)
        message = "The daemon failed to carry this out; its log says why."
        await answer.instead(ApiError("internal", message), scope, receive)

    def _note(self, scope: Scope, status: int, took_s: float) -> None:
        if self._log is None or not self._log_requests or is_open(scope["path"]) or "token" in scope:
            return
        caller = scope.get("caller")
        user = caller.user if caller else ""
        ms = round(took_s * 1e3, 2)
        self._log.info("request", method=scope["method"], path=_path(scope), status=status, ms=ms, user=user)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})


class _Answer:
    """The sending side of one request; remembers whether and with what status an answer began."""

    __slots__ = ("_send", "_send_s", "status")

    def __init__(self, send: Send, send_s: float) -> None:
        self._send, self._send_s, self.status = send, send_s, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        if not message.get("more_body", False):
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._send_s):
                await self._send(message)
        except TimeoutError:
            raise StalledClientError from None

    async def instead(self, error: ApiError, scope: Scope, receive: Receive) -> None:
        """Answer with ``error``; an answer that has begun can only be cut off."""
        if self.status:
            return
        response = error.response()
        if "body" not in scope and _has_body(scope):
            response.headers["Connection"] = "close"  # the rest of the body is never read
        await response(scope, receive, self)


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The whole body, or ``ApiError`` as soon as it is known to be too large or comes too slowly."""
    if not _has_body(scope):
        return b""
    declared = _header(scope, b"content-length") or b"0"
    if not declared.isdigit() or len(declared) > 15 or int(declared) > limits.body_bytes:
        raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.body_s):
            return await _collect(receive, limits)
    except TimeoutError:
        raise ApiError("timeout", f"The body did not arrive within {limits.body_s:g} s.") from None


def _has_body(scope: Scope) -> bool:
    return _header(scope, b"content-length") not in (b"", b"0") or bool(_header(scope, b"transfer-encoding"))


async def _collect(receive: Receive, limits: Limits) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError("timeout", "The connection ended within the body.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limits.body_bytes:
            raise _too_large(limits)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _discard(scope: Scope, receive: Receive, limits: Limits) -> None:
    """Read on for a while: a client that still sends when the connection is closed never gets to read the answer."""
    declared = _header(scope, b"content-length")
    if _header(scope, b"expect") or (declared and not (declared.isdigit() and int(declared) <= limits.discard_bytes)):
        return  # a client that waits for "100 Continue", or would send too much, is answered at once
    size = 0
    try:
        async with asyncio.timeout(limits.body_s):
            while size <= limits.discard_bytes:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _too_large(limits: Limits) -> ApiError:
    return ApiError("body-too-large", f"The body is larger than {limits.body_bytes:,} bytes.")


def _replay(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """A receiver that hands out ``body`` once; after it, whatever the connection says (that it ended)."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return left.pop() if left else await receive()

    return replay


def _token(scope: Scope) -> str:
    scheme, _, token = _header(scope, b"authorization").partition(b" ")
    if scheme.lower() != b"bearer" or not 0 < len(token) <= LONGEST_TOKEN:
        raise ApiError("unauthorized", "This call needs the header 'Authorization: Bearer TOKEN'.", "Authorization")
    return token.strip().decode("latin-1")


def _header(scope: Scope, name: bytes) -> bytes:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


def _path(scope: Scope) -> str:
    """The path as it came, still encoded (nothing in it can forge a line of the log), without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0][:256].decode("ascii", "backslashreplace")
