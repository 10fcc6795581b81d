"""Delivers notices to one receiver over HTTP: signed, in order, retried with growing pauses, from a thread of its own.

Nothing waits for it: the queue is bounded and adding to it never blocks. A receiver that is dead or slow costs notices,
which are counted, and nothing else. What is sent, and when, is decided in ``server.notices``.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from trine.core.errors import InputError
from trine.inputs.yaml_reader import Mapping as Keys

MAX_QUEUE = 1_000
MAX_ATTEMPTS = 10
"""Of one notice; with pauses of 1, 2, 4 ... s that is about eight minutes."""
LONGEST_PAUSE_S = 300.0
TIMEOUT_S = 10.0
"""For one attempt in all."""
ENDED = ("done", "failed", "cancelled", "timed out")
STATES = ("waiting", "held", "set aside", "running", *ENDED)
"""States that can be sent; what is only decided, a start or a stop, may never come about."""
_TRIED_AGAIN = frozenset({408, 425, 429})
_SHORTEST_SECRET = 16


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where notices go. Only the daemon's configuration file says so."""

    url: str
    secret: bytes
    states: frozenset[str] = frozenset(ENDED)
    internal: bool = False
    """The receiver may have a loopback, private or otherwise not public address."""


def webhook_of(top: Keys) -> WebhookSettings | None:
    """The section ``webhook`` of the configuration; ``None`` if there is none."""
    keys = top.mapping("webhook", None)
    if keys is None:
        return None
    url, states = keys.text("url"), keys.texts("states", ENDED)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
        raise keys.error(f"found {url!r}", "an address such as https://hooks.example.org/trine", "url")
    for state in states:
        if state not in STATES:
            raise keys.value("states").unknown("state", state, STATES)
    return WebhookSettings(url, _secret(keys), frozenset(states), keys.flag("internal", False))


def _secret(keys: Keys) -> bytes:
    path = Path(keys.text("secret_file"))
    try:
        found, mode = path.read_bytes().strip(), path.stat().st_mode
    except OSError as error:
        raise keys.error(f"{path}: {error.strerror}", "a file that the daemon can read", "secret_file") from None
    if mode & 0o077:
        raise keys.error(f"{path} can be read by others (mode {mode & 0o777:o})", "mode 600", "secret_file")
    if len(found) < _SHORTEST_SECRET:
        expected = f"at least {_SHORTEST_SECRET}; openssl rand -hex 32 makes a good one"
        raise keys.error(f"{path} holds {len(found)} bytes", expected, "secret_file")
    return found


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """The header ``X-Trine-Signature``: the HMAC of time and body, so that no notice can be replayed later."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class InternalAddressError(OSError):
    """The receiver has an address that is not public."""


class Webhook:
    """The queue and its thread."""

    def __init__(
        self,
        settings: WebhookSettings,
        count: Callable[[str], None] = lambda _: None,
        first_pause_s: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``count`` gets the outcome of each notice: ``delivered``, ``retried``, ``given up`` or ``dropped``."""
        self.settings = settings
        self._count, self._first_pause_s, self._clock = count, first_pause_s, clock
        self._queue: deque[tuple[str, bytes]] = deque()
        self._changed = threading.Condition()
        self._ends_s: float | None = None
        """On the monotonic clock: nothing is sent after it."""
        self._failures = 0
        """In a row, of whatever notice: the pause is the receiver's, so that each new notice does not begin anew."""
        self._log = structlog.get_logger("webhook")
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, notice_id: str, notice: Mapping[str, Any]) -> None:
        """Queue a notice; if the queue is full, the oldest one is dropped. Never blocks."""
        body = json.dumps(notice, separators=(",", ":")).encode()
        with self._changed:
            if len(self._queue) >= MAX_QUEUE:
                self._queue.popleft()
                self._count("dropped")
            self._queue.append((notice_id, body))
            self._changed.notify()

    def close(self, flush_s: float = 2.0) -> None:
        """Send what is queued, for ``flush_s`` at most and only if the receiver has answered of late; then no more."""
        with self._changed:
            self._ends_s = time.monotonic() + (0.0 if self._failures else flush_s)
            self._changed.notify()
        self._thread.join(flush_s + 1.0)
        if self._queue:
            self._log.warning("webhook", undelivered=len(self._queue))

    def _run(self) -> None:
        attempts, head = 0, ""
        while (found := self._next()) is not None:
            notice_id, body = found
            attempts = attempts + 1 if notice_id == head else 1
            head = notice_id
            try:
                status = post(self.settings, notice_id, body, f"{self._clock():.0f}")
                problem = "" if 200 <= status < 300 else f"it answered {status}"
                final = 400 <= status < 500 and status not in _TRIED_AGAIN
            except (OSError, http.client.HTTPException, ValueError) as error:
                problem, final = str(error) or type(error).__name__, False
            self._note(notice_id, problem, final or attempts >= MAX_ATTEMPTS)

    def _next(self) -> tuple[str, bytes] | None:
        """The oldest notice, once there is one and its pause is over; ``None``: it is time to end."""
        with self._changed:
            pause_s = min(self._first_pause_s * 2.0 ** (self._failures - 1), LONGEST_PAUSE_S) if self._failures else 0.0
            due_s = time.monotonic() + pause_s
            while True:
                now_s = time.monotonic()
                if self._ends_s is not None and (not self._queue or now_s >= self._ends_s):
                    return None
                if self._queue and now_s >= due_s:
                    return self._queue[0]
                self._changed.wait(due_s - now_s if self._queue else None)

    def _note(self, notice_id: str, problem: str, over: bool) -> None:
        """What follows from an attempt. An outage is one line in the log, and its end another."""
        if problem and not self._failures:
            self._log.warning("webhook", problem=problem)
        elif not problem and self._failures:
            self._log.warning("webhook", recovered_after=self._failures)
        self._failures = self._failures + 1 if problem else 0
        self._count("given up" if problem and over else "retried" if problem else "delivered")
        with self._changed:
            if (over or not problem) and self._queue and self._queue[0][0] == notice_id:
                self._queue.popleft()


def post(settings: WebhookSettings, notice_id: str, body: bytes, timestamp: str) -> int:
    """One attempt: the status of the answer. No redirect is followed, no proxy used, and the answer is not read."""
    parts = urlsplit(settings.url)
    connection = _Connection(parts.scheme == "https", parts.hostname or "", parts.port, settings.internal)
    overdue = threading.Timer(TIMEOUT_S, connection.abort)
    overdue.daemon = True
    overdue.start()
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "trine-webhook",
            "X-Trine-Delivery": notice_id,
            "X-Trine-Timestamp": timestamp,
            "X-Trine-Signature": signature(settings.secret, timestamp, body),
        }
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    finally:
        overdue.cancel()
        connection.close()


class _Connection(http.client.HTTPConnection):
    """To an address that was looked at: between a check by name and a connection the name could change its mind."""

    def __init__(self, tls: bool, host: str, port: int | None, internal: bool) -> None:
        super().__init__(host, port or (443 if tls else 80), timeout=TIMEOUT_S)
        self._context = ssl.create_default_context() if tls else None
        self._internal = internal
        self._overdue = False

    def connect(self) -> None:
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for *_, address in found:
            if not self._internal and not _is_public(str(address[0])):
                raise InternalAddressError(f"{self.host} has the address {address[0]}, which is not public")
        plain = _connected([str(address[0]) for *_, address in found], self.port)
        plain.settimeout(TIMEOUT_S)
        self.sock = plain if self._context is None else self._context.wrap_socket(plain, server_hostname=self.host)
        if self._overdue:
            raise TimeoutError("timed out")

    def abort(self) -> None:
        """The attempt takes too long, however lively the receiver drips."""
        self._overdue = True
        if self.sock is not None:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


def _connected(addresses: Sequence[str], port: int) -> socket.socket:
    """To the first of a receiver's addresses, all of which were looked at, that answers."""
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), TIMEOUT_S / len(addresses))
    return socket.create_connection((addresses[-1], port), TIMEOUT_S / len(addresses))


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""Its last 32 bits are an IPv4 address, to which a gateway passes on what is sent."""


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        within = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        inner = address.ipv4_mapped or address.sixtofour or within
        if inner is not None:
            address = inner
    return address.is_global and not address.is_multicast


def check_reachable(settings: WebhookSettings, where: str) -> None:
    """Refuse an address that is not public at the start already, where the configuration says nothing of it."""
    host = urlsplit(settings.url).hostname or ""
    with contextlib.suppress(ValueError):
        if not settings.internal and not _is_public(host):
            found = f"found {host}, which is not a public address"
            raise InputError(where, found, "a public one, or internal: true beside it", "webhook.url")
